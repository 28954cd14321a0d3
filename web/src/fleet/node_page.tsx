// One node: topology, health and use of its GPUs, draining, and its time.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { get, post, problem, type NodeInfo } from '../data/api';
import { conditionOf } from '../data/card';
import { gib, moment, rate } from '../data/format';
import { may } from '../data/rights';
import { GpuCharts } from './node_charts';
import { Gantt } from '../time/gantt';
import { Topology } from '../time/topology';
import { Badge, confirm, Empty } from '../parts/ui';
import {
  gpuTick,
  hosts,
  jobs,
  jobsTick,
  nodes,
  nodesTick,
  notify,
  readings,
  route,
  type Gpu,
} from '../data/store';

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
      <section>
        <h1>Node {name} not found</h1>
        <Empty title="No node has this name">
          <p>
            See all <a href="#/nodes">nodes</a>.
          </p>
        </Empty>
      </section>
    );
  const drains = may('nodes.drain');
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
        {host ? ` (${gib(host.mem_mib)} used)` : ''}
        {host && host.rx >= 0 ? ` · network ${rate(host.rx + Math.max(0, host.tx))}` : ''} · Billow{' '}
        {node.version} · joined {moment(node.joined_at)}
      </p>
      {node.reason && <p class="finding">{node.reason}</p>}
      {drains && (
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
                  {drains && (
                    <th>
                      <span class="sr">Actions</span>
                    </th>
                  )}
                </tr>
              </thead>
              <tbody>
                {node.gpus.map((g, i) => {
                  const r = readings.get(node.id)?.[i];
                  const condition = conditionOf(node, g, r);
                  const unused =
                    condition === 'free' || condition === 'reserved' ? condition : 'not in use';
                  // A lost GPU reports nothing: its last figures would be zeros.
                  const known = !(g.unhealthy && r && r.mem <= 0 && r.watts <= 0);
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
                          (r?.milli ? 'another project' : <span class="dim">{unused}</span>)}
                      </td>
                      <td class="wide num">{r?.milli ? `${r.milli / 10} %` : '–'}</td>
                      <td class="num">{known && r && r.util >= 0 ? `${r.util} %` : '–'}</td>
                      <td class="wide">
                        {gib(known ? (r?.mem ?? -1) : -1)} of {gib(g.mem_mib)}
                      </td>
                      <td class="wide num">{known && r && r.watts >= 0 ? `${r.watts} W` : '–'}</td>
                      <td class="wide num">{r && r.celsius > 0 ? r.celsius : '–'}</td>
                      <td
                        class={`wrap ${g.unhealthy ? 'bad' : r && r.score >= 0 && r.score < 100 ? 'warn' : ''}`}
                      >
                        {healthText(r, g.unhealthy)}
                      </td>
                      {drains && (
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
                                confirm(
                                  `Drain GPU ${g.index}?`,
                                  'No new work starts on it. Running jobs continue.',
                                  'Drain',
                                  () => {
                                    void act(`gpus/${g.index}/drain`, `GPU ${g.index} is drained`);
                                  },
                                )
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
          <h2>Jobs over time</h2>
          <Gantt node={name} />
          <GpuCharts node={node} index={chosen} />
        </>
      )}
    </article>
  );
}
