// What the list of jobs shows: the view in the address, live rows from the stream, and ended ones
// from the head, page by page. A search goes to the head, which knows every job that ever ran;
// until it answers, the rows at hand that match are shown.
import { signal } from '@preact/signals';
import { get, type JobPage, type Row } from '../data/api';
import { costOf, endStates, isIdle, jobs, nodes, ranMs, rowOf } from '../data/store';

export interface View {
  show: string;
  project: string;
  words: string;
  sort: string; // a column, with - descending
}
const pageRows = 100;
const sortedRows = 1000; // a page, if the rows are sorted here
const partsMax = 40;
export const shows: [string, string][] = [
  ['all', 'All'],
  ['mine', 'Mine'],
  ['running', 'Running'],
  ['waiting', 'Waiting'],
  ['idle', 'Idle'],
  ['suspended', 'Suspended'],
  ['ended', 'Ended'],
  ['failed', 'Failed'],
];
// The states that a view can contain, as the head names them.
const statesOf: Record<string, string> = {
  running: 'running',
  waiting: 'queued,held',
  idle: 'running',
  suspended: 'suspended',
  ended: endStates,
  failed: 'failed,lost',
};
// Columns by which the head can sort; by others only the rows at hand are sorted.
const sortedByHead = new Set(['id', 'started', 'cost', 'ran']);

export function viewOf(address: string): View {
  const given = new URLSearchParams(address.split('?')[1] ?? '');
  return {
    show: given.get('show') ?? 'all',
    project: given.get('project') ?? '',
    words: given.get('q') ?? '',
    sort: given.get('sort') ?? '-id',
  };
}
export function addressOf(view: View): string {
  const out = new URLSearchParams();
  if (view.show !== 'all') out.set('show', view.show);
  if (view.project) out.set('project', view.project);
  if (view.words) out.set('q', view.words);
  if (view.sort !== '-id') out.set('sort', view.sort);
  const text = out.toString();
  return `/jobs${text ? `?${text}` : ''}`;
}

export function gpuTypes(row: Row): string {
  const types = row.where.map(([node, card]) =>
    card === undefined ? '' : (nodes.get(node)?.gpus[card]?.type ?? ''),
  );
  return [...new Set(types.filter(Boolean))].join(', ') || (row.gpu_types ?? []).join(', ');
}

export function shownBy(row: Row, view: View, you: string): boolean {
  if (view.project && row.project !== view.project) return false;
  switch (view.show) {
    case 'mine':
      return row.user === you;
    case 'idle':
      return isIdle(row);
    case 'all':
      return true;
    default:
      return (statesOf[view.show] ?? '').split(',').includes(row.state);
  }
}
// A quick answer while the head searches: words anywhere in what the row says.
export function matches(row: Row, words: string): boolean {
  const text = [row.label, row.name, row.command, row.user, row.project, row.state, gpuTypes(row)]
    .join(' ')
    .toLowerCase();
  return words
    .toLowerCase()
    .split(/\s+/)
    .every((w) => text.includes(w.replace(/^(user|project|state|type):/, '')));
}

type Key = (row: Row, now: number) => number | string;
const keys: Record<string, Key> = {
  id: (r) => r.id,
  name: (r) => (r.name || r.command).toLowerCase(),
  user: (r) => r.user,
  project: (r) => r.project,
  state: (r) => r.state,
  gpus: (r) => r.gpu_milli,
  type: gpuTypes,
  started: (r) => r.started ?? 0,
  ran: ranMs,
  cost: costOf,
};
export function sorted(rows: Row[], sort: string, now: number): Row[] {
  const down = sort.startsWith('-');
  const key = keys[sort.replace('-', '')] ?? keys.id;
  const by = new Map(rows.map((r) => [r, key(r, now)]));
  return rows.sort((a, b) => {
    const x = by.get(a)!,
      y = by.get(b)!;
    const order = x < y ? -1 : x > y ? 1 : a.id - b.id;
    return down ? -order : order;
  });
}

// Pages that the head has answered for one view.
export class Pages {
  readonly rows = signal<Row[]>([]);
  readonly more = signal(false);
  readonly loading = signal(false);
  readonly known = signal(false); // the first page is there
  readonly error = signal('');
  private next = '';
  private gone = false;

  constructor(
    readonly view: View,
    readonly you: string,
  ) {}

  stop(): void {
    this.gone = true;
  }

  private address(): string {
    const v = this.view;
    // Without a search the live rows are at hand already.
    const states = statesOf[v.show] ?? (v.words ? 'all' : endStates);
    const column = v.sort.replace('-', '');
    const limit = sortedByHead.has(column) ? pageRows : sortedRows;
    const out = new URLSearchParams({ state: states, limit: String(limit) });
    const words = [v.words, v.show === 'mine' ? `user:${this.you}` : ''].filter(Boolean).join(' ');
    if (words) out.set('search', words);
    if (v.project) out.set('project', v.project);
    if (sortedByHead.has(column) && v.sort !== '-id') out.set('sort', v.sort);
    if (this.next) out.set('before', this.next);
    return `/v1/jobs?${out}`;
  }

  async load(): Promise<void> {
    if (this.loading.peek() || (this.known.peek() && !this.next)) return;
    this.loading.value = true;
    try {
      // A search through many jobs answers in parts, of which some may be empty.
      let fresh = 0;
      for (let parts = 0; parts < partsMax && fresh < pageRows; parts++) {
        const page = await get<JobPage>(this.address());
        if (this.gone) return;
        const had = new Set(this.rows.peek().map((r) => r.id));
        const rows = page.jobs.map(rowOf).filter((r) => !had.has(r.id));
        fresh += rows.length;
        if (rows.length) this.rows.value = [...this.rows.peek(), ...rows];
        this.next = page.next;
        this.more.value = !!page.next;
        if (!page.next) break;
      }
      this.known.value = true;
      this.error.value = '';
    } catch (e) {
      if (!this.gone)
        this.error.value = e instanceof Error ? e.message : 'the head does not answer';
    } finally {
      this.loading.value = false;
    }
  }
}
// Whether a view contains ended jobs at all.
export const hasEnded = (view: View) => /^(all|mine|ended|failed)$/.test(view.show);

// Why waiting jobs wait. The head explains the newest of them; behind a long queue it does not.
export const reasons = signal<Map<number, string>>(new Map());
export async function loadReasons(view: View): Promise<void> {
  if (document.hidden) return;
  const out = new URLSearchParams({ state: 'queued,held', reasons: '1', limit: '20' });
  if (view.project) out.set('project', view.project);
  try {
    const list = (await get<JobPage>(`/v1/jobs?${out}`)).jobs;
    reasons.value = new Map(list.map((j) => [j.id, j.reason]));
  } catch {
    /* the rows then say nothing about it */
  }
}
// Rows of live jobs, fresher than what the head answered a moment ago.
export function merged(view: View, you: string, pages: Pages, done: Row[]): Row[] {
  const out = new Map<number, Row>();
  const searched = !!view.words && pages.known.value;
  for (const row of pages.rows.value) {
    const live = jobs.get(row.id);
    const fresh = live ?? row;
    // A job that was live when the head answered and is gone since has ended.
    const stale = !live && !row.final;
    const ended = stale ? done.find((r) => r.id === row.id) : undefined;
    out.set(row.id, ended ?? fresh);
  }
  const take = (row: Row) => {
    if (!out.has(row.id) && (!view.words || matches(row, view.words))) out.set(row.id, row);
  };
  if (!searched) jobs.forEach(take);
  if (hasEnded(view)) done.forEach(take);
  return [...out.values()].filter((row) => shownBy(row, view, you));
}
