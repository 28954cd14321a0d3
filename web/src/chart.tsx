// A chart of series over time, and the same figures as a table for screen readers. uPlot draws on a
// canvas with the colours of the style sheet, so that it follows the page's theme.
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { useEffect, useRef } from 'preact/hooks';
import { signal } from '@preact/signals';
import { clock, day, seconds } from './format';

export interface Line {
  label: string;
  values: (number | null)[];
  colour: 1 | 2 | 3 | 4;
}
export const dark = signal(matchMedia('(prefers-color-scheme: dark)').matches);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', (e) => {
  dark.value = e.matches;
});

const colour = (name: string) =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A thousand rows would not help a screen reader.
const tableRows = 12;

export function Chart({
  title,
  fromMs,
  stepS,
  lines,
  format,
  max,
  height = 120,
}: {
  title: string;
  fromMs: number;
  stepS: number;
  lines: Line[];
  format: (v: number) => string;
  max?: number;
  height?: number;
}) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const shape = `${lines.map((l) => l.label).join()}|${dark.value}|${max}`;
  const count = lines[0]?.values.length ?? 0;
  const times = Array.from({ length: count }, (_, i) => fromMs / 1000 + i * stepS);
  const data = [times, ...lines.map((l) => l.values)] as uPlot.AlignedData;
  const long = stepS * count > 86400 * 1.5;
  const short = stepS * count < 900;
  const time = (t: number) =>
    (long ? `${day(t * 1000)} ` : '') + (short ? seconds(t * 1000) : clock(t * 1000));
  useEffect(() => {
    if (!box.current) return;
    const axis = {
      stroke: colour('--dim'),
      grid: { stroke: colour('--grid'), width: 1 },
      ticks: { show: false },
      font: '11px system-ui, sans-serif',
    };
    const chart = new uPlot(
      {
        width: Math.max(200, box.current.clientWidth),
        height,
        padding: [8, 8, 0, 0],
        cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
        legend: { live: true },
        scales: { y: { range: (_u, _lo, hi) => [0, max ?? Math.max(hi || 0, 1e-6) * 1.1] } },
        axes: [
          {
            ...axis,
            size: 28,
            space: 70,
            values: (_u, ticks) => ticks.map((t) => (long ? day(t * 1000) : time(t))),
          },
          { ...axis, size: 62, space: 28, values: (_u, ticks) => ticks.map(format) },
        ],
        series: [
          { label: 'Time', value: (_u, t) => (t == null ? '–' : time(t)) },
          ...lines.map((l) => ({
            label: l.label,
            stroke: colour(`--c${l.colour}`),
            fill: lines.length === 1 ? colour(`--c${l.colour}-soft`) : undefined,
            width: 1.5,
            points: { show: false },
            value: (_u: uPlot, v: number | null) => (v == null ? '–' : format(v)),
          })),
        ],
      },
      data,
      box.current,
    );
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
  }, [fromMs, stepS, count, lines]);
  const every = Math.max(1, Math.ceil(count / tableRows));
  const last = (l: Line) => {
    for (let i = l.values.length - 1; i >= 0; i--)
      if (l.values[i] != null) return format(l.values[i]!);
    return '–';
  };
  return (
    <figure class="chart">
      <figcaption>
        <b>{title}</b>{' '}
        <span>
          {lines.map((l) => (
            <span class={`key k${l.colour}`}>
              {l.label} {last(l)}
            </span>
          ))}
        </span>
      </figcaption>
      <div class="plot" ref={box} aria-hidden="true" />
      <div class="sr">
        <table>
          <caption>{title}</caption>
          <thead>
            <tr>
              <th scope="col">Time</th>
              {lines.map((l) => (
                <th scope="col">{l.label}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {times.map((t, i) =>
              i % every === 0 ? (
                <tr>
                  <th scope="row">{time(t)}</th>
                  {lines.map((l) => (
                    <td>{l.values[i] == null ? 'unknown' : format(l.values[i]!)}</td>
                  ))}
                </tr>
              ) : null,
            )}
          </tbody>
        </table>
      </div>
    </figure>
  );
}
