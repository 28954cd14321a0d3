// What a GPU counts as: the same word and the same shade on every page. Only a free one counts as
// free capacity.
import type { NodeInfo } from './api';
import type { Gpu } from './store';

export type Condition = 'used' | 'idle' | 'free' | 'reserved' | 'drained' | 'sick' | 'lost';

const healthyFrom = 50; // below this score the head itself takes a card out of service
const idleBelowPct = 2;

export function conditionOf(
  node: NodeInfo,
  card: NodeInfo['gpus'][number],
  gpu: Gpu | undefined,
): Condition {
  if (node.state === 'unreachable' || node.state === 'lost') return 'lost';
  // Out of service by its own health, or by a person although it is healthy.
  if (card.unhealthy) return gpu && gpu.score >= healthyFrom ? 'drained' : 'sick';
  if (!gpu?.milli) return node.state !== 'ready' ? 'drained' : gpu?.reserved ? 'reserved' : 'free';
  return gpu.util >= 0 && gpu.util < idleBelowPct ? 'idle' : 'used';
}

// What new jobs can use of a card, in thousandths: the head's own definition of free capacity.
export function freeOf(
  node: NodeInfo,
  card: NodeInfo['gpus'][number],
  gpu: Gpu | undefined,
): number {
  if (node.state !== 'ready' || card.unhealthy) return 0;
  return Math.max(0, 1000 - (gpu?.milli ?? 0) - (gpu?.reserved ?? 0));
}

// The shade of a GPU by its load: f free, r reserved, d drained, x sick or lost, u unknown, 0 idle,
// 1 to 5 busy.
export function shadeOf(condition: Condition, util: number): string {
  if (condition === 'free') return 'f';
  if (condition === 'reserved') return 'r';
  if (condition === 'drained') return 'd';
  if (condition === 'sick' || condition === 'lost') return 'x';
  if (util < 0) return 'u';
  return condition === 'idle' ? '0' : String(Math.max(1, Math.min(5, Math.ceil(util / 20))));
}

// How wide a link is drawn, in pixels, by what goes over it in KiB/s: a hair when it is silent, then
// one more for each tenfold from a MiB/s up.
export function linkWidth(kib: number): number {
  return kib < 1024 ? 1 : 1.5 + Math.min(5.5, 1.1 * Math.log10(kib / 1024));
}
