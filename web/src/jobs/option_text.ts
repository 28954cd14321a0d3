// Values of a job's options as people write them, and back. A reader returns undefined for a text
// that it does not understand.
const unitNs: Record<string, number> = { ms: 1e6, s: 1e9, m: 60e9, h: 3600e9, d: 86_400e9 };
export function timeText(ns: number): string {
  for (const unit of ['d', 'h', 'm', 's'])
    if (ns % unitNs[unit] === 0) return `${ns / unitNs[unit]}${unit}`;
  return `${ns / 1e6}ms`;
}
// "90m", "1h 30m"
export function timeOf(text: string): number | undefined {
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)/g)];
  if (!parts.length || parts.map((p) => p[0]).join('') !== text.replace(/\s+(?=\d)/g, ''))
    return undefined;
  return Math.round(parts.reduce((sum, [, n, unit]) => sum + Number(n) * unitNs[unit], 0));
}

export const sizeText = (mib: number) => (mib % 1024 === 0 ? `${mib / 1024}G` : `${mib}M`);
export function sizeOf(text: string): number | undefined {
  const m = /^(\d+(?:\.\d+)?)\s*([MGT])(?:i?B)?$/i.exec(text);
  const factor: Record<string, number> = { M: 1, G: 1024, T: 1024 * 1024 };
  return m ? Math.ceil(Number(m[1]) * factor[m[2].toUpperCase()]) : undefined;
}

// "3.00", "$3.00", "3.00/gpu-h": billionths of a dollar.
export function priceOf(text: string): number | undefined {
  const m = /^\$?(\d+(?:\.\d+)?)(?:\/gpu-h)?$/.exec(text);
  return m && Number(m[1]) > 0 ? Math.round(Number(m[1]) * 1e9) : undefined;
}

// Signals that a program can handle, by their numbers on Linux.
const signals: Record<string, number> = {
  HUP: 1,
  INT: 2,
  QUIT: 3,
  USR1: 10,
  USR2: 12,
  ALRM: 14,
  TERM: 15,
  CONT: 18,
  URG: 23,
  WINCH: 28,
};
export const signalText = (number: number) =>
  Object.keys(signals).find((name) => signals[name] === number) ?? String(number);
export function signalOf(text: string): number | undefined {
  const name = text.toUpperCase().replace(/^SIG/, '');
  const number = signals[name] ?? Number(name);
  return Number.isInteger(number) && number >= 1 && number <= 64 ? number : undefined;
}

interface IndexRange {
  first?: number;
  last?: number;
  step?: number;
}
export interface ArraySpec extends IndexRange {
  running_max?: number;
  more?: IndexRange[];
}
function rangeText({ first = 0, last = 0, step = 1 }: IndexRange): string {
  if (first === last) return String(first);
  return `${first}-${last}${step > 1 ? `:${step}` : ''}`;
}
export const arrayText = (a: ArraySpec) =>
  [a, ...(a.more ?? [])].map(rangeText).join(',') + (a.running_max ? `%${a.running_max}` : '');
// "0-9", "0-99:3", "1,5,7-9", "0-9%4"
export function arrayOf(text: string): ArraySpec | undefined {
  const [indices, most, ...rest] = text.replace(/\s/g, '').split('%');
  const ranges: IndexRange[] = [];
  for (const part of indices.split(',')) {
    const m = /^(\d+)(?:-(\d+)(?::([1-9]\d*))?)?$/.exec(part);
    if (!m || Number(m[2] ?? m[1]) < Number(m[1])) return undefined;
    ranges.push({
      first: Number(m[1]),
      last: Number(m[2] ?? m[1]),
      ...(m[3] ? { step: Number(m[3]) } : {}),
    });
  }
  if (rest.length || (most !== undefined && !/^[1-9]\d*$/.test(most))) return undefined;
  const [first, ...more] = ranges;
  return {
    ...first,
    ...(more.length ? { more } : {}),
    ...(most ? { running_max: Number(most) } : {}),
  };
}

export interface Place {
  close?: string;
  close_required?: boolean;
  nvlink_required?: boolean;
}
const levels = ['switch', 'rack', 'zone', 'region', 'anywhere'];
export function topologyText(place: Place | undefined): string {
  const parts: string[] = [];
  if (place?.close || place?.close_required)
    parts.push((place.close ?? 'zone') + (place.close_required ? ':required' : ''));
  if (place?.nvlink_required) parts.push('nvlink');
  return parts.join(',');
}
export function topologyOf(text: string): Place | undefined {
  const place: Place = {};
  for (const part of text.split(',')) {
    const [level, how] = part.trim().split(':');
    if (how !== undefined && how !== 'required' && how !== 'preferred') return undefined;
    if (level === 'nvlink') place.nvlink_required = true;
    else if (levels.includes(level)) place.close = level;
    else return undefined;
    if (how === 'required') place.close_required = true;
  }
  return place;
}

interface Volume {
  name: string;
  path: string;
  read_only?: boolean;
}
export const volumeText = (v: Volume) => `${v.name}:${v.path}${v.read_only ? ':ro' : ''}`;
export function volumeOf(text: string): Volume | undefined {
  const m = /^([^:]+):(\/[^:]*)(?::(ro|rw))?$/.exec(text);
  if (!m) return undefined;
  return { name: m[1], path: m[2], ...(m[3] === 'ro' ? { read_only: true } : {}) };
}

interface Secret {
  name: string;
  variable?: string;
  file?: string;
}
export function secretText({ name, variable, file }: Secret): string {
  if (file) return `${name}:${file === `/run/secrets/${name}` ? 'file' : file}`;
  return variable === name ? name : `${name}=${variable}`;
}
// Names only: what looks like a secret itself is refused, for it would be stored and shown.
export function secretOf(text: string): Secret | undefined {
  const m = /^([^=:]+)(?:=([A-Z0-9_]+)|:(file|\/.*))?$/.exec(text);
  if (!m) return undefined;
  if (m[3]) return { name: m[1], file: m[3] === 'file' ? `/run/secrets/${m[1]}` : m[3] };
  return { name: m[1], variable: m[2] ?? m[1] };
}

interface Transfer {
  url: string;
  path: string;
}
export const inputText = ({ url, path }: Transfer) => `${url}:${path}`;
export function inputOf(text: string): Transfer | undefined {
  const m = /^((?:s3|https?):\/\/[^/]+(?:\/[^:]*)?)(?::([^:]+))?$/.exec(text);
  const path =
    m?.[2] ??
    m?.[1]
      .replace(/[?#].*/, '')
      .replace(/\/+$/, '')
      .split('/')
      .pop();
  return m && path ? { url: m[1], path } : undefined;
}
export const outputText = ({ url, path }: Transfer) => `${path}=${url}`;
export function outputOf(text: string): Transfer | undefined {
  const m = /^([^=]+)=(s3:\/\/.+)$/.exec(text);
  return m ? { path: m[1], url: m[2] } : undefined;
}

interface Dependency {
  job: number;
  kind?: string;
}
export const afterText = ({ job, kind }: Dependency) =>
  kind && kind !== 'ok' ? `${kind}:${job}` : String(job);
export function afterOf(text: string): Dependency | undefined {
  const m = /^(?:(ok|any|failed):)?(\d+)$/.exec(text);
  if (!m) return undefined;
  return { job: Number(m[2]), ...(m[1] && m[1] !== 'ok' ? { kind: m[1] } : {}) };
}
