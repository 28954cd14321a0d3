// What a GPU counts as, and its shade: the same on every page.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { NodeInfo } from '../../web/src/data/api';
import { conditionOf, freeOf, linkWidth, shadeOf } from '../../web/src/data/card';
import type { Gpu } from '../../web/src/data/store';
import { networkOf, nvlinkOf, racksOf, sumOf } from '../../web/src/time/racks';

const node = (state: string) => ({ state }) as NodeInfo;
const card = (unhealthy = '') => ({ unhealthy }) as NodeInfo['gpus'][number];
const gpu = (milli: number, util: number, score = 100) => ({ milli, util, score }) as Gpu;

test('only a card of a ready node that nobody holds is free', () => {
  assert.equal(conditionOf(node('ready'), card(), gpu(0, 0)), 'free');
  assert.equal(conditionOf(node('drained'), card(), gpu(0, 0)), 'drained');
  assert.equal(conditionOf(node('draining'), card(), gpu(0, 0)), 'drained');
  assert.equal(conditionOf(node('unreachable'), card(), gpu(0, 0)), 'lost');
});

test('a card out of service is drained by a person or sick by itself', () => {
  assert.equal(conditionOf(node('ready'), card('a new fan'), gpu(0, 0)), 'drained');
  assert.equal(conditionOf(node('ready'), card('xid 79'), gpu(0, -1, 0)), 'sick');
  assert.equal(conditionOf(node('ready'), card('xid 79'), undefined), 'sick');
});

test('a job on a drained node still uses its card', () => {
  assert.equal(conditionOf(node('drained'), card(), gpu(1000, 80)), 'used');
  assert.equal(conditionOf(node('ready'), card(), gpu(500, 0)), 'idle');
});

test('a card that works a little is not shaded as idle', () => {
  const shades = [0, 2, 15, 20, 21, 60, 100].map((util) =>
    shadeOf(conditionOf(node('ready'), card(), gpu(1000, util)), util),
  );
  assert.deepEqual(shades, ['0', '1', '1', '1', '2', '3', '5']);
  assert.equal(shadeOf('used', -1), 'u');
  assert.equal(shadeOf('lost', -1), 'x');
  assert.equal(shadeOf('drained', 0), 'd');
});

test('a card that a reservation keeps free is reserved, not free', () => {
  const kept = { ...gpu(0, 0), reserved: 1000 };
  assert.equal(conditionOf(node('ready'), card(), kept), 'reserved');
  assert.equal(freeOf(node('ready'), card(), kept), 0);
  assert.equal(conditionOf(node('drained'), card(), kept), 'drained');
  // A job inside the reservation uses the card; half of one leaves the other half reserved.
  assert.equal(conditionOf(node('ready'), card(), gpu(1000, 50)), 'used');
  assert.equal(freeOf(node('ready'), card(), { ...gpu(500, 50), reserved: 500 }), 0);
  assert.equal(shadeOf('reserved', 0), 'r');
});

test('only what new jobs can use is free capacity', () => {
  assert.equal(freeOf(node('ready'), card(), gpu(0, 0)), 1000);
  assert.equal(freeOf(node('ready'), card(), gpu(250, 0)), 750);
  assert.equal(freeOf(node('drained'), card(), gpu(0, 0)), 0);
  assert.equal(freeOf(node('unreachable'), card(), gpu(0, 0)), 0);
  assert.equal(freeOf(node('ready'), card('xid 79'), gpu(0, 0)), 0);
});

test('a link is drawn wider the more goes over it', () => {
  const widths = [-1, 0, 1024, 100 << 10, 10 << 20, 900 << 20].map(linkWidth);
  assert.equal(widths[0], widths[1]);
  for (let i = 2; i < widths.length; i++) assert.ok(widths[i] > widths[i - 1], String(widths));
  assert.ok(widths[widths.length - 1] <= 7);
});

test('racks and switches come from labels, in the order of their names', () => {
  const at = (name: string, labels: Record<string, string>, gpus = 8) =>
    ({ name, labels, gpus: Array(gpus).fill({}) }) as unknown as NodeInfo;
  const racks = racksOf([
    at('b2', { rack: '10', switch: 's1' }),
    at('b10', { rack: '10', switch: 's1' }),
    at('a', { rack: '9' }),
    at('head', { rack: '9' }, 0),
    at('lone', {}),
  ]);
  assert.deepEqual(
    racks.map((r) => [r.name, r.switches.map((s) => [s.name, s.nodes.map((n) => n.name)])]),
    [
      ['', [['', ['lone']]]],
      ['9', [['', ['a']]]],
      ['10', [['s1', ['b2', 'b10']]]],
    ],
  );
  assert.equal(networkOf(undefined), -1);
  assert.equal(networkOf({ cpu_milli: 0, mem_mib: 0, rx: -1, tx: 5 }), 5);
  assert.equal(sumOf([-1, -1]), -1);
  assert.equal(sumOf([-1, 4, 5]), 9);
  assert.equal(nvlinkOf([{ nvlink: 3, pcie: 9 }, undefined as never, { nvlink: -1, pcie: 0 }]), 3);
});
