// Changes since yesterday as sentences, from the journal. Admins see all of them, other users only
// their jobs. Repeated events are shown once with a count. A member missing from an event has the
// default of its type.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { get, type Job, type Row, type Status } from '../data/api';
import { gpus, isoDay, moment, plural, usd } from '../data/format';
import { Empty } from '../parts/ui';
import { ended, endStates, jobs, jobsTick, nodeName, nodesTick, rowOf } from '../data/store';
import { report } from '../data/spend';
import { keptWords } from './kept_words';

export interface Said {
  seq: number;
  at: string;
  kind: string;
  actor: string;
  event: Record<string, unknown>;
}
type Words = { text: string; href?: string } | null;

const dayMs = 86_400_000;
const finishedMax = 500;
// Steps of single jobs and bookkeeping: other pages show them.
const quiet = new RegExp(
  `^(${[
    'jobs_',
    'job_(ready|placed|stopping|requeued|suspending|resuming|checkpointed)',
    'task_',
    'dependency',
    'environment',
    'schedule_fired',
    'meter',
    'node_offer',
    'node_price',
    'suspen',
    'kept_alive',
    'webhook_delivered',
    'notice',
    'call',
    'day_closed',
    'machine_seen',
    'token_(revoked|bound|used)',
    'budget_warned',
    'revision_judged',
    'project_tagged',
    'member_replaced',
  ].join('|')})`,
);

// Reasons often begin with the state already.
const endOf = (state: string, reason: string) =>
  reason.startsWith(state) ? reason : `${state}${reason ? `: ${reason}` : ''}`;
const periods: Record<string, string> = { daily: 'per day', total: 'in total' };

export function words(e: Said, name: (kind: string, id: number) => string): Words {
  const b = e.event as Record<string, any>;
  const node = b.node ? (typeof b.node === 'object' ? b.node.offer?.name : nodeName(b.node)) : '';
  const at = `#/nodes/${node}`;
  const endpoint = `#/endpoints/${encodeURIComponent(String(b.endpoint ?? ''))}`;
  // Elements of arrays are called 9.38; the name says more than the number.
  const label = b.job ? name('job', b.job) : '';
  const named = b.job ? name('job name', b.job) : '';
  const called = named ? `${label} (${named})` : label;
  const who = (scope: string | undefined, of: number) =>
    scope === 'user'
      ? `user ${name('user', of)}`
      : scope === 'job'
        ? `job ${of}`
        : `project ${name('project', of)}`;
  switch (e.kind) {
    case 'head_started':
      return { text: `the head started (version ${b.version})` };
    case 'user_added':
      return { text: `user ${b.user?.name ?? ''} was added`, href: '#/admin' };
    case 'user_changed':
      return {
        text: `user ${name('user', b.user)} is ${b.role ?? 'member'}, ${b.state ?? 'active'}`,
        href: '#/admin',
      };
    case 'job_entered':
      return {
        text: `${name('user', b.user)} entered job ${label} by ${b.how} from ${b.peer}`,
        href: `#/jobs/${label}`,
      };
    case 'access_denied':
      return {
        text: `refused: ${b.what} from ${b.peer}${b.user ? ` as ${b.user}` : ''}${
          (b.count ?? 1) > 1 ? ` (${b.count} calls)` : ''
        }: ${b.reason}`,
      };
    case 'project_added':
      return { text: `project ${b.project?.name ?? ''} was added`, href: '#/admin' };
    case 'project_changed':
      return {
        text: `the quota of project ${name('project', b.project?.id ?? b.project)} was changed`,
        href: '#/admin',
      };
    case 'member_set':
      return {
        text: b.role
          ? `${b.user} became ${b.role} of project ${name('project', b.project)}`
          : `${b.user} was removed from project ${name('project', b.project)}`,
        href: '#/admin',
      };
    case 'default_project_set':
      return e.actor === 'head'
        ? null
        : {
            text: `the default project of ${name('user', b.user)} is ${name('project', b.project)}`,
            href: '#/admin',
          };
    case 'token_created':
      return e.actor === 'head'
        ? null
        : b.token?.name === 'dashboard'
          ? { text: 'signed in to the dashboard' }
          : { text: `token “${b.token?.name ?? ''}” was created`, href: '#/admin' };
    case 'node_joined':
      return { text: `node ${node} joined`, href: at };
    case 'node_unreachable':
      return { text: `node ${node} stopped answering`, href: at };
    case 'node_reachable':
      return { text: `node ${node} is back`, href: at };
    case 'node_drained':
      return {
        text: b.reason
          ? `node ${node} was drained: ${b.reason}`
          : `node ${node} accepts work again`,
        href: at,
      };
    case 'node_removed':
      return { text: `node ${node || '(unknown)'} was removed` };
    case 'node_released':
      return { text: `node ${node} was released` };
    case 'gpu_drained':
      return {
        text: b.reason
          ? `GPU ${b.gpu ?? 0} of ${node} was taken out of service: ${b.reason}`
          : `GPU ${b.gpu ?? 0} of ${node} accepts work again`,
        href: at,
      };
    case 'schedule_added':
      return { text: `schedule ${b.schedule?.name ?? ''} was added`, href: '#/schedules' };
    case 'schedule_removed':
      return { text: 'a schedule was removed', href: '#/schedules' };
    case 'budget_set':
      return {
        text:
          `the budget of ${who(b.budget?.scope, b.budget?.of)} was set to ` +
          `${usd(b.budget?.limit ?? 0)} ${periods[b.budget?.period] ?? 'per month'}`,
        href: '#/costs',
      };
    case 'budget_removed':
      return {
        text: `the budget of ${who(b.budget?.scope, b.budget?.of)} was removed`,
        href: '#/costs',
      };
    case 'price_set':
      return { text: 'a price was set', href: '#/costs' };
    case 'price_removed':
      return { text: 'a price was removed', href: '#/costs' };
    case 'reservation_made': {
      const r = b.reservation ?? {};
      const count = plural((r.resources?.gpus ?? 0) * (r.nodes ?? 1), 'GPU');
      return {
        text:
          `${count} reserved for ${name('project', r.project)}` +
          `${r.name ? ` (${r.name})` : ''}, beginning ${moment((r.from_ns ?? 0) / 1e6)}`,
        href: '#/nodes',
      };
    }
    case 'reservation_ended':
      return {
        text: `reservation ${b.reservation ?? ''} ended${b.reason ? `: ${b.reason}` : ''}`,
        href: '#/nodes',
      };
    case 'reservation_left':
      return {
        text: `job ${label} continues outside its reservation at the on-demand price`,
        href: `#/jobs/${label}`,
      };
    case 'idle_warned':
      return { text: `job ${called} was warned: its GPUs are idle`, href: `#/jobs/${label}` };
    case 'idle_acted':
      return {
        text: `job ${called} was ${b.action ?? b.act ?? 'suspended'} because it was idle`,
        href: `#/jobs/${label}`,
      };
    case 'job_held':
      return {
        text: `job ${called} is held${b.reason ? `: ${b.reason}` : ''}`,
        href: `#/jobs/${label}`,
      };
    case 'endpoint_deployed':
      return {
        text: `endpoint ${b.endpoint} was deployed, revision ${b.revision?.number ?? 1}`,
        href: endpoint,
      };
    case 'endpoint_scaled':
      return { text: `endpoint ${b.endpoint} was scaled`, href: endpoint };
    case 'endpoint_deleted':
      return { text: `endpoint ${b.endpoint} was deleted`, href: '#/endpoints' };
    case 'endpoint_key_set':
      return {
        text: `a key of endpoint ${b.endpoint} was ${b.removed ? 'removed' : 'created'}`,
        href: endpoint,
      };
    case 'month_closed':
      return { text: 'a month was closed', href: '#/costs' };
    case 'job_ended':
      return (b.state ?? 'succeeded') === 'succeeded'
        ? null
        : {
            text: `job ${called} ${endOf(b.state, b.reason ?? '')}`,
            href: `#/jobs/${label}`,
          };
    default:
      return (
        keptWords(e.kind, b, (id) => name('project', id)) ??
        (quiet.test(e.kind) ? null : { text: e.kind.replace(/_/g, ' ') })
      );
  }
}

interface Item {
  e: Said;
  text: string;
  href?: string;
  times: number;
}
function itemsOf(said: Said[], name: (kind: string, id: number) => string): Item[] {
  const out: Item[] = [];
  for (const e of said) {
    const w = words(e, name);
    if (!w) continue;
    const before = out[out.length - 1];
    if (before && before.text === w.text && before.e.actor === e.actor) {
      before.times++;
      before.e = e;
    } else out.push({ e, ...w, times: 1 });
  }
  return out.reverse();
}

// Names of projects and users; without them ids are shown.
export async function loadNames(): Promise<Map<string, string>> {
  try {
    const [projects, users] = await Promise.all([
      get<{ projects: { id: number; name: string }[] }>('/v1/projects'),
      get<{ users: { id: number; name: string }[] }>('/v1/users'),
    ]);
    return new Map([
      ...projects.projects.map((p) => [`project ${p.id}`, p.name] as const),
      ...users.users.map((u) => [`user ${u.id}`, u.name] as const),
    ]);
  } catch {
    return new Map();
  }
}

// An event of the journal in one line, also those that Activity leaves out.
export function auditText(e: Said, names: Map<string, string>): string {
  const name = (kind: string, id: number) => names.get(`${kind} ${id}`) ?? String(id ?? '');
  if (e.kind === 'jobs_submitted') {
    const { first, count = 1, spec } = e.event as Record<string, any>;
    const what = spec?.name || spec?.argv?.join(' ').slice(0, 60) || '';
    return `${count > 1 ? `jobs ${first} to ${first + count - 1}` : `job ${first}`} submitted: ${what}`;
  }
  if (e.kind === 'jobs_labelled') {
    const { jobs, set = {}, remove = [] } = e.event as Record<string, any>;
    const changes = [
      ...Object.entries(set).map(([k, v]) => `${k}=${v}`),
      ...remove.map((k: string) => `${k} removed`),
    ];
    return `labels of job ${jobs.join(', ')}: ${changes.join(', ')}`;
  }
  const said = words(e, (kind, id) => (kind === 'job name' ? '' : name(kind, id)));
  if (said) return said.text;
  const job = (e.event as { job?: number }).job;
  return e.kind.replace(/_/g, ' ') + (typeof job === 'number' ? ` (job ${job})` : '');
}

export function Activity() {
  const said = useSignal<Said[] | null>(null);
  const error = useSignal('');
  const names = useSignal<Map<string, string>>(new Map());
  const money = useSignal<[number, number] | null>(null);
  const finished = useSignal<Row[]>([]); // elements of arrays too
  jobsTick.value;
  nodesTick.value;
  useEffect(() => {
    void loadNames().then((n) => {
      names.value = n;
    });
    get<{ jobs: Job[] }>(`/v1/jobs?state=${endStates}&expand=1&limit=${finishedMax}`).then(
      (d) => {
        finished.value = d.jobs.filter((j) => !j.elements).map(rowOf);
      },
      () => {},
    );
    void (async () => {
      const today = isoDay(Date.now()),
        before = isoDay(Date.now() - dayMs);
      try {
        money.value = [
          (await report(today, today, 'day')).total.charge_nano_usd,
          (await report(before, before, 'day')).total.charge_nano_usd,
        ];
      } catch {
        /* the sentence about money is left out */
      }
    })();
    (async () => {
      try {
        const { seq } = await get<Status>('/v1/status');
        const list: Said[] = [];
        const since = Date.now() - dayMs;
        // Backwards from the newest event, at most five pages.
        for (let to = seq, page = 0; to > 0 && page < 5; page++) {
          const from = Math.max(0, to - 1000);
          const got = (
            await get<{ events: Said[] }>(`/v1/events?after=${from}&limit=1000`)
          ).events.filter((e) => e.seq <= to);
          list.unshift(...got.filter((e) => Date.parse(e.at) >= since));
          if (!got.length || Date.parse(got[0].at) < since) break;
          to = from;
        }
        said.value = list;
      } catch {
        error.value =
          'You may not read the journal. The summary above covers the jobs you may see.';
        said.value = [];
      }
    })();
  }, []);
  const since = Date.now() - dayMs;
  const done = finished.value.filter((j) => (j.ended ?? 0) > since);
  const known = new Map(
    [...jobs.values(), ...ended.value, ...finished.value].map((r) => [r.id, r]),
  );
  const count = (s: string) => done.filter((j) => j.state === s).length;
  const rows = itemsOf(said.value ?? [], (kind, id) =>
    kind === 'job'
      ? (known.get(id)?.label ?? String(id))
      : kind === 'job name'
        ? (known.get(id)?.name ?? '')
        : (names.value.get(`${kind} ${id}`) ?? String(id ?? '')),
  );
  const running = [...jobs.values()].filter((j) => j.state === 'running');
  return (
    <section>
      <h1>Since yesterday</h1>
      <p class="lead">
        {plural(count('succeeded'), 'job')} succeeded, {count('failed')} failed, {count('stopped')}{' '}
        stopped, {count('lost')} lost
        {finished.value.length >= finishedMax ? ` of the ${finishedMax} most recent` : ''};{' '}
        {plural(running.length, 'job runs', 'jobs run')} now on{' '}
        {gpus(running.reduce((a, j) => a + j.gpu_milli, 0)) === '–'
          ? '0'
          : gpus(running.reduce((a, j) => a + j.gpu_milli, 0))}{' '}
        GPUs.
        {money.value && (
          <>
            {' '}
            <a href="#/costs?span=today">{usd(money.value[0])}</a> charged today,{' '}
            <a href="#/costs?span=yesterday">{usd(money.value[1])}</a> yesterday (days in UTC).
          </>
        )}
      </p>
      {error.value && <p class="note">{error.value}</p>}
      {error.value ? null : said.value && rows.length === 0 ? (
        <Empty title="No changes">
          <p>No node joined or left, no user was added, and no job failed.</p>
        </Empty>
      ) : (
        <ol class="activity">
          {rows.slice(0, 400).map(({ e, text, href, times }) => (
            <li>
              <time dateTime={e.at}>{moment(e.at)}</time>{' '}
              <span>
                {href ? <a href={href}>{text}</a> : text}
                {times > 1 && <small> {times} times</small>}
              </span>{' '}
              <small>{e.kind.startsWith('job_') ? '' : e.actor.replace(/^(user|node):/, '')}</small>
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}
