// Up to five jobs over one another: what they used and what they print (`loss=0.3` or JSON lines),
// on the clock or from the beginning of each. The jobs and the view are in the address.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { get, problem, type Job, type Series } from '../data/api';
import { Chart, type Line } from '../parts/chart';
import { gib, gpus, lasting, usd } from '../data/format';
import { route } from '../data/store';
import { Badge, Empty, rows } from '../parts/ui';
import { align, figureOf, historyOf, type Aligned, type Run } from './align';
import { jobMarks, type Mark } from './marks';
import { collect, type Figure } from './parse_metrics';
import { loadPrinted } from './printed';
import { rangeOf } from './range';
import { RangeBar } from './range_bar';

const jobsMax = 5;
const refreshMs = 10_000;
type Loaded = Run & { job: Job; marks: Mark[] };

const system: [string, string, (v: number) => string, number?][] = [
  ['gpu_util_pct', 'GPU busy', (v) => `${v.toFixed(0)} %`, 100],
  ['sm_active_pct', 'SM activity', (v) => `${v.toFixed(0)} %`, 100],
  ['gpu_mem_mib', 'GPU memory', gib],
  ['gpu_power_w', 'GPU power', (v) => `${v.toFixed(0)} W`],
  ['cpu_cores', 'CPU cores', (v) => v.toFixed(v < 1 ? 2 : 1)],
  ['mem_mib', 'Memory', gib],
];
// As many digits as tell values apart, none that say nothing.
const plainNumber = (v: number) => {
  const size = Math.abs(v);
  if (v === 0) return '0';
  return size >= 1e5 || size < 1e-3 ? v.toExponential(2) : String(Number(v.toPrecision(4)));
};

async function loadRun(id: string): Promise<Loaded> {
  const [job, history, printed, marks] = await Promise.all([
    get<Job>(`/v1/jobs/${id}`),
    get<Series>(`/v1/jobs/${id}/history`).catch(() => null),
    loadPrinted(id).catch(() => []),
    jobMarks(id, `job ${id}`).catch(() => []),
  ]);
  const began = Date.parse(job.started_at ?? job.submitted_at);
  return {
    id,
    label: job.name || `job ${id}`,
    began,
    history,
    figures: collect(printed),
    job,
    marks,
  };
}

const address = (ids: string[], query: URLSearchParams) => {
  const next = new URLSearchParams(query);
  next.set('jobs', ids.join(','));
  return `#/compare?${next.toString().replaceAll('%2C', ',')}`;
};

export function Compare() {
  const query = new URLSearchParams(route.value.split('?')[1] ?? '');
  const asked = (query.get('jobs') ?? '').split(',').filter((id) => /^\d+(\.\d+)?$/.test(id));
  const ids = [...new Set(asked)].slice(0, jobsMax);
  const elapsed = query.get('x') !== 'clock';
  const runs = useSignal<Loaded[]>([]);
  const error = useSignal('');
  useEffect(() => {
    let gone = false;
    const load = async () => {
      const got: Loaded[] = [];
      const failed: string[] = [];
      for (const id of ids)
        try {
          // A job that has ended does not change.
          const known = runs.peek().find((r) => r.id === id && r.job.final);
          got.push(known ?? (await loadRun(id)));
        } catch (e) {
          failed.push(`job ${id}: ${problem(e)}`);
        }
      if (gone) return;
      runs.value = got;
      error.value = failed.join('; ');
    };
    void load();
    const timer = window.setInterval(() => {
      if (!document.hidden && runs.peek().some((r) => !r.job.final)) void load();
    }, refreshMs);
    return () => {
      gone = true;
      window.clearInterval(timer);
    };
  }, [ids.join()]);
  const add = (event: Event) => {
    event.preventDefault();
    const form = event.target as HTMLFormElement;
    const id = String(new FormData(form).get('job')).trim();
    if (!/^\d+(\.\d+)?$/.test(id)) error.value = `"${id}" is not the number of a job`;
    else location.hash = address([...ids, id], query);
    form.reset();
  };
  const list = runs.value;
  return (
    <section>
      <h1>Compare jobs</h1>
      <form class="inline" onSubmit={add}>
        <label>
          Job number <input name="job" inputMode="decimal" autocomplete="off" required />
        </label>
        <button disabled={ids.length >= jobsMax}>Add</button>
        {ids.length >= jobsMax && <span class="note">At most {jobsMax} jobs.</span>}
      </form>
      {error.value && (
        <p role="alert" class="bad">
          {error.value}
        </p>
      )}
      {ids.length === 0 ? (
        <Empty title="No job is chosen">
          <p>
            Add the numbers of up to five jobs. What they print as <code>loss=0.3</code> or as lines
            of JSON is drawn beside what they used.
          </p>
        </Empty>
      ) : (
        <>
          <Table runs={list} ids={ids} query={query} />
          <Axis query={query} elapsed={elapsed} />
          <Charts runs={list} elapsed={elapsed} />
        </>
      )}
    </section>
  );
}

function Axis({ query, elapsed }: { query: URLSearchParams; elapsed: boolean }) {
  const at = (x: string) => {
    const next = new URLSearchParams(query);
    if (x) next.set('x', x);
    else next.delete('x');
    return `#/compare?${next.toString().replaceAll('%2C', ',')}`;
  };
  return (
    <div class="filters top">
      <div class="tabs" role="group" aria-label="Axis">
        <a href={at('')} aria-current={elapsed ? 'true' : undefined}>
          Since the start
        </a>
        <a href={at('clock')} aria-current={elapsed ? undefined : 'true'}>
          Clock
        </a>
      </div>
      {!elapsed && <RangeBar range={rangeOf(query, whole)} fallback={whole} whole="All" />}
    </div>
  );
}
const whole = { from: '', to: '' };

function Table({ runs, ids, query }: { runs: Loaded[]; ids: string[]; query: URLSearchParams }) {
  const last = (f: Figure | undefined) => (f ? plainNumber(f.values[f.values.length - 1]) : '–');
  const loss = runs.flatMap((r) => r.figures.find((f) => /loss/i.test(f.name))?.name ?? [])[0];
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Compared jobs">
      <table class={rows.value} role="table">
        <thead role="rowgroup">
          <tr role="row">
            <th role="columnheader">Job</th>
            <th role="columnheader">State</th>
            <th role="columnheader">User</th>
            <th role="columnheader" class="right">
              GPUs
            </th>
            <th role="columnheader" class="right">
              Ran
            </th>
            <th role="columnheader" class="right">
              Cost
            </th>
            {loss && (
              <th role="columnheader" class="right">
                {loss}
              </th>
            )}
            <th role="columnheader">
              <span class="sr">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody role="rowgroup">
          {runs.map((r, i) => (
            <tr role="row">
              <td role="cell" data-name="Job">
                <span>
                  <span class={`key k${i + 1}`} />{' '}
                  <a href={`#/jobs/${r.id}`}>
                    {r.id} {r.job.name}
                  </a>
                </span>
              </td>
              <td role="cell" data-name="State">
                <span>
                  <Badge state={r.job.state} />
                </span>
              </td>
              <td role="cell" data-name="User">
                {r.job.user}
              </td>
              <td role="cell" data-name="GPUs" class="right">
                {gpus(r.job.gpu_milli * (r.job.nodes || 1))}
              </td>
              <td role="cell" data-name="Ran" class="right">
                {r.job.started_at
                  ? lasting(
                      r.job.ran_s ??
                        ((r.job.ended_at ? Date.parse(r.job.ended_at) : Date.now()) - r.began) /
                          1000,
                    )
                  : '–'}
              </td>
              <td role="cell" data-name="Cost" class="right">
                {usd(r.job.cost_nano_usd)}
              </td>
              {loss && (
                <td role="cell" data-name={loss} class="right">
                  {last(r.figures.find((f) => f.name === loss))}
                </td>
              )}
              <td role="cell" class="right">
                <a
                  href={address(
                    ids.filter((id) => id !== r.id),
                    query,
                  )}
                  aria-label={`Remove job ${r.id}`}
                >
                  Remove
                </a>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Charts({ runs, elapsed }: { runs: Loaded[]; elapsed: boolean }) {
  if (!runs.length) return <p class="note">Loading…</p>;
  const marks = runs
    .flatMap((r) => r.marks.map((m) => ({ ...m, at: elapsed ? m.at - r.began : m.at })))
    .filter((m) => !elapsed || m.kind !== 'start')
    .sort((a, b) => a.at - b.at);
  const lines = (aligned: Aligned): Line[] =>
    aligned.rows.flatMap((values, i) =>
      values.some((v) => v != null)
        ? [{ label: runs[i].id, values, colour: (i + 1) as Line['colour'] }]
        : [],
    );
  const common = { fromMs: 0, stepS: 1, elapsed, marks, height: 150 };
  const names = [...new Set(runs.flatMap((r) => r.figures.map((f) => f.name)))];
  const measured = system.flatMap(([name, title, format, max]) => {
    const aligned = align(runs, elapsed, historyOf(name));
    const drawn = lines(aligned);
    return drawn.length
      ? [
          <Chart
            {...common}
            title={title}
            format={format}
            max={max}
            times={aligned.times}
            lines={drawn}
          />,
        ]
      : [];
  });
  return (
    <>
      {names.length > 0 && (
        <>
          <h2>Printed by the jobs</h2>
          <div class="charts">
            {names.map((name) => {
              const aligned = align(runs, elapsed, figureOf(name));
              return (
                <Chart
                  {...common}
                  free
                  title={name}
                  format={plainNumber}
                  times={aligned.times}
                  lines={lines(aligned)}
                />
              );
            })}
          </div>
        </>
      )}
      <h2>Used by the jobs</h2>
      {measured.length ? (
        <div class="charts">{measured}</div>
      ) : (
        <p class="note">Nothing was recorded for these jobs yet.</p>
      )}
      {names.length === 0 && (
        <p class="note">
          None of the jobs prints figures as <code>key=value</code> or as lines of JSON in the last
          megabyte of its log.
        </p>
      )}
    </>
  );
}
