// What the pages share: the newest state of the head, kept fresh by the journal's event stream. An event only says that something
// changed; the lists are then read again, at most twice a second, so a thousand events cost two requests.
import { computed, signal } from '@preact/signals';
import { ApiError, get, type Job, type Node, type Status } from './api';

export const status = signal<Status | null>(null);
export const nodes = signal<Node[]>([]);
export const jobs = signal<Job[]>([]);
export const finished = signal<Job[]>([]);
export const signedOut = signal(false);
export const away = signal('');
export const route = signal(location.hash.slice(1) || '/');
export const version = signal(0);  // counts refreshes: pages that show one job read it again

export const attention = computed(() => {
  const out: { text: string; href: string }[] = [];
  for (const node of nodes.value) {
    if (node.state === 'unreachable') out.push({ text: `node ${node.name} does not answer`, href: '#/nodes' });
    if (node.state === 'drained') out.push({ text: `node ${node.name} is drained: ${node.reason}`, href: '#/nodes' });
    for (const gpu of node.gpus) if (gpu.unhealthy) out.push({ text: `GPU ${gpu.index} of ${node.name}: ${gpu.unhealthy}`, href: '#/nodes' });
  }
  if (status.value?.store === 'disk_low') out.push({ text: 'the disk of the head is full: new work is refused', href: '#/' });
  for (const job of finished.value.slice(0, 20))
    if (job.state === 'failed' || job.state === 'lost') out.push({ text: `job ${job.label} ${job.name || job.command} ${job.state}: ${job.reason}`, href: `#/jobs/${job.label}` });
  return out.slice(0, 8);
});

let timer = 0;
let stale = false;
let busy = false;

export async function refresh(): Promise<void> {
  if (busy) { stale = true; return; }
  busy = true;
  stale = false;
  try {
    const [s, n, live, ended] = await Promise.all([
      get<Status>('/v1/status'), get<{ nodes: Node[] }>('/v1/nodes'), get<{ jobs: Job[] }>('/v1/jobs?limit=1000'),
      get<{ jobs: Job[] }>('/v1/jobs?state=succeeded,failed,stopped,lost&limit=100'),
    ]);
    status.value = s;
    nodes.value = n.nodes;
    jobs.value = live.jobs;
    finished.value = ended.jobs;
    signedOut.value = false;
    away.value = '';
    version.value++;
  } catch (e) {
    if (e instanceof ApiError && (e.status === 401 || e.status === 403)) signedOut.value = true;
    else away.value = 'the head does not answer; trying again';
  } finally {
    busy = false;
    if (stale) later();
  }
}
function later(): void {
  if (timer) return;
  timer = window.setTimeout(() => { timer = 0; void refresh(); }, 500);
}

let source: EventSource | null = null;
export function follow(): void {
  source?.close();
  source = new EventSource('/v1/events?follow=1');
  const kinds = ['jobs_submitted', 'job_placed', 'task_started', 'task_ended', 'job_ended', 'job_ready', 'job_stopping', 'job_requeued', 'node_joined',
    'node_offer_changed', 'node_reachable', 'node_unreachable', 'node_drained', 'node_removed', 'head_started'];
  for (const kind of kinds) source.addEventListener(kind, later);
  source.onopen = () => { void refresh(); };
  source.onerror = () => {
    away.value = 'the head does not answer; trying again';
    if (source?.readyState === EventSource.CLOSED) window.setTimeout(follow, 1000);
  };
}
// Readings (utilisation, power) are samples, not events: they are looked at again while the page is seen.
window.setInterval(() => { if (!document.hidden && !signedOut.value) void refresh(); }, 5000);
window.addEventListener('hashchange', () => { route.value = location.hash.slice(1) || '/'; window.scrollTo(0, 0); });
