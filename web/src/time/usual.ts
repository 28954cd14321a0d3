// The range of pages about the fleet: the same for all charts of a page.
import { nodes, nodesTick } from '../data/store';
import { usualRange, type Range } from './range';

export function fleetRange(): Range {
  nodesTick.value;
  let oldest = Date.now();
  for (const node of nodes.values()) oldest = Math.min(oldest, Date.parse(node.joined_at));
  return usualRange(oldest, Date.now());
}
