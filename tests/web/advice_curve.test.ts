// The curve of price and speed: every priced point inside the picture, dearer to the right, slower
// further up.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { layout, type CurvePoint } from '../../web/src/fleet/advice_curve';

const point = (concurrency: number, tpot_ms: number, usd: number | 'unknown'): CurvePoint => ({
  concurrency,
  ttft_ms: 100,
  tpot_ms,
  requests_per_s: 1,
  usd_per_million_output_tokens: usd,
});

test('points lie by price and time per token', () => {
  const { drawn, most } = layout([point(1, 10, 20), point(8, 15, 4), point(64, 30, 1)]);
  assert.equal(most, 30);
  assert.ok(drawn[0].x > drawn[1].x && drawn[1].x > drawn[2].x);
  assert.ok(drawn[0].y > drawn[1].y && drawn[1].y > drawn[2].y);
  for (const d of drawn) assert.ok(d.x >= 0 && d.x <= 560 && d.y >= 0 && d.y <= 240);
});

test('a point without a price is left out, and equal prices do not divide by zero', () => {
  const { drawn } = layout([point(1, 10, 'unknown'), point(2, 11, 3), point(4, 12, 3)]);
  assert.equal(drawn.length, 2);
  for (const d of drawn) assert.ok(Number.isFinite(d.x) && Number.isFinite(d.y));
  assert.equal(layout([]).drawn.length, 0);
});
