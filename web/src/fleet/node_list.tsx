// All nodes: their GPUs over time, a table of their state, pools and reservations.
import { useSignal } from '@preact/signals';
import { useEffect, useMemo } from 'preact/hooks';
import { get, has, type NodeInfo } from '../data/api';
import { freeOf } from '../data/card';
import { Calendar, type Reservation } from './calendar';
import { gib, gpus, plural } from '../data/format';
import { Fabric } from '../time/fabric';
import { Gantt } from '../time/gantt';
import { HeatMap } from '../time/heat_map';
import { byName } from '../time/names';
import { QueueForecast } from '../time/queue_forecast';
import { Badge, Empty, Line, Meter, rows } from '../parts/ui';
import { clock, gpuTick, hosts, nodes, nodesTick, readings } from '../data/store';

interface Machine {
  name: string;
  state: string;
  nodes: number;
  gpus: number;
  ends_at: string | null;
  note: string;
  reason: string;
}
interface Pool {
  name: string;
  kind: string;
  min: number;
  max: number;
  gpu_type: string;
  gpus: number;
  price_usd_per_h: number;
  spot: boolean;
  removing: boolean;
  denied: string | null;
  machines: Machine[];
}

// Free capacity: a node that is drained or does not answer offers none.
const freeIn = (n: NodeInfo) =>
  n.gpus.reduce((sum, card, i) => sum + freeOf(n, card, readings.get(n.id)?.[i]), 0);

const rowsStep = 50; // every row is drawn anew twice a second
const textOf = (n: NodeInfo) =>
  [
    n.name,
    n.state,
    n.pool ?? '',
    ...new Set(n.gpus.map((g) => g.type)),
    ...Object.entries(n.labels).map(([k, v]) => `${k}=${v}`),
  ]
    .join(' ')
    .toLowerCase();

// Follows the readings, which change twice a second.
function NodeTable() {
  nodesTick.value;
  gpuTick.value;
  const find = useSignal('');
  const rowsMax = useSignal(rowsStep);
  const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
  const list = useMemo(
    () =>
      [...nodes.values()]
        .filter((n) => words.every((w) => textOf(n).includes(w)))
        .sort((a, b) => byName(a.name, b.name)),
    [nodesTick.value, words.join(' ')],
  );
  return (
    <>
      <div class="filters top">
        <h2>Nodes</h2>
        {nodes.size > 10 && (
          <input
            type="search"
            aria-label="Find nodes"
            placeholder="Name, state, GPU type or label"
            value={find.value}
            onInput={(e) => {
              find.value = e.currentTarget.value;
            }}
          />
        )}
      </div>
      <div class="scroll" tabIndex={0} role="region" aria-label="Nodes as a table">
        <table class={rows.value} role="table">
          <thead role="rowgroup">
            <tr role="row">
              <th role="columnheader">Node</th>
              <th role="columnheader">State</th>
              <th role="columnheader">GPUs</th>
              <th role="columnheader">Free</th>
              <th role="columnheader">Busy</th>
              <th role="columnheader">CPU</th>
              <th role="columnheader">Memory</th>
              <th role="columnheader">Remark</th>
            </tr>
          </thead>
          <tbody role="rowgroup">
            {list.slice(0, rowsMax.value).map((n) => {
              const cards = readings.get(n.id) ?? [],
                host = hosts.get(n.id);
              const busy = cards.filter((c) => c.util >= 0),
                mean = busy.length ? busy.reduce((a, c) => a + c.util, 0) / busy.length : 0;
              const kinds = new Map<string, number>();
              for (const g of n.gpus) kinds.set(g.type, (kinds.get(g.type) ?? 0) + 1);
              const sick = n.gpus.filter((g) => g.unhealthy);
              return (
                <tr role="row">
                  <td role="cell" data-name="Node">
                    <a href={`#/nodes/${n.name}`}>{n.name}</a>
                  </td>
                  <td role="cell" data-name="State">
                    <span>
                      <Badge state={n.state} />
                    </span>
                  </td>
                  <td role="cell" data-name="GPUs">
                    {[...kinds].map(([t, c]) => `${c} × ${t}`).join(', ') || 'none'}
                  </td>
                  <td role="cell" data-name="Free" class="num">
                    {freeIn(n) ? gpus(freeIn(n)) : 0}
                  </td>
                  <td role="cell" data-name="Busy">
                    <span>
                      <Meter part={mean / 100} label={`GPUs busy ${mean.toFixed(0)} %`} />{' '}
                      <span class="num">{busy.length ? `${mean.toFixed(0)} %` : '–'}</span>
                    </span>
                  </td>
                  <td role="cell" data-name="CPU" class="num roomy">
                    {host ? `${(host.cpu_milli / 1000).toFixed(1)} of ${n.cpu_milli / 1000}` : '–'}
                  </td>
                  <td role="cell" data-name="Memory" class="num roomy">
                    {host ? `${gib(host.mem_mib)} of ${gib(n.mem_mib)}` : gib(n.mem_mib)}
                  </td>
                  <td role="cell" data-name="Remark" class={`on ${sick.length ? 'bad' : ''}`}>
                    {sick.length
                      ? sick.map((g) => `GPU ${g.index}: ${g.unhealthy}`).join('; ')
                      : n.reason || (n.simulated ? 'simulated' : '')}
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      {list.length > rowsMax.value && (
        <p class="more">
          {rowsMax.value} of {plural(list.length, 'node')}.{' '}
          <button
            class="link"
            onClick={() => {
              rowsMax.value += rowsStep;
            }}
          >
            Show more
          </button>
        </p>
      )}
    </>
  );
}

export function NodeList() {
  const pools = useSignal<Pool[] | null>(null);
  const reserved = useSignal<Reservation[] | null>(null);
  nodesTick.value;
  useEffect(() => {
    void has('/v1/pools').then((yes) => {
      if (yes)
        void get<{ pools: Pool[] }>('/v1/pools').then(
          (d) => {
            pools.value = d.pools;
          },
          () => {},
        );
    });
    void has('/v1/reservations').then((yes) => {
      if (yes)
        void get<{ reservations: Reservation[] }>('/v1/reservations').then(
          (d) => {
            reserved.value = d.reservations;
          },
          () => {},
        );
    });
  }, []);
  return (
    <section>
      <h1>
        Nodes <small>{plural(nodes.size, 'node')}</small>
      </h1>
      {nodes.size === 0 ? (
        <Empty title="No node has joined yet">
          <p>Create a join token on the head, then start an agent on the machine:</p>
          <Line text="billow token create --node" />
        </Empty>
      ) : (
        <>
          <Gantt />
          <h2>Load now</h2>
          <HeatMap />
          <Fabric />
          <h2>When waiting jobs start</h2>
          <QueueForecast />
          <NodeTable />
        </>
      )}
      <h2>Pools</h2>
      {pools.value?.length ? (
        <div class="scroll" tabIndex={0} role="region" aria-label="Pools">
          <table>
            <thead>
              <tr>
                <th>Pool</th>
                <th>Kind</th>
                <th>Machines</th>
                <th>Min – max</th>
                <th>GPUs per machine</th>
                <th>Price</th>
                <th>Remark</th>
              </tr>
            </thead>
            <tbody>
              {pools.value.map((p) => (
                <tr>
                  <td>{p.name}</td>
                  <td>{p.kind}</td>
                  <td class="on">
                    {p.machines.length
                      ? p.machines.map((m) => `${m.name} (${m.state})`).join(', ')
                      : 'none'}
                  </td>
                  <td class="num">
                    {p.min} – {p.max}
                  </td>
                  <td>{p.gpus ? `${p.gpus} × ${p.gpu_type || 'GPU'}` : '–'}</td>
                  <td class="num">
                    {p.price_usd_per_h ? `$${p.price_usd_per_h.toFixed(2)} / h` : '–'}
                  </td>
                  <td class={`on ${p.denied ? 'warn' : ''}`}>
                    {p.removing ? 'is being removed' : (p.denied ?? (p.spot ? 'spot' : ''))}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : (
        <p class="note">No pool adds nodes automatically; these machines joined by themselves.</p>
      )}
      <h2>Reservations</h2>
      {reserved.value && <Calendar list={reserved.value} now={clock.value} />}
    </section>
  );
}
