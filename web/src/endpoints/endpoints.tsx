// Serverless endpoints: replicas, traffic and cost. Until one is deployed the page explains how.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { call, get, has, post, problem } from '../data/api';
import { ago, plural, usd } from '../data/format';
import { lazy } from '../parts/lazy';
import { mayChange, mayDeploy } from '../data/rights';
import { Badge, confirm, Empty, Kept, Line } from '../parts/ui';
import { notify, route } from '../data/store';

const EndpointCharts = lazy(() => import('./endpoint_charts').then((m) => m.EndpointCharts), '');
const EndpointRange = lazy(() => import('./endpoint_charts').then((m) => m.EndpointRange), '');
const Deploy = lazy(() => import('./deploy').then((m) => m.Deploy));
const settings = () => import('./endpoint_settings');
const Settings = lazy(() => settings().then((m) => m.Settings), '');
const Addresses = lazy(() => settings().then((m) => m.Addresses), '');
const parts = () => import('./endpoint_parts');
const Release = lazy(() => parts().then((m) => m.Release), '');
const Keys = lazy(() => parts().then((m) => m.Keys), '');
const Calls = lazy(() => parts().then((m) => m.Calls), '');

interface Replica {
  job: number;
  revision: number;
  state: string;
  spot: boolean;
  node?: string;
  reason?: string;
}
interface Revision {
  number: number;
  state: string;
  made_at: string;
  command: string;
  reason: string;
  release?: { traffic_pct: number; mirror_pct: number; auto_rollback: string };
}
interface Key {
  name: string;
  project?: string;
  expires_at?: string;
  expired?: boolean;
  limits?: string[];
  today: {
    requests: number;
    refused: number;
    tokens_in: number;
    tokens_out: number;
    charge_nano_usd: number;
  };
}
interface Counts {
  ready?: number;
  coming?: number;
  sleeping?: number;
  in_flight?: number;
  held?: number;
  requests?: number;
  cold_starts?: number;
  wakes?: number;
}
export interface Endpoint {
  name: string;
  project: string;
  user: string;
  status: string;
  urls: string[];
  revision: number;
  rolling: number;
  canary: number;
  made_at: string;
  command?: string;
  min?: number;
  max?: number;
  access?: string;
  policy?: Record<string, unknown>;
  revisions: Revision[];
  keys: Key[];
  replicas: Replica[];
  last_failure?: string;
  notes?: string[];
  cost_usd: number;
  figures?: Counts & {
    // While a canary runs: it, and the revision that serves.
    revisions?: {
      revision: number;
      requests?: number;
      errors?: number;
      first_byte_p95_us?: number;
    }[];
  };
  p50_ms?: number;
  p99_ms?: number;
  usd_per_request?: number;
  usd_per_1000_tokens?: number;
}
const tone: Record<string, string> = {
  serving: 'running',
  canary: 'running',
  updating: 'queued',
  starting: 'queued',
  failed: 'failed',
};

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

export type Act = (run: () => Promise<unknown>, said: string) => Promise<void>;

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

function Panel({ e, act }: { e: Endpoint; act: Act }) {
  const path = `/v1/endpoints/${encodeURIComponent(e.name)}`;
  const scale = (event: Event) => {
    event.preventDefault();
    const form = new FormData(event.target as HTMLFormElement);
    const body = { min: Number(form.get('min')), max: Number(form.get('max')) };
    void act(() => post(`${path}/scale`, body), `${e.name} was scaled`);
  };
  return (
    <article class="panel endpoint">
      <div class="title">
        <h2>{e.name}</h2>
        <span class={`state ${tone[e.status] ?? ''}`}>{e.status}</span>
        <small>
          {e.user}, project {e.project}, revision{' '}
          {e.revision || e.rolling || (e.revisions.at(-1)?.number ?? 0)}
          {e.rolling && e.revision && !e.canary ? `, ${e.rolling} is being rolled out` : ''}, since{' '}
          {ago(e.made_at)}
        </small>
      </div>
      {e.urls.map((u) => (
        <Line text={u} />
      ))}
      {e.last_failure && <p class="finding">{e.last_failure}</p>}
      {e.notes?.map((note) => (
        <p class="finding">{note}</p>
      ))}
      <div class="two">
        <Figures e={e} />
        <div>
          <p class="note">{e.command}</p>
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
                Min <Kept name="min" type="number" min="0" value={String(e.min ?? 0)} />
              </label>
              <label>
                Max <Kept name="max" type="number" min="1" value={String(e.max ?? 1)} />
              </label>
              <button class="quiet">Scale</button>{' '}
              <button
                type="button"
                class="quiet ends"
                onClick={() =>
                  confirm(
                    `Delete endpoint ${e.name}?`,
                    'Its address stops answering and its replicas are stopped.',
                    'Delete',
                    () => void act(() => call('DELETE', path), `${e.name} was deleted`),
                  )
                }
              >
                Delete
              </button>
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
      </div>
      <Settings e={e} />
      <Addresses e={e} act={act} />
      <Release e={e} act={act} />
      <EndpointCharts name={e.name} />
      <Revisions e={e} act={act} />
      <Keys e={e} />
      <Calls e={e} act={act} />
    </article>
  );
}

export function Endpoints() {
  const list = useSignal<Endpoint[] | null>(null);
  const can = useSignal(true);
  const error = useSignal('');
  const load = async () => {
    if (document.hidden) return;
    if (!(await has('/v1/endpoints'))) {
      can.value = false;
      list.value = [];
      return;
    }
    try {
      list.value = (await get<{ endpoints: Endpoint[] }>('/v1/endpoints')).endpoints;
    } catch {
      list.value ??= [];
    }
  };
  useEffect(() => {
    void load();
    const timer = window.setInterval(() => {
      void load();
    }, 3000);
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
  const given = new URLSearchParams(route.value.split('?')[1] ?? '');
  const deploying = useSignal(given.has('deploy'));
  const only = given.get('name');
  if (!list.value) return <p class="note">Loading…</p>;
  return (
    <section>
      <h1>
        Endpoints {list.value.length > 0 && <small>{plural(list.value.length, 'endpoint')}</small>}
      </h1>
      {error.value && (
        <p role="alert" class="bad">
          {error.value}
        </p>
      )}
      {only && (
        <p class="note">
          Only {only} is shown. <a href="#/endpoints">Show all</a>
        </p>
      )}
      {mayDeploy() && can.value && (
        <p class="actions">
          <button
            class={deploying.value ? 'quiet' : ''}
            aria-expanded={deploying.value}
            onClick={() => {
              deploying.value = !deploying.value;
            }}
          >
            Deploy an endpoint
          </button>
        </p>
      )}
      {deploying.value && (
        <Deploy
          existing={list.value.filter((e) => e.revision !== 0)}
          done={() => {
            deploying.value = false;
            void load();
          }}
        />
      )}
      {list.value.length === 0 ? (
        <Empty title="No endpoint is deployed">
          <p>
            An endpoint is a command that listens on <code>$PORT</code>. It gets an address, starts
            with the first request, grows with the queue and scales to zero when nobody asks.
          </p>
          <Line text="billow deploy chat --gpus 0.5 --min 0 --max 8 -- python serve.py" />
          {!can.value && <p class="note">No gateway is running.</p>}
        </Empty>
      ) : (
        <>
          <div class="filters">
            <EndpointRange />
          </div>
          {list.value
            .filter((e) => !only || e.name === only)
            .map((e) => (
              <Panel e={e} key={e.name} act={act} />
            ))}
        </>
      )}
    </section>
  );
}
