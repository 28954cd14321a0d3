// Every GPU as a square, shaded by its load, grouped by node and rack, up to tens of thousands. The
// canvas is painted once; afterwards only squares that changed are painted.
import { useSignal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { dark } from '../parts/chart';
import { conditionOf, shadeOf } from '../data/card';
import { gib, plural } from '../data/format';
import { gpuTick, jobs, nodes, nodesTick, readings } from '../data/store';
import { prepare } from './gantt_draw';
import {
  cellAt,
  cellX,
  cellY,
  heatLayout,
  neighbour,
  type Cell,
  type Heat,
  type HeatNode,
} from './heat_layout';

type Measure = 'load' | 'memory' | 'power' | 'temperature';
const measures: [Measure, string][] = [
  ['load', 'Load'],
  ['memory', 'Memory'],
  ['power', 'Power'],
  ['temperature', 'Temperature'],
];
const levels = ['f', '0', '1', '2', '3', '4', '5', 'x', 'r', 'd', 'u'] as const;
type Level = (typeof levels)[number];
const rackOf = (labels: Record<string, string>) => labels.rack ?? labels.switch ?? '';
const powerMax = 700;

// The shade of a GPU. Sick, drained and free are told apart first, and the same everywhere.
export function levelOf(nodeId: number, index: number, measure: Measure): Level {
  const node = nodes.get(nodeId);
  const gpu = readings.get(nodeId)?.[index];
  const card = node?.gpus[index];
  if (!node || !gpu || !card) return 'u';
  const shade = shadeOf(conditionOf(node, card, gpu), gpu.util) as Level;
  if (measure === 'load' || shade === 'x' || shade === 'd' || shade === 'r') return shade;
  const share =
    measure === 'memory'
      ? gpu.mem / card.mem_mib
      : measure === 'power'
        ? gpu.watts / powerMax
        : (gpu.celsius - 25) / 65;
  const known = measure === 'memory' ? gpu.mem : measure === 'power' ? gpu.watts : gpu.celsius;
  if (known < 0) return 'u';
  return String(Math.max(0, Math.min(5, Math.floor(share * 5.999)))) as Level;
}

export function HeatMap({ height = 520 }: { height?: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const box = useRef<HTMLDivElement>(null);
  const ring = useRef<HTMLElement>(null);
  const measure = useSignal<Measure>('load');
  const chosen = useSignal<Cell | null>(null);
  const width = useSignal(0);
  const structure = nodesTick.value;
  const heat = useMemo(() => {
    const list: HeatNode[] = [...nodes.values()]
      .filter((n) => n.gpus.length)
      .map((n) => ({ id: n.id, name: n.name, rack: rackOf(n.labels), gpus: n.gpus.length }));
    return heatLayout(list, Math.max(200, width.value), height);
  }, [structure, width.value, height]);
  const painter = useRef(new Painter());
  useEffect(() => {
    const watch = new ResizeObserver(() => {
      width.value = Math.max(0, (box.current?.clientWidth ?? 0) - 6);
    });
    watch.observe(box.current!);
    return () => watch.disconnect();
  }, []);
  const tick = gpuTick.value;
  useEffect(() => {
    if (canvas.current && width.value)
      painter.current.all(canvas.current, heat, measure.value, dark.value);
  }, [heat, measure.value, dark.value]);
  useEffect(() => painter.current.changes(), [tick]);
  useEffect(() => {
    const at = chosen.value;
    if (!ring.current || !at) return;
    const style = ring.current.style;
    style.left = `${cellX(heat, at.node, at.index) - 2}px`;
    style.top = `${cellY(heat, at.node, at.index) - 2}px`;
    style.width = style.height = `${heat.cell - heat.gap + 4}px`;
  }, [chosen.value, heat]);
  const point = (e: MouseEvent) => {
    const rect = canvas.current!.getBoundingClientRect();
    const found = cellAt(heat, e.clientX - rect.left, e.clientY - rect.top);
    const now = chosen.value;
    if (found?.node.id !== now?.node.id || found?.index !== now?.index) chosen.value = found;
  };
  const open = () => {
    const at = chosen.value;
    if (at) location.hash = `/nodes/${encodeURIComponent(at.node.name)}?gpu=${at.index}`;
  };
  const onKey = (e: KeyboardEvent) => {
    if (e.key.startsWith('Arrow')) chosen.value = neighbour(heat, chosen.value, e.key);
    else if (e.key === 'Enter') open();
    else return;
    e.preventDefault();
  };
  return (
    <section class="heat" aria-label="Load of all GPUs">
      <div class="filters">
        <div class="tabs" role="group" aria-label="Shade by">
          {measures.map(([id, word]) => (
            <button
              type="button"
              aria-pressed={measure.value === id}
              onClick={() => {
                measure.value = id;
              }}
            >
              {word}
            </button>
          ))}
        </div>
        <p class="legend" aria-hidden="true">
          <i data-l="f" /> free <i data-l="0" /> idle <i data-l="1" />
          <i data-l="2" />
          <i data-l="3" />
          <i data-l="4" />
          <i data-l="5" /> busy <i data-l="r" /> reserved <i class="swatch drained" /> drained{' '}
          <i data-l="x" /> sick or lost
        </p>
      </div>
      <p class="hover" role="status">
        {chosen.value ? (
          <Said at={chosen.value} />
        ) : (
          `${plural(heat.cells, 'GPU')} of ${plural(heat.nodes.length, 'node')}, to scale. ` +
          'Point at a square or use the arrow keys; Enter opens it.'
        )}
      </p>
      <div
        class="heat-box"
        ref={box}
        tabIndex={0}
        role="application"
        aria-label={
          'GPUs as squares, shaded by their load; arrow keys move, Enter opens the node. ' +
          'The table of nodes has the same figures.'
        }
        onKeyDown={onKey}
        onMouseMove={point}
        onMouseLeave={() => {
          chosen.value = null;
        }}
        onClick={open}
      >
        <canvas ref={canvas} aria-hidden="true" />
        {chosen.value && <i class="heat-ring" ref={ring} />}
      </div>
    </section>
  );
}

function Said({ at }: { at: Cell }) {
  gpuTick.value;
  const gpu = readings.get(at.node.id)?.[at.index];
  const node = nodes.get(at.node.id);
  const card = node?.gpus[at.index];
  if (!gpu || !node || !card) return null;
  const holders = [...new Set(gpu.jobs)].map((id) => jobs.get(id)?.name || `job ${id}`);
  const condition = conditionOf(node, card, gpu);
  return (
    <>
      <b>
        {node.name} · GPU {at.index} ({card.type})
      </b>{' '}
      {card.unhealthy
        ? `out of service: ${card.unhealthy}`
        : holders.join(', ') || (gpu.milli ? 'another project' : condition)}
      {!card.unhealthy &&
        ` · ${gpu.util >= 0 ? `${gpu.util} %` : 'load unknown'} · ${gib(gpu.mem)} · ` +
          `${gpu.watts >= 0 ? `${gpu.watts} W` : '–'}`}
    </>
  );
}

// Keeps what is painted, so that an update costs only the squares that changed.
export class Painter {
  private shown: Level[] = [];
  private heat: Heat | null = null;
  private context: CanvasRenderingContext2D | null = null;
  private measure: Measure = 'load';
  private colours = new Map<Level, string>();

  all(canvas: HTMLCanvasElement, heat: Heat, measure: Measure, isDark: boolean): void {
    const style = getComputedStyle(document.documentElement);
    const of = (name: string) => style.getPropertyValue(name).trim();
    this.colours = new Map(
      levels.map((l) => [l, l === 'd' ? of('--dim') : l === 'u' ? of('--line') : of(`--l${l}`)]),
    );
    this.heat = heat;
    this.measure = measure;
    this.shown = new Array<Level>(heat.cells);
    const g = prepare(canvas, heat.width, Math.max(1, heat.height));
    this.context = g;
    g.font = '12px system-ui, sans-serif';
    g.fillStyle = of('--dim');
    for (const rack of heat.racks)
      g.fillText(/^\d/.test(rack.name) ? `rack ${rack.name}` : rack.name, rack.x, rack.y + 9);
    // A frame around each node, where there is space for one.
    g.strokeStyle = isDark ? '#3a4656' : '#c9d1db';
    if (heat.cell >= 10)
      for (const n of heat.nodes)
        g.strokeRect(n.x - 2.5, n.y - 2.5, n.w + 4 - heat.gap, n.h + 4 - heat.gap);
    this.changes();
  }

  // Paints the squares whose shade changed.
  changes(): void {
    const { heat, context: g } = this;
    if (!heat || !g) return;
    // By colour: changing the fill is what costs.
    const due = new Map<Level, number[]>();
    heat.nodes.forEach((node) => {
      for (let i = 0; i < node.gpus; i++) {
        const level = levelOf(node.id, i, this.measure);
        if (this.shown[node.first + i] === level) continue;
        this.shown[node.first + i] = level;
        const list = due.get(level);
        const x = cellX(heat, node, i);
        const y = cellY(heat, node, i);
        if (list) list.push(x, y);
        else due.set(level, [x, y]);
      }
    });
    const size = heat.cell - heat.gap;
    for (const [level, list] of due) {
      g.fillStyle = this.colours.get(level)!;
      for (let i = 0; i < list.length; i += 2) g.fillRect(list[i], list[i + 1], size, size);
    }
  }
}
