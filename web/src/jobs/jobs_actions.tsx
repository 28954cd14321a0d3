// What can be done with several selected jobs at once. An action begins after a few seconds in
// which one click undoes it; leaving the page does not cancel it.
import { useSignal } from '@preact/signals';
import type { Row } from '../data/api';
import { call, post, problem } from '../data/api';
import { mayActOn } from '../data/rights';
import { plural } from '../data/format';
import { notify, retract } from '../data/store';
import { thinkMs } from '../frame/stopping';

interface Action {
  name: string;
  doing: string; // "3 jobs will be stopped"
  done: string;
  can: (row: Row) => boolean;
  run: (row: Row) => Promise<unknown>;
  danger?: boolean;
}
const actions: Action[] = [
  {
    name: 'Stop',
    doing: 'stopped',
    done: 'being stopped',
    danger: true,
    can: (r) => !r.final && mayActOn(r),
    run: (r) => post(`/v1/jobs/${r.label}/stop`, { reason: 'stopped from the dashboard' }),
  },
  {
    name: 'Suspend',
    doing: 'suspended',
    done: 'being suspended',
    can: (r) => r.state === 'running' && mayActOn(r),
    run: (r) => post(`/v1/jobs/${r.label}/suspend`),
  },
  {
    name: 'Resume',
    doing: 'resumed',
    done: 'being resumed',
    can: (r) => r.state === 'suspended' && mayActOn(r),
    run: (r) => post(`/v1/jobs/${r.label}/resume`),
  },
  {
    name: 'Run again',
    doing: 'submitted again',
    done: 'submitted again',
    can: (r) => mayActOn(r),
    run: (r) => post(`/v1/jobs/${r.label}/rerun`),
  },
];

// "team=nlp" sets a label, "team-" removes it.
interface Labels {
  set: Record<string, string>;
  remove: string[];
}
export function parseLabels(text: string): Labels | null {
  const out: Labels = { set: {}, remove: [] };
  for (const word of text.split(/[\s,]+/).filter(Boolean)) {
    const at = word.indexOf('=');
    if (at > 0) out.set[word.slice(0, at)] = word.slice(at + 1);
    else if (at < 0 && word.length > 1 && word.endsWith('-')) out.remove.push(word.slice(0, -1));
    else return null;
  }
  return Object.keys(out.set).length || out.remove.length ? out : null;
}
const labelling = (labels: Labels): Action => ({
  name: 'Label',
  doing: 'labelled',
  done: 'labelled',
  can: (r) => mayActOn(r),
  run: (r) => call('PUT', `/v1/jobs/${r.label}/labels`, labels),
});
function LabelForm({ rows, clear }: { rows: Row[]; clear: () => void }) {
  const open = useSignal(false);
  const wrong = useSignal(false);
  const fit = rows.filter(mayActOn);
  const submit = (event: Event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const labels = parseLabels(String(form.get('labels') ?? ''));
    wrong.value = !labels;
    if (!labels) return;
    soon(labelling(labels), fit);
    clear();
  };
  if (!open.value)
    return (
      <button
        class="quiet small"
        disabled={!fit.length}
        onClick={() => {
          open.value = true;
        }}
      >
        Label{fit.length > 0 && fit.length < rows.length ? ` ${fit.length}` : ''}
      </button>
    );
  return (
    <form class="labelling" onSubmit={submit}>
      <input
        name="labels"
        aria-label="Labels to set or remove"
        aria-invalid={wrong.value}
        placeholder="team=nlp, or team- to remove"
        autocomplete="off"
        spellcheck={false}
        ref={(e) => e?.focus()}
      />
      <button class="small">Apply</button>
      {wrong.value && <span role="alert">Write it as NAME=VALUE</span>}
    </form>
  );
}

function soon(action: Action, rows: Row[]): void {
  const count = plural(rows.length, 'job');
  const act = () => {
    window.clearTimeout(timer);
    window.removeEventListener('pagehide', act);
    retract(notice);
    void Promise.allSettled(rows.map((r) => action.run(r))).then((results) => {
      const failed = results.filter((r) => r.status === 'rejected');
      const good = rows.length - failed.length;
      if (good) notify(`${plural(good, 'job')} ${action.done}`);
      if (failed.length)
        notify(`${plural(failed.length, 'job')} not ${action.doing}: ${problem(failed[0].reason)}`);
    });
  };
  const timer = window.setTimeout(act, thinkMs);
  window.addEventListener('pagehide', act);
  const notice = notify(`${count} will be ${action.doing} in ${thinkMs / 1000} s`, undefined, {
    label: 'Undo',
    ms: thinkMs + 500,
    run: () => {
      window.clearTimeout(timer);
      window.removeEventListener('pagehide', act);
      retract(notice);
      notify(`Undone: nothing happened to ${count}`);
    },
  });
}

export function SelectionBar({ rows, clear }: { rows: Row[]; clear: () => void }) {
  if (!rows.length) return null;
  return (
    <div class="selection" role="toolbar" aria-label="Selected jobs">
      <b>{rows.length.toLocaleString()} selected</b>
      {actions.map((action) => {
        const fit = rows.filter(action.can);
        return (
          <button
            class={action.danger ? 'danger small' : 'quiet small'}
            disabled={!fit.length}
            onClick={() => {
              soon(action, fit);
              clear();
            }}
          >
            {action.name}
            {fit.length > 0 && fit.length < rows.length ? ` ${fit.length}` : ''}
          </button>
        );
      })}
      <LabelForm rows={rows} clear={clear} />
      <button class="link" onClick={clear}>
        Clear
      </button>
    </div>
  );
}
