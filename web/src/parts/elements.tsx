// The elements of an array with their states, failed ones first. Refreshed while some are left.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { get, type Job } from '../data/api';
import { lasting, plural, usd } from '../data/format';
import { Badge } from './ui';
import { clock, ranMs, rowOf } from '../data/store';

const shownMax = 200;
const rank = (j: Job) =>
  (
    ({ failed: 0, lost: 0, running: 1, suspended: 2, stopped: 3, held: 4, queued: 4 }) as Record<
      string,
      number
    >
  )[j.state] ?? 5;

export function Elements({ id, count, final }: { id: string; count: number; final: boolean }) {
  const list = useSignal<Job[]>([]);
  useEffect(() => {
    let gone = false;
    const load = () => {
      if (!document.hidden)
        void get<{ jobs: Job[] }>(`/v1/jobs?array=${id}&state=all&limit=${shownMax}`).then(
          (d) => {
            if (!gone) list.value = d.jobs;
          },
          () => {},
        );
    };
    load();
    const timer = final ? 0 : window.setInterval(load, 3000);
    return () => {
      gone = true;
      window.clearInterval(timer);
    };
  }, [id, final]);
  const rows = [...list.value].sort((a, b) => rank(a) - rank(b) || a.id - b.id);
  if (!rows.length) return null;
  const now = clock.value;
  return (
    <section aria-label="Elements">
      <h2>
        Elements{' '}
        {count > rows.length && (
          <small>
            {rows.length} of {plural(count, 'element')}
          </small>
        )}
      </h2>
      <div class="scroll elements" tabIndex={0} role="region" aria-label="Elements as a table">
        <table>
          <thead>
            <tr>
              <th>Element</th>
              <th>State</th>
              <th class="right">Run time</th>
              <th class="right">Cost</th>
              <th>Remark</th>
            </tr>
          </thead>
          <tbody>
            {rows.map((j) => (
              <tr>
                <td>
                  <a href={`#/jobs/${j.label}`}>{j.label}</a>
                </td>
                <td>
                  <Badge state={j.state} />
                </td>
                <td class="right">{j.started_at ? lasting(ranMs(rowOf(j), now) / 1000) : '–'}</td>
                <td class="right">{usd(j.cost_nano_usd)}</td>
                <td class="wrap">
                  {j.final
                    ? j.state === 'succeeded'
                      ? ''
                      : j.reason || j.exit?.text
                    : j.reason || j.tasks.map((t) => t.node).join(', ')}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
