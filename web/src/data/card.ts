// What a GPU counts as: the same word and the same shade on every page. Only a free one counts as
// free capacity.
import type { NodeInfo } from './api';
import type { Gpu } from './store';

export type Condition = 'used' | 'idle' | 'free' | 'drained' | 'sick' | 'lost';

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
  if (!gpu?.milli) return node.state === 'ready' ? 'free' : 'drained';
  return gpu.util >= 0 && gpu.util < idleBelowPct ? 'idle' : 'used';
}

// The shade of a GPU by its load: f free, d drained, x sick or lost, u unknown, 0 idle, 1 to 5 busy.
export function shadeOf(condition: Condition, util: number): string {
  if (condition === 'free') return 'f';
  if (condition === 'drained') return 'd';
  if (condition === 'sick' || condition === 'lost') return 'x';
  if (util < 0) return 'u';
  return condition === 'idle' ? '0' : String(Math.max(1, Math.min(5, Math.ceil(util / 20))));
}
