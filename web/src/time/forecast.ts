// Forecasts: how a budget is spent, and when queued jobs start. Pure; the pages draw them.

export interface Cone {
  days: number[]; // ms, one for each day of the period
  left: (number | null)[]; // what was left of the budget at the end of each day so far
  middle: (number | null)[]; // from today on: what is expected to be left…
  low: (number | null)[]; // …in an expensive course
  high: (number | null)[]; // …in a cheap one
  ideal: number[]; // an even course to zero at the end of the period
  runsOut: number | null; // when the middle course reaches zero
}
export const coneText =
  'The forecast continues with the mean of the daily charges since the first one (at most 14 days; ' +
  'today counts by the part that has passed). The cone is one standard deviation of those days, growing with ' +
  'the square root of the days ahead: about two of three courses lie within.';
const daysBack = 14;
const dayMs = 86_400_000;

// `daily`: charges by day so far, today's last; days without a charge count as zero. `passed`: the
// share of today that is over.
export function burnDown(options: {
  limit: number;
  begin: number; // ms, first day of the period
  end: number; // ms, end of the period
  today: number; // ms, begin of today
  passed: number;
  daily: number[]; // from begin to today
}): Cone {
  const { limit, begin, end, today, daily } = options;
  const count = Math.max(1, Math.round((end - begin) / dayMs));
  const cone: Cone = {
    days: Array.from({ length: count + 1 }, (_, i) => begin + i * dayMs),
    left: [],
    middle: [],
    low: [],
    high: [],
    ideal: Array.from({ length: count + 1 }, (_, i) => limit * (1 - i / count)),
    runsOut: null,
  };
  const now = Math.round((today - begin) / dayMs); // index of the begin of today
  let spent = 0;
  const passed = Math.min(1, Math.max(0.04, options.passed)); // one hour at least
  for (let i = 0; i <= count; i++) {
    cone.left.push(i <= now ? limit - spent : null);
    if (i < now) spent += daily[i] ?? 0;
  }
  const spentNow = spent + (daily[now] ?? 0);
  if (now + 1 <= count) cone.left[now + 1] = limit - spentNow;
  // Whole days say more than a part of today.
  const first = daily.findIndex((v) => v > 0);
  const recent = daily.slice(Math.max(0, first < 0 ? now : first, now - daysBack), now);
  const weights = recent.map(() => 1);
  recent.push((daily[now] ?? 0) / passed);
  weights.push(passed);
  const total = weights.reduce((a, b) => a + b, 0);
  const mean = recent.reduce((a, v, i) => a + v * weights[i], 0) / total;
  const variance = recent.reduce((a, v, i) => a + weights[i] * (v - mean) ** 2, 0) / total;
  // From one or two days nothing is known about how they vary: then a third of the mean.
  const deviation =
    recent.length < 3 ? Math.max(Math.sqrt(variance), mean / 3) : Math.sqrt(variance);
  for (let i = 0; i <= count; i++) {
    const ahead = i - (now + passed); // days after this moment
    if (ahead <= 0 && i !== now + 1) {
      for (const list of [cone.middle, cone.low, cone.high]) list.push(null);
      continue;
    }
    const days = Math.max(0, ahead);
    const expected = limit - spentNow - mean * days;
    const wide = deviation * Math.sqrt(days);
    cone.middle.push(expected);
    cone.low.push(expected - wide);
    cone.high.push(Math.min(limit - spentNow, expected + wide));
  }
  const leftNow = limit - spentNow;
  if (mean > 0) {
    const at = today + (passed + Math.max(0, leftNow) / mean) * dayMs;
    cone.runsOut = at < end ? at : null;
  }
  return cone;
}

export interface Waiting {
  id: string;
  name: string;
  user: string;
  project: string;
  gpuMilli: number;
  submitted: number;
  earliest: number | null; // ms
  latest: number | null;
  unknown: string; // why the start is not known
  reason: string;
}
// Known starts first, by time; then those nobody can tell, the longest waiting first.
export function forecastOrder(list: Waiting[]): Waiting[] {
  return [...list].sort((a, b) => {
    if ((a.earliest === null) !== (b.earliest === null)) return a.earliest === null ? 1 : -1;
    return (a.earliest ?? a.submitted) - (b.earliest ?? b.submitted);
  });
}
// The end of the axis: the last start that is known, with some space, and at least an hour.
export function horizon(list: Waiting[], now: number): number {
  const last = Math.max(now, ...list.map((w) => w.latest ?? w.earliest ?? now));
  return now + Math.max(3_600_000, (last - now) * 1.15);
}
