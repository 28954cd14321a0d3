// Stops several idle jobs at once, with a few seconds to undo instead of a confirmation. Jobs that
// became active in the meantime are left alone; leaving the page does not cancel it.
import { post, problem, type Row } from '../data/api';
import { plural } from '../data/format';
import { isIdle, jobs, notify, retract } from '../data/store';

export const thinkMs = 7000;

export function stopIdleSoon(rows: Row[]): void {
  const ids = rows.map((r) => r.id);
  const stop = () => {
    window.clearTimeout(timer);
    window.removeEventListener('pagehide', stop);
    retract(notice);
    const still = ids.map((id) => jobs.get(id)).filter((r): r is Row => !!r && isIdle(r));
    const spared = ids.length - still.length;
    void Promise.all(
      still.map((r) =>
        post(`/v1/jobs/${r.id}/stop`, { reason: 'idle, stopped from the dashboard' }),
      ),
    ).then(
      () =>
        notify(
          `${plural(still.length, 'idle job')} being stopped` +
            (spared ? `; ${plural(spared, 'job')} became active and will continue` : ''),
        ),
      (e) => notify(problem(e)),
    );
  };
  const timer = window.setTimeout(stop, thinkMs);
  window.addEventListener('pagehide', stop);
  const notice = notify(
    `${plural(ids.length, 'idle job')} will be stopped in ${thinkMs / 1000} s`,
    undefined,
    {
      label: 'Undo',
      ms: thinkMs + 500,
      run: () => {
        window.clearTimeout(timer);
        window.removeEventListener('pagehide', stop);
        retract(notice);
        notify(
          `Undone: ${plural(ids.length, 'job')} ${ids.length === 1 ? 'continues' : 'continue'}`,
        );
      },
    },
  );
}
