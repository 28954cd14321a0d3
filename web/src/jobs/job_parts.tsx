// Parts of a job's page: its course over time, and a warning about GPUs that failed under it.
import type { Job } from '../data/api';
import { lasting, moment } from '../data/format';
import { nodes, nodesTick } from '../data/store';

// The time since submission, split into waiting, running and suspended. After a preemption a job
// waits again.
export function Timeline({
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
export function SickCards({ job }: { job: Job }) {
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
