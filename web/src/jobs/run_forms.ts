// A job of the form as it is written on the command line, in Python and in a job file.
// tests/web/run_forms.json holds each option in these forms; the programs that read them are tested
// with the same file.
import type { Spec } from '../data/api';
import { timeText } from './option_text';
import { quoted } from './run_command';
import { options, textsOf, type Option } from './run_options';

interface Setting {
  flag: string;
  python: string;
  kind: Option['kind'];
  texts: string[]; // what the command line is given, one for each repetition
}
function settings(spec: Spec, project: string): Setting[] {
  const out: Setting[] = [];
  const add = (flag: string, kind: Option['kind'], text: string | undefined, python = flag) => {
    if (text) out.push({ flag, kind, python, texts: [text] });
  };
  const r = spec.resources ?? {};
  const share = r.share?.milli ?? 0;
  // Without a share, the memory says which part of a GPU it is.
  if (r.gpus && (share || !r.share?.mem_mib))
    add('gpus', 'number', String(r.gpus === 1 && share ? share / 1000 : r.gpus));
  add('gpu-type', 'list', (r.gpu_types ?? []).join(','), 'gpu_type');
  add('name', 'text', spec.name);
  add('cwd', 'text', spec.cwd);
  if (spec.time_limit_ns) add('time', 'time', timeText(spec.time_limit_ns), 'timeout');
  if (spec.spot) add('spot', 'switch', 'on');
  add('project', 'text', project);
  for (const o of options) {
    const texts = textsOf(o, spec);
    if (!texts.length) continue;
    const fixed = o.kind === 'switch' && o.fixed;
    out.push({
      flag: o.flag,
      python: o.python,
      kind: fixed ? 'text' : o.kind,
      texts: fixed ? [fixed] : texts,
    });
  }
  return out;
}
export function asCli(spec: Spec, project: string): string {
  const flags = settings(spec, project).flatMap(({ flag, kind, texts }) =>
    kind === 'switch' ? [`--${flag}`] : texts.flatMap((text) => [`--${flag}`, quoted(text)]),
  );
  const argv = spec.argv.length ? spec.argv.map(quoted) : ['COMMAND'];
  return ['billow', spec.array ? 'submit' : 'run', ...flags, '--', ...argv].join(' ');
}

const isNumber = (kind: Option['kind']) => kind === 'number' || kind === 'cores';
const strings = (texts: string[]) => `[${texts.map((t) => JSON.stringify(t)).join(', ')}]`;
const byShell = (spec: Spec) =>
  spec.argv[0] === 'sh' && spec.argv[1] === '-c' && spec.argv.length === 3;

function pythonValue({ kind, texts }: Setting): string {
  if (kind === 'switch') return 'True';
  if (kind === 'many') return strings(texts);
  if (kind === 'map') {
    const pairs = texts.map((t) =>
      t
        .split(/=(.*)/s)
        .slice(0, 2)
        .map((each) => JSON.stringify(each)),
    );
    return `{${pairs.map((pair) => pair.join(': ')).join(', ')}}`;
  }
  return isNumber(kind) ? texts[0] : JSON.stringify(texts[0]);
}
export function asPython(spec: Spec, project: string): string {
  const command = byShell(spec) ? JSON.stringify(spec.argv[2]) : strings(spec.argv);
  const more = settings(spec, project).map((s) => `, ${s.python}=${pythonValue(s)}`);
  return `import billow\n\njob = billow.submit(${command}${more.join('')})`;
}

function tomlValue({ kind, texts }: Setting): string {
  if (kind === 'switch') return 'true';
  if (kind === 'many' || kind === 'map') return strings(texts);
  return isNumber(kind) ? texts[0] : JSON.stringify(texts[0]);
}
export function asToml(spec: Spec, project: string): string {
  const lines = settings(spec, project).map((s) => `${s.flag} = ${tomlValue(s)}`);
  const command = byShell(spec) ? JSON.stringify(spec.argv[2]) : strings(spec.argv);
  return ['[job]', `command = ${command}`, ...lines].join('\n');
}
