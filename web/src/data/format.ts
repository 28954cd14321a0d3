// Formats times (in the reader's zone), money and shares.
const ms = (t: string | number | null | undefined) =>
  t == null ? NaN : typeof t === 'number' ? t : Date.parse(t);

export function lasting(seconds: number): string {
  const s = Math.max(0, seconds);
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s / 60) % 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s / 3600) % 24)} h`;
}
// A duration that was set, not measured: nothing is rounded away.
export function exactly(seconds: number): string {
  const parts: [number, string][] = [
    [Math.floor(seconds / 86400), 'd'],
    [Math.floor(seconds / 3600) % 24, 'h'],
    [Math.floor(seconds / 60) % 60, 'min'],
    [Math.round(seconds % 60), 's'],
  ];
  const said = parts.filter(([n]) => n).map(([n, unit]) => `${n} ${unit}`);
  return said.join(' ') || '0 s';
}
export function ago(t: string | number | null | undefined, now = Date.now()): string {
  const at = ms(t);
  return Number.isNaN(at) ? '–' : lasting((now - at) / 1000);
}
export function span(
  from: string | number | null | undefined,
  to: string | number | null | undefined,
  now = Date.now(),
): string {
  const end = ms(to);
  return ago(from, Number.isNaN(end) ? now : end);
}
const clockFormat = new Intl.DateTimeFormat(undefined, {
  hour: '2-digit',
  minute: '2-digit',
  hour12: false,
});
const dayFormat = new Intl.DateTimeFormat(undefined, {
  weekday: 'short',
  month: 'short',
  day: 'numeric',
});
const dateFormat = new Intl.DateTimeFormat(undefined, {
  year: 'numeric',
  month: 'short',
  day: 'numeric',
});
const dateOfYearFormat = new Intl.DateTimeFormat(undefined, { month: 'short', day: 'numeric' });
// The year is said only if it is not this one.
const date = (at: number, now: number) =>
  (new Date(at).getFullYear() === new Date(now).getFullYear()
    ? dateOfYearFormat
    : dateFormat
  ).format(at);
// A time relative to now, then the clock, and the date unless it is today: "in 39 s, 14:02",
// "3 d 4 h ago, Nov 13, 09:57".
export function moment(t: string | number | null | undefined, now = Date.now()): string {
  const at = ms(t);
  if (Number.isNaN(at)) return '–';
  const span = lasting(Math.abs(at - now) / 1000);
  const today = dateFormat.format(at) === dateFormat.format(now);
  return (
    (at > now ? `in ${span}` : `${span} ago`) +
    (today ? '' : `, ${date(at, now)}`) +
    `, ${clockFormat.format(at)}`
  );
}
const secondsFormat = new Intl.DateTimeFormat(undefined, {
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  hour12: false,
});
export const seconds = (t: number) => secondsFormat.format(t);
export const clock = (t: number) => clockFormat.format(t);
export const day = (t: number) => dayFormat.format(t);
const weekdayFormat = new Intl.DateTimeFormat(undefined, { weekday: 'short' });
export const weekday = (t: number | Date) => weekdayFormat.format(t);
const monthFormat = new Intl.DateTimeFormat(undefined, {
  year: 'numeric',
  month: 'short',
  timeZone: 'UTC',
});
// "2026-11" of the ledger as "Nov 2026".
export const month = (text: string) => {
  const at = Date.parse(`${text}-01T00:00:00Z`);
  return Number.isNaN(at) ? text : monthFormat.format(at);
};
const dateInUtcFormat = new Intl.DateTimeFormat(undefined, {
  year: 'numeric',
  month: 'short',
  day: 'numeric',
  timeZone: 'UTC',
});
// "2026-08-22" of a price as "Aug 22, 2026".
export const dateOf = (text: string) => {
  const at = Date.parse(`${text}T00:00:00Z`);
  return Number.isNaN(at) ? text : dateInUtcFormat.format(at);
};
// For machines: the day in UTC, as reports and the ledger count it.
export const isoDay = (t: number) => new Date(t).toISOString().slice(0, 10);

const cents = new Intl.NumberFormat(undefined, {
  minimumFractionDigits: 2,
  maximumFractionDigits: 2,
});
// Whole cents from one cent up; below that two digits, so that a small job does not look free.
// Rounds half up on the integer, like the ledger.
export function usd(nano: number): string {
  const minus = nano < 0 ? '−' : '';
  const n = Math.abs(nano);
  if (n === 0) return '$0.00';
  if (n < 1e7)
    return `${minus}$${(n / 1e9).toPrecision(2).replace(/e-.*/, '')}`.replace(
      /^(−?)\$\d\.\d$/,
      `$1<$0.01`,
    );
  return `${minus}$${cents.format(Math.round(n / 1e7) / 100)}`;
}
// A short sum: whole cents, and "less than a cent" below.
export const cents2 = (nano: number) => (nano > 0 && nano < 1e7 ? '< $0.01' : usd(nano));
export function gpus(milli: number): string {
  if (!milli) return '–';
  return milli % 1000 === 0 ? String(milli / 1000) : (milli / 1000).toFixed(2).replace(/0$/, '');
}
// The numbers of GPUs: "0–3, 6".
export function numbers(list: number[]): string {
  const out: string[] = [];
  for (let i = 0, j = 0; i < list.length; i = j + 1) {
    for (j = i; list[j + 1] === list[j] + 1; j++);
    out.push(j > i + 1 ? `${list[i]}–${list[j]}` : list.slice(i, j + 1).join(', '));
  }
  return out.join(', ');
}
export function gib(mib: number): string {
  return mib < 0
    ? '–'
    : mib < 1024
      ? `${mib.toFixed(0)} MiB`
      : `${(mib / 1024).toFixed(mib < 10240 ? 1 : 0)} GiB`;
}
export function rate(kib: number): string {
  if (kib < 1) return '0';
  if (kib < 1024) return `${kib.toFixed(0)} KiB/s`;
  if (kib < 1024 * 1024) return `${(kib / 1024).toFixed(kib < 10240 ? 1 : 0)} MiB/s`;
  return `${(kib / 1048576).toFixed(1)} GiB/s`;
}
export const plural = (n: number, one: string, many = one + 's') =>
  `${n.toLocaleString()} ${n === 1 ? one : many}`;
