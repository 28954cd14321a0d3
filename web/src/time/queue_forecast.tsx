// When will what start: the expected starts of queued jobs, as the head explains them. The bar goes
// from the earliest to the latest start; the table says the same in words.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { get, type Explanation } from '../data/api';
import { ago, clock as clockText, gpus, lasting, moment, plural } from '../data/format';
import { clock, jobs, jobsTick } from '../data/store';
import { forecastOrder, horizon, type Waiting } from './forecast';
import { rows } from '../parts/ui';

const explainedMax = 20; // each is a question to the head
const refreshMs = 20_000;
const time = (t: string | null | undefined) => (t ? Date.parse(t) : null);

export function QueueForecast() {
  const list = useSignal<Waiting[]>([]);
  const left = useSignal(0);
  jobsTick.value;
  const waiting = [...jobs.values()]
    .filter((j) => j.state === 'queued' || j.state === 'held')
    .sort((a, b) => (a.submitted ?? 0) - (b.submitted ?? 0));
  const key = waiting
    .slice(0, explainedMax)
    .map((j) => j.id)
    .join();
  useEffect(() => {
    let gone = false;
    const load = async () => {
      const out: Waiting[] = [];
      for (const j of waiting.slice(0, explainedMax)) {
        const why = await get<Explanation>(`/v1/jobs/${j.label}/explain`).catch(() => null);
        if (gone) return;
        if (why)
          out.push({
            id: j.label,
            name: j.name || j.command,
            user: j.user,
            project: j.project,
            gpuMilli: j.gpu_milli,
            submitted: j.submitted ?? 0,
            earliest: time(why.earliest_start),
            latest: time(why.latest_start),
            unknown: why.start_unknown ?? '',
            reason: why.reasons[0]?.text ?? '',
          });
      }
      list.value = forecastOrder(out);
      left.value = Math.max(0, waiting.length - explainedMax);
    };
    void load();
    const timer = window.setInterval(() => {
      if (!document.hidden) void load();
    }, refreshMs);
    return () => {
      gone = true;
      window.clearInterval(timer);
    };
  }, [key]);
  if (!waiting.length)
    return <p class="note">No job is waiting: a job submitted now starts at once if it fits.</p>;
  if (!list.value.length) return <p class="note">Loading…</p>;
  const now = clock.value;
  const end = horizon(list.value, now);
  return (
    <>
      <div class="scroll" tabIndex={0} role="region" aria-label="Expected starts">
        <table class={`queue ${rows.value}`} role="table">
          <thead role="rowgroup">
            <tr role="row">
              <th role="columnheader">Job</th>
              <th role="columnheader">User</th>
              <th role="columnheader" class="right">
                GPUs
              </th>
              <th role="columnheader">Waits</th>
              <th role="columnheader">Expected start</th>
              <th role="columnheader" class="wide">
                <span class="queue-axis">
                  <span>now</span>
                  <span>{clockText((now + end) / 2)}</span>
                  <span>
                    {clockText(end)} (+{lasting((end - now) / 1000)})
                  </span>
                </span>
              </th>
            </tr>
          </thead>
          <tbody role="rowgroup">
            {list.value.map((w) => (
              <tr role="row">
                <td role="cell" data-name="Job" class="clip">
                  <a href={`#/jobs/${w.id}`}>{w.name}</a>
                </td>
                <td role="cell" data-name="User">
                  {w.user}
                </td>
                <td role="cell" data-name="GPUs" class="right">
                  {gpus(w.gpuMilli)}
                </td>
                <td role="cell" data-name="Waits">
                  {ago(w.submitted, now)}
                </td>
                <td role="cell" data-name="Expected start" class="wrap">
                  {startText(w, now)}
                </td>
                <td role="cell" class="wide">
                  <Bar w={w} now={now} end={end} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {left.value > 0 && (
        <p class="note">
          {plural(left.value, 'more job waits', 'more jobs wait')} behind these: see{' '}
          <a href="#/jobs">Jobs</a>.
        </p>
      )}
    </>
  );
}

function startText(w: Waiting, now: number): string {
  if (w.earliest === null) return `unknown: ${w.unknown || w.reason || 'no expectation yet'}`;
  const late = w.latest && w.latest > w.earliest + 60_000;
  return moment(w.earliest, now) + (late ? `, at the latest ${moment(w.latest, now)}` : '');
}

function Bar({ w, now, end }: { w: Waiting; now: number; end: number }) {
  const x = (t: number) => Math.max(0, Math.min(1, (t - now) / (end - now))) * 1000;
  const from = x(w.earliest ?? now);
  const to = x(w.latest ?? w.earliest ?? end);
  return (
    <svg class="queue-bar" viewBox="0 0 1000 20" preserveAspectRatio="none" aria-hidden="true">
      <line x1="0" x2="1000" y1="10" y2="10" />
      {w.earliest === null ? (
        <rect class="unknown" x="0" y="7" width="1000" height="6" />
      ) : (
        <>
          <rect class="wait" x="0" y="7" width={from} height="6" />
          <rect x={from} y="3" width={Math.max(8, to - from)} height="14" rx="4" />
        </>
      )}
    </svg>
  );
}
