// The fleet to scale: every GPU has the same size, a node is as large as its GPUs, nodes of a rack
// stand together. Pure: positions in CSS pixels, and what lies under a point.
import { byName } from './names';

export interface HeatNode {
  id: number;
  name: string;
  rack: string; // empty: not known
  gpus: number;
}
export interface PlacedNode extends HeatNode {
  x: number;
  y: number;
  w: number;
  h: number;
  first: number; // number of its first cell
}
export interface Rack {
  name: string;
  x: number;
  y: number;
}
export interface Heat {
  cell: number; // with its gap
  gap: number;
  perRow: number; // GPUs of a node side by side
  nodes: PlacedNode[];
  racks: Rack[];
  width: number;
  height: number;
  cells: number;
}
const perRow = 8;
const labelPx = 18;
const sizes = [26, 22, 18, 15, 12, 10, 8, 7, 6, 5];

// The largest size at which the fleet fits into the height that is wished for.
export function heatLayout(list: HeatNode[], width: number, wishedHeight: number): Heat {
  const order = [...list].sort((a, b) => byName(a.rack, b.rack) || byName(a.name, b.name));
  let best = place(order, width, sizes[sizes.length - 1]);
  for (const size of sizes) {
    const tried = place(order, width, size);
    if (tried.height <= wishedHeight) {
      best = tried;
      break;
    }
  }
  return best;
}

function place(order: HeatNode[], width: number, cell: number): Heat {
  const gap = cell >= 12 ? 2 : 1;
  const space = Math.max(3, Math.round(cell * 0.6));
  const heat: Heat = { cell, gap, perRow, nodes: [], racks: [], width, height: 0, cells: 0 };
  const named = order.some((n) => n.rack);
  let x = 0;
  let y = 0;
  let tallest = 0;
  let rack: string | undefined;
  for (const node of order) {
    if (named && node.rack !== rack) {
      if (rack !== undefined) y += tallest + space;
      rack = node.rack;
      heat.racks.push({ name: rack || 'no rack', x: 0, y });
      y += labelPx;
      x = 0;
      tallest = 0;
    }
    const w = Math.min(perRow, Math.max(1, node.gpus)) * cell;
    const h = Math.ceil(Math.max(1, node.gpus) / perRow) * cell;
    if (x > 0 && x + w > width) {
      x = 0;
      y += tallest + space;
      tallest = 0;
    }
    heat.nodes.push({ ...node, x, y, w, h, first: heat.cells });
    heat.cells += node.gpus;
    x += w + space;
    tallest = Math.max(tallest, h);
  }
  heat.height = y + tallest;
  return heat;
}

export interface Cell {
  node: PlacedNode;
  index: number;
}
export function cellAt(heat: Heat, x: number, y: number): Cell | null {
  for (const node of heat.nodes) {
    if (x < node.x || x >= node.x + node.w || y < node.y || y >= node.y + node.h) continue;
    const index =
      Math.floor((y - node.y) / heat.cell) * heat.perRow + Math.floor((x - node.x) / heat.cell);
    return index < node.gpus ? { node, index } : null;
  }
  return null;
}
export const cellX = (heat: Heat, node: PlacedNode, index: number) =>
  node.x + (index % heat.perRow) * heat.cell;
export const cellY = (heat: Heat, node: PlacedNode, index: number) =>
  node.y + Math.floor(index / heat.perRow) * heat.cell;

// The keyboard: the nearest cell in the direction of the key.
export function neighbour(heat: Heat, at: Cell | null, key: string): Cell | null {
  if (!heat.nodes.length) return null;
  if (!at) return { node: heat.nodes[0], index: 0 };
  const place = heat.nodes.findIndex((n) => n.id === at.node.id);
  if (key === 'ArrowRight' || key === 'ArrowLeft') {
    const next = at.index + (key === 'ArrowRight' ? 1 : -1);
    if (next >= 0 && next < at.node.gpus) return { node: at.node, index: next };
    const other = heat.nodes[place + (key === 'ArrowRight' ? 1 : -1)];
    return other ? { node: other, index: key === 'ArrowRight' ? 0 : other.gpus - 1 } : at;
  }
  const down = key === 'ArrowDown';
  const row = at.index + (down ? heat.perRow : -heat.perRow);
  if (row >= 0 && row < at.node.gpus) return { node: at.node, index: row };
  const x = cellX(heat, at.node, at.index) + heat.cell / 2;
  const list = down ? heat.nodes.slice(place + 1) : heat.nodes.slice(0, place).reverse();
  const found = list.find((n) => n.y !== at.node.y && x >= n.x && x < n.x + n.w);
  if (!found) return at;
  const column = Math.floor((x - found.x) / heat.cell);
  const last = Math.floor((found.gpus - 1) / heat.perRow) * heat.perRow;
  return { node: found, index: Math.min(found.gpus - 1, (down ? 0 : last) + column) };
}
