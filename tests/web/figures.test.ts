// Figures that jobs print, forecasts, ranges in the address, exports.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { csvOf, fileName } from '../../web/src/time/export';
import { burnDown, forecastOrder, horizon, type Waiting } from '../../web/src/time/forecast';
import { leaseMarks } from '../../web/src/time/lease_marks';
import {
  collect,
  figuresIn,
  namesMax,
  pointsMax,
  resample,
} from '../../web/src/time/parse_metrics';
import { isLive, rangeOf, resolve, usualRange, withRange } from '../../web/src/time/range';

const found = (text: string) => Object.fromEntries(figuresIn(text));

test('key=value and key: value are figures', () => {
  assert.deepEqual(found('step=10 loss=0.25 lr=3e-4'), { step: 10, loss: 0.25, lr: 3e-4 });
  assert.deepEqual(found('epoch 3 | train/loss: 1.5, acc: 97%'), { 'train/loss': 1.5, acc: 97 });
  assert.deepEqual(found('[step=1] (loss=-2)'), { step: 1, loss: -2 });
  assert.deepEqual(found('\x1b[32mloss=\x1b[0m\x1b[1m0.5\x1b[0m'), { loss: 0.5 });
});

test('what is no figure is none', () => {
  assert.deepEqual(found('listening on http://127.0.0.1:8080/'), {});
  assert.deepEqual(found('2026-11-16 19:34:13 started'), {});
  assert.deepEqual(found('name=abc version=1.2.3'), {});
  assert.deepEqual(found('loss=nan'), {});
  assert.deepEqual(found(''), {});
});

test('lines of JSON are figures, nested ones with dots', () => {
  assert.deepEqual(found('{"step": 1, "loss": 0.5, "note": "x", "ok": true}'), {
    step: 1,
    loss: 0.5,
  });
  assert.deepEqual(found('INFO {"train": {"loss": 2}}'), { 'train.loss': 2 });
  assert.deepEqual(found('{"loss": 1'), {}); // cut off: neither JSON nor pairs
  assert.deepEqual(found('{loss: 1, lr: 2}'), { loss: 1, lr: 2 });
});

test('of a progress bar the last state counts', () => {
  assert.deepEqual(found('10%|# loss=3\r20%|## loss=2\r'), { loss: 2 });
});

test('a log becomes series: loss first, steps beside, single figures left out', () => {
  const lines = [1, 2, 3].map((i) => ({ at: i * 1000, text: `step=${i} lr=1 loss=${4 - i}` }));
  const got = collect([{ at: 0, text: 'params=7' }, ...lines]);
  assert.deepEqual(
    got.map((f) => f.name),
    ['loss', 'lr'],
  );
  assert.deepEqual(got[0].values, [3, 2, 1]);
  assert.deepEqual(got[0].step, [1, 2, 3]);
});

test('names, points and lines are bounded', () => {
  const many = Array.from({ length: 200 }, (_, i) => `k${i}=1`).join(' ');
  const lines = Array.from({ length: 3000 }, () => ({ at: 1, text: many }));
  const got = collect(lines);
  assert.ok(got.length <= namesMax);
  assert.ok(got.reduce((a, f) => a + f.values.length, 0) <= pointsMax);
  const began = performance.now();
  figuresIn('a'.repeat(1_000_000));
  figuresIn('a='.repeat(500_000));
  figuresIn('{'.repeat(100_000));
  assert.ok(performance.now() - began < 1000, 'a hostile line takes little time');
});

test('series are resampled to common times', () => {
  assert.deepEqual(resample([0, 50, 100], [1, 2, 3], 0, 100, 3), [1, 2, 3]);
  assert.deepEqual(resample([0, 100], [1, 3], 0, 100, 3), [1, null, 3]);
  assert.deepEqual(resample([-50, 500], [1, 3], 0, 100, 3), [null, null, null]);
});

const dayMs = 86_400_000;
const month = { begin: 0, end: 30 * dayMs };
test('an even spend is forecast evenly, with a cone of no width', () => {
  const daily = [...Array.from({ length: 10 }, () => 2), 1];
  const cone = burnDown({ ...month, limit: 100, today: 10 * dayMs, passed: 0.5, daily });
  assert.equal(cone.days.length, 31);
  assert.equal(cone.left[10], 80);
  assert.ok(Math.abs(cone.middle[30]! - (79 - 2 * 19.5)) < 1e-9);
  assert.ok(Math.abs(cone.low[30]! - cone.high[30]!) < 1e-9);
  assert.equal(cone.runsOut, null);
});

test('an uneven spend opens the cone with time, and a budget runs out on its day', () => {
  const daily = [0, 8, 0, 8, 0, 8, 0];
  const cone = burnDown({ ...month, limit: 40, today: 6 * dayMs, passed: 1, daily });
  const wide = (i: number) => cone.high[i]! - cone.low[i]!;
  assert.ok(wide(20) > wide(10));
  assert.ok(wide(10) > 0);
  assert.ok(cone.runsOut! > 7 * dayMs && cone.runsOut! < 20 * dayMs, String(cone.runsOut));
  assert.equal(cone.middle[3], null);
});

test('the first hour of a period gives a forecast, not a division by zero', () => {
  const cone = burnDown({ ...month, limit: 40, today: 0, passed: 0, daily: [0] });
  assert.ok(cone.middle.every((v) => v === null || Number.isFinite(v)));
  assert.equal(cone.runsOut, null);
});

const waiting = (id: string, earliest: number | null, submitted = 0): Waiting => ({
  id,
  name: '',
  user: '',
  project: '',
  gpuMilli: 1000,
  submitted,
  earliest,
  latest: null,
  unknown: '',
  reason: '',
});
test('the queue is ordered by expected start, unknown ones last', () => {
  const list = [waiting('a', null, 5), waiting('b', 200), waiting('c', 100), waiting('d', null, 1)];
  assert.deepEqual(
    forecastOrder(list).map((w) => w.id),
    ['c', 'b', 'd', 'a'],
  );
  assert.equal(horizon([], 1000), 1000 + 3_600_000);
  assert.ok(horizon([waiting('x', 1000 + 10 * 3_600_000)], 1000) > 1000 + 10 * 3_600_000);
});

test('leases become marks: only a gap is an interruption', () => {
  const at = (s: number) => new Date(s * 1000).toISOString();
  const marks = leaseMarks([
    { from: at(100), to: at(200), node: 'a' },
    { from: at(100), to: at(200), node: 'b' },
    { from: at(300), to: null, node: 'a' },
  ]);
  assert.deepEqual(
    marks.map((m) => [m.at / 1000, m.kind]),
    [
      [100, 'start'],
      [200, 'suspend'],
      [300, 'resume'],
    ],
  );
  assert.deepEqual(leaseMarks([]), []);
});

test('ranges: relative, absolute, dates; a wrong one is the default', () => {
  const now = 1_794_858_387_405;
  assert.equal(resolve('now', now), now);
  assert.equal(resolve('now-6h', now), now - 6 * 3_600_000);
  assert.equal(resolve('1794858387405', 0), now);
  assert.equal(resolve('2026-11-16T00:00:00Z', 0), Date.UTC(2026, 10, 16));
  assert.ok(Number.isNaN(resolve('yesterday', now)));
  const fallback = { from: 'now-1h', to: 'now' };
  const given = (q: string) => rangeOf(new URLSearchParams(q), fallback);
  assert.deepEqual(given('from=now-7d'), { from: 'now-7d', to: 'now' });
  assert.deepEqual(given('from=now&to=now-7d'), fallback);
  assert.deepEqual(given('from=<script>'), fallback);
  assert.ok(isLive(given('')));
});

test('an address keeps its other parts when the range changes', () => {
  assert.equal(
    withRange('/nodes/a?gpu=3&from=1&to=2', { from: 'now-1h', to: 'now' }),
    '/nodes/a?gpu=3&from=now-1h&to=now',
  );
  assert.equal(withRange('/nodes?from=1&to=2', null), '/nodes');
});

test('CSV: times in UTC, unknown values empty, labels quoted, no formulas', () => {
  const text = csvOf(
    [0, 1000],
    [
      { label: 'a,"b"', values: [1, null] },
      { label: '=cmd()', values: [0.5, 2] },
    ],
  );
  assert.equal(
    text,
    'time,"a,""b""",\'=cmd()\r\n1970-01-01T00:00:00.000Z,1,0.5\r\n1970-01-01T00:00:01.000Z,,2\r\n',
  );
  assert.equal(fileName('GPU memory (GiB)', 'csv'), 'billow-gpu-memory-gib.csv');
});

test('the usual range is the shortest preset with the whole history, at most a day', () => {
  const now = Date.parse('2026-11-19T12:00:00Z');
  const of = (minutes: number) => usualRange(now - minutes * 60_000, now).from;
  assert.deepEqual([0, 15, 16, 60, 61, 400, 1e6].map(of), [
    'now-15m',
    'now-15m',
    'now-1h',
    'now-1h',
    'now-6h',
    'now-1d',
    'now-1d',
  ]);
});
