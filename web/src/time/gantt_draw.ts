// Draws the Gantt chart on a canvas: only rows and blocks in view, so that the time depends on the
// size of the window and not on the fleet.
import {
  rowAt,
  ticks,
  wasteWithin,
  xOf,
  type Block,
  type Hit,
  type Row,
  type View,
} from './blocks';
import { clock, day } from '../data/format';
import { colours, inkOn } from './palette';

export interface Look {
  dark: boolean;
  text: string;
  dim: string;
  line: string;
  grid: string;
  card: string;
  sunk: string;
  warn: string;
  bad: string;
  accent: string;
}
export function lookOf(dark: boolean): Look {
  const style = getComputedStyle(document.documentElement);
  const of = (name: string) => style.getPropertyValue(`--${name}`).trim();
  return {
    dark,
    text: of('text'),
    dim: of('dim'),
    line: of('line'),
    grid: of('grid'),
    card: of('card'),
    sunk: of('sunk'),
    warn: of('warn'),
    bad: of('bad'),
    accent: of('accent'),
  };
}

// Prepares a canvas for its size on this screen; drawing then uses CSS pixels.
export function prepare(canvas: HTMLCanvasElement, w: number, h: number): CanvasRenderingContext2D {
  const scale = window.devicePixelRatio || 1;
  const pw = Math.max(1, Math.round(w * scale));
  const ph = Math.max(1, Math.round(h * scale));
  if (canvas.width !== pw || canvas.height !== ph) {
    canvas.width = pw;
    canvas.height = ph;
    canvas.style.width = `${w}px`;
    canvas.style.height = `${h}px`;
  }
  const g = canvas.getContext('2d')!;
  g.setTransform(scale, 0, 0, scale, 0, 0);
  g.clearRect(0, 0, w, h);
  g.textBaseline = 'middle';
  return g;
}

const patterns = new Map<string, CanvasPattern>();
// Diagonal stripes: the fill of time that nobody used.
export function hatch(
  g: CanvasRenderingContext2D,
  colour: string,
  falling: boolean,
): CanvasPattern {
  const key = `${colour}${falling}`;
  const known = patterns.get(key);
  if (known) return known;
  const tile = document.createElement('canvas');
  tile.width = 8;
  tile.height = 8;
  const t = tile.getContext('2d')!;
  t.strokeStyle = colour;
  t.lineWidth = 2;
  t.beginPath();
  for (const at of [-8, 0, 8]) {
    t.moveTo(at - 1, falling ? -1 : 9);
    t.lineTo(at + 9, falling ? 9 : -1);
  }
  t.stroke();
  const made = g.createPattern(tile, 'repeat')!;
  patterns.set(key, made);
  return made;
}

export interface Scene {
  rows: Row[];
  view: View;
  width: number; // of the whole canvas
  height: number;
  gutter: number; // names on the left
  scroll: number;
  now: number;
  projects: Map<string, number>;
  only: string; // a project to emphasise, or nothing
  selected: Hit | null;
  folded: ReadonlySet<string>;
  look: Look;
}
const money = (usd: number) => (usd < 0.01 ? '< $0.01' : `$${usd.toFixed(2)}`);
export const moneyText = money;

export function drawAxis(canvas: HTMLCanvasElement, s: Scene): void {
  const height = 30;
  const g = prepare(canvas, s.width, height);
  const plot = s.width - s.gutter;
  g.font = '11px system-ui, sans-serif';
  g.fillStyle = s.look.dim;
  g.textAlign = 'left';
  const list = ticks(s.view, plot);
  const days = list.length > 1 && list[1] - list[0] > 80_000_000;
  let shownDay = '';
  for (const at of list) {
    const x = s.gutter + xOf(s.view, plot, at);
    const date = day(at);
    g.strokeStyle = s.look.line;
    g.beginPath();
    g.moveTo(Math.round(x) + 0.5, height - 5);
    g.lineTo(Math.round(x) + 0.5, height);
    g.stroke();
    if (x > s.width - 30) continue;
    if (days) g.fillText(date, x + 3, 18);
    else {
      g.fillText(clock(at), x + 3, 20);
      // The date stands once for each day.
      if (date !== shownDay) g.fillText(date, x + 3, 7);
    }
    shownDay = date;
  }
}

export function drawRows(canvas: HTMLCanvasElement, s: Scene): void {
  const g = prepare(canvas, s.width, s.height);
  const plot = s.width - s.gutter;
  g.save();
  g.beginPath();
  g.rect(s.gutter, 0, plot, s.height);
  g.clip();
  g.strokeStyle = s.look.grid;
  for (const at of ticks(s.view, plot)) {
    const x = Math.round(s.gutter + xOf(s.view, plot, at)) + 0.5;
    g.beginPath();
    g.moveTo(x, 0);
    g.lineTo(x, s.height);
    g.stroke();
  }
  const first = rowAt(s.rows, s.scroll);
  for (let i = first; i < s.rows.length && s.rows[i].y < s.scroll + s.height; i++)
    drawBlocks(g, s, i, plot);
  if (s.now > s.view.from && s.now < s.view.to) {
    const x = Math.round(s.gutter + xOf(s.view, plot, s.now)) + 0.5;
    g.strokeStyle = s.look.bad;
    g.beginPath();
    g.moveTo(x, 0);
    g.lineTo(x, s.height);
    g.stroke();
  }
  g.restore();
  for (let i = first; i < s.rows.length && s.rows[i].y < s.scroll + s.height; i++)
    drawName(g, s, s.rows[i]);
}

function drawName(g: CanvasRenderingContext2D, s: Scene, row: Row): void {
  const y = row.y - s.scroll;
  g.textAlign = 'left';
  if (row.kind === 'node') {
    g.fillStyle = s.look.sunk;
    g.fillRect(0, y, s.width, row.h);
    g.fillStyle = s.look.text;
    g.font = '600 12px system-ui, sans-serif';
    const mark = s.folded.has(row.node) ? '▸' : '▾';
    g.fillText(`${mark} ${row.node}`, 8, y + row.h / 2);
    const after = 8 + g.measureText(`${mark} ${row.node}`).width + 10;
    g.font = '11px system-ui, sans-serif';
    g.fillStyle = s.look.dim;
    g.fillText(
      `${row.cards.length} ${row.cards.length === 1 ? 'GPU' : 'GPUs'}`,
      after,
      y + row.h / 2,
    );
    const waste = wasteWithin(row.cards, s.view);
    const unused = waste.idle + waste.unallocated;
    if (unused >= 0.01) {
      g.fillStyle = s.look.warn;
      g.textAlign = 'right';
      g.fillText(`${money(unused)} unused`, s.width - 8, y + row.h / 2);
    }
    return;
  }
  g.font = '11px system-ui, sans-serif';
  g.fillStyle = s.look.dim;
  g.save();
  g.beginPath();
  g.rect(0, y, s.gutter - 6, row.h);
  g.clip();
  g.fillText(`${row.card!.index}  ${row.card!.type}`, s.gutter < 100 ? 6 : 20, y + row.h / 2);
  g.restore();
  g.fillStyle = s.look.grid;
  g.fillRect(0, y + row.h - 1, s.width, 1);
}

function drawBlocks(g: CanvasRenderingContext2D, s: Scene, at: number, plot: number): void {
  const row = s.rows[at];
  if (!row.card) return;
  const drawnTo = new Array<number>(row.card.lanes).fill(-1);
  row.card.blocks.forEach((b, i) => {
    if (b.to < s.view.from || b.from > s.view.to) return;
    const left = Math.max(s.gutter - 2, s.gutter + xOf(s.view, plot, b.from));
    const right = Math.min(s.width + 2, s.gutter + xOf(s.view, plot, b.to));
    const chosen = s.selected?.row === at && s.selected.block === i;
    // Many short jobs in one pixel are drawn once.
    if (right <= drawnTo[b.lane] && right - left < 1 && !chosen) return;
    const w = Math.max(1, right - left - (right - left > 4 ? 1 : 0));
    drawnTo[b.lane] = left + w;
    const laneHeight = (row.h - 4) / b.of;
    const y = row.y - s.scroll + 2 + b.lane * laneHeight;
    drawBlock(g, s, b, { x: left, y, w, h: laneHeight - (b.of > 1 ? 1 : 0) });
    if (!chosen) return;
    g.strokeStyle = s.look.text;
    g.lineWidth = 2;
    g.strokeRect(left + 1, y + 1, Math.max(2, w - 2), laneHeight - 2);
    g.lineWidth = 1;
  });
}

interface Box {
  x: number;
  y: number;
  w: number;
  h: number;
}
function drawBlock(g: CanvasRenderingContext2D, s: Scene, b: Block, box: Box): void {
  const look = s.look;
  const own = b.project ? colours(look.dark)[s.projects.get(b.project) ?? 9] : look.dim;
  g.globalAlpha = s.only && b.project !== s.only ? 0.18 : 1;
  const stripes = (colour: string, falling: boolean, ground: string) => {
    g.fillStyle = ground;
    g.fillRect(box.x, box.y, box.w, box.h);
    g.fillStyle = hatch(g, colour, falling);
    g.fillRect(box.x, box.y, box.w, box.h);
  };
  let ink = look.text;
  switch (b.kind) {
    case 'run':
      g.fillStyle = own;
      g.fillRect(box.x, box.y, box.w, box.h);
      ink = inkOn(look.dark);
      // Held but not used: stripes along the lower edge.
      if (b.waste > 0) {
        g.fillStyle = hatch(g, ink, false);
        g.fillRect(box.x, box.y + box.h - 3, box.w, 3);
      }
      break;
    case 'idle':
      stripes(look.dark ? '#4a3a17' : '#f7e3bb', false, look.dark ? '#292110' : '#fdf6e7');
      break;
    case 'drained':
      stripes(look.dark ? '#3a4453' : '#cdd5df', true, look.sunk);
      break;
    case 'lost':
      stripes(look.dark ? '#7c3b36' : '#eab3ae', true, look.dark ? '#3b1c1a' : '#fbe9e7');
      break;
    case 'reserved':
      stripes(look.dark ? '#2c4572' : '#c4d6f3', false, look.card);
      g.strokeStyle = own;
      g.strokeRect(box.x + 0.5, box.y + 0.5, Math.max(1, box.w - 1), box.h - 1);
      break;
  }
  if (box.w > 34 && box.h >= 12) drawText(g, b, box, ink, look);
  g.globalAlpha = 1;
}

export const titleOf = (b: Block) =>
  b.jobs > 1 ? `${b.jobs} jobs` : b.name || (b.job ? `job ${b.job}` : 'another project');
const plainWord: Record<string, string> = {
  idle: 'idle',
  drained: 'drained',
  lost: 'lost',
  reserved: 'reserved',
};
function drawText(g: CanvasRenderingContext2D, b: Block, box: Box, ink: string, look: Look): void {
  g.save();
  g.beginPath();
  g.rect(box.x, box.y, box.w - 2, box.h);
  g.clip();
  g.font = '11px system-ui, sans-serif';
  g.textAlign = 'left';
  g.fillStyle = ink;
  const from = Math.max(box.x, 0) + 5;
  const middle = box.y + box.h / 2 + 0.5;
  const dollars = b.waste >= 0.01 ? money(b.waste) : '';
  const word = b.kind === 'run' ? titleOf(b) : plainWord[b.kind];
  if (b.kind === 'idle') g.fillStyle = look.warn;
  g.fillText(dollars ? `${dollars} ${word}` : word, from, middle);
  g.restore();
}
