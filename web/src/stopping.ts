// Stopping several jobs at once, with time to take it back instead of a question beforehand: the list in front of the person is what will
// be stopped, and for a few seconds nothing is. What has begun to work in the meantime is left alone; who leaves the page has had the time to think.
import { post, problem, type Row } from './api';
import { plural } from './format';
import { isIdle, jobs, notify, retract } from './store';

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
          `${plural(still.length, 'idle job')} told to stop${spared ? `; ${spared} had begun to work and ${spared === 1 ? 'goes' : 'go'} on` : ''}`,
        ),
      (e) => notify(problem(e)),
    );
  };
  const timer = window.setTimeout(stop, thinkMs);
  window.addEventListener('pagehide', stop);
  const notice = notify(
    `${plural(ids.length, 'idle job')} ${ids.length === 1 ? 'is' : 'are'} stopped in ${thinkMs / 1000} seconds`,
    undefined,
    {
      label: 'Undo',
      ms: thinkMs + 500,
      run: () => {
        window.clearTimeout(timer);
        window.removeEventListener('pagehide', stop);
        retract(notice);
        notify(
          `Nothing is stopped: ${plural(ids.length, 'job')} ${ids.length === 1 ? 'goes' : 'go'} on`,
        );
      },
    },
  );
}
