// The options of a job as the run form and a job's page show them. They are made from the head's own
// schemas of a job, so an option that is new there appears here: by its schema's type, in the last
// group, until the table below says better. How they are written elsewhere is in run_forms.ts.
import type { Spec } from '../data/api';
import schemas from '../../../src/api/job_schemas.json';
import * as as from './option_text';
import { at, textOf, type Kind, type Option } from './options';

export * from './options';

interface Schema {
  type?: string;
  description?: string;
  enum?: string[];
  default?: unknown;
  readOnly?: boolean;
  items?: { type?: string };
  additionalProperties?: unknown;
  $ref?: string;
  'x-option'?: string;
}
const all = schemas as unknown as Record<string, { properties: Record<string, Schema> }>;

// The members of a specification by their paths, without those of roles and lists of structs.
export function members(): Map<string, Schema> {
  const found = new Map<string, Schema>();
  const walk = (name: string, prefix: string) => {
    for (const [member, schema] of Object.entries(all[name].properties)) {
      const inside = schema.$ref?.split('/').pop();
      if (inside && inside !== 'ArraySpec') walk(inside, `${prefix}${member}.`);
      else found.set(prefix + member, schema);
    }
  };
  walk('JobSpec', '');
  return found;
}

// Members without a field among the options, and why.
export const elsewhere: Record<string, string> = {
  name: 'a field of the form',
  argv: 'the command',
  cwd: 'a field of the form',
  spot: 'a field of the form',
  time_limit_ns: 'a field of the form, in hours',
  'resources.gpus': 'a field of the form',
  'resources.share.milli': 'the fraction in the field for GPUs',
  'resources.gpu_types': 'a field of the form',
  'place.close_required': 'a part of --topology',
  'place.nvlink_required': 'a part of --topology',
  pty: 'a job of the form has no terminal; a changed job keeps its own',
  use_stdin: 'a job of the form has no standard input',
  rows: 'of the terminal',
  cols: 'of the terminal',
  env_digest: 'set by the head',
  'surroundings.environment_digest': 'set by the head',
  'surroundings.refused_calls': 'from a file, with --seccomp FILE; a changed job keeps its own',
  roles: 'a group is written as a job file; a changed group keeps its roles',
};

const many = 'Several nodes or runs',
  size = 'Resources',
  again = 'Failures and checkpoints',
  where = 'Where it runs',
  around = 'Image, files and secrets',
  order = 'Order and limits',
  other = 'Other options';
// What the schemas do not say: the group, and where the type is not enough, how it is written.
const table: Record<string, [string, Partial<Option>?]> = {
  'resources.cpu_milli': [size, { kind: 'cores', help: 'CPU cores per node' }],
  'resources.mem_mib': [size],
  'resources.disk_mib': [size],
  'resources.share.mem_mib': [size, { help: 'memory of the GPU for a share of it, e.g. 20G' }],
  'resources.mig_profile': [size],
  'resources.exclusive': [size],
  'resources.whole_node': [size],
  strict: [size],
  time_sliced: [size, { fixed: 'time' }],
  nodes: [many],
  procs: [many],
  array: [
    many,
    {
      kind: 'array',
      help: 'run once per index: 0-9, 0-99:3, 1,5,7-9; at most four at once: 0-9%4',
    },
  ],
  elastic: [many],
  retries: [again],
  retry_backoff_ns: [again],
  rerun_if_lost: [again],
  checkpoint_every_ns: [again],
  checkpoint_cmd: [again],
  checkpoint_signal: [
    again,
    { kind: 'signal', help: 'signal that makes the job write a checkpoint, e.g. USR1' },
  ],
  checkpoint_dir: [again],
  suspendable: [again],
  suspend_hook: [again],
  resume_hook: [again],
  stop_grace_ns: [again],
  node_labels: [where, { python: 'node_labels' }],
  'place.regions': [where],
  'place.zones': [where],
  'place.pools': [where],
  'place.fabrics': [where],
  'place.placement_group': [where],
  'place.close': [
    where,
    {
      kind: 'topology',
      help:
        'how close the nodes of a gang must be: switch, rack, zone, region or anywhere; with ' +
        ':required it waits for such nodes; nvlink: between the GPUs of a node',
    },
  ],
  'place.spread': [where, { kind: 'switch', on: 'spread' }],
  'place.max_price_nano_usd_per_gpu_h': [where, { kind: 'price' }],
  reservation: [where, { help: 'number of the reservation that the job runs in' }],
  'surroundings.image': [around],
  'surroundings.environment': [around],
  'surroundings.volumes': [
    around,
    { kind: 'many', python: 'volumes', read: as.volumeOf, write: as.volumeText },
  ],
  'surroundings.secrets': [
    around,
    { kind: 'many', python: 'secrets', read: as.secretOf, write: as.secretText },
  ],
  'surroundings.registry_secret': [around],
  'surroundings.inputs': [
    around,
    { kind: 'many', python: 'inputs', read: as.inputOf, write: as.inputText },
  ],
  'surroundings.outputs': [
    around,
    {
      kind: 'many',
      python: 'outputs',
      read: as.outputOf,
      write: as.outputText,
      help: 'upload a path of the working directory when the job ends: PATH=s3://bucket/prefix',
    },
  ],
  'surroundings.network': [around],
  'surroundings.allow': [around],
  'surroundings.isolation': [around],
  'surroundings.seccomp': [around],
  'surroundings.processes_max': [around],
  labels: [order, { flag: 'label', python: 'labels', help: 'labels to find the job by' }],
  priority: [order],
  after: [
    order,
    {
      kind: 'many',
      read: as.afterOf,
      write: as.afterText,
      help: 'start after job 12 has succeeded: 12; after it has ended: any:12; failed: failed:12',
    },
  ],
};

function kindOf(path: string, schema: Schema): Kind {
  if (schema.type === 'boolean') return 'switch';
  if (schema.enum) return 'choice';
  if (schema.type === 'array') return 'list';
  if (schema.type === 'object') return 'map';
  if (schema.type !== 'integer') return 'text';
  return path.endsWith('_ns') ? 'time' : path.endsWith('_mib') ? 'size' : 'number';
}
function make(path: string, schema: Schema): Option {
  const [group, more] = table[path] ?? [other];
  const flag = schema['x-option'] ?? path.split('.').pop()!.replace(/_/g, '-');
  return {
    path,
    flag,
    group,
    kind: kindOf(path, schema),
    help: (schema.description ?? '').replace(/^As --.*?: /, '').replace(/`/g, ''),
    form: /^As --\S+ (.*?)(?:, in \S+)?: /.exec(schema.description ?? '')?.[1],
    choices: schema.enum,
    python: flag.replace(/-/g, '_'),
    ...more,
  };
}
const known = members();
// In the order of the table; then what is new.
export const options: Option[] = [...new Set([...Object.keys(table), ...known.keys()])]
  .filter((path) => known.has(path) && !(path in elsewhere))
  .map((path) => make(path, known.get(path)!));

// What a specification holds besides the form's own fields, as text: options by their flags, the
// rest by its names.
export function alsoKept(spec: Spec): string[] {
  const out: string[] = [];
  for (const o of options) {
    const text = textOf(o, spec);
    if (text) out.push(o.kind === 'switch' ? `--${o.flag}` : `--${o.flag} ${text}`);
  }
  for (const { path, value } of restOf(spec))
    out.push(`${path.split('.').pop()} ${JSON.stringify(value)}`);
  return out;
}
// What a specification holds that has no field, except for what the head sets.
export function restOf(spec: Spec): { path: string; value: unknown }[] {
  return ['surroundings.refused_calls', 'roles', 'pty', 'use_stdin', ...unknown(spec)]
    .map((path) => ({ path, value: at(spec, path) }))
    .filter(({ value }) => (Array.isArray(value) ? value.length > 0 : value));
}
// Members that these schemas do not have: the head is newer than the page.
function unknown(spec: Spec): string[] {
  const out: string[] = [];
  const walk = (value: object, prefix: string) => {
    for (const [name, inner] of Object.entries(value)) {
      const path = prefix + name;
      const below = [...known.keys()].some((k) => k.startsWith(`${path}.`));
      if (below && inner && typeof inner === 'object') walk(inner, `${path}.`);
      else if (!known.has(path)) out.push(path);
    }
  };
  walk(spec, '');
  return out;
}
