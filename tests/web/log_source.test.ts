// Which lines of a log stay in memory.
import assert from 'node:assert/strict';
import { test } from 'node:test';

// The module watches whether the page is seen.
Object.assign(globalThis, {
  document: { hidden: true, addEventListener() {}, removeEventListener() {} },
});
const { farthest } = await import('../../web/src/jobs/log_source');

test('pieces far from what is in view are forgotten first, the end never', () => {
  assert.equal(farthest([0, 1, 2, 40], 0), 2, 'the end is the farthest, and stays');
  assert.equal(farthest([5, 6, 7, 8], 8), 5, 'who follows the log sees its end');
  assert.equal(farthest([9, 3, 4, 12], 4), 9, 'whatever came first');
});

test('somebody who reads old lines while the log grows keeps them', () => {
  const kept = new Set([0]);
  const inView = 0;
  for (let piece = 1; piece < 100; piece++) {
    kept.add(piece);
    while (kept.size > 4) kept.delete(farthest(kept, inView));
  }
  assert.deepEqual([...kept], [0, 1, 2, 99]);
});
