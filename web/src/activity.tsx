// What changed since yesterday, out of the journal, in words. Admins see everything; others the jobs they may see. What the journal says
// several times in a row is said once, with how often. A member that is left out of an event has its type's first value.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { get, type Status } from './api';
import { clock, day, gpus, moment, plural, usd } from './format';
import { Empty } from './ui';
import { ended, jobs, jobsTick, nodeName, nodesTick } from './store';
import { report } from './spend';

interface Said {
  seq: number;
  at: string;
  kind: string;
  actor: string;
  event: Record<string, unknown>;
}
type Words = { text: string; href?: string } | null;

const dayMs = 86_400_000;
// Steps of single jobs and bookkeeping, which other pages show.
const quiet =
  /^(jobs_|job_(ready|placed|stopping|requeued|suspending|resuming|checkpointed)|task_|dependency|environment|schedule_fired|meter|node_offer|node_price|suspen|kept_alive|webhook_delivered|call|day_closed|machine_seen|token_revoked|budget_warned|revision_judged|project_tagged|member_replaced)/;

function words(e: Said, name: (kind: string, id: number) => string): Words {
  const b = e.event as Record<string, any>;
  const node = b.node ? (typeof b.node === 'object' ? b.node.offer?.name : nodeName(b.node)) : '';
  const at = `#/nodes/${node}`;
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
    case 'project_added':
      return { text: `project ${b.project?.name ?? ''} was added`, href: '#/admin' };
    case 'project_changed':
      return {
        text: `what project ${name('project', b.project?.id ?? b.project)} is promised was changed`,
        href: '#/admin',
      };
    case 'member_set':
      return {
        text: `${b.user} became ${b.role ?? 'no member any more'} of project ${name('project', b.project)}`,
        href: '#/admin',
      };
    case 'token_created':
      return e.actor === 'head'
        ? null
        : b.token?.name === 'dashboard'
          ? { text: 'signed in to the dashboard' }
          : { text: `a token “${b.token?.name ?? ''}” was made`, href: '#/admin' };
    case 'node_joined':
      return { text: `node ${node} joined`, href: at };
    case 'node_unreachable':
      return { text: `node ${node} stopped answering`, href: at };
    case 'node_reachable':
      return { text: `node ${node} is back`, href: at };
    case 'node_drained':
      return {
        text: b.reason ? `node ${node} was drained: ${b.reason}` : `node ${node} takes work again`,
        href: at,
      };
    case 'node_removed':
      return { text: `node ${node || 'of before'} was removed` };
    case 'node_released':
      return { text: `node ${node} was given back` };
    case 'gpu_drained':
      return {
        text: b.reason
          ? `GPU ${b.gpu ?? 0} of ${node} was taken out of service: ${b.reason}`
          : `GPU ${b.gpu ?? 0} of ${node} takes work again`,
        href: at,
      };
    case 'schedule_added':
      return { text: `schedule ${b.schedule?.name ?? ''} was added` };
    case 'schedule_removed':
      return { text: 'a schedule was removed' };
    case 'budget_set':
      return {
        text: `${who(b.budget?.scope, b.budget?.of)} may spend ${usd(b.budget?.limit ?? 0)} ${({ daily: 'a day', total: 'in all' } as Record<string, string>)[b.budget?.period] ?? 'a month'}`,
        href: '#/costs',
      };
    case 'budget_removed':
      return { text: 'a budget was taken away', href: '#/costs' };
    case 'price_set':
      return { text: 'a price was set', href: '#/costs' };
    case 'price_removed':
      return { text: 'a price was taken back', href: '#/costs' };
    case 'reservation_made':
      return {
        text: `${plural((b.reservation?.resources?.gpus ?? 0) * (b.reservation?.nodes ?? 1), 'GPU')} reserved for ${name('project', b.reservation?.project)} from ${moment((b.reservation?.from_ns ?? 0) / 1e6)}${b.reservation?.name ? ` (${b.reservation.name})` : ''}`,
        href: '#/nodes',
      };
    case 'reservation_ended':
      return {
        text: `reservation ${b.reservation ?? ''} ended${b.reason ? `: ${b.reason}` : ''}`,
        href: '#/nodes',
      };
    case 'reservation_left':
      return {
        text: `job ${b.job} goes on outside its reservation, at the price of on-demand work`,
        href: `#/jobs/${b.job}`,
      };
    case 'idle_warned':
      return { text: `job ${b.job} was warned: its GPUs do nothing`, href: `#/jobs/${b.job}` };
    case 'idle_acted':
      return {
        text: `job ${b.job} was ${b.action ?? b.act ?? 'suspended'} for idleness`,
        href: `#/jobs/${b.job}`,
      };
    case 'job_held':
      return {
        text: `job ${b.job} is held${b.reason ? `: ${b.reason}` : ''}`,
        href: `#/jobs/${b.job}`,
      };
    case 'endpoint_deployed':
      return {
        text: `endpoint ${b.name ?? b.endpoint?.name ?? ''} was deployed`,
        href: '#/endpoints',
      };
    case 'endpoint_scaled':
      return { text: `endpoint ${b.name ?? ''} was scaled`, href: '#/endpoints' };
    case 'endpoint_deleted':
      return { text: `endpoint ${b.name ?? ''} was deleted`, href: '#/endpoints' };
    case 'month_closed':
      return { text: 'a month was closed', href: '#/costs' };
    case 'job_ended':
      return (b.state ?? 'succeeded') === 'succeeded'
        ? null
        : {
            text: `job ${b.job} ${(b.reason ?? '').startsWith(b.state) ? b.reason : `${b.state}${b.reason ? `: ${b.reason}` : ''}`}`,
            href: `#/jobs/${b.job}`,
          };
    default:
      return quiet.test(e.kind) ? null : { text: e.kind.replace(/_/g, ' ') };
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

export function Activity() {
  const said = useSignal<Said[] | null>(null);
  const error = useSignal('');
  const names = useSignal<Map<string, string>>(new Map());
  const money = useSignal<[number, number] | null>(null);
  jobsTick.value;
  nodesTick.value;
  useEffect(() => {
    (async () => {
      try {
        const [projects, users] = await Promise.all([
          get<{ projects: { id: number; name: string }[] }>('/v1/projects'),
          get<{ users: { id: number; name: string }[] }>('/v1/users'),
        ]);
        names.value = new Map([
          ...projects.projects.map((p) => [`project ${p.id}`, p.name] as const),
          ...users.users.map((u) => [`user ${u.id}`, u.name] as const),
        ]);
      } catch {
        /* then numbers stand for names */
      }
    })();
    void (async () => {
      const iso = (ms: number) => new Date(ms).toISOString().slice(0, 10);
      const today = iso(Date.now()),
        before = iso(Date.now() - dayMs);
      try {
        money.value = [
          (await report(today, today, 'day')).total.charge_nano_usd,
          (await report(before, before, 'day')).total.charge_nano_usd,
        ];
      } catch {
        /* the lead does without */
      }
    })();
    (async () => {
      try {
        const { seq } = await get<Status>('/v1/status');
        const list: Said[] = [];
        const since = Date.now() - dayMs;
        // From the end backwards, a few thousand events at most.
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
        error.value = 'Only admins see the journal; above are the jobs you may see.';
        said.value = [];
      }
    })();
  }, []);
  const since = Date.now() - dayMs;
  const done = ended.value.filter((j) => (j.ended ?? 0) > since);
  const count = (s: string) => done.filter((j) => j.state === s).length;
  const rows = itemsOf(
    said.value ?? [],
    (kind, id) => names.value.get(`${kind} ${id}`) ?? String(id ?? ''),
  );
  const running = [...jobs.values()].filter((j) => j.state === 'running');
  return (
    <section>
      <h1>Since yesterday</h1>
      <p class="lead">
        {plural(count('succeeded'), 'job')} succeeded, {count('failed')} failed, {count('stopped')}{' '}
        stopped, {count('lost')} lost{done.length >= 100 ? ' among the last hundred or more' : ''};{' '}
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
        <Empty title="A quiet day">
          <p>No node came or went, nobody was added, nothing failed.</p>
        </Empty>
      ) : (
        <ol class="activity">
          {rows.slice(0, 400).map(({ e, text, href, times }) => (
            <li>
              <time dateTime={e.at}>
                {day(Date.parse(e.at))} {clock(Date.parse(e.at))}
              </time>{' '}
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
