// The time range of a page: one for all its charts, in the address (`from` and `to`), so that a
// link restores the view. Relative ends (`now-6h`, `now`) move with the clock; absolute ones are
// milliseconds since 1970 or a date.
export interface Range {
  from: string;
  to: string;
}
const unitMs: Record<string, number> = {
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
  w: 7 * 86_400_000,
};
export const presets: [string, string][] = [
  ['now-15m', '15 min'],
  ['now-1h', '1 h'],
  ['now-6h', '6 h'],
  ['now-1d', '1 d'],
  ['now-7d', '7 d'],
  ['now-30d', '30 d'],
];

// The time that one end of a range means, or NaN.
export function resolve(text: string, now: number): number {
  const relative = /^now(?:-(\d{1,6})([smhdw]))?$/.exec(text);
  if (relative) return now - (relative[1] ? Number(relative[1]) * unitMs[relative[2]] : 0);
  if (/^\d{12,14}$/.test(text)) return Number(text);
  return text ? Date.parse(text) : NaN;
}
// The range of a query string; without a usable one, the given default.
export function rangeOf(query: URLSearchParams, fallback: Range): Range {
  const from = query.get('from') ?? '';
  const to = query.get('to') ?? 'now';
  const now = Date.now();
  return resolve(from, now) < resolve(to, now) ? { from, to } : fallback;
}
// What a page shows without a range in its address: the shortest preset that contains the whole
// history, at most a day.
export function usualRange(oldest: number, now: number): Range {
  const fit = presets.slice(0, 4).find(([from]) => resolve(from, now) <= oldest) ?? presets[3];
  return { from: fit[0], to: 'now' };
}
export const isLive = (range: Range) => range.to.startsWith('now');
export function resolved(range: Range, now: number): { from: number; to: number } {
  return { from: resolve(range.from, now), to: resolve(range.to, now) };
}
export const absolute = (view: { from: number; to: number }): Range => ({
  from: String(Math.round(view.from)),
  to: String(Math.round(view.to)),
});
// The same address with another range; null removes it.
export function withRange(route: string, range: Range | null): string {
  const [path, text] = route.split('?');
  const query = new URLSearchParams(text ?? '');
  query.delete('from');
  query.delete('to');
  if (range) {
    query.set('from', range.from);
    query.set('to', range.to);
  }
  const rest = query.toString();
  return rest ? `${path}?${rest}` : path;
}
