// Charges by project, user, day and GPU, budgets, and an export. Sums come from the ledger and are
// never computed here, so the figures agree to the cent.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { call, has, problem } from '../data/api';
import { cents2, isoDay, plural, usd } from '../data/format';
import { lazy } from '../parts/lazy';
import { Badge, Card, Empty, Line, Meter, rows as shape } from '../parts/ui';
import { projectsWhere } from '../data/rights';
import { ended, jobs, notify, route, summary } from '../data/store';
import { budgetState, loadBudgets, report, type CostLine, type Report } from '../data/spend';

const BurnDown = lazy(() => import('../time/burn_down').then((m) => m.BurnDown), '');
const dayMs = 86_400_000;
const spans: [string, string, number, number][] = [
  ['today', 'Today', 0, 0],
  ['yesterday', 'Yesterday', 1, 1],
  ['week', 'Last 7 days', 6, 0],
  ['month', 'Last 30 days', 29, 0],
];
const views: [string, string][] = [
  ['project', 'Project'],
  ['user', 'User'],
  ['day', 'Day'],
  ['gpu', 'GPU'],
  ['job', 'Job'],
  ['class', 'Class'],
];

// A job by its number and its name, where one is at hand.
function jobName(row: CostLine): string {
  const n = Number((row.job ?? '').split('.')[0]);
  const known = jobs.get(n) ?? ended.value.find((r) => r.id === n);
  const name = known?.name || known?.command.slice(0, 40) || row.what || '';
  return `${row.job ?? '–'}${name ? ` ${name}` : ''}`;
}

function nameOf(row: CostLine, by: string): string {
  return (
    String((row as unknown as Record<string, unknown>)[by] ?? '') || (by === 'gpu' ? 'no GPU' : '–')
  );
}

function Budgets() {
  const error = useSignal('');
  const can = useSignal(false);
  useEffect(() => {
    void has('/v1/budgets').then((yes) => {
      can.value = yes;
    });
  }, []);
  const list = budgetState.value;
  const set = async (event: Event) => {
    event.preventDefault();
    const form = new FormData(event.target as HTMLFormElement);
    try {
      await call('PUT', '/v1/budgets', {
        scope: 'project',
        of: form.get('of'),
        period: form.get('period'),
        limit_nano_usd: Math.round(Number(form.get('usd')) * 1e9),
        stops: form.get('stops') === 'on',
      });
      error.value = '';
      notify('The budget was set');
      await loadBudgets();
    } catch (e) {
      error.value = problem(e);
    }
  };
  return (
    <>
      {list.length === 0 ? (
        <p class="note">
          No budget is set. A budget warns before it is used up; if it stops jobs, it suspends them
          first.
        </p>
      ) : (
        <div class="scroll" tabIndex={0} role="region" aria-label="Budgets">
          <table class={shape.value} role="table">
            <thead role="rowgroup">
              <tr role="row">
                <th role="columnheader">Budget</th>
                <th role="columnheader">Period</th>
                <th role="columnheader" class="right">
                  Spent
                </th>
                <th role="columnheader" class="right">
                  Limit
                </th>
                <th role="columnheader">Used</th>
                <th role="columnheader">Remark</th>
              </tr>
            </thead>
            <tbody role="rowgroup">
              {list.map((b) => (
                <tr role="row">
                  <td role="cell" data-name="Budget">
                    {b.name}
                  </td>
                  <td role="cell" data-name="Period">
                    {b.period}
                  </td>
                  <td role="cell" data-name="Spent" class="right">
                    {usd(b.spent)}
                  </td>
                  <td role="cell" data-name="Limit" class="right">
                    {usd(b.limit)}
                  </td>
                  <td role="cell" data-name="Used">
                    <span>
                      <Meter
                        part={b.limit ? b.spent / b.limit : 0}
                        tone={b.tone}
                        label={`${Math.round((b.spent / b.limit) * 100)} % used`}
                      />{' '}
                      <span class="num">{Math.round((b.spent / b.limit) * 100)} %</span>
                    </span>
                  </td>
                  <td role="cell" data-name="Remark" class="wrap">
                    <span>
                      {b.tone && <Badge state={b.tone} />} {b.text}
                    </span>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {can.value && projectsWhere('money.set').length > 0 && (
        <form class="inline" onSubmit={set}>
          <label>
            Project{' '}
            <select name="of">
              {projectsWhere('money.set').map((p) => (
                <option>{p}</option>
              ))}
            </select>
          </label>
          <label>
            Period{' '}
            <select name="period">
              <option>monthly</option>
              <option>daily</option>
              <option>total</option>
            </select>
          </label>
          <label>
            Dollars <input name="usd" type="number" min="0.01" step="any" required />
          </label>
          <label class="check">
            <input name="stops" type="checkbox" checked /> suspend jobs when it is used up
          </label>
          <button>Set a budget</button>
        </form>
      )}
      {error.value && (
        <p role="alert" class="bad">
          {error.value}
        </p>
      )}
    </>
  );
}

// The most expensive jobs of a project or user, by the ledger.
function OnWhat({ lines }: { lines: CostLine[] }) {
  const dear = [...lines].sort((a, b) => b.charge_nano_usd - a.charge_nano_usd);
  const name = (id: string) => {
    const n = Number(id.split('.')[0]);
    const row = jobs.get(n) ?? ended.value.find((r) => r.id === n);
    return row?.name || row?.command.slice(0, 24) || `job ${id}`;
  };
  return (
    <>
      {dear.slice(0, 3).map((l, i) => (
        <>
          {i > 0 && ', '}
          {l.job ? <a href={`#/jobs/${l.job}`}>{name(l.job)}</a> : 'no job'}{' '}
          {cents2(l.charge_nano_usd)}
        </>
      ))}
      {dear.length > 3 && ` and ${plural(dear.length - 3, 'more job')}`}
    </>
  );
}

const hours = (h: number | undefined) => (h == null ? '' : h.toFixed(h < 10 ? 2 : 1));

export function Costs() {
  const given = new URLSearchParams(route.value.split('?')[1] ?? '');
  const span = {
    value: spans.some(([id]) => id === given.get('span')) ? given.get('span')! : 'month',
  };
  const by = { value: views.some(([id]) => id === given.get('by')) ? given.get('by')! : 'project' };
  const at = (s: string, b: string) => `#/costs?span=${s}&by=${b}`;
  const spent = useSignal<CostLine[]>([]);
  const data = useSignal<Report | null>(null);
  const error = useSignal('');
  const [, , back, until] = spans.find(([id]) => id === span.value)!;
  const from = isoDay(Date.now() - back * dayMs),
    to = isoDay(Date.now() - until * dayMs);
  useEffect(() => {
    let gone = false;
    const load = () => {
      if (document.hidden) return;
      report(from, to, by.value).then(
        (d) => {
          if (!gone) {
            data.value = d;
            error.value = '';
          }
        },
        (e) => {
          if (!gone) error.value = problem(e);
        },
      );
      if (by.value === 'project' || by.value === 'user')
        report(from, to, `${by.value},job`).then(
          (d) => {
            if (!gone) spent.value = d.lines;
          },
          () => {},
        );
    };
    load();
    const timer = window.setInterval(load, 10_000);
    return () => {
      gone = true;
      window.clearInterval(timer);
    };
  }, [from, to, by.value]);
  useEffect(() => {
    void loadBudgets();
  }, []);
  const d = data.value;
  const rows = [...(d?.lines ?? [])]
    .filter((r) => nameOf(r, by.value) !== '–' || r.charge_nano_usd)
    .sort((a, b) =>
      by.value === 'day'
        ? (b.day ?? '').localeCompare(a.day ?? '')
        : b.charge_nano_usd - a.charge_nano_usd,
    );
  const split = by.value === 'project' || by.value === 'user';
  const top = Math.max(1, ...rows.map((r) => r.charge_nano_usd));
  const save = async (format: string) => {
    const response = await fetch(
      `/v1/cost?since=${from}&until=${to}&by=day,project,user,gpu,class&format=${format}`,
      { headers: { 'X-Billow-Request': '1' } },
    );
    const link = document.createElement('a');
    link.href = URL.createObjectURL(await response.blob());
    link.download = `billow-${format === 'focus' ? 'focus' : 'costs'}-${from}-${to}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  };
  return (
    <section>
      <h1>Costs</h1>
      <section class="cards" aria-label="At a glance">
        <Card
          title={spans.find(([id]) => id === span.value)![1]}
          value={
            <span id="total" data-nano={d?.total.charge_nano_usd ?? ''}>
              {d ? usd(d.total.charge_nano_usd) : '–'}
            </span>
          }
          note={
            d?.total.gpu_hours != null
              ? `${hours(d.total.gpu_hours)} GPU hours; days in UTC`
              : 'days in UTC'
          }
        />
        <Card
          title="Spending now"
          value={usd((summary.value?.spend_nano ?? 0) * 3600)}
          unit="/ h"
        />
        <Card
          title="Held and idle"
          value={cents2(d?.total.idle_nano_usd ?? 0)}
          tone={(d?.total.idle_nano_usd ?? 0) >= 1e7 ? 'warn' : ''}
          href={`#/waste?span=${span.value}`}
          note="see the jobs that waste most"
        />
        {d?.fleet && d.fleet.cost_nano_usd > 0 && (
          <Card
            title="Cost of nodes"
            value={usd(d.fleet.cost_nano_usd)}
            note={`${usd(d.fleet.unallocated_nano_usd)} of it for unallocated GPUs`}
          />
        )}
      </section>
      <div class="filters top">
        <div class="tabs" role="group" aria-label="Period">
          {spans.map(([id, word]) => (
            <a href={at(id, by.value)} aria-current={span.value === id ? 'true' : undefined}>
              {word}
            </a>
          ))}
        </div>
        <div class="tabs" role="group" aria-label="Group by">
          {views.map(([id, word]) => (
            <a href={at(span.value, id)} aria-current={by.value === id ? 'true' : undefined}>
              {word}
            </a>
          ))}
        </div>
        <button
          class="quiet small"
          onClick={() => {
            void save('csv');
          }}
          disabled={!rows.length}
        >
          CSV
        </button>
        <button
          class="quiet small"
          onClick={() => {
            void save('focus');
          }}
          disabled={!rows.length}
        >
          FOCUS
        </button>
      </div>
      {error.value && (
        <p role="alert" class="bad">
          {error.value}
        </p>
      )}
      {d && rows.length === 0 ? (
        <Empty title="No charges in this period">
          <p>
            Every GPU-second that a job holds is charged to its project at the rate at which it
            started.
          </p>
          <Line text="billow run --gpus 1 -- python train.py" />
        </Empty>
      ) : (
        d && (
          <div class="scroll" tabIndex={0} role="region" aria-label="Costs as a table">
            <table class="costs">
              <thead>
                <tr>
                  <th>{views.find(([id]) => id === by.value)![1]}</th>
                  <th class="wide">
                    <span class="sr">Share</span>
                  </th>
                  <th class="right">Charged</th>
                  <th class="right">GPU hours</th>
                  {split && <th class="roomy">Jobs</th>}
                </tr>
              </thead>
              <tbody>
                {rows.slice(0, 500).map((r) => (
                  <tr>
                    <td>
                      {by.value === 'job' ? (
                        <a href={`#/jobs/${r.job}`}>{jobName(r)}</a>
                      ) : (
                        nameOf(r, by.value)
                      )}
                    </td>
                    <td class="wide">
                      <Meter
                        part={r.charge_nano_usd / top}
                        label={`${Math.round((r.charge_nano_usd / top) * 100)} % of the largest`}
                      />
                    </td>
                    <td class="right" data-nano={r.charge_nano_usd}>
                      {usd(r.charge_nano_usd)}
                    </td>
                    <td class="right">{hours(r.gpu_hours)}</td>
                    {split && (
                      <td class="on roomy">
                        <OnWhat
                          lines={spent.value.filter(
                            (l) => nameOf(l, by.value) === nameOf(r, by.value),
                          )}
                        />
                      </td>
                    )}
                  </tr>
                ))}
              </tbody>
              <tfoot>
                <tr>
                  <td>Total</td>
                  <td class="wide" />
                  <td class="right">{usd(d.total.charge_nano_usd)}</td>
                  <td class="right">{hours(d.total.gpu_hours)}</td>
                  {split && <td class="roomy" />}
                </tr>
              </tfoot>
            </table>
          </div>
        )
      )}
      <h2>Budgets</h2>
      <Budgets />
      <BurnDown />
    </section>
  );
}
