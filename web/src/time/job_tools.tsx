// For the charts of a job's page: the time range, annotations, what the job prints, and the way to
// a comparison.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { Chart } from '../parts/chart';
import { route } from '../data/store';
import { bridge } from './align';
import { jobMarks, pageMarks } from './marks';
import { collect, resample, type Figure } from './parse_metrics';
import { loadPrinted } from './printed';
import { rangeOf } from './range';
import { RangeBar } from './range_bar';

const whole = { from: '', to: '' };
const refreshMs = 15_000;
const points = 300;

// What a chart shows of a figure: however much the job prints, the page keeps so many points.
interface Drawn {
  name: string;
  from: number; // ms
  to: number;
  values: (number | null)[];
}
function drawn({ name, at, values }: Figure): Drawn {
  const from = at[0];
  const to = at[at.length - 1];
  return { name, from, to, values: bridge(resample(at, values, from, to, points)) };
}

export function JobTools({ id, running }: { id: string; running: boolean }) {
  const figures = useSignal<Drawn[]>([]);
  useEffect(() => {
    let gone = false;
    const load = () => {
      if (document.hidden) return;
      void jobMarks(id).then(
        (marks) => {
          if (!gone) pageMarks.value = marks;
        },
        () => {},
      );
      void loadPrinted(id).then(
        (lines) => {
          if (!gone) figures.value = collect(lines).map(drawn);
        },
        () => {},
      );
    };
    load();
    const timer = running ? window.setInterval(load, refreshMs) : 0;
    return () => {
      gone = true;
      window.clearInterval(timer);
      pageMarks.value = [];
    };
  }, [id, running]);
  const query = new URLSearchParams(route.value.split('?')[1] ?? '');
  return (
    <>
      <div class="filters top">
        <RangeBar range={rangeOf(query, whole)} fallback={whole} whole="Whole job" />
        <a href={`#/compare?jobs=${id}`}>Compare with other jobs</a>
      </div>
      {figures.value.length > 0 && (
        <section aria-label="Printed by the job">
          <h2>
            Printed by the job{' '}
            <small>
              <code>key=value</code> and JSON lines in the last megabyte of its log
            </small>
          </h2>
          <div class="charts">
            {figures.value.map((f) => (
              <Chart
                free
                title={f.name}
                fromMs={f.from}
                stepS={Math.max(1, f.to - f.from) / (points - 1) / 1000}
                format={(v) => String(Number(v.toPrecision(4)))}
                lines={[{ label: 'now', values: f.values, colour: 2 }]}
              />
            ))}
          </div>
        </section>
      )}
    </>
  );
}
