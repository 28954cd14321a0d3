// The options of a job: where each stands in its specification, and how it is written in the form,
// on the command line, in Python and in a job file. The help comes from the head's own schema.
import type { Spec } from '../data/api';
import schemas from '../../../src/api/job_schemas.json';
import { quoted } from './run_command';

type Kind = 'text' | 'number' | 'switch' | 'time' | 'size' | 'cores' | 'list' | 'map' | 'choice';
export interface Option {
  path: string; // in the specification: "place.zones"
  flag: string; // on the command line, without dashes
  group: string;
  kind: Kind;
  help: string;
  choices?: string[];
  python?: string; // its name there, if it differs
}

interface Schema {
  description?: string;
  enum?: string[];
}
const helpOf = (path: string): Schema => {
  const [first, rest] = path.split('.');
  const inside: Record<string, string> = {
    resources: 'Resources',
    place: 'PlaceWish',
    surroundings: 'Surroundings',
  };
  const all = schemas as unknown as Record<string, { properties: Record<string, Schema> }>;
  return (rest ? all[inside[first]]?.properties[rest] : all.JobSpec.properties[first]) ?? {};
};
function option(
  group: string,
  path: string,
  flag: string,
  kind: Kind,
  more: Partial<Option> = {},
): Option {
  const schema = helpOf(path);
  const text = (schema.description ?? '').replace(/^As --\S+[^:]*: /, '').replace(/`/g, '');
  return { path, flag, group, kind, help: text, choices: schema.enum, ...more };
}
const many = 'Several nodes or runs',
  size = 'Resources',
  again = 'Failures and checkpoints',
  where = 'Where it runs',
  around = 'Image, files and secrets',
  other = 'Order and limits';
export const options: Option[] = [
  option(size, 'resources.cpu_milli', 'cpus', 'cores', { help: 'CPU cores per node' }),
  option(size, 'resources.mem_mib', 'mem', 'size'),
  option(size, 'resources.disk_mib', 'disk', 'size'),
  option(size, 'resources.share.mem_mib', 'gpu-mem', 'size', {
    help: 'memory of the GPU for a share of it, e.g. 20G',
  }),
  option(size, 'resources.mig_profile', 'mig', 'text'),
  option(size, 'resources.exclusive', 'exclusive', 'switch'),
  option(size, 'resources.whole_node', 'whole-node', 'switch'),
  option(size, 'strict', 'strict', 'switch'),
  option(many, 'nodes', 'nodes', 'number'),
  option(many, 'procs', 'procs', 'number'),
  option(many, 'array', 'array', 'text', {
    help: 'run once per index: 0-9, 0-99:3, at most four at a time 0-9%4',
  }),
  option(many, 'elastic', 'elastic', 'switch'),
  option(again, 'retries', 'retries', 'number'),
  option(again, 'retry_backoff_ns', 'backoff', 'time'),
  option(again, 'rerun_if_lost', 'rerun-if-lost', 'switch'),
  option(again, 'checkpoint_every_ns', 'checkpoint-every', 'time'),
  option(again, 'checkpoint_cmd', 'checkpoint-cmd', 'text'),
  option(again, 'checkpoint_dir', 'checkpoint-dir', 'text'),
  option(again, 'suspendable', 'suspendable', 'choice'),
  option(again, 'suspend_hook', 'suspend-hook', 'text'),
  option(again, 'resume_hook', 'resume-hook', 'text'),
  option(again, 'stop_grace_ns', 'stop-grace', 'time'),
  option(where, 'node_labels', 'node-label', 'map'),
  option(where, 'place.regions', 'region', 'list'),
  option(where, 'place.zones', 'zone', 'list'),
  option(where, 'place.pools', 'pool', 'list'),
  option(where, 'place.fabrics', 'fabric', 'list'),
  option(where, 'place.placement_group', 'placement-group', 'text'),
  option(around, 'surroundings.image', 'image', 'text'),
  option(around, 'surroundings.environment', 'env', 'text'),
  option(around, 'surroundings.network', 'network', 'choice'),
  option(around, 'surroundings.allow', 'allow', 'list'),
  option(around, 'surroundings.isolation', 'isolation', 'choice'),
  option(around, 'surroundings.seccomp', 'seccomp', 'choice'),
  option(around, 'surroundings.processes_max', 'max-processes', 'number'),
  option(other, 'labels', 'label', 'map', { python: 'labels', help: 'labels to find the job by' }),
  option(other, 'priority', 'priority', 'number'),
];

// ---- values as text
const unitNs: Record<string, number> = { s: 1e9, m: 60e9, h: 3600e9, d: 86_400e9 };
function timeText(ns: number): string {
  for (const unit of ['d', 'h', 'm'])
    if (ns % unitNs[unit] === 0) return `${ns / unitNs[unit]}${unit}`;
  return `${ns / 1e9}s`;
}
const sizeText = (mib: number) => (mib % 1024 === 0 ? `${mib / 1024}G` : `${mib}M`);
interface IndexRange {
  first?: number;
  last?: number;
  step?: number;
}
interface ArraySpec extends IndexRange {
  running_max?: number;
  more?: IndexRange[];
}
function rangeText({ first = 0, last = 0, step = 1 }: IndexRange): string {
  if (first === last) return String(first);
  return `${first}-${last}${step > 1 ? `:${step}` : ''}`;
}
const arrayText = (a: ArraySpec) =>
  [a, ...(a.more ?? [])].map(rangeText).join(',') + (a.running_max ? `%${a.running_max}` : '');

export function textOf(o: Option, value: unknown): string {
  if (value === undefined || value === null || value === '' || value === false) return '';
  if (o.path === 'array') return arrayText(value as ArraySpec);
  switch (o.kind) {
    case 'switch':
      return 'on';
    case 'time':
      return timeText(Number(value));
    case 'size':
      return sizeText(Number(value));
    case 'cores':
      return String(Number(value) / 1000);
    case 'list':
      return (value as string[]).join(',');
    case 'map':
      return Object.entries(value as Record<string, string>)
        .map(([k, v]) => `${k}=${v}`)
        .join(', ');
    default:
      return String(value);
  }
}
// The value for the specification, or a sentence that says what is wrong with the text.
export function valueOf(o: Option, text: string): { value?: unknown; error?: string } {
  const given = text.trim();
  const bad = (how: string) => ({ error: `--${o.flag}: “${given}”: ${how}` });
  if (!given) return {};
  if (o.path === 'array') {
    const m = /^(?:(\d+)-)?(\d+)(?::(\d+))?(?:%(\d+))?$/.exec(given);
    if (!m) return bad('use 0-9, 0-99:3 or 0-9%4');
    return {
      value: {
        first: Number(m[1] ?? 0),
        last: Number(m[2]),
        ...(m[3] ? { step: Number(m[3]) } : {}),
        ...(m[4] ? { running_max: Number(m[4]) } : {}),
      },
    };
  }
  switch (o.kind) {
    case 'switch':
      return { value: true };
    case 'number':
      return /^-?\d+$/.test(given) ? { value: Number(given) } : bad('use a whole number');
    case 'cores':
      return Number(given) > 0
        ? { value: Math.round(Number(given) * 1000) }
        : bad('use a number of cores such as 4');
    case 'time': {
      const m = /^(\d+(?:\.\d+)?)\s*(s|m|h|d)/.exec(given);
      return m ? { value: Math.round(Number(m[1]) * unitNs[m[2]]) } : bad('use 30s, 90m or 2h');
    }
    case 'size': {
      const m = /^(\d+(?:\.\d+)?)\s*(M|G|T)/i.exec(given);
      const factor: Record<string, number> = { M: 1, G: 1024, T: 1024 * 1024 };
      return m
        ? { value: Math.round(Number(m[1]) * factor[m[2].toUpperCase()]) }
        : bad('use a size with a unit such as 32G');
    }
    case 'list':
      return { value: given.split(/[\s,]+/).filter(Boolean) };
    case 'map': {
      const pairs = given.split(/[\s,]+/).filter(Boolean);
      return pairs.every((p) => /^[^=]+=/.test(p))
        ? { value: Object.fromEntries(pairs.map((p) => p.split(/=(.*)/s).slice(0, 2))) }
        : bad('use KEY=VALUE, several with commas');
    }
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

// Members of a specification that neither the form nor this list can show, as text.
const shownElsewhere = new Set(
  'argv name cwd spot time_limit_ns pty use_stdin rows cols env_digest after'.split(' '),
);
const insideShown = new Set(
  (
    'resources.gpus resources.share resources.gpu_types surroundings.environment_digest ' +
    options.map((o) => o.path).join(' ')
  ).split(' '),
);
export function alsoKept(spec: Spec): string[] {
  const out: string[] = [];
  for (const o of options) {
    const text = textOf(o, at(spec, o.path));
    if (text) out.push(o.kind === 'switch' ? `--${o.flag}` : `--${o.flag} ${text}`);
  }
  for (const [name, value] of Object.entries(spec)) {
    if (shownElsewhere.has(name) || insideShown.has(name)) continue;
    if (value && typeof value === 'object' && !Array.isArray(value)) {
      for (const [inner, v] of Object.entries(value))
        if (!insideShown.has(`${name}.${inner}`)) out.push(`${inner} ${JSON.stringify(v)}`);
    } else out.push(`${name} ${JSON.stringify(value)}`);
  }
  return out;
}

// ---- the same elsewhere
interface Set_ {
  flag: string;
  python: string;
  value: string | number | true;
}
function settings(spec: Spec, project: string): Set_[] {
  const out: Set_[] = [];
  const add = (flag: string, value: string | number | true | undefined, python?: string) => {
    if (value !== undefined && value !== '' && value !== 0)
      out.push({ flag, value, python: python ?? flag.replace(/-/g, '_') });
  };
  const r = spec.resources ?? {};
  const share = r.share?.milli ?? 0;
  add('gpus', !r.gpus ? undefined : r.gpus === 1 && share ? share / 1000 : r.gpus);
  add('gpu-type', (r.gpu_types ?? []).join(','));
  add('name', spec.name);
  add('cwd', spec.cwd);
  if (spec.time_limit_ns) add('time', timeText(spec.time_limit_ns), 'timeout');
  if (spec.spot) add('spot', true);
  add('project', project);
  for (const o of options) {
    const text = textOf(o, at(spec, o.path));
    if (text) add(o.flag, o.kind === 'switch' ? true : text, o.python);
  }
  return out;
}
export function asCli(spec: Spec, project: string): string {
  const flags = settings(spec, project).flatMap(({ flag, value }) =>
    value === true ? [`--${flag}`] : [`--${flag}`, quoted(String(value))],
  );
  const argv = spec.argv.length ? spec.argv.map(quoted) : ['COMMAND'];
  return ['billow', 'run', ...flags, '--', ...argv].join(' ');
}
const literal = (value: string | number | true) =>
  value === true ? 'True' : typeof value === 'number' ? String(value) : JSON.stringify(value);
export function asPython(spec: Spec, project: string): string {
  const shell = spec.argv[0] === 'sh' && spec.argv[1] === '-c' && spec.argv.length === 3;
  const command = shell ? JSON.stringify(spec.argv[2]) : JSON.stringify(spec.argv);
  const more = settings(spec, project).map((s) => `, ${s.python}=${literal(s.value)}`);
  return `import billow\n\njob = billow.submit(${command}${more.join('')})`;
}
export function asToml(spec: Spec, project: string): string {
  const shell = spec.argv[0] === 'sh' && spec.argv[1] === '-c' && spec.argv.length === 3;
  const lines = settings(spec, project).map(
    (s) => `${s.flag} = ${s.value === true ? 'true' : literal(s.value)}`,
  );
  const command = shell ? JSON.stringify(spec.argv[2]) : JSON.stringify(spec.argv);
  return ['[job]', `command = ${command}`, ...lines].join('\n');
}
