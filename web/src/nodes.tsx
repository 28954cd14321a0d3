// Nodes and their GPUs as a table, with drain and undrain.
import { useSignal } from '@preact/signals';
import { ApiError, post } from './api';
import { gib, gpus, moment } from './format';
import { nodes, refresh } from './store';

export function Nodes() {
  const error = useSignal('');
  const act = async (name: string, what: string) => {
    try {
      await post(`/v1/nodes/${encodeURIComponent(name)}/${what}`, {});
      error.value = '';
      await refresh();
    } catch (e) { error.value = e instanceof ApiError ? e.message : String(e); }
  };
  return (
    <section>
      <h1>Nodes</h1>
      {error.value && <p role="alert" class="bad">{error.value}</p>}
      {nodes.value.length === 0 && <p class="empty">No node has joined yet.</p>}
      {nodes.value.map((n) => (
        <article class="node">
          <h2>{n.name} <span class={`state ${n.state}`}>{n.state}</span> <small>{n.arch}{n.simulated ? ', simulated' : ''}, {n.cpu_milli / 1000} CPUs, {gib(n.mem_mib)}, since {moment(n.joined_at)}</small></h2>
          <p class="actions">{n.state === 'drained'
            ? <button onClick={() => act(n.name, 'undrain')}>Take work again</button>
            : <button class="quiet" onClick={() => act(n.name, 'drain')}>Drain</button>} {n.reason}</p>
          {n.gpus.length > 0 && <div class="scroll"><table>
            <thead><tr><th>GPU</th><th>Model</th><th>Given out</th><th>Busy</th><th>Memory</th><th>Power</th><th>°C</th><th>Jobs</th><th>Health</th></tr></thead>
            <tbody>{n.gpus.map((g) => (
              <tr><td>{g.index}</td><td>{g.model}</td><td>{gpus(g.used_milli)}</td><td>{g.util_pct ?? '–'} %</td>
                <td>{gib(g.mem_used_mib ?? 0)} of {gib(g.mem_mib)}</td><td>{Math.round(g.power_w ?? 0)} W</td><td>{g.temperature_c ?? '–'}</td>
                <td>{[...new Set(g.jobs)].map((id) => <a href={`#/jobs/${id}`}>{id} </a>)}</td><td class={g.unhealthy ? 'bad' : ''}>{g.unhealthy || 'well'}</td></tr>
            ))}</tbody>
          </table></div>}
        </article>
      ))}
    </section>
  );
}
