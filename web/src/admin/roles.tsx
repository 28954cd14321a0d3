// The roles of a group: each member with its state and place, and what each role has cost.
import type { ComponentChildren } from 'preact';
import type { Job, Role, Task } from '../data/api';
import { gib, gpus, plural, usd } from '../data/format';
import { mayActOn } from '../data/rights';
import { lazy } from '../parts/lazy';
import { Badge, confirm } from '../parts/ui';

const Tags = lazy(() => import('../jobs/asked').then((m) => m.Tags), '');

// The names of all members by rank, as `billow logs --role` takes them.
export const memberNames = (roles: Role[]): string[] =>
  roles.flatMap((r) =>
    r.count === 1 ? [r.name] : Array.from({ length: r.count }, (_, i) => `${r.name}.${i}`),
  );

function asked(role: Role): string {
  const parts = [
    role.gpu_milli
      ? `${gpus(role.gpu_milli)} GPU${role.gpu_milli > 1000 ? 's' : ''}`
      : role.gpu_mem_mib
        ? `${gib(role.gpu_mem_mib)} of a GPU`
        : 'no GPU',
  ];
  if (role.gpu_types.length) parts.push(role.gpu_types.join(' or '));
  return (role.count > 1 ? 'each ' : '') + parts.join(', ');
}

// The row of one member. The first one of a role also shows what belongs to the role.
function Member({
  name,
  task,
  job,
  first,
  restart,
}: {
  name: string;
  task?: Task;
  job: Job;
  first: ComponentChildren;
  restart?: () => void;
}) {
  const state = task?.state ?? job.state;
  return (
    <tr>
      {first}
      <td>
        <a href={`#/jobs/${job.label}?task=${task?.rank ?? 0}`}>{name}</a>
      </td>
      <td>
        <Badge state={state} text={task?.exit?.text ?? state} />
      </td>
      <td>
        {task ? <a href={`#/nodes/${encodeURIComponent(task.node)}`}>{task.node}</a> : '–'}
        {task && task.gpus.length > 0 && ` (GPU ${task.gpus.join(', ')})`}
      </td>
      <td>
        {restart && (
          <button class="quiet" aria-label={`Restart ${name}`} onClick={restart}>
            Restart
          </button>
        )}
      </td>
    </tr>
  );
}

export function Roles({
  job,
  act,
}: {
  job: Job & { roles: Role[] };
  act: (what: string, body: unknown, said: string) => Promise<void>;
}) {
  const tasks = new Map(job.tasks.map((t) => [t.role ?? '', t]));
  const restarts = mayActOn(job) && job.state === 'running';
  let rank = 0;
  const names = memberNames(job.roles);
  return (
    <section aria-label="Roles">
      <h2>
        Roles <small>{plural(names.length, 'member')} that start together</small>
      </h2>
      <div class="scroll elements" tabIndex={0} role="region" aria-label="Roles as a table">
        <table>
          <thead>
            <tr>
              <th>Role</th>
              <th>Requested</th>
              <th class="right">Cost</th>
              <th>Member</th>
              <th>State</th>
              <th>Node</th>
              <th aria-label="Action" />
            </tr>
          </thead>
          <tbody>
            {job.roles.map((role) =>
              Array.from({ length: role.count }, (_, i) => {
                const name = names[rank++];
                const task = tasks.get(name);
                return (
                  <Member
                    name={name}
                    task={task}
                    job={job}
                    first={
                      i === 0 && (
                        <>
                          <th scope="rowgroup" rowSpan={role.count} title={role.command}>
                            {role.name}
                            {role.count > 1 && ` × ${role.count}`}
                            {role.service && <small> service</small>}
                          </th>
                          <td rowSpan={role.count}>
                            {asked(role)} {role.options && <Tags spec={role.options} />}
                          </td>
                          <td rowSpan={role.count} class="right">
                            {usd(role.cost_nano_usd)}
                          </td>
                        </>
                      )
                    }
                    restart={
                      restarts && task
                        ? () =>
                            confirm(
                              `Restart ${name}?`,
                              'It is stopped and started again. The other members continue.',
                              'Restart',
                              () => void act('restart', { role: name }, `${name} restarts`),
                            )
                        : undefined
                    }
                  />
                );
              }),
            )}
          </tbody>
        </table>
      </div>
    </section>
  );
}
