// The head's state, shared by the pages and kept fresh by one stream (/v1/live): first everything,
// then changes. Maps are changed in place and a counter is increased; a page reads the counters of
// what it shows and is drawn at most once per frame.
import { batch, signal } from '@preact/signals';
import { ApiError, get, type Job, type NodeInfo, type Row, type Status, type Summary } from './api';
import { gpus, numbers } from './format';
import { follow as followLive, leave } from './live';
import type { Piece } from './live_piece';

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
  reserved: number; // thousandths that a reservation keeps free
}
export interface Host {
  cpu_milli: number;
  mem_mib: number;
  rx: number; // network, KiB/s; -1: unknown
  tx: number;
}
// What goes over a GPU's links in both directions, KiB/s; -1: unknown.
export interface Traffic {
  nvlink: number;
  pcie: number;
}

export const jobs = new Map<number, Row>(); // waiting, running, suspended
export const nodes = new Map<number, NodeInfo>();
export const readings = new Map<number, Gpu[]>(); // by node
export const hosts = new Map<number, Host>();
export const traffic = new Map<number, Traffic[]>(); // by node; empty: silent, or unknown
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

const endedMax = 300; // kept here; the list of jobs reads all others page by page
const endedFirst = 30; // read with the page
export const endStates = 'succeeded,failed,stopped,lost';

// Jobs that failed within the last day, however many others have ended since.
export const failures = signal<Row[]>([]);
const failuresMax = 100;
async function loadFailures(): Promise<void> {
  try {
    const list = await get<{ jobs: Job[] }>(`/v1/jobs?state=failed,lost&limit=${failuresMax}`);
    failures.value = list.jobs.map(rowOf);
  } catch {
    /* the live stream reports when the head is unreachable */
  }
}

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
    gpu_types: job.gpu_types,
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
    .map(([node, ...cards]) => `${nodeName(node)}${cards.length ? ` · GPU ${numbers(cards)}` : ''}`)
    .join('; ');
}
// Idle by the head's definition: its nodes have seen no work for a minute.
export function isIdle(row: Row): boolean {
  return row.state === 'running' && !!summary.peek()?.idle_jobs.includes(row.id);
}

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
      const failed = rows.filter((r) => r.state === 'failed' || r.state === 'lost');
      if (failed.length)
        failures.value = [...failed, ...failures.value.filter((r) => !known.has(r.id))].slice(
          0,
          failuresMax,
        );
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
                reserved: 0,
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
        traffic.delete(id);
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
        reserved,
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
            reserved: reserved ?? 0,
          };
      }
    }
    for (const [node, index, nvTx, nvRx, pcTx, pcRx] of piece.links ?? []) {
      let list = traffic.get(node);
      if (!list) traffic.set(node, (list = []));
      const sum = (a: number, b: number) => (a < 0 && b < 0 ? -1 : Math.max(0, a) + Math.max(0, b));
      list[index] = { nvlink: sum(nvTx, nvRx), pcie: sum(pcTx, pcRx) };
    }
    for (const [node, cpu_milli, mem_mib, rx, tx] of piece.hosts ?? [])
      hosts.set(node, { cpu_milli, mem_mib, rx: rx ?? -1, tx: tx ?? -1 });
    if (piece.gpus || piece.links || piece.hosts || piece.nodes) gpuTick.value++;
    if (piece.summary) summary.value = piece.summary;
    ready.value = true;
    away.value = '';
  });
}

export async function look(): Promise<void> {
  try {
    const [s, list] = await Promise.all([
      get<Status>('/v1/status'),
      get<{ jobs: Job[] }>(`/v1/jobs?state=${endStates}&limit=${endedFirst}`),
    ]);
    status.value = s;
    ended.value = list.jobs.map(rowOf);
    void loadFailures();
    signedOut.value = false;
    away.value = '';
  } catch (e) {
    if (e instanceof ApiError && (e.status === 401 || e.status === 403)) {
      signedOut.value = true;
      leave();
    } else away.value = 'The head does not answer. Reconnecting…';
  }
}

// A new stream starts with everything: jobs it does not contain no longer exist.
export function follow(): void {
  followLive((message) => {
    if (message.type === 'away') {
      away.value = 'The head does not answer. Reconnecting…';
      void look(); // tells an ended session from a head that is away
    }
    if (message.type !== 'live') return;
    if (message.first) {
      jobs.clear();
      nodes.clear();
      readings.clear();
      traffic.clear();
      if (!status.peek() || away.peek()) void look();
    }
    take(message.piece);
  });
}

// The stream does not say when a job ends that was shorter than its step.
window.setInterval(() => {
  if (!document.hidden && ready.peek() && !signedOut.peek()) void loadFailures();
}, 30_000);
window.setInterval(() => {
  if (!document.hidden) clock.value = Date.now();
}, 1000);
// Where each page of the tab's history was scrolled to: going back returns there. A new page
// begins at its top; another view of the same page (its tabs, its filters) stays where it is.
const scrolls = new Map<number, number>();
export const returned = signal(0); // the position to return to; a list restores its own
let at = 0,
  newest = 0;
export const placeKey = () => at; // of this entry of the tab's history
window.history.scrollRestoration = 'manual';
window.addEventListener('hashchange', () => {
  const to = location.hash.slice(1) || '/';
  const samePage = to.split('?')[0] === route.peek().split('?')[0];
  scrolls.set(at, window.scrollY);
  const known = (history.state as { n?: number } | null)?.n;
  at = known ?? ++newest;
  if (known === undefined) history.replaceState({ n: at }, '');
  const back = known === undefined ? 0 : (scrolls.get(at) ?? 0);
  route.value = to;
  if (samePage) return;
  returned.value = back;
  window.scrollTo(0, 0);
  // The page is drawn first, then it is tall enough.
  if (back) window.setTimeout(() => window.scrollTo(0, back), 50);
});
// Changes the address without a new entry in the history: for what is typed into filters.
export function readdress(hash: string): void {
  history.replaceState({ n: at }, '', `#${hash}`);
  route.value = hash;
}
export const gpuText = (row: Row) => gpus(row.gpu_milli);
