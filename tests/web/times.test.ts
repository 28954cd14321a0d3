// Times are written in one place (data/format.ts), so that every page writes them the same way:
// relative first, then the clock, then the date.
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { clock, dateOf, isoDay, lasting, moment, seconds } from '../../web/src/data/format';

const root = join(process.env.BILLOW_ROOT!, 'web/src');
// What may make an ISO time: attributes and files for machines, and fields of the type datetime.
const machines = new Set([
  'data/format.ts',
  'jobs/log.tsx',
  'time/export.ts',
  'time/range_bar.tsx',
]);

test('no page formats times by itself', () => {
  const files = (readdirSync(root, { recursive: true }) as string[]).filter((f) =>
    /\.tsx?$/.test(f),
  );
  assert.ok(files.length > 60, String(files.length));
  for (const file of files) {
    const text = readFileSync(join(root, file), 'utf8');
    const own = /DateTimeFormat|toLocale(Time|Date)String|toUTCString|\.getHours\(\)|hour12/;
    if (file !== 'data/format.ts') assert.doesNotMatch(text, own, file);
    if (!machines.has(file)) assert.doesNotMatch(text, /toISOString|toJSON\(\)/, file);
  }
});

test('a moment is relative first, then the clock, and the date unless it is today', () => {
  const now = new Date(2026, 10, 18, 14, 2, 30).getTime();
  assert.match(moment(now - 39_000, now), /^39 s ago, 14:01$/);
  assert.match(moment(now + 39_000, now), /^in 39 s, 14:03$/);
  assert.match(moment(now - 5 * 86_400_000, now), /^5 d 0 h ago, .*Nov.*13.*, 14:02$|13.*Nov/);
  assert.doesNotMatch(moment(now - 5 * 86_400_000, now), /2026/);
  assert.match(moment(now - 400 * 86_400_000, now), /2025/);
  assert.equal(moment(null), '–');
  assert.doesNotMatch(clock(now) + seconds(now), /[AP]M/i);
  assert.equal(lasting(3700), '1 h 1 min');
  assert.equal(isoDay(Date.UTC(2026, 10, 18, 23, 59)), '2026-11-18');
});

test('the date of a price is its day in UTC, with the year', () => {
  assert.match(dateOf('2026-08-22'), /22/);
  assert.match(dateOf('2026-08-22'), /2026/);
  assert.equal(dateOf(''), '');
});
