// Draws a chart with uPlot on a canvas, with the colours of the style sheet, so that it follows the
// page's theme. All charts of a page share their cursor.
import uPlot from 'uplot';
import { useEffect, useRef } from 'preact/hooks';
import { dark, type ChartProps } from '../parts/chart';
import type { Mark } from './marks';
import { absolute } from './range';
import { setRange } from './range_bar';

const colour = (name: string) =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const markColour: Record<Mark['kind'], string> = {
  start: '--good',
  end: '--dim',
  checkpoint: '--c2',
  suspend: '--warn',
  resume: '--good',
  preempt: '--bad',
  deploy: '--accent',
};
const markGap = 6; // pixels between a mark and the cursor that still show its text

export interface PlotProps extends ChartProps {
  times: number[];
  marks: Mark[];
  view?: { from: number; to: number };
  time: (t: number) => string;
}

export function Plot(props: PlotProps) {
  const box = useRef<HTMLDivElement>(null);
  const said = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const { lines, times, view, height = 120 } = props;
  const shape = [lines.map((l) => l.label).join(), dark.value, props.max, props.elapsed].join('|');
  const data = [times.map((t) => t / 1000), ...lines.map((l) => l.values)] as uPlot.AlignedData;
  useEffect(() => {
    if (!box.current) return;
    const chart = new uPlot(options(box.current, latest, said), data, box.current);
    plot.current = chart;
    const watch = new ResizeObserver(() => {
      if (box.current) chart.setSize({ width: Math.max(200, box.current.clientWidth), height });
    });
    watch.observe(box.current);
    return () => {
      watch.disconnect();
      chart.destroy();
      plot.current = null;
    };
  }, [shape]);
  useEffect(() => {
    plot.current?.setData(data);
  }, [times[0], times.length, lines, view?.from, view?.to, props.marks]);
  return (
    <>
      <div ref={box} />
      <div class="chart-said" ref={said} />
    </>
  );
}

function options(
  box: HTMLElement,
  latest: { current: PlotProps },
  said: { current: HTMLElement | null },
): uPlot.Options {
  const { lines, height = 120, bands, elapsed, free, unit } = latest.current;
  const axis = {
    stroke: colour('--dim'),
    grid: { stroke: colour('--grid'), width: 1 },
    ticks: { show: false },
    font: '11px system-ui, sans-serif',
  };
  const time = (t: number) => latest.current.time(t * 1000);
  const all = () => {
    setRange(null, true);
    return null;
  };
  return {
    width: Math.max(200, box.clientWidth),
    height,
    padding: [8, 18, 0, 0],
    cursor: {
      y: false,
      drag: { x: true, y: false, setScale: !!elapsed },
      points: { size: 6 },
      sync: { key: elapsed ? 'elapsed' : 'page', scales: ['x', null] },
      bind: elapsed ? {} : { dblclick: () => all },
    },
    legend: { live: true },
    scales: {
      x: {
        time: !elapsed,
        range: (_u, lo, hi) => {
          const view = latest.current.view;
          return view ? [view.from / 1000, view.to / 1000] : [lo, hi === lo ? lo + 1 : hi];
        },
      },
      y: { range: (_u, lo, hi) => yRange(lo, hi, latest.current) },
    },
    axes: [
      {
        ...axis,
        size: 30,
        gap: 7,
        space: 74,
        values: (u, ticks) => {
          const span = ((u.scales.x.max ?? 0) - (u.scales.x.min ?? 0)) / 86400;
          return ticks.map((t) =>
            span > 4 && !elapsed ? time(t).replace(/ \d\d:.*/, '') : time(t),
          );
        },
      },
      {
        ...axis,
        size: 62,
        space: 28,
        incrs: unit && steps[unit],
        values: (_u, ticks) => ticks.map(latest.current.format),
      },
    ],
    series: [
      { label: 'Time', value: (_u, t) => (t == null ? '–' : time(t)) },
      ...lines.map((l) => ({
        label: l.label || 'bound',
        stroke: colour(`--c${l.colour}`),
        fill: lines.length === 1 && !free ? colour(`--c${l.colour}-soft`) : undefined,
        width: l.label ? 1.5 : 0.5,
        dash: l.dash ? [5, 4] : undefined,
        points: { show: false },
        value: (_u: uPlot, v: number | null) => (v == null ? '–' : latest.current.format(v)),
      })),
    ],
    bands: bands?.map(([a, b]) => ({ series: [a + 1, b + 1], fill: colour('--c3-soft') })),
    hooks: {
      draw: [(u) => drawMarks(u, latest.current.marks)],
      setCursor: [(u) => sayMark(u, latest.current, said.current)],
      setSelect: [
        (u) => {
          if (elapsed || u.select.width < 4) return;
          const from = u.posToVal(u.select.left, 'x') * 1000;
          const to = u.posToVal(u.select.left + u.select.width, 'x') * 1000;
          u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          setRange(absolute({ from, to }), true);
        },
      ],
    },
  };
}

const steps = {
  binary: Array.from({ length: 40 }, (_, i) => 2 ** i),
  count: Array.from({ length: 27 }, (_, i) => [1, 2, 5][i % 3] * 10 ** Math.floor(i / 3)),
};

function yRange(lo: number, hi: number, { max, free, unit, least }: PlotProps): [number, number] {
  if (!free) return [0, max ?? Math.max((hi || 0) * 1.1, least ?? (unit ? 1 : 1e-6))];
  if (lo == null || hi == null) return [0, 1];
  const edge = (hi - lo || Math.abs(hi) || 1) * 0.08;
  return [lo - edge, hi + edge];
}

function drawMarks(u: uPlot, marks: Mark[]): void {
  const g = u.ctx;
  const { left, top, width, height } = u.bbox;
  g.save();
  g.lineWidth = Math.max(1, uPlot.pxRatio);
  for (const mark of marks) {
    const x = Math.round(u.valToPos(mark.at / 1000, 'x', true));
    if (x < left || x > left + width) continue;
    g.strokeStyle = g.fillStyle = colour(markColour[mark.kind]);
    g.setLineDash([4 * uPlot.pxRatio, 4 * uPlot.pxRatio]);
    g.beginPath();
    g.moveTo(x, top);
    g.lineTo(x, top + height);
    g.stroke();
    const half = 4 * uPlot.pxRatio;
    g.beginPath();
    g.moveTo(x - half, top);
    g.lineTo(x + half, top);
    g.lineTo(x, top + 1.5 * half);
    g.fill();
  }
  g.restore();
}

function sayMark(u: uPlot, props: PlotProps, box: HTMLElement | null): void {
  if (!box) return;
  const x = u.cursor.left ?? -1;
  const near = props.marks.filter(
    (m) => x >= 0 && Math.abs(u.valToPos(m.at / 1000, 'x') - x) < markGap,
  );
  box.textContent = near.map((m) => `${props.time(m.at)} ${m.text}`).join(', ');
}
