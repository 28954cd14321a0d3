// How times, money and shares are shown: in the reader's own zone, and short.
export function ago(iso: string | null, now = Date.now()): string {
  if (!iso) return '–';
  const s = Math.max(0, (now - Date.parse(iso)) / 1000);
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s / 60) % 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s / 3600) % 24)} h`;
}
export function span(from: string | null, to: string | null, now = Date.now()): string {
  if (!from) return '–';
  return ago(from, to ? Date.parse(to) : now);
}
export function moment(iso: string | null): string {
  return iso ? new Date(iso).toLocaleString() : '–';
}
export function usd(nano: number): string {
  const d = nano / 1e9;
  if (d === 0) return '$0.00';
  return d >= 0.01 ? `$${d.toLocaleString(undefined, { minimumFractionDigits: 2, maximumFractionDigits: 2 })}` : `$${d.toPrecision(2)}`;
}
export function gpus(milli: number): string {
  if (!milli) return '–';
  return milli % 1000 === 0 ? String(milli / 1000) : (milli / 1000).toFixed(2);
}
export function gib(mib: number): string {
  return `${(mib / 1024).toFixed(mib < 10240 ? 1 : 0)} GiB`;
}
