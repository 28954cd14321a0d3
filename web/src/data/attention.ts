// What needs attention: nodes, GPUs, the head's disk, budgets, and jobs that failed within a day.
// A person can dismiss an entry; the browser remembers that for as long as it would be shown.
import { computed, signal } from '@preact/signals';
import { failures, nodes, nodesTick, summary } from './store';
import { remember, remembered } from './memory';

export interface Attention {
  key: string;
  text: string;
  href: string;
  grave: boolean;
}
const dayMs = 86_400_000;

export const budgets = signal<Attention[]>([]); // what the budgets say, kept by spend.ts
const dismissed = signal(remembered<Record<string, number>>('dismissed', {}));
export function dismiss(key: string): void {
  const recent = Object.entries(dismissed.value).filter(([, at]) => at > Date.now() - 7 * dayMs);
  dismissed.value = { ...Object.fromEntries(recent), [key]: Date.now() };
  remember('dismissed', dismissed.value);
}

function ofNodes(): Attention[] {
  const out: Attention[] = [];
  for (const node of nodes.values()) {
    const href = `#/nodes/${encodeURIComponent(node.name)}`;
    if (node.state === 'unreachable')
      out.push({
        key: `away ${node.name}`,
        text: `Node ${node.name} does not answer${node.reason ? `: ${node.reason}` : ''}`,
        href,
        grave: true,
      });
    if (node.state === 'drained')
      out.push({
        key: `drained ${node.name} ${node.reason}`,
        text: `Node ${node.name} is drained: ${node.reason}`,
        href,
        grave: false,
      });
    for (const gpu of node.gpus)
      if (gpu.unhealthy)
        out.push({
          key: `sick ${node.name} ${gpu.index} ${gpu.unhealthy}`,
          text: `GPU ${gpu.index} of ${node.name} is out of service: ${gpu.unhealthy}`,
          href,
          grave: true,
        });
  }
  return out;
}

export const attention = computed(() => {
  nodesTick.value;
  const out = ofNodes();
  if (summary.value?.store === 'disk_low')
    out.push({
      key: 'disk',
      text: 'The head has no disk space left: new jobs are rejected',
      href: '#/admin',
      grave: true,
    });
  out.push(...budgets.value);
  const since = Date.now() - dayMs;
  for (const row of failures.value)
    if ((row.ended ?? 0) > since)
      out.push({
        key: `job ${row.label}`,
        text:
          `Job ${row.label} (${row.name || row.command.slice(0, 40)}) ` +
          (row.state === 'lost' ? 'was lost' : row.state) +
          (row.reason || row.exit ? `: ${row.reason || row.exit}` : ''),
        href: `#/jobs/${row.label}`,
        grave: false,
      });
  return out.filter((a) => !(a.key in dismissed.value));
});
