// What a GPU counts as, and its shade: the same on every page.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { NodeInfo } from '../../web/src/data/api';
import { conditionOf, shadeOf } from '../../web/src/data/card';
import type { Gpu } from '../../web/src/data/store';

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
