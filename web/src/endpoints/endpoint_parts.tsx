// Parts of an endpoint that few visits need: its canary and asynchronous calls.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { call, get, has, post, problem } from '../data/api';
import type { Act, Endpoint } from './endpoint_types';
import { ago, plural, span } from '../data/format';
import { mayChange } from '../data/rights';
import { Badge, confirm, Kept, rows } from '../parts/ui';

const at = (e: Endpoint) => `/v1/endpoints/${encodeURIComponent(e.name)}`;
const percent = (n: number) => `${n.toLocaleString(undefined, { maximumFractionDigits: 1 })} %`;
const within = (us: number | undefined) => (us ? `${(us / 1000).toFixed(0)} ms` : '–');

// The gateways that serve the endpoint, each with its part of the replicas and requests.
export function Gateways({ e }: { e: Endpoint }) {
  if (!e.gateways) return null;
  if (!e.gateways.length)
    return <p class="finding">No gateway is connected: requests to {e.name} fail.</p>;
  return (
    <div class="scroll gateways" tabIndex={0} role="region" aria-label={`Gateways of ${e.name}`}>
      <table class={rows.value} role="table">
        <thead role="rowgroup">
          <tr role="row">
            <th role="columnheader">Gateway</th>
            <th role="columnheader">State</th>
            <th role="columnheader">Address</th>
            <th role="columnheader" class="right">
              Replicas ready
            </th>
            <th role="columnheader" class="right">
              In flight
            </th>
            <th role="columnheader" class="right">
              Requests
            </th>
          </tr>
        </thead>
        <tbody role="rowgroup">
          {e.gateways.map((g) => (
            <tr role="row" key={g.id}>
              <td role="cell" data-name="Gateway">
                {g.region ? `${g.name}, ${g.region}` : g.name}
              </td>
              <td role="cell" data-name="State">
                <span>
                  <Badge state={g.state === 'connected' ? 'ready' : g.state} text={g.state} />
                </span>
              </td>
              <td role="cell" data-name="Address" class="wrap any">
                {g.address || '–'}
              </td>
              <td role="cell" data-name="Replicas ready" class="right">
                {g.ready}
              </td>
              <td role="cell" data-name="In flight" class="right">
                {g.in_flight.toLocaleString()}
              </td>
              <td role="cell" data-name="Requests" class="right">
                {g.requests.toLocaleString()}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

// A revision that gets a part of the requests beside the one that serves.
export function Release({ e, act }: { e: Endpoint; act: Act }) {
  const number = e.canary || e.rolling;
  const revision = e.revisions.find((r) => r.number === number);
  const plan = revision?.release;
  if (!revision || !plan || !e.revision) return null;
  const takesOver = e.canary !== 0 && e.rolling === e.canary;
  const gets = [
    plan.traffic_pct || !plan.mirror_pct ? `${percent(plan.traffic_pct)} of the requests` : '',
    plan.mirror_pct ? `copies of ${percent(plan.mirror_pct)}` : '',
  ]
    .filter(Boolean)
    .join(' and ');
  const title = takesOver
    ? `Revision ${number} takes over`
    : e.canary
      ? `Revision ${number} is a canary with ${gets}`
      : `Revision ${number} starts as a canary with ${gets}`;
  const share = (event: Event) => {
    event.preventDefault();
    const form = new FormData(event.target as HTMLFormElement);
    const pct = Number(form.get('traffic'));
    void act(
      () => post(`${at(e)}/traffic`, { traffic: Math.round(pct * 10) }),
      `The canary of ${e.name} gets ${percent(pct)} of the requests`,
    );
  };
  const seen = e.figures?.revisions ?? [];
  return (
    <section class="release" aria-label={`Canary of ${e.name}`}>
      <h2>{title}</h2>
      <p class="note">
        <code>{revision.command}</code>
      </p>
      {seen.length > 0 && (
        <table>
          <thead>
            <tr>
              <th>Revision</th>
              <th class="right">Requests</th>
              <th class="right">Errors</th>
              <th class="right">95 % within</th>
            </tr>
          </thead>
          <tbody>
            {seen.map((r) => (
              <tr>
                <td>
                  {r.revision} {r.revision === e.revision ? 'serves' : 'canary'}
                </td>
                <td class="right">{(r.requests ?? 0).toLocaleString()}</td>
                <td class="right">
                  {(r.errors ?? 0).toLocaleString()}
                  {r.requests ? ` (${percent(((r.errors ?? 0) / r.requests) * 100)})` : ''}
                </td>
                <td class="right">{within(r.first_byte_p95_us)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <p class="note">
        {plan.auto_rollback === 'off'
          ? 'Automatic rollback is off.'
          : plan.auto_rollback === 'errors'
            ? 'It is rolled back automatically if it has more errors than the current revision.'
            : 'It is rolled back automatically if it has more errors or is slower than the current revision.'}
      </p>
      {mayChange(e) && (
        <form class="inline" onSubmit={share}>
          {!takesOver && (
            <>
              <label>
                Share of the requests, %{' '}
                <Kept
                  name="traffic"
                  required
                  type="number"
                  min="0"
                  max="99"
                  step="0.1"
                  value={String(plan.traffic_pct)}
                />
              </label>
              <button class="quiet">Change the share</button>{' '}
            </>
          )}
          {e.canary !== 0 && !takesOver && (
            <button
              type="button"
              onClick={() =>
                confirm(
                  `Promote revision ${number} of ${e.name}?`,
                  'It takes over all requests when enough of its replicas are awake.',
                  'Promote',
                  () =>
                    void act(
                      () => post(`${at(e)}/promote`, {}),
                      `Revision ${number} of ${e.name} takes over`,
                    ),
                )
              }
            >
              Promote
            </button>
          )}{' '}
          <button
            type="button"
            class="quiet ends"
            onClick={() =>
              confirm(
                `End the canary of ${e.name}?`,
                `All requests go to revision ${e.revision}, and the replicas of revision ` +
                  `${number} are stopped.`,
                'End the canary',
                () =>
                  void act(
                    () => post(`${at(e)}/rollback`, {}),
                    `The canary of ${e.name} has ended`,
                  ),
              )
            }
          >
            End the canary
          </button>
        </form>
      )}
    </section>
  );
}

interface AsyncCall {
  id?: string;
  method: string;
  path: string;
  state: string;
  made_at: string;
  ended_at?: string;
  status?: number;
  reason?: string;
  answer_type?: string;
  answer?: string;
}
interface CallList {
  calls: AsyncCall[];
  waiting: number;
  ended: number;
  left_off: number;
}
const callTone: Record<string, string> = {
  waiting: 'queued',
  done: 'succeeded',
  failed: 'failed',
  cancelled: 'stopped',
};
const shownMax = 20_000;

// An answer as text; what is not UTF-8 is only measured.
function answerText(base64: string): string {
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    return text.length <= shownMax
      ? text || '(empty)'
      : `${text.slice(0, shownMax)}\n… ${(text.length - shownMax).toLocaleString()} characters more`;
  } catch {
    return `${plural(bytes.length, 'byte')} that are not text`;
  }
}

export function Calls({ e, act }: { e: Endpoint; act: Act }) {
  const open = useSignal(false);
  const list = useSignal<CallList | null>(null);
  const error = useSignal('');
  const shown = useSignal<AsyncCall | null>(null);
  const load = async () => {
    if (document.hidden) return;
    try {
      if (!(await has('/v1/endpoints/{name}/calls')))
        throw new Error('This head does not list asynchronous calls; update it.');
      list.value = await get<CallList>(`${at(e)}/calls`);
      error.value = '';
    } catch (trouble) {
      error.value = problem(trouble);
    }
  };
  useEffect(() => {
    if (!open.value) return;
    void load();
    const timer = window.setInterval(() => void load(), 3000);
    return () => window.clearInterval(timer);
  }, [open.value, e.name]);
  const show = async (id: string) => {
    try {
      shown.value = await get<AsyncCall>(`${at(e)}/calls/${encodeURIComponent(id)}`);
      error.value = '';
    } catch (trouble) {
      error.value = problem(trouble);
    }
  };
  const all = list.value;
  return (
    <details
      onToggle={(event) => {
        open.value = event.currentTarget.open;
      }}
    >
      <summary>Asynchronous calls</summary>
      {error.value && (
        <p role="alert" class="bad">
          {error.value}
        </p>
      )}
      {all && (
        <p class="note">
          {plural(all.waiting, 'call')} waiting, {all.ended.toLocaleString()} ended in the last hour
          {all.left_off ? `; the newest ${all.calls.length} are shown` : ''}. A request with{' '}
          <code>Prefer: respond-async</code> becomes one.
        </p>
      )}
      {all && all.calls.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label={`Calls of ${e.name}`}>
          <table>
            <thead>
              <tr>
                <th>Made</th>
                <th>Request</th>
                <th>State</th>
                <th>Took</th>
                <th>
                  <span class="sr">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {all.calls.map((c) => (
                <tr key={c.id ?? `${c.made_at}${c.path}`}>
                  <td>{ago(c.made_at)} ago</td>
                  <td>
                    <code>
                      {c.method} {c.path}
                    </code>
                  </td>
                  <td>
                    <Badge state={callTone[c.state] ?? ''} text={c.state} />{' '}
                    <small>
                      {c.status ? `answered ${c.status}` : ''} {c.reason}
                    </small>
                  </td>
                  <td>{c.ended_at ? span(c.made_at, c.ended_at) : '–'}</td>
                  <td>
                    {c.id && c.state === 'done' && (
                      <button
                        class="quiet small"
                        aria-label={`Show the answer of ${c.method} ${c.path}`}
                        onClick={() => void show(c.id!)}
                      >
                        Show
                      </button>
                    )}
                    {c.id && c.state === 'waiting' && mayChange(e) && (
                      <button
                        class="quiet small"
                        aria-label={`Cancel ${c.method} ${c.path}`}
                        onClick={() =>
                          confirm(
                            `Cancel ${c.method} ${c.path}?`,
                            'The caller gets an error that the call was cancelled.',
                            'Cancel the call',
                            () =>
                              void act(
                                () => call('DELETE', `${at(e)}/calls/${encodeURIComponent(c.id!)}`),
                                'The call was cancelled',
                              ).then(load),
                          )
                        }
                      >
                        Cancel
                      </button>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {shown.value && (
        <section aria-label="Answer" class="answer">
          <h3>
            {shown.value.method} {shown.value.path}: {shown.value.status}{' '}
            <small>{shown.value.answer_type}</small>
          </h3>
          <pre tabIndex={0}>{answerText(shown.value.answer ?? '')}</pre>
          <button
            class="quiet small"
            onClick={() => {
              shown.value = null;
            }}
          >
            Close the answer
          </button>
        </section>
      )}
    </details>
  );
}
