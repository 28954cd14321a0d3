// The Gantt chart of GPUs without a screen: rows, lanes, positions, what lies under a point, and
// where the keyboard goes next. Times are milliseconds since 1970, sizes CSS pixels.

export type Kind = 'run' | 'idle' | 'drained' | 'lost' | 'reserved';
export interface Block {
  from: number;
  to: number;
  job: string; // as in its address; empty: none, or one of another project
  jobs: number; // several short jobs drawn as one
  name: string;
  user: string;
  project: string;
  reason: string;
  milli: number;
  kind: Kind;
  waste: number; // dollars
  lane: number;
  of: number; // lanes where it stands: 1 if it has the GPU to itself
}
export interface Card {
  node: string;
  index: number;
  type: string;
  lanes: number; // jobs side by side on one GPU
  blocks: Block[]; // by begin
}
export interface Row {
  kind: 'node' | 'card';
  node: string;
  y: number;
  h: number;
  card?: Card;
  cards: Card[]; // of a node
}
export interface View {
  from: number;
  to: number;
}

export const nodeRowPx = 24;
export const cardRowPx = 22;
export const minuteMs = 60_000;
export const hourMs = 3_600_000;
export const dayMs = 86_400_000;
const spanMin = 5 * minuteMs;
const spanMax = 32 * dayMs;

// Blocks of one GPU that overlap get lanes, so that jobs that share it stand below one another; a
// block that overlaps none has the whole height. Sorts the blocks and returns the most lanes.
export function assignLanes(blocks: Block[]): number {
  blocks.sort((a, b) => a.from - b.from || b.to - a.to);
  let most = 1;
  let ends: number[] = [];
  let group: Block[] = [];
  const close = () => {
    for (const block of group) block.of = ends.length;
    most = Math.max(most, ends.length);
    ends = [];
    group = [];
  };
  for (const block of blocks) {
    if (ends.length && ends.every((end) => end <= block.from)) close();
    let lane = ends.findIndex((end) => end <= block.from);
    if (lane < 0) lane = ends.length;
    ends[lane] = block.to;
    block.lane = lane;
    group.push(block);
  }
  close();
  return most;
}

export function layout(
  cards: Card[],
  folded: ReadonlySet<string>,
): { rows: Row[]; height: number } {
  const rows: Row[] = [];
  let y = 0;
  let head: Row | undefined;
  for (const card of cards) {
    if (head?.node !== card.node) {
      head = { kind: 'node', node: card.node, y, h: nodeRowPx, cards: [] };
      rows.push(head);
      y += nodeRowPx;
    }
    head.cards.push(card);
    if (folded.has(card.node)) continue;
    // Up to two lanes share a row of the usual height; more make it taller, within a limit.
    const h = Math.min(66, Math.max(cardRowPx, card.lanes * 11));
    rows.push({ kind: 'card', node: card.node, y, h, card, cards: [] });
    y += h;
  }
  return { rows, height: y };
}

// The first row whose end is below y, by bisection.
export function rowAt(rows: Row[], y: number): number {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (rows[mid].y + rows[mid].h <= y) low = mid + 1;
    else high = mid;
  }
  return low;
}

export const xOf = (view: View, width: number, at: number) =>
  ((at - view.from) / (view.to - view.from)) * width;
export const timeAt = (view: View, width: number, x: number) =>
  view.from + (x / width) * (view.to - view.from);

export interface Hit {
  row: number;
  block: number; // index in the card's blocks; -1: no block there
}
// What lies at a point. A block narrower than a few pixels can still be hit: the nearest within
// two pixels counts.
export function hit(rows: Row[], view: View, width: number, x: number, y: number): Hit | null {
  const at = rowAt(rows, y);
  const row = rows[at];
  if (!row || y < row.y) return null;
  if (!row.card) return { row: at, block: -1 };
  const slack = (2 / width) * (view.to - view.from);
  const time = timeAt(view, width, x);
  const depth = Math.min(0.999, (y - row.y) / row.h);
  let best = -1;
  row.card.blocks.forEach((b, i) => {
    if (b.lane === Math.floor(depth * b.of) && b.from - slack <= time && b.to + slack >= time)
      if (best < 0 || inside(b, time) || !inside(row.card!.blocks[best], time)) best = i;
  });
  return { row: at, block: best };
}
const inside = (b: Block, time: number) => b.from <= time && time < b.to;

export function clampView(view: View): View {
  const span = Math.min(spanMax, Math.max(spanMin, view.to - view.from));
  const middle = (view.from + view.to) / 2;
  return span === view.to - view.from ? view : { from: middle - span / 2, to: middle + span / 2 };
}
// Zooms around a fixed time: factor 0.5 shows half the time.
export function zoom(view: View, factor: number, around: number): View {
  const wanted = (view.to - view.from) * factor;
  const span = Math.min(spanMax, Math.max(spanMin, wanted));
  const share = (around - view.from) / (view.to - view.from);
  const from = around - share * span;
  return { from, to: from + span };
}
export const pan = (view: View, share: number): View => {
  const by = (view.to - view.from) * share;
  return { from: view.from + by, to: view.to + by };
};

// The keyboard: along a row to the neighbour in time, to another row to the block nearest in time.
export function step(rows: Row[], view: View, now: Hit | null, key: string): Hit | null {
  const cards = rows.flatMap((r, i) => (r.card ? [i] : []));
  if (!cards.length) return null;
  const seen = (row: number) =>
    rows[row].card!.blocks.flatMap((b, i) => (b.to > view.from && b.from < view.to ? [i] : []));
  if (!now || !rows[now.row]?.card) {
    const first = cards.find((i) => seen(i).length);
    return first === undefined ? null : { row: first, block: seen(first)[0] };
  }
  const block = rows[now.row].card!.blocks[now.block];
  if (key === 'ArrowLeft' || key === 'ArrowRight') {
    const list = seen(now.row);
    const by = key === 'ArrowRight' ? 1 : -1;
    const next = list[list.indexOf(now.block) + by];
    return next === undefined ? now : { row: now.row, block: next };
  }
  const by = key === 'ArrowDown' ? 1 : -1;
  const middle = block
    ? (Math.max(block.from, view.from) + Math.min(block.to, view.to)) / 2
    : (view.from + view.to) / 2;
  for (let at = cards.indexOf(now.row) + by; cards[at] !== undefined; at += by) {
    const list = seen(cards[at]);
    if (!list.length) continue;
    const far = (i: number) => {
      const b = rows[cards[at]].card!.blocks[i];
      return b.from <= middle && middle < b.to
        ? 0
        : Math.min(Math.abs(b.from - middle), Math.abs(b.to - middle));
    };
    return { row: cards[at], block: list.reduce((a, b) => (far(b) < far(a) ? b : a)) };
  }
  return now;
}

// Times for the axis: the smallest usual step that leaves enough space, on whole local hours and
// days.
const steps = [1, 2, 5, 10, 15, 30].map((m) => m * minuteMs);
steps.push(...[1, 2, 3, 6, 12].map((h) => h * hourMs));
steps.push(...[1, 2, 7].map((d) => d * dayMs));
export function ticks(view: View, width: number, spacePx = 80): number[] {
  const least = ((view.to - view.from) / Math.max(1, width)) * spacePx;
  const every = steps.find((s) => s >= least) ?? steps[steps.length - 1];
  const midnight = new Date(view.from);
  midnight.setHours(0, 0, 0, 0);
  const out: number[] = [];
  if (every >= dayMs) {
    // By calendar days, because days on which clocks change are longer or shorter.
    const day = new Date(midnight);
    while (day.getTime() <= view.to && out.length < 100) {
      if (day.getTime() >= view.from) out.push(day.getTime());
      day.setDate(day.getDate() + every / dayMs);
    }
    return out;
  }
  const begin = midnight.getTime();
  let at = begin + Math.ceil((view.from - begin) / every) * every;
  for (; at <= view.to && out.length < 100; at += every) out.push(at);
  return out;
}

// Dollars that bought nothing within the view, as bills name them: idle in jobs, and GPUs that no
// job held. A block counts by the share of it that is seen.
export function wasteWithin(cards: Card[], view: View): { idle: number; unallocated: number } {
  const sum = { idle: 0, unallocated: 0 };
  for (const card of cards)
    for (const b of card.blocks) {
      const seen = Math.min(b.to, view.to) - Math.max(b.from, view.from);
      if (b.waste > 0 && seen > 0)
        sum[b.kind === 'run' ? 'idle' : 'unallocated'] +=
          (b.waste * seen) / Math.max(1, b.to - b.from);
    }
  return sum;
}

// Since when anything is known of these GPUs; null: nothing is.
export function knownSince(cards: Card[]): number | null {
  let first: number | null = null;
  for (const card of cards)
    for (const b of card.blocks)
      if (b.kind !== 'reserved' && (first === null || b.from < first)) first = b.from;
  return first;
}
