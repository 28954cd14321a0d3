// The heat map's layout and keyboard, and the records of a log.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { align, bridge, figureOf, type Run } from '../../web/src/time/align';
import { cellAt, cellX, cellY, heatLayout, neighbour } from '../../web/src/time/heat_layout';
import { linesOf } from '../../web/src/time/printed';

const fleet = (sizes: number[], rack = (_: number) => '') =>
  sizes.map((gpus, i) => ({ id: i + 1, name: `node-${i + 1}`, rack: rack(i), gpus }));

test('a node is as large as its GPUs: two take a quarter of eight', () => {
  const heat = heatLayout(fleet([8, 2, 4]), 1000, 500);
  const [eight, two, four] = heat.nodes;
  assert.equal(two.w * 4, eight.w);
  assert.equal(four.w * 2, eight.w);
  assert.equal(two.h, eight.h);
});

test('10,000 GPUs fit the width, overlap nowhere, and are found again', () => {
  const heat = heatLayout(
    fleet(
      Array.from({ length: 1250 }, () => 8),
      (i) => `rack ${i >> 7}`,
    ),
    1000,
    520,
  );
  assert.equal(heat.cells, 10_000);
  const seen = new Set<string>();
  for (const node of heat.nodes) {
    assert.ok(node.x >= 0 && node.x + node.w <= 1000);
    for (let i = 0; i < node.gpus; i++) {
      const x = cellX(heat, node, i);
      const y = cellY(heat, node, i);
      assert.ok(!seen.has(`${x},${y}`), 'two GPUs at one place');
      seen.add(`${x},${y}`);
    }
  }
  const last = heat.nodes[1249];
  const found = cellAt(heat, cellX(heat, last, 7) + 1, cellY(heat, last, 7) + 1);
  assert.deepEqual([found?.node.name, found?.index], [last.name, 7]);
  assert.equal(cellAt(heat, -5, -5), null);
});

test('racks and nodes are in the order of their numbers', () => {
  const heat = heatLayout(
    fleet([1, 1, 1, 1], (i) => `rack ${[10, 9, 2, 2][i]}`),
    300,
    300,
  );
  assert.deepEqual(
    heat.racks.map((r) => r.name),
    ['rack 2', 'rack 9', 'rack 10'],
  );
});

test('arrow keys move from GPU to GPU, over the edges of nodes', () => {
  const heat = heatLayout(fleet([8, 8, 16]), 130, 500);
  let at = neighbour(heat, null, 'ArrowRight');
  assert.equal(at!.index, 0);
  for (let i = 0; i < 8; i++) at = neighbour(heat, at, 'ArrowRight');
  assert.deepEqual([at!.node.name, at!.index], ['node-2', 0]);
  at = neighbour(heat, at, 'ArrowLeft');
  assert.deepEqual([at!.node.name, at!.index], ['node-1', 7]);
  assert.equal(neighbour(heatLayout([], 100, 100), null, 'ArrowDown'), null);
});

function record(stream: number, ms: number, text: string): Uint8Array {
  const data = new TextEncoder().encode(text);
  const out = new Uint8Array(16 + data.length);
  const view = new DataView(out.buffer);
  view.setUint32(0, data.length, true);
  view.setUint8(4, stream);
  view.setBigInt64(8, BigInt(ms) * 1_000_000n, true);
  out.set(data, 16);
  return out;
}
const joined = (...parts: Uint8Array[]) => new Uint8Array(parts.flatMap((p) => [...p]));

test('records become lines with times; streams are kept apart, a cut record ends it', () => {
  const bytes = joined(
    record(1, 1000, 'loss=1\nlo'),
    record(2, 1500, 'warn\n'),
    record(16, 0, '12345678'),
    record(1, 2000, 'ss=2\nöp'),
    record(1, 3000, 'en').subarray(0, 17),
  );
  assert.deepEqual(linesOf(bytes), [
    { at: 1000, text: 'loss=1' },
    { at: 1500, text: 'warn' },
    { at: 2000, text: 'loss=2' },
    { at: 2000, text: 'öp' },
  ]);
  assert.deepEqual(linesOf(new Uint8Array(3)), []);
});

const run = (id: string, began: number, at: number[], values: number[]): Run => ({
  id,
  label: id,
  began,
  history: null,
  figures: [{ name: 'loss', at, step: values.map(() => null), values }],
});
test('jobs are laid over one another from their beginnings or by the clock', () => {
  const runs = [
    run('1', 1000, [1000, 2000, 3000], [3, 2, 1]),
    run('2', 9000, [9000, 10000, 11000], [6, 5, 4]),
  ];
  const since = align(runs, true, figureOf('loss'));
  assert.equal(since.times[0], 0);
  assert.equal(since.times[since.times.length - 1], 2000);
  assert.deepEqual([since.rows[0][0], since.rows[1][0]], [3, 6]);
  const byClock = align(runs, false, figureOf('loss'));
  assert.equal(byClock.rows[1][0], null);
  assert.deepEqual(align(runs, true, figureOf('acc')).rows[0][0], null);
});

test('short gaps are bridged, long ones stay', () => {
  assert.deepEqual(bridge([1, null, 3], 2), [1, 2, 3]);
  assert.deepEqual(bridge([1, null, null, null, 3], 2), [1, null, null, null, 3]);
});
