// One endpoint: its addresses, figures, replicas with their logs, charts, revisions, keys and calls.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { ApiError, call, get, post, problem } from '../data/api';
import { ago, plural, usd } from '../data/format';
import { mayChange } from '../data/rights';
import { notify, route } from '../data/store';
import { Log } from '../jobs/log';
import { Badge, confirm, Empty, Kept, Line } from '../parts/ui';
import { Deploy } from './deploy';
import { EndpointCharts, EndpointRange } from './endpoint_charts';
import { Keys } from './endpoint_keys';
import { Calls, Gateways, Release } from './endpoint_parts';
import { Addresses, Settings } from './endpoint_settings';
import { tone, type Act, type Counts, type Endpoint } from './endpoint_types';

const shown: [keyof Counts, string][] = [
  ['ready', 'ready'],
  ['coming', 'starting'],
  ['sleeping', 'asleep'],
  ['in_flight', 'requests in flight'],
  ['held', 'waiting for a replica'],
  ['requests', 'requests so far'],
  ['cold_starts', 'cold starts'],
  ['wakes', 'wakes'],
];
function Figures({ e }: { e: Endpoint }) {
  const f = e.figures;
  if (!f) return <p class="note">No gateway has reported yet.</p>;
  const latency: [string, number | undefined][] = [
    ['median latency', e.p50_ms],
    ['99 % within', e.p99_ms],
  ];
  return (
    <dl class="figures">
      {shown.map(([key, word]) => (
        <div class={f[key] ? '' : 'none'}>
          <dt>{word}</dt>
          <dd>{(f[key] ?? 0).toLocaleString()}</dd>
        </div>
      ))}
      {latency.map(([word, ms]) =>
        ms == null ? null : (
          <div>
            <dt>{word}</dt>
            <dd>{ms.toFixed(0)} ms</dd>
          </div>
        ),
      )}
    </dl>
  );
}

function Revisions({ e, act }: { e: Endpoint; act: Act }) {
  const now = [e.revision, e.rolling, e.canary];
  const older = e.revisions.filter((r) => !now.includes(r.number));
  if (!older.length) return null;
  return (
    <details>
      <summary>{plural(older.length, 'earlier revision')}</summary>
      <ul class="plain rows wrap">
        {[...older].reverse().map((r) => (
          <li>
            <span>
              <b>{r.number}</b> <code>{r.command}</code>{' '}
              <small>
                {r.state.replace('_', ' ')}
                {r.reason ? `: ${r.reason}` : ''}, {ago(r.made_at)} ago
              </small>
            </span>
            {mayChange(e) && (
              <button
                class="quiet small"
                aria-label={`Roll ${e.name} back to revision ${r.number}`}
                onClick={() =>
                  confirm(
                    `Roll ${e.name} back to revision ${r.number}?`,
                    'It is deployed as a new revision; requests move over when it is healthy.',
                    'Roll back',
                    () =>
                      void act(
                        () =>
                          post(`/v1/endpoints/${encodeURIComponent(e.name)}/rollback`, {
                            revision: r.number,
                          }),
                        `${e.name} is being rolled back to revision ${r.number}`,
                      ),
                  )
                }
              >
                Roll back
              </button>
            )}
          </li>
        ))}
      </ul>
    </details>
  );
}

// The replicas, and the form that changes how many there may be.
function Replicas({ e, act }: { e: Endpoint; act: Act }) {
  const path = `/v1/endpoints/${encodeURIComponent(e.name)}`;
  const scale = (event: Event) => {
    event.preventDefault();
    const form = new FormData(event.target as HTMLFormElement);
    const body = { min: Number(form.get('min')), max: Number(form.get('max')) };
    void act(() => post(`${path}/scale`, body), `${e.name} was scaled`);
  };
  return (
    <div>
      <p class="note">
        <code>{e.command}</code>
      </p>
      <ul class="plain rows">
        {e.replicas.map((r) => (
          <li>
            <a href={`#/jobs/${r.job}`}>job {r.job}</a>
            <small>
              {e.canary ? `revision ${r.revision} ` : ''}
              <Badge state={r.state} /> {r.node ?? r.reason ?? ''}
              {r.spot ? ', spot' : ''}
            </small>
          </li>
        ))}
        {e.replicas.length === 0 && (
          <li>
            <span>no replica: one starts with the next request</span>
          </li>
        )}
      </ul>
      {mayChange(e) && (
        <form class="inline" onSubmit={scale}>
          <label>
            Replicas, at least{' '}
            <Kept name="min" required type="number" min="0" value={String(e.min ?? 0)} />
          </label>
          <label>
            At most <Kept name="max" required type="number" min="1" value={String(e.max ?? 1)} />
          </label>
          <button class="quiet">Scale</button>
        </form>
      )}
      <p class="note">
        {usd(e.cost_usd * 1e9)} so far
        {e.usd_per_request != null ? `, ${usd(e.usd_per_request * 1e9)} per request` : ''}
        {e.usd_per_1000_tokens != null
          ? `, ${usd(e.usd_per_1000_tokens * 1e9)} per 1,000 tokens`
          : ''}
      </p>
    </div>
  );
}

// The log of one replica: of the one that was chosen, or of the first.
function ReplicaLog({ e }: { e: Endpoint }) {
  const chosen = useSignal(0);
  const jobs = e.replicas.map((r) => r.job);
  if (e.failed_job && !jobs.includes(e.failed_job)) jobs.push(e.failed_job);
  if (!jobs.length) return null;
  const job = jobs.includes(chosen.value) ? chosen.value : jobs[0];
  const replica = e.replicas.find((r) => r.job === job);
  return (
    <>
      {jobs.length > 1 && (
        <label class="inline">
          Replica{' '}
          <select
            value={job}
            onChange={(event) => {
              chosen.value = Number(event.currentTarget.value);
            }}
          >
            {jobs.map((id) => {
              const r = e.replicas.find((each) => each.job === id);
              return (
                <option value={id}>
                  job {id}, {r ? `${r.state}${r.node ? ` on ${r.node}` : ''}` : 'failed'}
                </option>
              );
            })}
          </select>
        </label>
      )}
      <Log
        key={job}
        id={String(job)}
        ranks={1}
        attempts={1}
        final={!replica}
        title={`Log of job ${job}`}
      />
    </>
  );
}

function Actions({ e, deploy, remove }: { e: Endpoint; deploy: () => void; remove: () => void }) {
  if (!mayChange(e)) return null;
  return (
    <p class="actions">
      <button class="quiet" onClick={deploy}>
        Deploy a revision
      </button>
      <button
        class="quiet ends"
        onClick={() =>
          confirm(
            `Delete endpoint ${e.name}?`,
            'Its address stops answering and its replicas are stopped.',
            'Delete',
            remove,
          )
        }
      >
        Delete
      </button>
    </p>
  );
}

function Missing({ name, text, known }: { name: string; text: string; known: boolean }) {
  return (
    <section>
      <p class="crumbs">
        <a href="#/endpoints">Endpoints</a> / {name}
      </p>
      <h1>{known ? `Endpoint ${name} not found` : `Endpoint ${name}`}</h1>
      {known ? (
        <Empty title={`There is no endpoint ${name} that you may see`}>
          <p>
            It may have been deleted, or it belongs to a project of which you are no member.{' '}
            <a href="#/endpoints">All endpoints</a>
          </p>
        </Empty>
      ) : (
        <p class="note">{text || 'Loading…'}</p>
      )}
    </section>
  );
}

export function EndpointPage({ name }: { name: string }) {
  const endpoint = useSignal<Endpoint | null>(null);
  const missing = useSignal(false);
  const trouble = useSignal(''); // of reading it
  const error = useSignal(''); // of an action
  const deploying = useSignal(new URLSearchParams(route.peek().split('?')[1] ?? '').has('deploy'));
  const load = async () => {
    if (document.hidden) return;
    try {
      endpoint.value = await get<Endpoint>(`/v1/endpoints/${encodeURIComponent(name)}`);
      missing.value = false;
    } catch (e) {
      missing.value = e instanceof ApiError && e.status === 404;
      trouble.value = problem(e);
    }
  };
  useEffect(() => {
    void load();
    const timer = window.setInterval(() => void load(), 3000);
    return () => window.clearInterval(timer);
  }, []);
  const act = async (run: () => Promise<unknown>, said: string) => {
    try {
      await run();
      error.value = '';
      notify(said);
      await load();
    } catch (e) {
      error.value = problem(e);
    }
  };
  const remove = async () => {
    try {
      await call('DELETE', `/v1/endpoints/${encodeURIComponent(name)}`);
      notify(`${name} was deleted`);
      location.hash = '/endpoints';
    } catch (e) {
      error.value = problem(e);
    }
  };
  const e = endpoint.value;
  if (!e || missing.value)
    return <Missing name={name} text={trouble.value} known={missing.value} />;
  const revision = e.revision || e.rolling || (e.revisions.at(-1)?.number ?? 0);
  return (
    <section>
      <p class="crumbs">
        <a href="#/endpoints">Endpoints</a> / {e.name}
      </p>
      <div class="title">
        <h1>{e.name}</h1>
        <span class={`state ${tone[e.status] ?? ''}`}>{e.status}</span>
        <small>
          {e.user}, project {e.project}, revision {revision}
          {e.rolling && e.revision && !e.canary ? `, ${e.rolling} is being rolled out` : ''},
          deployed {ago(e.made_at)} ago
        </small>
      </div>
      <Actions
        e={e}
        deploy={() => {
          deploying.value = !deploying.value;
        }}
        remove={() => void remove()}
      />
      {error.value && (
        <p role="alert" class="bad">
          {error.value}
        </p>
      )}
      {deploying.value && (
        <Deploy
          name={e.name}
          existing={e.revision !== 0 ? [e] : []}
          done={() => {
            deploying.value = false;
            void load();
          }}
        />
      )}
      <article class="endpoint">
        {e.urls.map((u) => (
          <Line text={u} />
        ))}
        {e.last_failure && (
          <p class="finding">
            {e.last_failure}
            {e.failed_job && (
              <>
                {' '}
                <a href={`#/jobs/${e.failed_job}`}>Job {e.failed_job}</a>
              </>
            )}
          </p>
        )}
        {e.waiting && <p class="finding">A replica waits: {e.waiting}</p>}
        {e.notes?.map((note) => (
          <p class="finding">{note}</p>
        ))}
        <div class="panel two">
          <Figures e={e} />
          <Replicas e={e} act={act} />
        </div>
        <Gateways e={e} />
        <Settings e={e} />
        <Addresses e={e} act={act} />
        <Release e={e} act={act} />
        <div class="filters top">
          <h2>Over time</h2>
          <EndpointRange madeAt={e.made_at} />
        </div>
        <EndpointCharts name={e.name} madeAt={e.made_at} />
        <ReplicaLog e={e} />
        <Revisions e={e} act={act} />
        <Keys e={e} act={act} />
        <Calls e={e} act={act} />
      </article>
    </section>
  );
}
