// A chart of series over time: its title, latest values, export as CSV and PNG, and the same
// figures as a table for screen readers. The drawing itself is loaded on demand (time/plot.tsx).
// The range in the address (`from`, `to`) is that of all charts of a page; dragging sets it.
import { signal } from '@preact/signals';
import { useRef } from 'preact/hooks';
import { clock, day, lasting, seconds } from '../data/format';
import { route } from '../data/store';
import { csvOf, fileName, save, savePng } from '../time/export';
import { lazy } from './lazy';
import { pageMarks, type Mark } from '../time/marks';
import { resolve } from '../time/range';

export interface Line {
  label: string;
  values: (number | null)[];
  colour: 1 | 2 | 3 | 4 | 5;
  dash?: boolean;
  still?: boolean; // its last value says nothing
}
export interface ChartProps {
  title: string;
  fromMs: number;
  stepS: number;
  times?: number[]; // instead of fromMs and stepS: the time of each value, in ms
  lines: Line[];
  bands?: [number, number][]; // areas between two lines, by their positions
  format: (v: number) => string;
  max?: number;
  free?: boolean; // the scale need not begin at zero
  unit?: 'binary' | 'count'; // the steps of the scale: powers of two, or whole numbers
  least?: number; // the scale reaches at least this far
  height?: number;
  marks?: Mark[];
  elapsed?: boolean; // times count from the beginning of a job
  note?: string; // how the figures were made
}
export const dark = signal(matchMedia('(prefers-color-scheme: dark)').matches);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', (e) => {
  dark.value = e.matches;
});

const Plot = lazy(() => import('../time/plot').then((m) => m.Plot), '');

// A thousand rows would not help a screen reader.
const tableRows = 12;

export function chartTime(props: ChartProps, times: number[]): (t: number) => string {
  const span = (times[times.length - 1] ?? 0) - (times[0] ?? 0);
  if (props.elapsed) return (t) => lasting(t / 1000);
  const long = span > 1.5 * 86_400_000;
  const short = span < 900_000;
  return (t) => (long ? `${day(t)} ` : '') + (short ? seconds(t) : clock(t));
}

// The part of time that the address asks for; undefined: all there is.
export function askedView(elapsed?: boolean): { from: number; to: number } | undefined {
  if (elapsed) return undefined;
  const query = new URLSearchParams(route.value.split('?')[1] ?? '');
  const now = Date.now();
  const from = resolve(query.get('from') ?? '', now);
  const to = resolve(query.get('to') ?? 'now', now);
  return from < to ? { from, to } : undefined;
}

export function Chart(props: ChartProps) {
  const { title, fromMs, stepS, lines, format } = props;
  const figure = useRef<HTMLElement>(null);
  const menu = useRef<HTMLDetailsElement>(null);
  const count = lines[0]?.values.length ?? 0;
  const times = props.times ?? Array.from({ length: count }, (_, i) => fromMs + i * stepS * 1000);
  const time = chartTime(props, times);
  const marks = props.marks ?? (props.elapsed ? [] : pageMarks.value);
  const every = Math.max(1, Math.ceil(count / tableRows));
  const last = (l: Line) => {
    for (let i = l.values.length - 1; i >= 0; i--)
      if (l.values[i] != null) return format(l.values[i]!);
    return '–';
  };
  const close = () => {
    if (menu.current) menu.current.open = false;
  };
  const csv = () => {
    const begin = props.elapsed ? 0 : (askedView()?.from ?? -Infinity);
    const end = props.elapsed ? Infinity : (askedView()?.to ?? Infinity);
    const kept = times.flatMap((t, i) => (t >= begin && t <= end ? [i] : []));
    const columns = lines.map((l) => ({ label: l.label, values: kept.map((i) => l.values[i]) }));
    save(
      fileName(title, 'csv'),
      new Blob(
        [
          csvOf(
            kept.map((i) => times[i]),
            columns,
          ),
        ],
        { type: 'text/csv' },
      ),
    );
    close();
  };
  const png = () => {
    const canvas = figure.current?.querySelector('canvas');
    const style = getComputedStyle(document.documentElement);
    const colour = (l: Line) => style.getPropertyValue(`--c${l.colour}`).trim();
    if (canvas)
      savePng(
        title,
        canvas,
        lines.map((l) => ({ text: `${l.label} ${last(l)}`, colour: colour(l) })),
      );
    close();
  };
  return (
    <figure class="chart" ref={figure}>
      <figcaption>
        <b title={props.note}>{title}</b>{' '}
        <span>
          {lines
            .filter((l) => l.label)
            .map((l) => (
              <span class={`key k${l.colour}`}>
                {l.label} {!l.still && last(l)}
              </span>
            ))}
        </span>
        <details class="chart-menu" ref={menu}>
          <summary aria-label={`Save chart ${title}`} title="Save">
            ⤓
          </summary>
          <div>
            <button type="button" class="link" onClick={csv}>
              CSV
            </button>
            <button type="button" class="link" onClick={png}>
              PNG
            </button>
          </div>
        </details>
      </figcaption>
      <div class="plot" aria-hidden="true">
        <Plot {...props} times={times} marks={marks} view={askedView(props.elapsed)} time={time} />
      </div>
      <div class="sr">
        <table>
          <caption>
            {title}
            {props.note ? `. ${props.note}` : ''}
            {marks.length ? `. ${marks.map((m) => `${time(m.at)} ${m.text}`).join('; ')}` : ''}
          </caption>
          <thead>
            <tr>
              <th scope="col">Time</th>
              {lines.map((l) => (
                <th scope="col">{l.label || 'bound'}</th>
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
