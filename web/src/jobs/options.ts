// Options as a form shows them: where each stands in a request, and its value as text and back. The
// options of jobs are in run_options.ts, those of endpoints in endpoints/policy_options.ts.
import type { Spec } from '../data/api';
import * as as from './option_text';

export type Kind =
  | 'text'
  | 'number'
  | 'switch'
  | 'time'
  | 'size'
  | 'cores'
  | 'price'
  | 'signal'
  | 'list' // one option, joined by commas
  | 'map' // an option for each KEY=VALUE
  | 'many' // an option for each
  | 'choice'
  | 'array'
  | 'topology'
  | 'custom'; // by its own `read` and `write`
export interface Option {
  path: string; // in the specification: "place.zones"
  flag: string; // on the command line, without dashes
  group: string;
  kind: Kind;
  help: string;
  form?: string; // how a value is written: "NAME:DIR[:ro]"
  choices?: string[];
  python: string; // its name there
  fixed?: string; // the word that a switch takes on the command line
  on?: unknown; // what a switch sets; true if it does not say
  read?: (text: string) => unknown; // of `many` and `custom`: undefined if the text is wrong
  between?: string; // what stands between several; a comma if it does not say
  write?: (value: never) => string;
}

// ---- values as text
// Each value of an option that can be given several times; one text of the others.
export function textsOf(o: Option, spec: Spec): string[] {
  const value = at(spec, o.path);
  if (o.kind === 'topology')
    return [as.topologyText(spec.place as as.Place | undefined)].filter(Boolean);
  if (value === undefined || value === null || value === '' || value === false) return [];
  switch (o.kind) {
    case 'array':
      return [as.arrayText(value as as.ArraySpec)];
    case 'switch':
      return value === (o.on ?? true) ? ['on'] : [];
    case 'time':
      return [as.timeText(Number(value))];
    case 'size':
      return [as.sizeText(Number(value))];
    case 'cores':
      return [String(Number(value) / 1000)];
    case 'price':
      return [String(Number(value) / 1e9)];
    case 'signal':
      return [as.signalText(Number(value))];
    case 'list':
      return [(value as string[]).join(',')];
    case 'many':
      return (value as never[]).map((each) => o.write!(each));
    case 'custom':
      return [o.write!(value as never)].filter(Boolean);
    case 'map':
      return Object.entries(value as Record<string, string>).map(([k, v]) => `${k}=${v}`);
    default:
      return [String(value)];
  }
}
export const textOf = (o: Option, spec: Spec): string =>
  textsOf(o, spec).join(`${o.between ?? ','} `);

// Puts what the text says into the specification, nothing for an empty one. Returns a sentence if
// something is wrong with the text.
export function setText(o: Option, spec: Spec, text: string): string {
  const given = text.trim();
  const { value, hint } = valueOf(o, given);
  if (hint) return `--${o.flag}: “${given}”: ${hint}`;
  if (o.kind === 'topology') {
    const place = { ...(spec.place as object | undefined) } as Record<string, unknown>;
    for (const part of ['close', 'close_required', 'nvlink_required']) delete place[part];
    const next = { ...place, ...(value as object | undefined) };
    put(spec, 'place', Object.keys(next).length ? next : undefined);
  } else put(spec, o.path, value);
  return '';
}
function valueOf(o: Option, given: string): { value?: unknown; hint?: string } {
  if (!given) return {};
  const parts = (o.kind === 'many' ? given.split(o.between ?? ',') : given.split(/[\s,]+/))
    .map((part) => part.trim())
    .filter(Boolean);
  const or = (value: unknown, hint: string) => (value === undefined ? { hint } : { value });
  switch (o.kind) {
    case 'switch':
      return { value: o.on ?? true };
    case 'array':
      return or(as.arrayOf(given), 'use 0-9, 0-99:3, 1,5,7-9 or 0-9%4');
    case 'topology':
      return or(as.topologyOf(given), 'use switch, rack, zone, region, anywhere or nvlink');
    case 'number':
      return or(/^-?\d+$/.test(given) ? Number(given) : undefined, 'use a whole number');
    case 'cores':
      return or(
        Number(given) > 0 ? Math.round(Number(given) * 1000) : undefined,
        'use a number of cores such as 4',
      );
    case 'price':
      return or(as.priceOf(given), 'use US dollars such as 3.00');
    case 'signal':
      return or(as.signalOf(given), 'use the name of a signal such as USR1');
    case 'time':
      return or(as.timeOf(given), 'use 30s, 90m or 2h');
    case 'size':
      return or(as.sizeOf(given), 'use a size with a unit such as 32G');
    case 'list':
      return { value: parts };
    case 'many': {
      const values = parts.map((part) => o.read!(part));
      return or(values.includes(undefined) ? undefined : values, o.help);
    }
    case 'custom':
      return or(o.read!(given), o.help);
    case 'map':
      return parts.every((p) => /^[^=]+=/.test(p))
        ? { value: Object.fromEntries(parts.map((p) => p.split(/=(.*)/s).slice(0, 2))) }
        : { hint: 'use KEY=VALUE, several with commas' };
    default:
      return { value: given };
  }
}

// ---- the specification
export function at(spec: Spec, path: string): unknown {
  let here: unknown = spec;
  for (const part of path.split('.')) here = (here as Record<string, unknown> | undefined)?.[part];
  return here;
}
export function put(spec: Spec, path: string, value: unknown): void {
  const parts = path.split('.');
  let here = spec as Record<string, unknown>;
  for (const part of parts.slice(0, -1)) here = (here[part] ??= {}) as Record<string, unknown>;
  const last = parts[parts.length - 1];
  if (value === undefined) delete here[last];
  else here[last] = value;
}
