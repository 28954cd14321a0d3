// Series of several jobs on one axis: the clock, or the time since each job began.
import type { Series } from '../data/api';
import { resample, type Figure } from './parse_metrics';

export interface Run {
  id: string;
  label: string;
  began: number; // ms
  history: Series | null;
  figures: Figure[];
}
export interface Aligned {
  times: number[]; // ms of the axis
  rows: (number | null)[][]; // one for each run
}
const points = 300;

const timesOf = (s: Series) =>
  Array.from({ length: s.points }, (_, i) => s.from_ms + i * s.step_s * 1000);

// The same length of time for all charts, so that they can be compared.
export function axisOf(runs: Run[], elapsed: boolean): { from: number; to: number } {
  const ends: number[] = [];
  const begins: number[] = [];
  for (const run of runs) {
    const zero = elapsed ? run.began : 0;
    const all = run.history?.points ? timesOf(run.history) : [];
    for (const f of run.figures) all.push(f.at[0], f.at[f.at.length - 1]);
    if (!all.length) continue;
    begins.push(Math.min(...all) - zero);
    ends.push(Math.max(...all) - zero);
  }
  const from = begins.length ? Math.min(...begins) : 0;
  return { from: elapsed ? Math.max(0, from) : from, to: ends.length ? Math.max(...ends) : 1 };
}

export function align(
  runs: Run[],
  elapsed: boolean,
  pick: (run: Run) => { at: number[]; values: (number | null)[] } | null,
): Aligned {
  const axis = axisOf(runs, elapsed);
  const times = Array.from(
    { length: points },
    (_, i) => axis.from + (i / (points - 1)) * (axis.to - axis.from),
  );
  const rows = runs.map((run) => {
    const given = pick(run);
    if (!given) return new Array<number | null>(points).fill(null);
    const zero = elapsed ? run.began : 0;
    const at: number[] = [];
    const values: number[] = [];
    given.values.forEach((v, i) => {
      if (v == null) return;
      at.push(given.at[i] - zero);
      values.push(v);
    });
    return bridge(resample(at, values, axis.from, axis.to, points), gapOf(at, axis));
  });
  return { times, rows };
}

// Slots between two values that still belong together: three times the usual distance. A longer gap
// is one: the job was suspended, or printed nothing.
function gapOf(at: number[], axis: { from: number; to: number }): number {
  const apart = at.slice(1).map((t, i) => t - at[i]);
  const usual = apart.sort((a, b) => a - b)[apart.length >> 1] ?? 0;
  return Math.max(2, Math.ceil(((3 * usual) / Math.max(1, axis.to - axis.from)) * points));
}

// A series with fewer points than the axis is drawn as a line, not as dots: values between two
// known ones are interpolated, unless they are further apart than `gap`.
export function bridge(row: (number | null)[], gap = Infinity): (number | null)[] {
  const out = [...row];
  let last = -1;
  row.forEach((v, i) => {
    if (v == null) return;
    if (last >= 0 && i - last <= gap)
      for (let k = last + 1; k < i; k++)
        out[k] = row[last]! + ((v - row[last]!) * (k - last)) / (i - last);
    last = i;
  });
  return out;
}

export const historyOf = (name: string) => (run: Run) =>
  run.history?.series[name]?.some((v) => v != null)
    ? { at: timesOf(run.history), values: run.history.series[name] }
    : null;
export const figureOf = (name: string) => (run: Run) => {
  const figure = run.figures.find((f) => f.name === name);
  return figure ? { at: figure.at, values: figure.values } : null;
};
