// One job: its state and the reason for it, resources, log, use, and actions.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { ApiError, get, has, post, problem, type Explanation, type Job } from '../data/api';
import { exactly, gib, gpus, moment, numbers, plural, usd } from '../data/format';
import { Elements } from '../parts/elements';
import { Charts } from './job_charts';
import { SickCards, Timeline } from './job_parts';
import { lazy } from '../parts/lazy';
import { Log } from './log';
import { mayActOn, maySubmit } from '../data/rights';
import { memberNames, Roles } from '../admin/roles';
import { SearchAll } from './search';
import { Badge, confirm, Empty } from '../parts/ui';
import { clock, costOf, jobs, jobsTick, notify, ranMs, rowOf, suspendedMs } from '../data/store';

const Asked = lazy(() => import('./asked').then((m) => m.Asked), '');
const JobTools = lazy(() => import('../time/job_tools').then((m) => m.JobTools), '');

const whyTitle = (state: string) =>
  (
    ({
      suspended: 'Why it is suspended',
      failed: 'Why it failed',
      lost: 'Why it was lost',
      stopped: 'Why it was stopped',
    }) as Record<string, string>
  )[state] ?? 'Why it waits';

// Hints at the command line are for those who read it there: the page has the log and the buttons.
const inWords = (text: string) =>
  text.replace(/;? ?what it wrote before: `?billow logs [\d.]+`?/, '').replace(/`/g, '');

// A fraction of a GPU is no advice for a job that asks for whole ones.
function worthTrying(why: Explanation, job: Job): boolean {
  const text = why.would_start_now ?? '';
  const fewer = /--gpus (\d+(?:\.\d+)?)/.exec(text);
  return !!text && !(fewer && job.gpu_milli >= 1000 && Number(fewer[1]) < 1);
}

// "node-1 (H100 0–7)", with the MIG instances if there are some.
function placeOf(task: Job['tasks'][number]): string {
  if (!task.gpus.length) return task.node;
  const mig = (task.mig ?? []).map((m) => `, MIG ${m.profile} from slice ${m.start}`).join('');
  return `${task.node} (${task.gpu_type} ${numbers(task.gpus)}${mig})`;
}

interface Can {
  suspend: boolean;
  rerun: boolean;
}
// Only what the person may do and what the job's state allows. The blue button is the usual next
// step; what ends a job asks first.
function Actions({
  job: j,
  can,
  act,
  again,
}: {
  job: Job;
  can: Can;
  act: (what: string, body: unknown, said: string) => Promise<void>;
  again: () => Promise<void>;
}) {
  const mine = mayActOn(j);
  const frozen = !!j.suspendable && !j.suspendable.can;
  const started = j.tasks.length > 0;
  return (
    <p class="actions">
      {mine && j.pty && !j.final && (
        <a class="button" href={`#/terminal/${j.label}`}>
          Open the terminal
        </a>
      )}
      {mine && can.suspend && j.state === 'suspended' && (
        <button
          onClick={() => act('resume', {}, `Job ${j.label} resumes as soon as capacity is free`)}
        >
          Resume
        </button>
      )}
      {mine && can.suspend && j.state === 'running' && (
        <button
          class="quiet"
          disabled={frozen}
          title={frozen ? `This job cannot be suspended: ${j.suspendable!.why}` : undefined}
          onClick={() => act('suspend', {}, `Job ${j.label} is being suspended`)}
        >
          Suspend
        </button>
      )}
      {mine && !j.final && (
        <button
          class="quiet ends"
          onClick={() =>
            confirm(
              `Stop job ${j.label}?`,
              started
                ? 'It gets SIGTERM and time to save its work. It does not run again by itself.'
                : 'It has not started. It leaves the queue.',
              'Stop',
              () => void act('stop', {}, `Job ${j.label} is being stopped`),
            )
          }
        >
          Stop
        </button>
      )}
      {mine && !j.final && started && (
        <button
          class="quiet ends"
          onClick={() =>
            confirm('Kill this job?', 'It gets no time to save its work.', 'Kill', () => {
              void act('stop', { force: true }, `Job ${j.label} is being killed`);
            })
          }
        >
          Kill
        </button>
      )}
      {maySubmit() && can.rerun && j.final && <button onClick={again}>Run again</button>}
      {maySubmit() && (
        <a class="button quiet" href={`#/run?from=${j.label}`}>
          Change and run…
        </a>
      )}
    </p>
  );
}

function NoJob({ id, text, missing }: { id: string; text: string; missing: boolean }) {
  return (
    <section>
      <p class="crumbs">
        <a href="#/jobs">Jobs</a> / {id}
      </p>
      <h1>{missing ? `Job ${id} not found` : `Job ${id}`}</h1>
      {missing ? (
        <Empty title={`There is no job ${id} that you may see`}>
          <p>
            The number may be wrong, or the job belongs to a project of which you are no member.
          </p>
          <p>
            <a href={`#/jobs?q=${encodeURIComponent(id)}`}>Search all jobs for “{id}”</a>
          </p>
        </Empty>
      ) : (
        <p class="note">{text || 'Loading…'}</p>
      )}
    </section>
  );
}

export function JobPage({ id }: { id: string }) {
  const job = useSignal<Job | null>(null);
  const why = useSignal<Explanation | null>(null);
  const error = useSignal('');
  const missing = useSignal(false);
  // The stream and the document of an array count only the elements that have ended.
  const ofElements = useSignal<number | null>(null);
  const can = useSignal<Can>({ suspend: false, rerun: false });
  // The live stream's row changes with the job; then the document is loaded again.
  jobsTick.value;
  const row = jobs.get(Number(id.split('.')[0]));
  const mark = [row?.state, row?.attempt, row?.where.length, row?.reason, row !== undefined].join();
  useEffect(() => {
    let gone = false;
    const load = async () => {
      try {
        const j = await get<Job>(`/v1/jobs/${id}`);
        if (gone) return;
        job.value = j;
        if (j.elements && !j.final)
          void get<{ total: { charge_nano_usd: number } }>(`/v1/jobs/${id}/cost`).then(
            (d) => {
              ofElements.value = d.total.charge_nano_usd;
            },
            () => {},
          );
        else ofElements.value = null;
        if (j.state === 'running' || j.state === 'succeeded') why.value = null;
        else why.value = await get<Explanation>(`/v1/jobs/${id}/explain`).catch(() => null);
        can.value = {
          suspend: await has('/v1/jobs/{id}/suspend'),
          rerun: await has('/v1/jobs/{id}/rerun'),
        };
      } catch (e) {
        if (gone) return;
        missing.value = e instanceof ApiError && e.status === 404;
        error.value = problem(e);
      }
    };
    void load();
    // The reason for waiting and the expected times change even if the job does not.
    const timer = window.setInterval(() => {
      if (!document.hidden && !job.peek()?.final) void load();
    }, 5000);
    return () => {
      gone = true;
      window.clearInterval(timer);
    };
  }, [id, mark]);
  const act = async (what: string, body: unknown, said: string) => {
    try {
      await post(`/v1/jobs/${id}/${what}`, body);
      error.value = '';
      notify(said);
    } catch (e) {
      error.value = problem(e);
    }
  };
  // The same command with the same files, image, environment and variables.
  const again = async () => {
    try {
      location.hash = `/jobs/${(await post<{ id: number }>(`/v1/jobs/${id}/rerun`)).id}`;
    } catch (e) {
      error.value = problem(e);
    }
  };
  const j = job.value;
  if (!j) return <NoJob id={id} text={error.value} missing={missing.value} />;
  const now = clock.value;
  const title = j.name || j.command;
  const counted = row ?? rowOf(j);
  const cost = ofElements.value ?? (row && !j.final ? costOf(row, now) : j.cost_nano_usd);
  const members = j.roles && memberNames(j.roles);
  const ranks = members?.length ?? (j.nodes || 1);
  return (
    <article>
      <p class="crumbs">
        <a href="#/jobs">Jobs</a> / {j.label}
      </p>
      <div class="title">
        <h1>{title}</h1>
        <Badge state={j.state} />
      </div>
      <Actions job={j} can={can.value} act={act} again={again} />
      {error.value && (
        <p role="alert" class="bad">
          {error.value}
        </p>
      )}
      {j.waits_for && (
        <p class="finding starting" role="status">
          <b>Starting:</b> {j.waits_for}
        </p>
      )}
      <SickCards job={j} />
      {why.value && why.value.reasons.length > 0 && (
        <section class="attention">
          <h2>{whyTitle(j.state)}</h2>
          <ul class="plain">
            {why.value.reasons.map((r) => (
              <li>{inWords(r.text)}</li>
            ))}
          </ul>
          {why.value.earliest_start && <p>Expected to start {moment(why.value.earliest_start)}.</p>}
          {why.value.latest_start && why.value.latest_start !== why.value.earliest_start && (
            <p>At the latest {moment(why.value.latest_start)}.</p>
          )}
          {why.value.start_unknown && (
            <p>When it starts is not known: {why.value.start_unknown}.</p>
          )}
          {worthTrying(why.value, j) && <p>To start it now: {why.value.would_start_now}</p>}
        </section>
      )}
      {!j.elements && (
        <Timeline
          job={j}
          now={now}
          ran={ranMs(counted, now)}
          suspended={suspendedMs(counted, now)}
        />
      )}
      <dl class="facts">
        {j.exit && !j.elements && (
          <>
            <dt>Ended</dt>
            <dd>
              {j.exit.text}
              {j.reason && j.reason !== j.exit.text ? `; ${j.reason}` : ''}
            </dd>
          </>
        )}
        {!j.final && j.reason && j.reason !== j.waits_for && j.state === 'running' && (
          <>
            <dt>Remark</dt>
            <dd>{j.reason}</dd>
          </>
        )}
        <dt>Cost</dt>
        <dd>
          <b>{usd(cost)}</b>
          {j.rate && !j.final ? ` at ${j.rate}` : ''}
        </dd>
        <dt>Command</dt>
        <dd>
          <code>{j.command}</code>
        </dd>
        <dt>User</dt>
        <dd>
          {j.user}, project{' '}
          <a href={`#/jobs?show=all&project=${encodeURIComponent(j.project)}`}>{j.project}</a>
        </dd>
        <dt>Requested</dt>
        <dd>
          {j.mig_profile
            ? `${j.gpus > 1 ? `${j.gpus} MIG instances` : 'a MIG instance'} of ${j.mig_profile}`
            : j.gpu_milli
              ? `${gpus(j.gpu_milli)} GPU${j.gpu_milli > 1000 ? 's' : ''}`
              : j.gpu_mem_mib
                ? `${gib(j.gpu_mem_mib)} of a GPU`
                : 'no GPU'}
          {j.gpu_types.length ? ` of ${j.gpu_types.join(' or ')}` : ''}
          {members ? ` for ${plural(members.length, 'member')}` : ''}
          {j.nodes > 1 ? ` on each of ${j.nodes} nodes` : ''}
          {j.spot ? ', spot' : ''}
          {j.time_limit_s ? `, at most ${exactly(j.time_limit_s)}` : ''}
        </dd>
        {j.spec && <Asked spec={j.spec} />}
        {j.tasks.length > 0 && !j.roles && (
          <>
            <dt>Node</dt>
            <dd>
              {j.tasks.map((t, i) => (
                <>
                  {i > 0 && '; '}
                  <a href={`#/nodes/${encodeURIComponent(t.node)}`}>{placeOf(t)}</a>
                </>
              ))}
            </dd>
          </>
        )}
        {j.elements && (
          <>
            <dt>Submitted</dt>
            <dd>
              {moment(j.submitted_at)}
              {j.ended_at ? `, last element ended ${moment(j.ended_at)}` : ''}
            </dd>
          </>
        )}
        {j.suspendable && !j.elements && (
          <>
            <dt>Suspendable</dt>
            <dd>{j.suspendable.can ? 'yes' : `no: ${j.suspendable.why}`}</dd>
          </>
        )}
        {j.elements && (
          <>
            <dt>Elements</dt>
            <dd>
              {[
                [j.elements.succeeded, 'succeeded'],
                [j.elements.running, 'running'],
                [Math.max(0, j.elements.left - j.elements.running), 'waiting'],
                [j.elements.count - j.elements.left - j.elements.succeeded, 'not succeeded'],
              ]
                .filter(([n]) => n)
                .map(([n, what]) => `${n} ${what}`)
                .join(', ')}{' '}
              of {j.elements.count}
            </dd>
          </>
        )}
        {Object.keys(j.labels).length > 0 && (
          <>
            <dt>Labels</dt>
            <dd>
              {Object.entries(j.labels).map(([k, v]) => (
                <span class="tag">
                  {k}={v}
                </span>
              ))}
            </dd>
          </>
        )}
      </dl>
      {j.elements && <Elements id={id} count={j.elements.count} final={j.final} />}
      {j.roles && <Roles job={{ ...j, roles: j.roles }} act={act} />}
      {(j.elements || ranks > 1) && (
        <SearchAll id={id} ranks={ranks} elements={!!j.elements} names={members} />
      )}
      {!j.elements && j.started_at && (
        <>
          <Log id={id} ranks={ranks} names={members} attempts={j.attempt} final={j.final} />
          <JobTools id={id} running={!j.final} />
          <Charts id={id} running={!j.final} began={!!j.started_at} cores={j.cpu_milli / 1000} />
        </>
      )}
    </article>
  );
}
