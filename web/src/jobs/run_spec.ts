// From the fields of the run form to the specification of a job, and back. A job that is changed
// keeps what the form does not show, and what was not touched stays exactly as it was.
import type { Spec } from '../data/api';
import { commandText, gpusOf, parseCommand } from './run_command';
import { at, options, put, setText, textOf } from './run_options';

// The fields by name; options by their flag.
export type Fields = Record<string, string>;

export function fieldsOf(spec: Spec): Fields {
  const r = spec.resources ?? {};
  const share = r.share?.milli ?? 1000;
  const out: Fields = {
    command: commandText(spec.argv),
    gpus: r.gpus ? String(r.gpus === 1 && share ? share / 1000 : r.gpus) : '0',
    type: (r.gpu_types ?? []).join(','),
    name: spec.name ?? '',
    cwd: spec.cwd ?? '',
    hours: spec.time_limit_ns ? String(spec.time_limit_ns / 3600e9) : '',
    spot: spec.spot ? 'on' : '',
  };
  for (const o of options) out[o.flag] = textOf(o, spec);
  out.after = ''; // the jobs that it waited for belong to its first run
  return out;
}

function putGpus(spec: Spec, milli: number): void {
  const memory = at(spec, 'resources.share.mem_mib');
  put(spec, 'resources.gpus', milli ? Math.max(1, Math.floor(milli / 1000)) : undefined);
  put(spec, 'resources.share', milli ? { milli: Math.min(milli, 1000) } : undefined);
  if (memory) put(spec, 'resources.share.mem_mib', memory);
}

// The specification that the fields stand for, on top of the one that is changed; and what is wrong.
export function specOf(
  fields: Fields,
  base: Spec | null,
): { spec: Spec; errors: string[]; shell: boolean } {
  const errors: string[] = [];
  const command = parseCommand(fields.command ?? '');
  if (command.error) errors.push(command.error);
  const spec: Spec = base ? structuredClone(base) : { argv: [] };
  delete spec.after;
  // An unchanged command keeps its words exactly.
  const same = base && commandText(base.argv) === fields.command;
  spec.argv = same ? base.argv : command.argv;
  const before = base && fieldsOf(base);
  const wanted = gpusOf(fields.gpus ?? '');
  if (wanted.error) errors.push(wanted.error);
  if (fields.gpus !== before?.gpus) putGpus(spec, wanted.milli);
  put(spec, 'resources.gpu_types', fields.type ? fields.type.split(',') : undefined);
  put(spec, 'name', fields.name || undefined);
  put(spec, 'cwd', fields.cwd || undefined);
  const hours = Number(fields.hours || 0);
  if (Number.isNaN(hours) || hours < 0) errors.push('The time limit must not be negative.');
  if (fields.hours !== before?.hours)
    put(spec, 'time_limit_ns', hours > 0 ? Math.round(hours * 3600) * 1e9 : undefined);
  put(spec, 'spot', fields.spot ? true : undefined);
  for (const o of options) {
    const text = fields[o.flag] ?? '';
    // An unchanged value stays exactly as it is, also where the text rounds it.
    if (base && text === textOf(o, base)) continue;
    if (!text && !base) continue;
    const error = setText(o, spec, text);
    if (error) errors.push(error);
  }
  // As on the command line: a member that is replaced may have run, and memory is of one GPU.
  if (spec.elastic) spec.rerun_if_lost = true;
  const mig = at(spec, 'resources.mig_profile');
  if (!spec.resources?.gpus && (mig || at(spec, 'resources.share.mem_mib'))) {
    put(spec, 'resources.gpus', 1);
    if (mig) put(spec, 'resources.share.milli', 1000);
  }
  return { spec, errors, shell: !same && command.shell };
}
