// Layout of blocks, hit test, keyboard and zoom of the Gantt chart; colours of projects.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  assignLanes,
  clampView,
  dayMs,
  hit,
  hourMs,
  knownSince,
  layout,
  minuteMs,
  pan,
  rowAt,
  step,
  ticks,
  timeAt,
  wasteWithin,
  xOf,
  zoom,
  type Block,
  type Card,
} from '../../web/src/time/blocks';
import { assign, colours, contrast, inkOn } from '../../web/src/time/palette';
import { serves, windowOf } from '../../web/src/time/timeline_window';

const block = (from: number, to: number, more: Partial<Block> = {}): Block => ({
  from,
  to,
  job: '1',
  jobs: 1,
  name: '',
  user: '',
  project: 'p',
  reason: '',
  milli: 1000,
  kind: 'run',
  waste: 0,
  lane: -1,
  of: 0,
  ...more,
});
const card = (node: string, index: number, blocks: Block[]): Card => ({
  node,
  index,
  type: 'H100',
  lanes: assignLanes(blocks),
  blocks,
});
const view = { from: 0, to: 1000 };

test('blocks that overlap get lanes of their own, others the whole height', () => {
  const blocks = [block(500, 700), block(0, 100), block(50, 150), block(100, 200)];
  assert.equal(assignLanes(blocks), 2);
  assert.deepEqual(
    blocks.map((b) => [b.from, b.lane, b.of]),
    [
      [0, 0, 2],
      [50, 1, 2],
      [100, 0, 2],
      [500, 0, 1],
    ],
  );
});

test('blocks that touch do not overlap', () => {
  const blocks = [block(0, 100), block(100, 200), block(200, 300)];
  assert.equal(assignLanes(blocks), 1);
  assert.deepEqual(new Set(blocks.map((b) => b.of)), new Set([1]));
});

test('a card without blocks has one lane', () => {
  assert.equal(assignLanes([]), 1);
});

test('rows are cards below their nodes; a folded node hides its cards', () => {
  const cards = [card('a', 0, []), card('a', 1, []), card('b', 0, [])];
  const open = layout(cards, new Set());
  assert.deepEqual(
    open.rows.map((r) => `${r.kind} ${r.node}`),
    ['node a', 'card a', 'card a', 'node b', 'card b'],
  );
  open.rows.reduce((end, r) => {
    assert.equal(r.y, end, 'rows neither overlap nor leave gaps');
    return r.y + r.h;
  }, 0);
  const folded = layout(cards, new Set(['a']));
  assert.deepEqual(
    folded.rows.map((r) => `${r.kind} ${r.node}`),
    ['node a', 'node b', 'card b'],
  );
  assert.equal(folded.rows[0].cards.length, 2);
  assert.ok(folded.height < open.height);
});

test('a row is found by bisection at every pixel', () => {
  const cards = Array.from({ length: 40 }, (_, i) => card(`n${i >> 3}`, i % 8, []));
  const { rows, height } = layout(cards, new Set());
  for (let y = 0; y < height; y++) {
    const at = rowAt(rows, y);
    assert.ok(rows[at].y <= y && y < rows[at].y + rows[at].h, `y ${y}`);
  }
  assert.equal(rowAt(rows, height), rows.length);
});

test('the block under a point is found, also one narrower than a pixel', () => {
  const cards = [card('a', 0, [block(100, 200), block(400, 400.1), block(600, 900)])];
  const { rows } = layout(cards, new Set());
  const y = rows[1].y + 5;
  assert.deepEqual(hit(rows, view, 500, 75, y), { row: 1, block: 0 });
  assert.deepEqual(hit(rows, view, 500, 201, y), { row: 1, block: 1 });
  assert.deepEqual(hit(rows, view, 500, 160, y), { row: 1, block: -1 });
  assert.deepEqual(hit(rows, view, 500, 10, rows[0].y + 1), { row: 0, block: -1 });
  assert.equal(hit(rows, view, 500, 10, 5000), null);
});

test('jobs that share a GPU are hit by lane', () => {
  const cards = [card('a', 0, [block(0, 500), block(0, 400, { job: '2' })])];
  const { rows } = layout(cards, new Set());
  const { y, h } = rows[1];
  const job = (at: number) => cards[0].blocks[hit(rows, view, 500, 50, at)!.block].job;
  assert.notEqual(job(y + h * 0.25), job(y + h * 0.75));
});

test('zooming keeps the time under the pointer and stays within five minutes and 32 days', () => {
  const start = { from: 0, to: dayMs };
  const at = timeAt(start, 800, 200);
  const closer = zoom(start, 0.5, at);
  assert.ok(Math.abs(xOf(closer, 800, at) - 200) < 1e-6);
  assert.equal(closer.to - closer.from, dayMs / 2);
  let v = start;
  for (let i = 0; i < 60; i++) v = zoom(v, 0.5, at);
  assert.equal(Math.round(v.to - v.from), 5 * minuteMs);
  for (let i = 0; i < 60; i++) v = zoom(v, 2, at);
  assert.equal(Math.round(v.to - v.from), 32 * dayMs);
  assert.deepEqual(pan({ from: 0, to: 100 }, -0.5), { from: -50, to: 50 });
  assert.equal(clampView({ from: 0, to: 1 }).to - clampView({ from: 0, to: 1 }).from, 5 * minuteMs);
});

test('arrow keys reach every block and stay at the ends', () => {
  const cards = [
    card('a', 0, [block(0, 100), block(200, 300)]),
    card('a', 1, []),
    card('b', 0, [block(250, 400), block(600, 700), block(5000, 6000)]),
  ];
  const { rows } = layout(cards, new Set());
  let at = step(rows, view, null, 'ArrowDown');
  assert.deepEqual(at, { row: 1, block: 0 });
  at = step(rows, view, at, 'ArrowRight');
  assert.deepEqual(at, { row: 1, block: 1 });
  assert.deepEqual(step(rows, view, at, 'ArrowRight'), at);
  at = step(rows, view, at, 'ArrowDown'); // over the card without blocks, to the nearest in time
  assert.deepEqual(at, { row: 4, block: 0 });
  at = step(rows, view, at, 'ArrowRight');
  assert.deepEqual(step(rows, view, at, 'ArrowRight'), at, 'what is out of view is not reached');
  assert.deepEqual(step(rows, view, at, 'ArrowUp'), { row: 1, block: 1 });
});

test('the axis has readable steps from an hour to a month', () => {
  for (const span of [hourMs, 6 * hourMs, dayMs, 7 * dayMs, 30 * dayMs]) {
    const list = ticks({ from: 1_794_800_000_000, to: 1_794_800_000_000 + span }, 1000);
    assert.ok(list.length >= 4 && list.length <= 14, `${span}: ${list.length}`);
    assert.deepEqual(
      [...list].sort((a, b) => a - b),
      list,
    );
  }
});

test('waste counts by the part that is seen, in jobs and between them', () => {
  const cards = [
    card('a', 0, [
      block(0, 2000, { waste: 10 }),
      block(500, 1000, { kind: 'idle', waste: 3 }),
      block(2000, 3000, { waste: 5 }),
    ]),
  ];
  assert.deepEqual(wasteWithin(cards, view), { idle: 5, unallocated: 3 });
});

test('projects have colours of their own, and text on them has a contrast of 4.5', () => {
  const names = Array.from({ length: 10 }, (_, i) => `project-${i}`);
  const given = assign(names);
  assert.equal(new Set(given.values()).size, 10);
  assert.equal(assign([...names, 'another']).size, 11);
  for (const dark of [false, true])
    for (const colour of colours(dark))
      assert.ok(
        contrast(colour, inkOn(dark)) >= 4.5,
        `${colour}: ${contrast(colour, inkOn(dark))}`,
      );
});

test('small moves need no new request, leaving the window or zooming far does', () => {
  const v = { from: 10 * dayMs, to: 11 * dayMs };
  const got = windowOf(v);
  assert.ok(serves(got, v));
  assert.ok(serves(got, pan(v, 0.3)));
  assert.ok(!serves(got, pan(v, 2)));
  assert.ok(!serves(got, zoom(v, 0.05, v.from)));
  assert.ok(!serves(null, v));
});

test('records begin with the first block that is no reservation', () => {
  assert.equal(knownSince([]), null);
  assert.equal(knownSince([card('a', 0, [block(50, 90, { kind: 'reserved' })])]), null);
  const cards = [
    card('a', 0, [block(300, 400), block(0, 10, { kind: 'reserved' })]),
    card('b', 0, [block(200, 250, { kind: 'idle' })]),
  ];
  assert.equal(knownSince(cards), 200);
});
