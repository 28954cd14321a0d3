// One job: its state and the reason for it, resources, log, use, and actions.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { get, has, post, problem, type Explanation, type Job, type Series } from './api';
import { Chart } from './chart';
import { gib, gpus, lasting, moment, rate, usd } from './format';
import { Elements } from './elements';
import { Log } from './log';
import { SearchAll } from './search';
import { lazy } from './time/lazy';
import { Badge, confirm } from './ui';
import {
  clock,
  costOf,
  jobs,
  jobsTick,
  nodes,
  nodesTick,
  notify,
  ranMs,
  rowOf,
  suspendedMs,
} from './store';

const JobTools = lazy(() => import('./time/job_tools').then((m) => m.JobTools), '');

// The time since submission, split into waiting, running and suspended. After a preemption a job
// waits again.
function Timeline({
  job,
  now,
  ran,
  suspended,
}: {
  job: Job;
  now: number;
  ran: number;
  suspended: number;
}) {
  const from = Date.parse(job.submitted_at),
    end = job.ended_at ? Date.parse(job.ended_at) : now;
  const points: [string, number][] = [['submitted', from]];
  if (job.started_at) points.push(['started', Date.parse(job.started_at)]);
  points.push(job.ended_at ? [job.state, end] : ['now', now]);
  const all = Math.max(1, end - from);
  const waited = job.started_at ? Math.max(0, Date.parse(job.started_at) - from) : all;
  const rest = job.started_at ? Math.max(0, all - waited - ran - suspended) : 0;
  const again = rest >= 5000 ? rest : 0; // times have whole seconds: less is rounding
  const parts: [string, number][] = [
    ['wait', waited],
    [`ran ${job.state}`, ran + rest - again],
    ['slept', suspended],
    ['wait', again],
  ];
  let x = 0;
  return (
    <div class="timeline">
      <svg viewBox="0 0 1000 12" preserveAspectRatio="none" aria-hidden="true">
        {parts.map(([kind, ms]) => {
          const at = x,
            w = Math.min(1000 - at, (ms / all) * 1000);
          x += w;
          return (
            w > 0 && <rect class={kind} x={at} y="3" width={Math.max(2, w)} height="6" rx="3" />
          );
        })}
      </svg>
      <ol>
        {points.map(([what, at]) => (
          <li>
            <b>{what}</b> {what === 'now' ? '' : moment(at)}
          </li>
        ))}
      </ol>
      <p class="note">
        waited {lasting(waited / 1000)}
        {job.started_at ? `, ran ${lasting(ran / 1000)}` : ''}
        {suspended >= 1000 ? `, suspended ${lasting(suspended / 1000)}` : ''}
        {again ? `, waited again ${lasting(again / 1000)}` : ''}
        {job.attempt > 1 ? `, attempt ${job.attempt}` : ''}
      </p>
    </div>
  );
}

// GPUs that failed while the job uses them: the job continues, but its owner should know.
function SickCards({ job }: { job: Job }) {
  nodesTick.value;
  if (job.final) return null;
  const sick = job.tasks
    .flatMap((t) =>
      t.gpus.map((index) => ({
        node: t.node,
        index,
        why: nodes.get(t.node_id)?.gpus[index]?.unhealthy ?? '',
      })),
    )
    .filter((c) => c.why);
  if (!sick.length) return null;
  return (
    <section class="attention sickcards" aria-label="Unhealthy GPUs">
      <h2>
        {sick.length === 1
          ? 'A GPU of this job is unhealthy'
          : `${sick.length} GPUs of this job are unhealthy`}
      </h2>
      <ul class="plain">
        {sick.map((c) => (
          <li class="grave">
            <a href={`#/nodes/${encodeURIComponent(c.node)}?gpu=${c.index}`}>
              GPU {c.index} of {c.node}
            </a>
            : {c.why}
          </li>
        ))}
      </ul>
      <p>
        The job continues; no new work is placed on the GPU. Results since then may be wrong: check
        the log, and run the job again if in doubt. It then gets another GPU.
      </p>
    </section>
  );
}

const whyTitle = (state: string) =>
  (
    ({
      suspended: 'Why it is suspended',
      failed: 'Why it failed',
      lost: 'Why it was lost',
      stopped: 'Why it was stopped',
    }) as Record<string, string>
  )[state] ?? 'Why it waits';

function Charts({
  id,
  running,
  began,
  cores,
}: {
  id: string;
  running: boolean;
  began: boolean;
  cores: number;
}) {
  const data = useSignal<Series | null>(null);
  useEffect(() => {
    let gone = false;
    const load = () => {
      if (!document.hidden)
        void get<Series>(`/v1/jobs/${id}/history`).then(
          (s) => {
            if (!gone) data.value = s;
          },
          () => {},
        );
    };
    load();
    const timer = running ? window.setInterval(load, 5000) : 0;
    return () => {
      gone = true;
      window.clearInterval(timer);
    };
  }, [id, running]);
  const s = data.value;
  if (!began) return null;
  if (!s || s.points < 2)
    return (
      <section class="panel gap">
        <h2>Use</h2>
        <p class="note">
          {running
            ? 'The first samples arrive within seconds.'
            : 'Nothing was recorded: the job was too short.'}
        </p>
      </section>
    );
  const any = (name: string) => s.series[name]?.some((v) => v != null && v > 0);
  const known = (name: string) => s.series[name]?.some((v) => v != null);
  const common = { fromMs: s.from_ms, stepS: s.step_s };
  return (
    <section aria-label="Use">
      <h2>
        Use <small>one point per {lasting(s.step_s)}</small>
      </h2>
      {s.findings?.map((f) => (
        <p class={`finding ${f.kind}`} role="note">
          <b>
            {f.kind === 'input_bound'
              ? 'Input-bound'
              : f.kind === 'idle'
                ? 'Idle'
                : 'More than it needs'}
            :
          </b>{' '}
          {f.text}. {f.hint.charAt(0).toUpperCase() + f.hint.slice(1)}.
        </p>
      ))}
      <div class="charts">
        {known('gpu_util_pct') && (
          <Chart
            {...common}
            title="GPU"
            max={100}
            format={(v) => `${v.toFixed(0)} %`}
            lines={[
              { label: 'busy', values: s.series.gpu_util_pct, colour: 1 },
              ...(known('sm_active_pct')
                ? [{ label: 'SMs active', values: s.series.sm_active_pct, colour: 2 as const }]
                : []),
            ]}
          />
        )}
        {known('gpu_mem_mib') && (
          <Chart
            {...common}
            title="GPU memory"
            format={gib}
            lines={[{ label: 'used', values: s.series.gpu_mem_mib, colour: 1 }]}
          />
        )}
        {known('gpu_power_w') && (
          <Chart
            {...common}
            title="GPU power"
            format={(v) => `${v.toFixed(0)} W`}
            lines={[{ label: 'drawn', values: s.series.gpu_power_w, colour: 3 }]}
          />
        )}
        {known('cpu_cores') && (
          <Chart
            {...common}
            title={`CPU of ${cores || s.cores || '?'} cores`}
            format={(v) => v.toFixed(1)}
            lines={[{ label: 'cores', values: s.series.cpu_cores, colour: 1 }]}
          />
        )}
        {known('mem_mib') && (
          <Chart
            {...common}
            title="Memory"
            format={gib}
            lines={[{ label: 'resident', values: s.series.mem_mib, colour: 2 }]}
          />
        )}
        {known('read_kib_s') && (
          <Chart
            {...common}
            title="Disk and pipes"
            format={rate}
            lines={[
              { label: 'read', values: s.series.read_kib_s, colour: 1 },
              { label: 'written', values: s.series.write_kib_s, colour: 2 },
            ]}
          />
        )}
        {any('pcie_rx_kib_s') && (
          <Chart
            {...common}
            title="PCIe"
            format={rate}
            lines={[
              { label: 'to the GPU', values: s.series.pcie_rx_kib_s, colour: 1 },
              { label: 'from the GPU', values: s.series.pcie_tx_kib_s, colour: 2 },
            ]}
          />
        )}
        {any('nvlink_rx_kib_s') && (
          <Chart
            {...common}
            title="NVLink"
            format={rate}
            lines={[
              { label: 'received', values: s.series.nvlink_rx_kib_s, colour: 1 },
              { label: 'sent', values: s.series.nvlink_tx_kib_s, colour: 2 },
            ]}
          />
        )}
        {known('node_net_rx_kib_s') && (
          <Chart
            {...common}
            title="Network of the node"
            format={rate}
            lines={[
              { label: 'received', values: s.series.node_net_rx_kib_s, colour: 1 },
              { label: 'sent', values: s.series.node_net_tx_kib_s, colour: 2 },
            ]}
          />
        )}
      </div>
    </section>
  );
}

// "node-1 (H100 0, 1)", with the MIG instances if there are some.
function placeOf(task: Job['tasks'][number]): string {
  if (!task.gpus.length) return task.node;
  const mig = (task.mig ?? []).map((m) => `, MIG ${m.profile} from slice ${m.start}`).join('');
  return `${task.node} (${task.gpu_type} ${task.gpus.join(', ')}${mig})`;
}

export function rerunLink(j: Job): string {
  const p = new URLSearchParams({
    command: j.command,
    gpus: String(j.gpu_milli / 1000),
    name: j.name,
    cwd: j.cwd,
    type: j.gpu_types[0] ?? '',
    ...(j.spot ? { spot: '1' } : {}),
    project: j.project,
  });
  return `#/run?${p}`;
}

export function JobPage({ id }: { id: string }) {
  const job = useSignal<Job | null>(null);
  const why = useSignal<Explanation | null>(null);
  const error = useSignal('');
  const can = useSignal({ suspend: false, rerun: false });
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
        if (j.state === 'running' || j.state === 'succeeded') why.value = null;
        else why.value = await get<Explanation>(`/v1/jobs/${id}/explain`).catch(() => null);
        can.value = {
          suspend: await has('/v1/jobs/{id}/suspend'),
          rerun: await has('/v1/jobs/{id}/rerun'),
        };
      } catch (e) {
        if (!gone) error.value = problem(e);
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
  if (!j) return <p class="note">{error.value || 'Reading…'}</p>;
  const now = clock.value;
  const title = j.name || j.command;
  const counted = row ?? rowOf(j);
  const frozen = !!j.suspendable && !j.suspendable.can;
  const cost = row && !j.final ? costOf(row, now) : j.cost_nano_usd;
  return (
    <article>
      <p class="crumbs">
        <a href="#/jobs">Jobs</a> / {j.label}
      </p>
      <div class="title">
        <h1>{title}</h1>
        <Badge state={j.state} />
      </div>
      <p class="actions">
        {j.pty && !j.final && (
          <a class="button" href={`#/terminal/${j.label}`}>
            Open the terminal
          </a>
        )}
        {!j.final && can.value.suspend && j.state === 'running' && (
          <button
            disabled={frozen}
            title={frozen ? `This job cannot be suspended: ${j.suspendable!.why}` : undefined}
            onClick={() => act('suspend', {}, `Job ${j.label} is being suspended`)}
          >
            Suspend
          </button>
        )}
        {!j.final && can.value.suspend && j.state === 'suspended' && (
          <button
            onClick={() => act('resume', {}, `Job ${j.label} resumes as soon as capacity is free`)}
          >
            Resume
          </button>
        )}
        {!j.final && (
          <button class="quiet" onClick={() => act('stop', {}, `Job ${j.label} is being stopped`)}>
            Stop
          </button>
        )}
        {!j.final && j.tasks.length > 0 && (
          <button
            class="quiet"
            onClick={() =>
              confirm('Kill this job?', 'It gets no time to save its work.', 'Kill', () => {
                void act('stop', { force: true }, `Job ${j.label} is being killed`);
              })
            }
          >
            Kill
          </button>
        )}
        {can.value.rerun && !j.elements && j.final && (
          <button class="quiet" onClick={again}>
            Run again
          </button>
        )}
        <a class="button quiet" href={rerunLink(j)}>
          {can.value.rerun ? 'Change and run…' : 'Run again…'}
        </a>
      </p>
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
              <li>{r.text}</li>
            ))}
          </ul>
          {why.value.earliest_start && <p>Expected to start {moment(why.value.earliest_start)}.</p>}
          {why.value.latest_start && why.value.latest_start !== why.value.earliest_start && (
            <p>At the latest {moment(why.value.latest_start)}.</p>
          )}
          {why.value.start_unknown && (
            <p>When it starts is not known: {why.value.start_unknown}.</p>
          )}
          {why.value.would_start_now && <p>To start it now: {why.value.would_start_now}</p>}
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
          {j.nodes > 1 ? ` on each of ${j.nodes} nodes` : ''}
          {j.spot ? ', spot' : ''}
          {j.time_limit_s ? `, at most ${lasting(j.time_limit_s)}` : ''}
        </dd>
        {j.tasks.length > 0 && (
          <>
            <dt>Node</dt>
            <dd>{j.tasks.map((t) => placeOf(t)).join('; ')}</dd>
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
        {!j.final && j.reason && j.reason !== j.waits_for && j.state === 'running' && (
          <>
            <dt>Remark</dt>
            <dd>{j.reason}</dd>
          </>
        )}
        {j.suspendable && !j.elements && (
          <>
            <dt>Suspendable</dt>
            <dd>{j.suspendable.can ? 'yes' : `no: ${j.suspendable.why}`}</dd>
          </>
        )}
        <dt>Cost</dt>
        <dd>
          <b>{usd(cost)}</b>
          {j.rate && !j.final ? ` at ${j.rate}` : ''}
        </dd>
        {j.exit && !j.elements && (
          <>
            <dt>Ended</dt>
            <dd>
              {j.exit.text}
              {j.reason && j.reason !== j.exit.text ? `; ${j.reason}` : ''}
            </dd>
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
      {(j.elements || j.nodes > 1) && (
        <SearchAll id={id} ranks={j.nodes || 1} elements={!!j.elements} />
      )}
      {!j.elements && j.started_at && (
        <>
          <Log id={id} ranks={j.nodes || 1} final={j.final} />
          <JobTools id={id} running={!j.final} />
          <Charts id={id} running={!j.final} began={!!j.started_at} cores={j.cpu_milli / 1000} />
        </>
      )}
    </article>
  );
}
