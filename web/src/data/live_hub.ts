// One stream of the head's state (/v1/live) for all tabs of a browser. Browsers open at most six
// connections to a head: with a stream per tab the seventh tab would wait forever. The hub runs in
// a SharedWorker; where there is none, each page has a hub of its own.
//
// The hub keeps what the stream has said, so that a tab which opens later begins with everything.
import type { Piece } from './live_piece';

export type ToHub = { type: 'hello' } | { type: 'bye' } | { type: 'again' } | { type: 'alive' };
export type ToPage =
  { type: 'live'; first: boolean; piece: Piece } | { type: 'away' } | { type: 'ping' };
export interface HubPort {
  postMessage(message: ToPage): void;
  onmessage: ((event: MessageEvent<ToHub>) => void) | null;
}

const retryMs = 1000;
const pingMs = 20_000;
const silentMax = 3; // pings without an answer: the tab is gone

// What the stream has said so far.
class Known {
  private readonly jobs = new Map<number, NonNullable<Piece['jobs']>[number]>();
  private readonly nodes = new Map<number, NonNullable<Piece['nodes']>[number]>();
  private readonly gpus = new Map<string, NonNullable<Piece['gpus']>[number]>();
  private readonly links = new Map<string, NonNullable<Piece['links']>[number]>();
  private readonly hosts = new Map<number, NonNullable<Piece['hosts']>[number]>();
  private summary: Piece['summary'];
  private now = 0;

  take(piece: Piece): void {
    this.now = piece.now;
    for (const row of piece.jobs ?? []) this.jobs.set(row.id, row);
    for (const id of piece.gone ?? []) this.jobs.delete(id);
    for (const node of piece.nodes ?? []) this.nodes.set(node.id, node);
    for (const card of piece.gpus ?? []) this.gpus.set(`${card[0]} ${card[1]}`, card);
    for (const link of piece.links ?? []) this.links.set(`${link[0]} ${link[1]}`, link);
    for (const host of piece.hosts ?? []) this.hosts.set(host[0], host);
    for (const id of piece.nodes_gone ?? []) this.forget(id);
    this.summary = piece.summary ?? this.summary;
  }

  private forget(node: number): void {
    this.nodes.delete(node);
    this.hosts.delete(node);
    for (const map of [this.gpus, this.links])
      for (const key of map.keys()) if (key.startsWith(`${node} `)) map.delete(key);
  }

  everything(): Piece {
    return {
      now: this.now,
      jobs: [...this.jobs.values()],
      nodes: [...this.nodes.values()],
      gpus: [...this.gpus.values()],
      links: [...this.links.values()],
      hosts: [...this.hosts.values()],
      summary: this.summary,
    };
  }
}

export class Hub {
  private readonly tabs = new Map<HubPort, { silent: number }>();
  private source: EventSource | null = null;
  private known: Known | null = null; // null: the stream has not begun
  private retry = 0;

  constructor() {
    setInterval(() => this.ping(), pingMs);
  }

  connect(port: HubPort): void {
    port.onmessage = (event) => this.told(port, event.data);
  }

  private told(port: HubPort, message: ToHub): void {
    if (message.type === 'bye') {
      this.drop(port);
      return;
    }
    const tab = this.tabs.get(port);
    if (tab) tab.silent = 0;
    if (!tab || message.type === 'hello') {
      this.tabs.set(port, { silent: 0 });
      if (this.known)
        port.postMessage({ type: 'live', first: true, piece: this.known.everything() });
    }
    if (message.type === 'again' || !this.source) this.open();
  }

  private drop(port: HubPort): void {
    this.tabs.delete(port);
    if (this.tabs.size) return;
    clearTimeout(this.retry);
    this.source?.close();
    this.source = null;
    this.known = null;
  }

  private ping(): void {
    for (const [port, tab] of this.tabs)
      if (++tab.silent > silentMax) this.drop(port);
      else port.postMessage({ type: 'ping' });
  }

  private tell(message: ToPage): void {
    for (const port of this.tabs.keys()) port.postMessage(message);
  }

  private open(): void {
    clearTimeout(this.retry);
    this.source?.close();
    this.known = null;
    const source = new EventSource('/v1/live');
    this.source = source;
    source.addEventListener('live', (event) => {
      const piece = JSON.parse((event as MessageEvent<string>).data) as Piece;
      const first = !this.known;
      this.known ??= new Known();
      this.known.take(piece);
      this.tell({ type: 'live', first, piece });
    });
    source.onerror = () => {
      source.close();
      this.known = null;
      this.tell({ type: 'away' });
      // The pages find out whether the head is away or the session has ended.
      this.retry = setTimeout(() => this.open(), retryMs) as unknown as number;
    };
  }
}
