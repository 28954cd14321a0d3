// What a job asks for beyond the lines that its page has: every option that is not at its default.
import type { Spec } from '../data/api';
import { options, restOf, textsOf } from './run_options';

const words = (name: string) => name.replace(/[-_]/g, ' ');

// These have lines of their own on the page.
const ownLines = ['labels', 'nodes', 'resources.mig_profile'];

export function askedFor(spec: Partial<Spec>): { name: string; value: string; help: string }[] {
  const whole = { argv: [], ...spec };
  const out = options
    .filter((o) => !ownLines.includes(o.path))
    .flatMap((o) => {
      const texts = textsOf(o, whole);
      const text = texts.join(', ');
      const value =
        o.kind === 'switch'
          ? ''
          : o.kind === 'price'
            ? `$${Number(text).toFixed(2)} per GPU and hour`
            : text;
      return texts.length ? [{ name: words(o.flag), value, help: o.help }] : [];
    });
  for (const { path, value } of restOf(whole))
    if (path !== 'roles')
      out.push({
        name: words(path.split('.').pop()!),
        value: value === true ? '' : Array.isArray(value) ? value.join(', ') : String(value),
        help: '',
      });
  return out;
}

export function Tags({ spec }: { spec: Partial<Spec> }) {
  return (
    <>
      {askedFor(spec).map(({ name, value, help }) => (
        <span class="tag" title={help || undefined}>
          {name}
          {value && `: ${value}`}
        </span>
      ))}
    </>
  );
}

export function Asked({ spec }: { spec: Partial<Spec> }) {
  return (
    <>
      {spec.cwd && (
        <>
          <dt>Directory</dt>
          <dd>
            <code>{spec.cwd}</code>
          </dd>
        </>
      )}
      {askedFor(spec).length > 0 && (
        <>
          <dt>Options</dt>
          <dd>
            <Tags spec={spec} />
          </dd>
        </>
      )}
    </>
  );
}
