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

export function JobTools({ id, running }: { id: string; running: boolean }) {
  const figures = useSignal<Figure[]>([]);
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
          if (!gone) figures.value = collect(lines);
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
            {figures.value.map((f) => {
              const from = f.at[0];
              const to = f.at[f.at.length - 1];
              return (
                <Chart
                  free
                  title={f.name}
                  fromMs={from}
                  stepS={Math.max(1, to - from) / (points - 1) / 1000}
                  format={(v) => String(Number(v.toPrecision(4)))}
                  lines={[
                    {
                      label: 'now',
                      values: bridge(resample(f.at, f.values, from, to, points)),
                      colour: 2,
                    },
                  ]}
                />
              );
            })}
          </div>
        </section>
      )}
    </>
  );
}
