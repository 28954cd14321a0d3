// What was spent: by project, user, day and GPU, budgets, waste, and an export. Sums come from the ledger; nothing is added up here that
// the ledger has a sum for, so the figures agree to the cent.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { get, has, problem } from './api';
import { plural, usd } from './format';
import { Badge, Card, Empty, Line, Meter } from './ui';
import { clock, costOf, isIdle, jobs, jobsTick, summary } from './store';
import { budgetState, loadBudgets, type BudgetView, type Usage } from './spend';

const isoDay = (ms: number) => new Date(ms).toISOString().slice(0, 10);
const dayMs = 86_400_000;
const spans: [string, string, number, number][] = [['today', 'Today', 0, 0], ['yesterday', 'Yesterday', 1, 1], ['week', 'Last 7 days', 6, 0], ['month', 'Last 30 days', 29, 0]];
const views: [string, string][] = [['project', 'Project'], ['user', 'User'], ['day', 'Day'], ['gpu_type', 'GPU'], ['class', 'Class']];

function nameOf(row: Usage['rows'][number], by: string): string {
  if (by === 'day') return row.day;
  if (by === 'user') return row.user;
  if (by === 'gpu_type') return row.gpu_type || 'no GPU';
  if (by === 'class') return row.price_class;
  return row.project;
}

function Budgets({ list }: { list: BudgetView[] }) {
  if (!list.length) return <p class="note">No budget is set. One that stops, with a warning on the way: <code>billow budget set PROJECT 500 --monthly</code></p>;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Budgets"><table>
      <thead><tr><th>Budget</th><th>Spent</th><th>Of</th><th>Used</th><th>State</th></tr></thead>
      <tbody>{list.map((b) => <tr><td>{b.name}</td><td class="num">{usd(b.spent)}</td><td class="num">{usd(b.limit)}</td><td><Meter part={b.limit ? b.spent / b.limit : 0} tone={b.tone} label={`${b.limit ? Math.round((b.spent / b.limit) * 100) : 0} % used`} /> <span class="num">{b.limit ? `${Math.round((b.spent / b.limit) * 100)} %` : ''}</span></td><td><Badge state={b.tone || 'ready'} /> {b.text}</td></tr>)}</tbody>
    </table></div>
  );
}

interface Waste { jobs?: { job: number; label?: string; name?: string; user?: string; text?: string; idle_nano_usd?: number; waste_nano_usd?: number; idle?: string }[]; findings?: { text: string; saving?: string; job?: number }[] }

export function Costs() {
  const span = useSignal('month');
  const by = useSignal('project');
  const data = useSignal<Usage | null>(null);
  const error = useSignal('');
  const waste = useSignal<Waste | null>(null);
  jobsTick.value;
  const [, , back, until] = spans.find(([id]) => id === span.value)!;
  const from = isoDay(Date.now() - back * dayMs), to = isoDay(Date.now() - until * dayMs);
  useEffect(() => {
    let gone = false;
    get<Usage>(`/v1/usage?from=${from}&to=${to}&by=${by.value}`).then((d) => { if (!gone) { data.value = d; error.value = ''; } }, (e) => { if (!gone) error.value = problem(e); });
    return () => { gone = true; };
  }, [from, to, by.value]);
  useEffect(() => {
    void loadBudgets();
    void has('/v1/waste').then((yes) => { if (yes) void get<Waste>('/v1/waste').then((d) => { waste.value = d; }, () => {}); });
  }, []);
  const d = data.value;
  const rows = [...(d?.rows ?? [])].sort((a, b) => (by.value === 'day' ? b.day.localeCompare(a.day) : b.charge_nano_usd - a.charge_nano_usd));
  const top = Math.max(1, ...rows.map((r) => r.charge_nano_usd));
  const now = clock.value;
  const open = [...jobs.values()].filter((j) => j.rate_nano > 0);
  const idle = open.filter((j) => isIdle(j, 10_000)).sort((a, b) => b.rate_nano - a.rate_nano);
  const csv = () => {
    const text = [['day', 'project', 'user', 'gpu_type', 'class', 'gpu_hours', 'usd'].join(), ...(d?.rows ?? []).map((r) => [r.day, r.project, r.user, r.gpu_type, r.price_class, r.gpu_hours.toFixed(4), (r.charge_nano_usd / 1e9).toFixed(9)].join())].join('\n');
    const link = document.createElement('a');
    link.href = URL.createObjectURL(new Blob([text + '\n'], { type: 'text/csv' }));
    link.download = `billow-costs-${from}-${to}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  };
  return (
    <section>
      <h1>Costs</h1>
      <section class="cards" aria-label="At a glance">
        <Card title={spans.find(([id]) => id === span.value)![1]} value={<span id="total" data-nano={d?.total_nano_usd ?? ''}>{d ? usd(d.total_nano_usd) : '–'}</span>} note="charged, days in UTC" />
        <Card title="Spending now" value={usd((summary.value?.spend_nano ?? 0) * 3600)} unit="/ h" note={`${plural(open.length, 'job')} so far ${usd(open.reduce((a, j) => a + costOf(j, now), 0))}`} />
        <Card title="Idle right now" value={usd((summary.value?.idle_nano ?? 0) * 3600)} unit="/ h" tone={summary.value?.idle_nano ? 'warn' : ''} href="#/jobs?show=idle" note="GPUs held that do nothing" />
      </section>
      <div class="filters top">
        <div class="tabs" role="group" aria-label="When">{spans.map(([id, word]) => <button class="tab" aria-pressed={span.value === id} onClick={() => { span.value = id; }}>{word}</button>)}</div>
        <div class="tabs" role="group" aria-label="By what">{views.map(([id, word]) => <button class="tab" aria-pressed={by.value === id} onClick={() => { by.value = id; }}>{word}</button>)}</div>
        <button class="quiet small" onClick={csv} disabled={!rows.length}>Save as CSV</button>
      </div>
      {error.value && <p role="alert" class="bad">{error.value}</p>}
      {d && rows.length === 0 ? <Empty title="Nothing was charged in that time"><p>Every GPU second a job holds is charged to its project at the rate of the moment it started. The first job that holds a GPU shows up here when it ends.</p><Line text="billow run --gpus 1 -- python train.py" /></Empty> : d && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Costs as a table"><table class="costs">
          <thead><tr><th>{views.find(([id]) => id === by.value)![1]}</th><th><span class="sr">Share</span></th><th class="right">GPU hours</th><th class="right">Charged</th></tr></thead>
          <tbody>{rows.map((r) => <tr><td>{nameOf(r, by.value)}</td><td><Meter part={r.charge_nano_usd / top} label={`${Math.round((r.charge_nano_usd / top) * 100)} % of the largest`} /></td><td class="right">{r.gpu_hours.toFixed(r.gpu_hours < 10 ? 2 : 1)}</td><td class="right" data-nano={r.charge_nano_usd}>{usd(r.charge_nano_usd)}</td></tr>)}</tbody>
          <tfoot><tr><td>Together</td><td /><td class="right">{rows.reduce((a, r) => a + r.gpu_hours, 0).toFixed(1)}</td><td class="right">{usd(d.total_nano_usd)}</td></tr></tfoot>
        </table></div>
      )}
      <h2>Budgets</h2>
      <Budgets list={budgetState.value} />
      <h2>Waste</h2>
      {idle.length > 0 && <ul class="plain rows panel">{idle.slice(0, 12).map((j) => <li><a href={`#/jobs/${j.label}`}>{j.name || j.command}</a><small>{j.user} · its GPUs do nothing, at {usd(j.rate_nano * 3600)} / h</small></li>)}</ul>}
      {waste.value?.jobs?.length ? <ul class="plain rows panel">{waste.value.jobs.slice(0, 20).map((w) => <li><a href={`#/jobs/${w.label ?? w.job}`}>{w.name || `job ${w.job}`}</a><small>{w.text ?? ''} {usd(w.idle_nano_usd ?? w.waste_nano_usd ?? 0)}</small></li>)}</ul> : null}
      {waste.value?.findings?.length ? <ul class="plain rows panel">{waste.value.findings.slice(0, 20).map((f) => <li>{f.job ? <a href={`#/jobs/${f.job}`}>{f.text}</a> : <span>{f.text}</span>}<small>{f.saving ?? ''}</small></li>)}</ul> : null}
      {!idle.length && !waste.value?.jobs?.length && !waste.value?.findings?.length && <p class="note">No running job holds a GPU that does nothing.</p>}
    </section>
  );
}
