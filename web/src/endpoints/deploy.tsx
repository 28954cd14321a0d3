// A form that deploys an endpoint, or a new revision of one.
import { useSignal } from '@preact/signals';
import { post, problem } from '../data/api';
import { projects, usualProject } from '../data/rights';
import { gpusOf, parseCommand, quoted } from '../jobs/run_command';
import { Line } from '../parts/ui';
import { notify } from '../data/store';
import {
  changedPolicy,
  policyOptions,
  policyText,
  policyWords,
  type Policy,
} from './policy_options';

export interface Serving {
  name: string;
  min?: number;
  max?: number;
  policy?: Policy;
}

function More({
  before,
  fields,
  set,
}: {
  before: Policy;
  fields: Record<string, string>;
  set: (path: string, text: string) => void;
}) {
  const groups = [...new Set(policyOptions.map((o) => o.group))];
  const textOf = (o: (typeof policyOptions)[number]) => fields[o.path] ?? policyText(o, before);
  const used = policyOptions.filter((o) => textOf(o)).length;
  return (
    <details class="full more-options">
      <summary>More options{used ? ` (${used} set)` : ''}</summary>
      {groups.map((group) => (
        <fieldset>
          <legend>{group}</legend>
          {policyOptions
            .filter((o) => o.group === group)
            .map((o) => {
              const change = (e: Event) => set(o.path, (e.currentTarget as HTMLInputElement).value);
              if (o.kind === 'switch')
                return (
                  <label class="check" key={o.path}>
                    <input
                      name={o.path}
                      type="checkbox"
                      checked={!!textOf(o)}
                      onChange={(e) => set(o.path, e.currentTarget.checked ? 'on' : '')}
                    />
                    <span>
                      --{o.flag} <small>{o.help}</small>
                    </span>
                  </label>
                );
              return (
                <label key={o.path}>
                  --{o.flag}
                  {o.choices ? (
                    <select name={o.path} value={textOf(o)} onChange={change}>
                      <option value="">default</option>
                      {o.choices.map((c) => (
                        <option>{c}</option>
                      ))}
                    </select>
                  ) : (
                    <input
                      name={o.path}
                      value={textOf(o)}
                      onInput={change}
                      autocomplete="off"
                      spellcheck={false}
                    />
                  )}
                  <small>{o.help}</small>
                </label>
              );
            })}
        </fieldset>
      ))}
    </details>
  );
}

// As on the command line: a new endpoint needs a key unless something else is chosen.
const fresh: Policy = { access: 'key' };
// `existing`: endpoints that serve. A new revision of one keeps its settings and can start as a
// canary.
// With `name`, the form deploys a revision of that one.
export function Deploy({
  name,
  existing,
  done,
}: {
  name?: string;
  existing: Serving[];
  done: (name: string) => void;
}) {
  const error = useSignal('');
  const fields = useSignal<Record<string, string>>({ gpus: '1', ...(name ? { name } : {}) });
  const before = existing.find((e) => e.name === fields.value.name);
  const f = fields.value;
  const command = parseCommand(f.command ?? '');
  const wanted = gpusOf(f.gpus ?? '');
  const min = f.min ?? String(before?.min ?? 0);
  const max = f.max ?? String(before?.max ?? 4);
  const health = f.health ?? String(before?.policy?.health ?? '');
  const part = before ? Number(f.traffic || 0) : 0;
  const { policy, errors } = changedPolicy(before ? (before.policy ?? {}) : fresh, f);
  const wrong =
    command.error ||
    wanted.error ||
    errors[0] ||
    (part >= 0 && part <= 99 ? '' : 'A canary gets at most 99 % of the requests');
  const input = (name: string, more: Record<string, unknown> = {}, usual = '') => (
    <input
      name={name}
      value={f[name] ?? usual}
      autocomplete="off"
      spellcheck={false}
      onInput={(e) => {
        fields.value = { ...f, [name]: e.currentTarget.value };
      }}
      {...more}
    />
  );
  const submit = async (event: Event) => {
    event.preventDefault();
    if (wrong) {
      error.value = wrong;
      return;
    }
    const { milli } = wanted;
    try {
      await post('/v1/endpoints', {
        name: f.name,
        project: f.project || usualProject(),
        spec: {
          argv: command.argv,
          resources: milli
            ? {
                gpus: Math.max(1, Math.floor(milli / 1000)),
                share: { milli: Math.min(1000, milli) },
              }
            : {},
          ...(f.image ? { surroundings: { image: f.image } } : {}),
        },
        policy: { ...policy, min: Number(min || 0), max: Number(max || 1), health },
        ...(part ? { release: { traffic: Math.round(part * 10) } } : {}),
      });
      notify(`${f.name} is being deployed`);
      done(f.name);
    } catch (e) {
      error.value = problem(e);
    }
  };
  const line = ['billow', 'deploy', f.name || 'NAME', '--gpus', f.gpus || '0']
    .concat(['--min', min || '0', '--max', max || '1'])
    .concat(health ? ['--health', quoted(health)] : [])
    .concat(f.image ? ['--image', f.image] : [])
    .concat(policyWords(policy))
    .concat(part ? ['--traffic', `${part}%`] : [])
    .concat(['--', ...(command.argv.length ? command.argv.map(quoted) : ['COMMAND'])])
    .join(' ');
  return (
    <section
      class="form panel"
      aria-label={name ? `Deploy a revision of ${name}` : 'Deploy an endpoint'}
    >
      <form onSubmit={submit}>
        <label>
          Name{' '}
          {input('name', {
            required: true,
            pattern: '[a-z0-9.\\-]+',
            readOnly: name !== undefined,
          })}
        </label>
        <label class="full">
          Command that listens on $PORT{' '}
          {input('command', { required: true, placeholder: 'python serve.py' })}
          {command.shell && (
            <small>
              The line has shell syntax, so <code>sh -c</code> runs it.
            </small>
          )}
        </label>
        <label>GPUs per replica {input('gpus', { inputMode: 'decimal' })}</label>
        <label>Replicas, at least {input('min', { inputMode: 'numeric' }, min)}</label>
        <label>Replicas, at most {input('max', { inputMode: 'numeric' }, max)}</label>
        <label>
          Health check {input('health', { placeholder: '/healthz; none: any answer' }, health)}
        </label>
        {before && (
          <label>
            Canary: share of the requests, %{' '}
            {input('traffic', { inputMode: 'decimal', placeholder: 'none: it takes over' })}
          </label>
        )}
        <label>Image {input('image', { placeholder: 'none' })}</label>
        {projects.value.length > 1 && (
          <label>
            Project{' '}
            <select
              value={f.project || usualProject()}
              onChange={(e) => {
                fields.value = { ...f, project: e.currentTarget.value };
              }}
            >
              {projects.value.map((p) => (
                <option>{p.name}</option>
              ))}
            </select>
          </label>
        )}
        <More
          before={before ? (before.policy ?? {}) : fresh}
          fields={f}
          set={(path, text) => {
            fields.value = { ...f, [path]: text };
          }}
        />
        {(error.value || ((f.command || errors.length > 0) && wrong)) && (
          <p role="alert" class="bad full">
            {error.value || wrong}
          </p>
        )}
        <button class="full">Deploy</button>
      </form>
      <Line text={line} />
    </section>
  );
}
