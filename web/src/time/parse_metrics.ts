// Figures that a job prints: `loss=0.31 step=1200`, `loss: 0.31`, or lines of JSON as loggers for
// TensorBoard or W&B write them. Everything is bounded: a log may hold anything.
export interface Printed {
  at: number; // ms; 0: not known
  text: string;
}
export interface Figure {
  name: string;
  at: number[];
  step: (number | null)[];
  values: number[];
}
const lineMax = 4096;
const perLineMax = 64;
export const namesMax = 48;
export const pointsMax = 20_000;

const number = '[-+]?(?:\\d+\\.?\\d*|\\.\\d+)(?:[eE][-+]?\\d+)?';
// A name begins with a letter; a time of day or an address in a sentence is none.
const pair = new RegExp(
  `(?:^|[\\s,;|{(\\[])([A-Za-z_][\\w./-]{0,63})\\s*[=:]\\s*(${number}|nan|inf|-inf)(%?)(?=$|[\\s,;|})\\]])`,
  'gi',
);
const colours = /\x1b\[[0-9;]*[A-Za-z]/g;
const stepNames = new Set(['step', 'global_step', '_step', 'iteration', 'iter', 'it', 'batch']);
// What loggers add about themselves is no figure of the training.
const bookkeeping = /^(_timestamp|_runtime|_wandb|timestamp|time|ts|pid|rank|port|seed|line)$/i;

export function figuresIn(text: string): Map<string, number> {
  const found = new Map<string, number>();
  // After carriage returns only the last state of a progress bar counts.
  const line = text.slice(0, lineMax).replace(colours, '').replace(/\r+$/, '');
  const shown = line.slice(line.lastIndexOf('\r') + 1);
  const brace = shown.indexOf('{');
  if (brace >= 0) {
    const end = shown.lastIndexOf('}');
    try {
      take(JSON.parse(shown.slice(brace, end + 1)) as unknown, '', found, 0);
      return found;
    } catch {
      /* not JSON: perhaps pairs in braces */
    }
  }
  pair.lastIndex = 0;
  for (let m = pair.exec(shown); m && found.size < perLineMax; m = pair.exec(shown)) {
    const value = Number(m[2]);
    if (Number.isFinite(value)) found.set(m[1], value);
    pair.lastIndex = m.index + m[0].length;
  }
  return found;
}

function take(value: unknown, name: string, found: Map<string, number>, depth: number): void {
  if (found.size >= perLineMax || depth > 3) return;
  if (typeof value === 'number') {
    if (name && Number.isFinite(value)) found.set(name, value);
  } else if (value && typeof value === 'object' && !Array.isArray(value))
    for (const [key, inner] of Object.entries(value))
      take(inner, name ? `${name}.${key.slice(0, 64)}` : key.slice(0, 64), found, depth + 1);
}

// The figures of a log over time. A figure that appears only once is no series.
export function collect(lines: Printed[]): Figure[] {
  const out = new Map<string, Figure>();
  let points = 0;
  for (const { at, text } of lines) {
    const found = figuresIn(text);
    if (!found.size) continue;
    let step: number | null = null;
    for (const [name, value] of found) if (stepNames.has(name.toLowerCase())) step ??= value;
    for (const [name, value] of found) {
      if (stepNames.has(name.toLowerCase()) || bookkeeping.test(name)) continue;
      let figure = out.get(name);
      if (!figure) {
        if (out.size >= namesMax) continue;
        figure = { name, at: [], step: [], values: [] };
        out.set(name, figure);
      }
      if (++points > pointsMax) return done(out);
      figure.at.push(at);
      figure.step.push(step);
      figure.values.push(value);
    }
  }
  return done(out);
}
const done = (all: Map<string, Figure>) =>
  [...all.values()].filter((f) => f.values.length > 1).sort((a, b) => rank(a.name) - rank(b.name));
// Loss first: it is what people look for.
const rank = (name: string) => (/loss/i.test(name) ? 0 : /acc|reward|score/i.test(name) ? 1 : 2);

// Values of several series on common times: the last known value of each within each of `count`
// equal parts; null where there is none.
export function resample(
  at: number[],
  values: number[],
  from: number,
  to: number,
  count: number,
): (number | null)[] {
  const out = new Array<number | null>(count).fill(null);
  at.forEach((t, i) => {
    const slot = Math.floor(((t - from) / Math.max(1, to - from)) * (count - 1));
    if (slot >= 0 && slot < count) out[slot] = values[i];
  });
  return out;
}
