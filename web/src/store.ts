// The head's state, shared by the pages and kept fresh by one stream (/v1/live): first everything,
// then changes. Maps are changed in place and a counter is increased; a page reads the counters of
// what it shows and is drawn at most once per frame.
import { batch, computed, signal } from '@preact/signals';
import { ApiError, get, type Job, type NodeInfo, type Row, type Status, type Summary } from './api';
import { gpus } from './format';

export interface Gpu {
  node: number;
  index: number;
  milli: number;
  util: number;
  mem: number;
  watts: number;
  celsius: number;
  score: number;
  jobs: number[];
  fault: string;
}
export interface Host {
  cpu_milli: number;
  mem_mib: number;
}

export const jobs = new Map<number, Row>(); // waiting, running, suspended
export const nodes = new Map<number, NodeInfo>();
export const readings = new Map<number, Gpu[]>(); // by node
export const hosts = new Map<number, Host>();
export const ended = signal<Row[]>([]); // newest first
export const status = signal<Status | null>(null);
export const summary = signal<Summary | null>(null);
export const jobsTick = signal(0);
export const nodesTick = signal(0);
export const gpuTick = signal(0);
export const signedOut = signal(false);
export const away = signal('');
export const ready = signal(false); // the first piece of the stream is there
export const route = signal(location.hash.slice(1) || '/');
export const clock = signal(Date.now()); // moves once a second while the page is seen
export interface NoticeAction {
  label: string;
  ms: number;
  run: () => void;
}
export const notices = signal<{ id: number; text: string; href?: string; action?: NoticeAction }[]>(
  [],
);

const endedMax = 300;

export function rowOf(job: Job): Row {
  return {
    id: job.id,
    label: job.label,
    name: job.name,
    command: job.command,
    user: job.user,
    project: job.project,
    state: job.state,
    reason: job.reason,
    gpu_milli: job.gpu_milli * (job.nodes || 1),
    spot: job.spot,
    pty: job.pty,
    attempt: job.attempt,
    submitted: Date.parse(job.submitted_at),
    started: job.started_at ? Date.parse(job.started_at) : undefined,
    ended: job.ended_at ? Date.parse(job.ended_at) : undefined,
    where: job.tasks.map((t) => [t.node_id, ...t.gpus]),
    nodes: job.tasks.map((t) => t.node).join(', '),
    cost_nano: job.cost_nano_usd,
    rate_nano: 0,
    at: 0,
    final: job.final,
    exit: job.exit?.text,
    exit_code: job.exit_code,
    ran: job.ran_s === undefined ? undefined : job.ran_s * 1000,
    suspended: (job.suspended_s ?? 0) * 1000,
  };
}
// Run time and suspended time in milliseconds. Rows of older heads have only start and end.
export function ranMs(row: Row, now: number): number {
  if (row.ran === undefined) return row.started ? (row.ended ?? now) - row.started : 0;
  return row.ran + (row.state === 'running' && row.since ? Math.max(0, now - row.since) : 0);
}
export const suspendedMs = (row: Row, now: number) =>
  (row.suspended ?? 0) +
  (row.state === 'suspended' && row.since ? Math.max(0, now - row.since) : 0);
export const costOf = (row: Row, now: number) =>
  row.cost_nano +
  (row.rate_nano && row.at ? (row.rate_nano * Math.max(0, now - row.at)) / 1000 : 0);
export const nodeName = (id: number) => nodes.get(id)?.name ?? `node ${id}`;
export function whereText(row: Row): string {
  if (row.nodes) return row.nodes;
  return row.where
    .map(
      ([node, ...cards]) => `${nodeName(node)}${cards.length ? ` · GPU ${cards.join(', ')}` : ''}`,
    )
    .join('; ');
}
// Idle by the head's definition: its nodes have seen no work for a minute.
export function isIdle(row: Row): boolean {
  return row.state === 'running' && !!summary.peek()?.idle_jobs.includes(row.id);
}

export interface Attention {
  text: string;
  href: string;
  grave: boolean;
}
export const budgets = signal<Attention[]>([]); // what the budgets say, kept by the costs module
export const attention = computed(() => {
  nodesTick.value;
  const out: Attention[] = [];
  for (const node of nodes.values()) {
    if (node.state === 'unreachable')
      out.push({ text: `Node ${node.name} does not answer`, href: '#/nodes', grave: true });
    if (node.state === 'drained')
      out.push({
        text: `Node ${node.name} is drained: ${node.reason}`,
        href: '#/nodes',
        grave: false,
      });
    for (const gpu of node.gpus)
      if (gpu.unhealthy)
        out.push({
          text: `GPU ${gpu.index} of ${node.name} is out of service: ${gpu.unhealthy}`,
          href: `#/nodes/${node.name}`,
          grave: true,
        });
  }
  if (summary.value?.store === 'disk_low')
    out.push({
      text: 'The head has no disk space left: new jobs are rejected',
      href: '#/admin',
      grave: true,
    });
  out.push(...budgets.value);
  const since = Date.now() - 86_400_000;
  for (const row of ended.value.slice(0, 40))
    if ((row.state === 'failed' || row.state === 'lost') && (row.ended ?? 0) > since)
      out.push({
        text:
          `Job ${row.label} (${row.name || row.command.slice(0, 40)}) ` +
          (row.state === 'lost' ? 'was lost' : row.state) +
          (row.reason || row.exit ? `: ${row.reason || row.exit}` : ''),
        href: `#/jobs/${row.label}`,
        grave: false,
      });
  return out;
});

let noticeId = 0;
export const retract = (id: number) => {
  notices.value = notices.value.filter((n) => n.id !== id);
};
export function notify(text: string, href?: string, action?: NoticeAction): number {
  const id = ++noticeId;
  notices.value = [...notices.value.slice(-3), { id, text, href, action }];
  window.setTimeout(() => retract(id), action?.ms ?? 8000);
  return id;
}

interface Piece {
  now: number;
  jobs?: Row[];
  gone?: number[];
  ended?: Job[];
  nodes?: NodeInfo[];
  nodes_gone?: number[];
  gpus?: [number, number, number, number, number, number, number, number, number[], string?][];
  hosts?: [number, number, number][];
  summary?: Summary;
}

function take(piece: Piece): void {
  batch(() => {
    if (piece.jobs) for (const row of piece.jobs) jobs.set(row.id, row);
    if (piece.gone) for (const id of piece.gone) jobs.delete(id);
    if (piece.ended?.length) {
      const rows = piece.ended.map(rowOf);
      // The run time of jobs that were suspended or restarted comes from the store.
      for (const job of piece.ended)
        if (job.ran_s === undefined && (job.leases ?? 0) > 1)
          void get<Job>(`/v1/jobs/${job.id}`).then(
            (j) => {
              ended.value = ended.value.map((r) => (r.id === j.id ? rowOf(j) : r));
            },
            () => {},
          );
      const known = new Set(rows.map((r) => r.id));
      ended.value = [
        ...rows.sort((a, b) => (b.ended ?? 0) - (a.ended ?? 0)),
        ...ended.value.filter((r) => !known.has(r.id)),
      ].slice(0, endedMax);
    }
    if (piece.jobs || piece.gone) jobsTick.value++;
    if (piece.nodes) {
      for (const node of piece.nodes) {
        nodes.set(node.id, node);
        const list = readings.get(node.id) ?? [];
        readings.set(
          node.id,
          node.gpus.map(
            (g, i) =>
              list[i] ?? {
                node: node.id,
                index: g.index,
                milli: 0,
                util: -1,
                mem: -1,
                watts: -1,
                celsius: -1,
                score: -1,
                jobs: [],
                fault: '',
              },
          ),
        );
      }
    }
    if (piece.nodes_gone)
      for (const id of piece.nodes_gone) {
        nodes.delete(id);
        readings.delete(id);
        hosts.delete(id);
      }
    if (piece.nodes || piece.nodes_gone) nodesTick.value++;
    if (piece.gpus) {
      for (const [
        node,
        index,
        milli,
        util,
        mem,
        watts,
        celsius,
        score,
        list,
        fault,
      ] of piece.gpus) {
        const cards = readings.get(node);
        if (cards?.[index])
          cards[index] = {
            node,
            index,
            milli,
            util,
            mem,
            watts,
            celsius,
            score,
            jobs: list,
            fault: fault ?? '',
          };
      }
    }
    if (piece.hosts)
      for (const [node, cpu_milli, mem_mib] of piece.hosts) hosts.set(node, { cpu_milli, mem_mib });
    if (piece.gpus || piece.hosts || piece.nodes) gpuTick.value++;
    if (piece.summary) summary.value = piece.summary;
    ready.value = true;
    away.value = '';
  });
}

export async function look(): Promise<void> {
  try {
    const [s, list] = await Promise.all([
      get<Status>('/v1/status'),
      get<{ jobs: Job[] }>('/v1/jobs?state=succeeded,failed,stopped,lost&limit=100'),
    ]);
    status.value = s;
    ended.value = list.jobs.map(rowOf);
    signedOut.value = false;
    away.value = '';
  } catch (e) {
    if (e instanceof ApiError && (e.status === 401 || e.status === 403)) signedOut.value = true;
    else away.value = 'The head does not answer. Reconnecting…';
  }
}

let source: EventSource | null = null;
let retry = 0;
export function follow(): void {
  window.clearTimeout(retry);
  source?.close();
  source = new EventSource('/v1/live');
  let first = true;
  source.addEventListener('live', (event) => {
    const piece = JSON.parse((event as MessageEvent<string>).data) as Piece;
    if (first) {
      // A new stream starts with everything: jobs it does not contain no longer exist.
      first = false;
      jobs.clear();
      nodes.clear();
      readings.clear();
      if (!status.peek() || away.peek()) void look();
    }
    take(piece);
  });
  source.onerror = () => {
    away.value = 'The head does not answer. Reconnecting…';
    source?.close();
    retry = window.setTimeout(() => {
      void look().then(() => {
        if (!signedOut.value) follow();
      });
    }, 1000);
  };
}

window.setInterval(() => {
  if (!document.hidden) clock.value = Date.now();
}, 1000);
window.addEventListener('hashchange', () => {
  const to = location.hash.slice(1) || '/';
  // Another tab of the same page keeps its scroll position.
  const samePage = to.split('?')[0] === route.peek().split('?')[0];
  route.value = to;
  if (!samePage) window.scrollTo(0, 0);
});
export const gpuText = (row: Row) => gpus(row.gpu_milli);
