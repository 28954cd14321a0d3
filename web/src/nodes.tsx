// Nodes: topology, health and use of their GPUs, draining, pools and reservations.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { get, has, post, problem, type NodeInfo, type Series } from './api';
import { Calendar, type Reservation } from './calendar';
import { Chart } from './chart';
import { gib, gpus, moment, plural, rate } from './format';
import { Badge, confirm, Empty, Line, Meter } from './ui';
import {
  clock,
  gpuTick,
  hosts,
  jobs,
  jobsTick,
  nodes,
  nodesTick,
  notify,
  readings,
  route,
  status,
  type Gpu,
} from './store';

// A picture of the node: CPU sockets, the GPUs attached to each, and NVLink.
function Topology({ node }: { node: NodeInfo }) {
  gpuTick.value;
  const cards = readings.get(node.id) ?? [];
  const sockets = [...new Set(node.gpus.map((g) => g.numa))].sort((a, b) => a - b);
  const domains = [...new Set(node.gpus.map((g) => g.nvlink_domain).filter((d) => d >= 0))];
  const w = Math.max(320, node.gpus.length * 74 + 20),
    step = (w - 20) / Math.max(1, node.gpus.length);
  const order = [...node.gpus].sort((a, b) => a.numa - b.numa || a.index - b.index);
  const x = (i: number) => 10 + step * (i + 0.5);
  const indexes = (domain: number) =>
    node.gpus.filter((g) => g.nvlink_domain === domain).map((g) => g.index);
  const links = domains.map((d) => `GPUs ${indexes(d).join(', ')}`).join('; ');
  const words = [
    `${node.name}: ${plural(node.gpus.length, 'GPU')} on ${plural(sockets.length, 'socket')}`,
    links ? `NVLink joins ${links}` : 'no NVLink',
  ].join('; ');
  return (
    <div class="scroll">
      <svg class="topology" viewBox={`0 0 ${w} 150`} role="img" aria-label={words}>
        {sockets.map((numa) => {
          const at = order.map((g, i) => [g, i] as const).filter(([g]) => g.numa === numa);
          const left = x(at[0][1]) - step / 2 + 6,
            right = x(at[at.length - 1][1]) + step / 2 - 6;
          return (
            <g>
              <rect class="socket" x={left} y="8" width={right - left} height="26" rx="6" />
              <text x={(left + right) / 2} y="25">
                {numa < 0 ? 'CPU' : `CPU socket ${numa}`}
              </text>
              {at.map(([, i]) => (
                <line class="pcie" x1={x(i)} y1="34" x2={x(i)} y2="58" />
              ))}
            </g>
          );
        })}
        {order.map((g, i) => {
          const r = cards[g.index];
          const level = g.unhealthy
            ? 'x'
            : !r?.milli
              ? 'f'
              : r.util < 0
                ? 'u'
                : String(Math.min(5, Math.floor(r.util / 20)));
          return (
            <g>
              <rect class="gpu" data-l={level} x={x(i) - 28} y="58" width="56" height="40" rx="8" />
              <text class={`num l${level}`} x={x(i)} y="76">
                {g.index}
              </text>
              <text class={`small l${level}`} x={x(i)} y="90">
                {g.type}
              </text>
            </g>
          );
        })}
        {domains.map((d, k) => {
          const at = order
            .map((g, i) => [g, i] as const)
            .filter(([g]) => g.nvlink_domain === d)
            .map(([, i]) => i);
          const y = 118 + k * 14;
          return (
            <g>
              {at.map((i) => (
                <line class="nvlink" x1={x(i)} y1="98" x2={x(i)} y2={y} />
              ))}
              <line class="nvlink thick" x1={x(at[0])} y1={y} x2={x(at[at.length - 1])} y2={y} />
              <text class="small" x={(x(at[0]) + x(at[at.length - 1])) / 2} y={y + 16}>
                NVLink
              </text>
            </g>
          );
        })}
      </svg>
    </div>
  );
}

const spans: [number, string][] = [
  [3600, 'hour'],
  [86400, 'day'],
  [7 * 86400, 'week'],
  [30 * 86400, '30 days'],
];

// One GPU, or (index < 0) the whole node: mean load, total memory and power, highest temperature.
const cardsMax = 16;
type Fold = (values: number[]) => number;
const mean: Fold = (v) => v.reduce((a, b) => a + b, 0) / v.length,
  total: Fold = (v) => v.reduce((a, b) => a + b, 0),
  most: Fold = (v) => Math.max(...v);
function together(list: Series[], name: string, fold: Fold): (number | null)[] {
  return Array.from({ length: Math.max(0, ...list.map((s) => s.points)) }, (_, i) => {
    const known = list.map((s) => s.series[name]?.[i]).filter((v): v is number => v != null);
    return known.length ? fold(known) : null;
  });
}

function GpuCharts({ node, index }: { node: NodeInfo; index: number }) {
  const span = useSignal(3600);
  const data = useSignal<Series[]>([]);
  const which = index >= 0 ? [index] : node.gpus.slice(0, cardsMax).map((g) => g.index);
  useEffect(() => {
    let gone = false;
    const load = () => {
      if (document.hidden) return;
      void Promise.all(
        which.map((i) =>
          get<Series>(
            `/v1/nodes/${encodeURIComponent(node.name)}/gpus/${i}/history` +
              `?span_s=${span.value}&points=240`,
          ),
        ),
      ).then(
        (s) => {
          if (!gone) data.value = s;
        },
        () => {},
      );
    };
    load();
    const timer = window.setInterval(load, span.value > 3600 ? 60_000 : 10_000);
    return () => {
      gone = true;
      window.clearInterval(timer);
    };
  }, [node.name, which.join(), span.value]);
  const list = data.value,
    s = list[0];
  const common = s && { fromMs: s.from_ms, stepS: s.step_s };
  const any = (name: string) =>
    list.some((one) => one.series[name]?.some((v) => v != null && v > 0));
  const one = index >= 0;
  return (
    <section aria-label={one ? `GPU ${index}` : 'The whole node'}>
      <div class="filters top">
        <h2>
          {one ? `GPU ${index}` : which.length === 1 ? 'Its GPU' : `All ${which.length} GPUs`} over
          the last
        </h2>
        <div class="tabs" role="group" aria-label="Period">
          {spans.map(([n, word]) => (
            <button
              class="tab"
              aria-pressed={span.value === n}
              onClick={() => {
                span.value = n;
              }}
            >
              {word}
            </button>
          ))}
        </div>
        {one && node.gpus.length > 1 && <a href={`#/nodes/${node.name}`}>the whole node</a>}
      </div>
      {s && common && (
        <div class="charts">
          <Chart
            {...common}
            title="Busy"
            max={100}
            format={(v) => `${v.toFixed(0)} %`}
            lines={[
              { label: one ? 'busy' : 'mean', values: together(list, 'util_pct', mean), colour: 1 },
            ]}
          />
          <Chart
            {...common}
            title="Memory"
            max={node.gpus
              .filter((g) => which.includes(g.index))
              .reduce((a, g) => a + g.mem_mib, 0)}
            format={gib}
            lines={[{ label: 'used', values: together(list, 'mem_used_mib', total), colour: 2 }]}
          />
          <Chart
            {...common}
            title="Power"
            format={(v) => `${v.toFixed(0)} W`}
            lines={[{ label: 'drawn', values: together(list, 'power_w', total), colour: 3 }]}
          />
          <Chart
            {...common}
            title="Temperature"
            format={(v) => `${v.toFixed(0)} °C`}
            lines={[
              {
                label: one ? 'chip' : 'hottest',
                values: together(list, 'temperature_c', most),
                colour: 4,
              },
            ]}
          />
          {any('pcie_rx_kib_s') && (
            <Chart
              {...common}
              title="PCIe"
              format={rate}
              lines={[
                {
                  label: 'to the GPUs',
                  values: together(list, 'pcie_rx_kib_s', total),
                  colour: 1,
                },
                {
                  label: 'from the GPUs',
                  values: together(list, 'pcie_tx_kib_s', total),
                  colour: 2,
                },
              ]}
            />
          )}
          {any('nvlink_rx_kib_s') && (
            <Chart
              {...common}
              title="NVLink"
              format={rate}
              lines={[
                { label: 'received', values: together(list, 'nvlink_rx_kib_s', total), colour: 1 },
                { label: 'sent', values: together(list, 'nvlink_tx_kib_s', total), colour: 2 },
              ]}
            />
          )}
        </div>
      )}
    </section>
  );
}

// The MIG instances: profile, position and holder. They change with jobs, so they are refreshed.
function Instances({ node }: { node: NodeInfo }) {
  const cards = useSignal(node.gpus);
  const cut = node.gpus.some((g) => g.mig_instances?.length || g.mig_any);
  useEffect(() => {
    if (!cut) return;
    let gone = false;
    const load = () => {
      if (!document.hidden)
        void get<NodeInfo>(`/v1/nodes/${encodeURIComponent(node.name)}`).then(
          (n) => {
            if (!gone) cards.value = n.gpus;
          },
          () => {},
        );
    };
    load();
    const timer = window.setInterval(load, 3000);
    return () => {
      gone = true;
      window.clearInterval(timer);
    };
  }, [node.name, cut]);
  if (!cut) return null;
  return (
    <>
      <h2>MIG instances</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="MIG instances">
        <table class="mig">
          <thead>
            <tr>
              <th>GPU</th>
              <th>Profile</th>
              <th>From slice</th>
              <th>Held by</th>
            </tr>
          </thead>
          <tbody>
            {cards.value.flatMap((g) => [
              ...(g.mig_instances ?? []).map((i) => (
                <tr>
                  <td>{g.index}</td>
                  <td>{i.profile}</td>
                  <td class="num">{i.start}</td>
                  <td>
                    {i.job ? (
                      <a href={`#/jobs/${jobs.get(i.job)?.label ?? i.job}`}>
                        {jobs.get(i.job)?.name || `job ${i.job}`}
                      </a>
                    ) : (
                      'free'
                    )}
                  </td>
                </tr>
              )),
              ...(g.mig_any
                ? [
                    <tr>
                      <td>{g.index}</td>
                      <td colSpan={3} class="note">
                        further instances are created on demand
                      </td>
                    </tr>,
                  ]
                : []),
            ])}
          </tbody>
        </table>
      </div>
    </>
  );
}

function healthText(gpu: Gpu | undefined, trouble: string): string {
  if (trouble) return trouble;
  if (!gpu || gpu.score < 0) return 'unknown';
  return gpu.score >= 100 ? 'healthy' : `${gpu.score} of 100: ${gpu.fault}`;
}

export function NodePage({ name }: { name: string }) {
  const error = useSignal('');
  const asked = new URLSearchParams(route.value.split('?')[1] ?? '').get('gpu');
  const chosen = asked === null ? -1 : Number(asked); // no GPU chosen: the whole node
  nodesTick.value;
  gpuTick.value;
  jobsTick.value;
  const node = [...nodes.values()].find((n) => n.name === name);
  if (!node)
    return (
      <Empty title={`Node ${name} does not exist`}>
        <p>
          See all <a href="#/nodes">nodes</a>.
        </p>
      </Empty>
    );
  const admin = status.value?.you.role === 'admin';
  const act = async (path: string, said: string) => {
    try {
      await post(`/v1/nodes/${encodeURIComponent(name)}/${path}`);
      error.value = '';
      notify(said);
    } catch (e) {
      error.value = problem(e);
    }
  };
  const host = hosts.get(node.id);
  const models = [...new Set(node.gpus.map((g) => g.model))];
  return (
    <article>
      <p class="crumbs">
        <a href="#/nodes">Nodes</a> / {name}
      </p>
      <div class="title">
        <h1>{name}</h1>
        <Badge state={node.state} />
      </div>
      <p class="note">
        {node.arch}
        {node.simulated ? ', simulated' : ''} · {node.cpu_milli / 1000} CPUs
        {host ? ` (${(host.cpu_milli / 1000).toFixed(1)} busy)` : ''} · {gib(node.mem_mib)}
        {host ? ` (${gib(host.mem_mib)} used)` : ''} · Billow {node.version} · joined{' '}
        {moment(node.joined_at)}
      </p>
      {node.reason && <p class="finding">{node.reason}</p>}
      {admin && (
        <p class="actions">
          {node.state === 'drained' ? (
            <button onClick={() => act('undrain', `${name} accepts work again`)}>Undrain</button>
          ) : (
            <button
              class="quiet"
              onClick={() =>
                confirm(
                  `Drain ${name}?`,
                  'No new work starts on it. Running jobs continue.',
                  'Drain',
                  () => {
                    void act('drain', `${name} is drained`);
                  },
                )
              }
            >
              Drain
            </button>
          )}
        </p>
      )}
      {error.value && (
        <p role="alert" class="bad">
          {error.value}
        </p>
      )}
      {Object.keys(node.labels).length > 0 && (
        <p>
          {Object.entries(node.labels).map(([k, v]) => (
            <span class="tag">
              {k}={v}
            </span>
          ))}
        </p>
      )}
      {node.gpus.length > 0 && (
        <>
          <h2>Topology</h2>
          <Topology node={node} />
          <h2>
            GPUs{' '}
            {models.length === 1 && (
              <small>
                {node.gpus.length} × {models[0]}
              </small>
            )}
          </h2>
          <div class="scroll" tabIndex={0} role="region" aria-label="GPUs as a table">
            <table>
              <thead>
                <tr>
                  <th>GPU</th>
                  {models.length > 1 && <th class="wide">Model</th>}
                  <th>Jobs</th>
                  <th class="wide">Allocated</th>
                  <th>Busy</th>
                  <th class="wide">Memory</th>
                  <th class="wide">Power</th>
                  <th class="wide">°C</th>
                  <th>Health</th>
                  {admin && (
                    <th>
                      <span class="sr">Actions</span>
                    </th>
                  )}
                </tr>
              </thead>
              <tbody>
                {node.gpus.map((g, i) => {
                  const r = readings.get(node.id)?.[i];
                  return (
                    <tr class={chosen === g.index ? 'chosen' : ''}>
                      <td>
                        <a
                          href={`#/nodes/${node.name}?gpu=${g.index}`}
                          aria-label={`Charts of GPU ${g.index}`}
                        >
                          {g.index}
                        </a>
                      </td>
                      {models.length > 1 && <td class="wide wrap">{g.model}</td>}
                      <td class="clip">
                        {[...new Set(r?.jobs ?? [])].map((id, k) => (
                          <>
                            {k > 0 && ', '}
                            <a href={`#/jobs/${jobs.get(id)?.label ?? id}`}>
                              {jobs.get(id)?.name || `job ${id}`}
                            </a>
                          </>
                        ))}
                        {!r?.jobs.length &&
                          (r?.milli ? 'another project' : <span class="dim">free</span>)}
                      </td>
                      <td class="wide num">{r?.milli ? `${r.milli / 10} %` : '–'}</td>
                      <td class="num">{r && r.util >= 0 ? `${r.util} %` : '–'}</td>
                      <td class="wide">
                        {gib(r?.mem ?? -1)} of {gib(g.mem_mib)}
                      </td>
                      <td class="wide num">{r && r.watts >= 0 ? `${r.watts} W` : '–'}</td>
                      <td class="wide num">{r && r.celsius > 0 ? r.celsius : '–'}</td>
                      <td
                        class={`wrap ${g.unhealthy ? 'bad' : r && r.score >= 0 && r.score < 100 ? 'warn' : ''}`}
                      >
                        {healthText(r, g.unhealthy)}
                      </td>
                      {admin && (
                        <td>
                          {g.unhealthy ? (
                            <button
                              class="quiet small"
                              onClick={() =>
                                act(`gpus/${g.index}/undrain`, `GPU ${g.index} accepts work again`)
                              }
                              aria-label={`Undrain GPU ${g.index}`}
                            >
                              Undrain
                            </button>
                          ) : (
                            <button
                              class="quiet small"
                              onClick={() =>
                                act(`gpus/${g.index}/drain`, `GPU ${g.index} is drained`)
                              }
                              aria-label={`Drain GPU ${g.index}`}
                            >
                              Drain
                            </button>
                          )}
                        </td>
                      )}
                    </tr>
                  );
                })}
              </tbody>
            </table>
          </div>
          <Instances node={node} />
          <GpuCharts node={node} index={chosen} />
        </>
      )}
    </article>
  );
}

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

export function Nodes() {
  const pools = useSignal<Pool[] | null>(null);
  const reserved = useSignal<Reservation[] | null>(null);
  nodesTick.value;
  gpuTick.value;
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
  const list = [...nodes.values()].sort((a, b) =>
    a.name.localeCompare(b.name, undefined, { numeric: true }),
  );
  return (
    <section>
      <h1>
        Nodes <small>{plural(list.length, 'node')}</small>
      </h1>
      {list.length === 0 ? (
        <Empty title="No node has joined yet">
          <p>Create a join token on the head, then start an agent on the machine:</p>
          <Line text="billow token create --node" />
        </Empty>
      ) : (
        <div class="scroll" tabIndex={0} role="region" aria-label="Nodes as a table">
          <table>
            <thead>
              <tr>
                <th>Node</th>
                <th>State</th>
                <th>GPUs</th>
                <th>Free</th>
                <th>Busy</th>
                <th>CPU</th>
                <th>Memory</th>
                <th>Remark</th>
              </tr>
            </thead>
            <tbody>
              {list.map((n) => {
                const cards = readings.get(n.id) ?? [],
                  host = hosts.get(n.id);
                const busy = cards.filter((c) => c.util >= 0),
                  mean = busy.length ? busy.reduce((a, c) => a + c.util, 0) / busy.length : 0;
                const kinds = new Map<string, number>();
                for (const g of n.gpus) kinds.set(g.type, (kinds.get(g.type) ?? 0) + 1);
                const sick = n.gpus.filter((g) => g.unhealthy);
                return (
                  <tr>
                    <td>
                      <a href={`#/nodes/${n.name}`}>{n.name}</a>
                    </td>
                    <td>
                      <Badge state={n.state} />
                    </td>
                    <td>{[...kinds].map(([t, c]) => `${c} × ${t}`).join(', ') || 'none'}</td>
                    <td class="num">
                      {gpus(
                        cards.reduce(
                          (a, c, i) => a + (n.gpus[i]?.unhealthy ? 0 : 1000 - c.milli),
                          0,
                        ),
                      ) || 0}
                    </td>
                    <td>
                      <Meter part={mean / 100} label={`GPUs busy ${mean.toFixed(0)} %`} />{' '}
                      <span class="num">{busy.length ? `${mean.toFixed(0)} %` : '–'}</span>
                    </td>
                    <td class="num">
                      {host
                        ? `${(host.cpu_milli / 1000).toFixed(1)} of ${n.cpu_milli / 1000}`
                        : '–'}
                    </td>
                    <td class="num">
                      {host ? `${gib(host.mem_mib)} of ${gib(n.mem_mib)}` : gib(n.mem_mib)}
                    </td>
                    <td class={`on ${sick.length ? 'bad' : ''}`}>
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
