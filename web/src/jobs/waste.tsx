// Wasted money by job: GPUs that were held and idle, jobs that idle now, and right-sizing. Sums
// come from the ledger; jobs that idle now have a rate but no sum yet.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { get, type Job, type Row } from '../data/api';
import { cents2, isoDay, lasting, plural, usd } from '../data/format';
import { Badge, Card, Empty, Line } from '../parts/ui';
import { clock, ended, isIdle, jobs, jobsTick, ranMs, route, rowOf, summary } from '../data/store';
import { type CostLine } from '../data/spend';

const dayMs = 86_400_000;
const spans: [string, string, number, number][] = [
  ['today', 'Today', 0, 0],
  ['yesterday', 'Yesterday', 1, 1],
  ['week', 'Last 7 days', 6, 0],
  ['month', 'Last 30 days', 29, 0],
];
const shownMax = 50;
// A cent: every job idles for a moment between its start and its first kernel.
const worthCounting = 1e7;

interface Waste {
  unallocated_nano_usd: number;
  idle_nano_usd: number;
  inefficient_nano_usd: number;
  right_size: {
    what: string;
    runs: number;
    text: string;
    charged_nano_usd: number;
    would_have_been_nano_usd: number;
  }[];
  idle_now: { job: number; state: string; text: string; quiet_s: number }[];
  lines: WasteLine[];
}
interface WasteLine extends CostLine {
  oversized_nano_usd?: number;
  wasted_nano_usd?: number;
}
interface Wasted {
  id: string;
  row?: Row;
  line?: WasteLine;
  wasted: number;
  nowRate: number;
  text: string;
}

// Rows of jobs that the ledger names only by number.
const known = new Map<string, Row>();
function rowFor(id: string): Row | undefined {
  const n = Number(id.split('.')[0]);
  return jobs.get(n) ?? ended.peek().find((r) => r.label === id) ?? known.get(id);
}

const wastedBy = (l: WasteLine) => l.wasted_nano_usd ?? l.idle_nano_usd ?? 0;
// Idle time is counted at the cost of the node, which can exceed what the job is charged for it.
const charged = (l: WasteLine) =>
  wastedBy(l) > l.charge_nano_usd && (l.cost_nano_usd ?? 0) > l.charge_nano_usd
    ? `${usd(l.charge_nano_usd)} (costs ${usd(l.cost_nano_usd!)})`
    : usd(l.charge_nano_usd);
// The head writes times as a terminal shows them.
const quiet = (idle?: { text: string; quiet_s: number }): string =>
  idle?.text.startsWith('no work for')
    ? `no work for ${lasting(idle.quiet_s)}`
    : (idle?.text ?? '');

function why(l: WasteLine): string {
  const part = (nano: number) =>
    `${Math.round((nano / Math.max(1, l.cost_nano_usd ?? nano)) * 100)} %`;
  return [
    (l.idle_nano_usd ?? 0) >= worthCounting ? `idle for ${part(l.idle_nano_usd!)} of its cost` : '',
    (l.oversized_nano_usd ?? 0) >= worthCounting ? `oversized: ${usd(l.oversized_nano_usd!)}` : '',
  ]
    .filter(Boolean)
    .join('; ');
}

export function WastePage() {
  const given = new URLSearchParams(route.value.split('?')[1] ?? '');
  const span = spans.find(([id]) => id === given.get('span')) ?? spans[2];
  const from = isoDay(Date.now() - span[2] * dayMs),
    to = isoDay(Date.now() - span[3] * dayMs);
  const lines = useSignal<WasteLine[] | null>(null);
  const sums = useSignal<Waste | null>(null);
  const named = useSignal(0);
  jobsTick.value;
  summary.value;
  named.value;
  useEffect(() => {
    let gone = false;
    const load = () => {
      if (document.hidden) return;
      void get<Waste>(
        `/v1/waste?since=${from}&until=${to}&by=job,user,project&limit=${shownMax}`,
      ).then(
        async (d) => {
          if (gone) return;
          sums.value = d;
          const wasted = d.lines
            .filter((l) => wastedBy(l) >= worthCounting)
            .sort((a, b) => wastedBy(b) - wastedBy(a))
            .slice(0, shownMax);
          lines.value = wasted;
          for (const l of wasted) {
            if (gone || l.what || rowFor(l.job!)) continue;
            try {
              const j = await get<Job>(`/v1/jobs/${l.job}`);
              known.set(l.job!, rowOf(j));
              named.value++;
            } catch {
              /* its number is shown instead */
            }
          }
        },
        () => {
          if (!gone) lines.value ??= [];
        },
      );
    };
    load();
    const timer = window.setInterval(load, 15_000);
    return () => {
      gone = true;
      window.clearInterval(timer);
    };
  }, [from, to]);
  const now = clock.value;
  const all = new Map<string, Wasted>();
  for (const line of lines.value ?? [])
    all.set(line.job!, {
      id: line.job!,
      row: rowFor(line.job!),
      line,
      wasted: wastedBy(line),
      nowRate: 0,
      text: '',
    });
  const idleNow = [...jobs.values()].filter((j) => j.rate_nano > 0 && isIdle(j));
  if (span[3] === 0)
    for (const j of idleNow) {
      const at = all.get(j.label) ?? { id: j.label, row: j, wasted: 0, nowRate: 0, text: '' };
      all.set(j.label, {
        ...at,
        row: j,
        nowRate: j.rate_nano,
        text: quiet(sums.value?.idle_now.find((i) => i.job === j.id)),
      });
    }
  const rows = [...all.values()].sort((a, b) => b.wasted - a.wasted || b.nowRate - a.nowRate);
  const w = sums.value;
  return (
    <section>
      <h1>Waste</h1>
      <section class="cards" aria-label="Wasted">
        {w && (
          <>
            <Card
              title="Held and idle"
              value={cents2(w.idle_nano_usd)}
              note="GPUs held by jobs that did not use them, as recorded every 5 minutes"
              tone={w.idle_nano_usd >= worthCounting ? 'warn' : ''}
            />
            <Card
              title="Oversized"
              value={cents2(w.inefficient_nano_usd)}
              note="compared with what earlier runs used"
            />
            <Card
              title="Unallocated"
              value={cents2(w.unallocated_nano_usd)}
              note="GPUs and parts of GPUs that no job held"
            />
          </>
        )}
        <Card
          title="Idle right now"
          value={usd((summary.value?.idle_nano ?? 0) * 3600)}
          unit="/ h"
          href="#/jobs?show=idle"
          note={
            idleNow.length ? `${plural(idleNow.length, 'job')}: view and stop` : 'no job is idle'
          }
        />
      </section>
      <div class="filters top">
        <h2>Jobs by waste</h2>
        <div class="tabs" role="group" aria-label="Period">
          {spans.map(([id, word]) => (
            <a href={`#/waste?span=${id}`} aria-current={span[0] === id ? 'true' : undefined}>
              {word}
            </a>
          ))}
        </div>
      </div>
      {lines.value && rows.length === 0 ? (
        <Empty title="No waste">
          <p>
            Waste is the charge for GPUs that a job holds but does not use. On the command line:
          </p>
          <Line text="billow waste" />
        </Empty>
      ) : (
        <div class="scroll" tabIndex={0} role="region" aria-label="Jobs by waste">
          <table class="wasted">
            <thead>
              <tr>
                <th>Job</th>
                <th class="wide">User</th>
                <th class="wide">State</th>
                <th class="right">Wasted</th>
                <th class="right wide">Charged</th>
                <th class="right wide">Run time</th>
                <th>Why</th>
              </tr>
            </thead>
            <tbody>
              {rows.slice(0, shownMax).map((r) => (
                <tr>
                  <td class="clip">
                    <a href={`#/jobs/${r.id}`}>
                      {r.row?.name || r.line?.what || r.row?.command.slice(0, 40) || `job ${r.id}`}
                    </a>
                  </td>
                  <td class="wide">
                    {r.row?.user ?? r.line?.user ?? ''}
                    <small> {r.row?.project ?? r.line?.project ?? ''}</small>
                  </td>
                  <td class="wide">{r.row && <Badge state={r.row.state} />}</td>
                  <td class="right">
                    <b>{r.wasted >= worthCounting ? usd(r.wasted) : '< $0.01'}</b>
                  </td>
                  <td class="right wide">{r.line ? charged(r.line) : '–'}</td>
                  <td class="right wide">
                    {r.row?.started ? lasting(ranMs(r.row, now) / 1000) : '–'}
                  </td>
                  <td class="on">
                    {r.nowRate > 0 ? (
                      <span class="warn">
                        idle now, at {usd(r.nowRate * 3600)} / h{r.text ? `: ${r.text}` : ''}
                      </span>
                    ) : r.line ? (
                      why(r.line)
                    ) : (
                      ''
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {w && w.right_size.length > 0 && (
        <>
          <h2>Right-sizing</h2>
          <ul class="plain rows panel wrap">
            {w.right_size.slice(0, 20).map((r) => (
              <li>
                <span>
                  <b>{r.what}</b> {r.text.replace(/`/g, '')}
                </span>
                <small>
                  {plural(r.runs, 'run')}, {usd(r.charged_nano_usd)} could have been{' '}
                  {usd(r.would_have_been_nano_usd)}
                </small>
              </li>
            ))}
          </ul>
        </>
      )}
    </section>
  );
}
