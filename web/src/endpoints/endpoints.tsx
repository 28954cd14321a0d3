// All endpoints: state, replicas, traffic and cost, one row each. Until one is deployed the page
// explains how.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { get, has } from '../data/api';
import { plural, usd } from '../data/format';
import { lazy } from '../parts/lazy';
import { mayDeploy } from '../data/rights';
import { Empty, Line } from '../parts/ui';
import { readdress, route } from '../data/store';
import { addressOf, tone, type Endpoint } from './endpoint_types';

const Deploy = lazy(() => import('./deploy').then((m) => m.Deploy));

const count = (n: number | undefined) => (n ?? 0).toLocaleString();
const latency = (ms: number | undefined) =>
  ms == null ? '–' : ms < 1000 ? `${ms.toFixed(0)} ms` : `${(ms / 1000).toFixed(1)} s`;

// "2 ready, 1 starting"; an endpoint without a replica is asleep.
function replicas(e: Endpoint): string {
  const f = e.figures;
  if (!f) return e.replicas.length ? plural(e.replicas.length, 'replica') : 'none';
  const parts = [
    f.ready ? `${f.ready} ready` : '',
    f.coming ? `${f.coming} starting` : '',
    f.sleeping ? `${f.sleeping} asleep` : '',
  ].filter(Boolean);
  return parts.join(', ') || 'none';
}
const remark = (e: Endpoint) =>
  [e.last_failure, e.waiting, ...(e.notes ?? [])].filter(Boolean).join(' · ');

function Table({ list }: { list: Endpoint[] }) {
  const find = useSignal('');
  const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
  const textOf = (e: Endpoint) => `${e.name} ${e.status} ${e.project} ${e.user}`.toLowerCase();
  const shown = list
    .filter((e) => words.every((w) => textOf(e).includes(w)))
    .sort((a, b) => a.name.localeCompare(b.name));
  return (
    <>
      {list.length > 10 && (
        <div class="filters">
          <input
            type="search"
            aria-label="Find endpoints"
            placeholder="Name, state, project or user"
            value={find.value}
            onInput={(e) => {
              find.value = e.currentTarget.value;
            }}
          />
        </div>
      )}
      <div class="scroll" tabIndex={0} role="region" aria-label="Endpoints as a table">
        <table class="endpoints">
          <thead>
            <tr>
              <th>Endpoint</th>
              <th>State</th>
              <th class="wide">Project</th>
              <th>Replicas</th>
              <th class="right wide">In flight</th>
              <th class="right roomy">Waiting</th>
              <th class="right">Requests</th>
              <th class="right wide">Median</th>
              <th class="right roomy">99 % within</th>
              <th class="right roomy">Cost</th>
              <th class="wide">Remark</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((e) => (
              <tr key={e.name}>
                <td>
                  <a href={addressOf(e.name)}>{e.name}</a>
                </td>
                <td>
                  <span class={`state ${tone[e.status] ?? ''}`}>{e.status}</span>
                </td>
                <td class="wide">{e.project}</td>
                <td>{replicas(e)}</td>
                <td class="right wide">{e.figures ? count(e.figures.in_flight) : '–'}</td>
                <td class={`right roomy ${e.figures?.held ? 'warn' : ''}`}>
                  {e.figures ? count(e.figures.held) : '–'}
                </td>
                <td class="right">{e.figures ? count(e.figures.requests) : '–'}</td>
                <td class="right wide">{latency(e.p50_ms)}</td>
                <td class="right roomy">{latency(e.p99_ms)}</td>
                <td class="right roomy">{usd(e.cost_usd * 1e9)}</td>
                <td class={`on wide ${e.last_failure ? 'bad' : ''}`}>{remark(e)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {shown.length === 0 && <p class="note">No endpoint matches.</p>}
    </>
  );
}

export function Endpoints() {
  const list = useSignal<Endpoint[] | null>(null);
  const can = useSignal(true);
  const given = new URLSearchParams(route.value.split('?')[1] ?? '');
  const deploying = useSignal(given.has('deploy'));
  // Links of earlier versions name the endpoint in the query.
  const only = given.get('name');
  useEffect(() => {
    if (!only) return;
    given.delete('name');
    const more = given.toString();
    readdress(addressOf(only).slice(1) + (more ? `?${more}` : ''));
  }, [only]);
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
    const timer = window.setInterval(() => void load(), 3000);
    return () => window.clearInterval(timer);
  }, []);
  if (!list.value) return <p class="note">Loading…</p>;
  return (
    <section>
      <h1>
        Endpoints {list.value.length > 0 && <small>{plural(list.value.length, 'endpoint')}</small>}
      </h1>
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
          done={(name) => {
            deploying.value = false;
            location.hash = addressOf(name);
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
        <Table list={list.value} />
      )}
    </section>
  );
}
