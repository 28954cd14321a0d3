// Every GPU as a tile, what is free, what it costs right now, and what needs attention.
import type { Gpu, Job } from './api';
import { gib, usd } from './format';
import { attention, finished, jobs, nodes, status } from './store';

function Tile({ node, gpu, byId }: { node: string; gpu: Gpu; byId: Map<number, Job> }) {
  const used = gpu.used_milli / 10;
  const holders = [...new Set(gpu.jobs)].map((id) => byId.get(id)).filter((j): j is Job => !!j);
  const who = holders.length ? holders.map((j) => `${j.user}: ${j.name || j.command}`).join(', ') : 'free';
  const title = `GPU ${gpu.index} of ${node}, ${gpu.model}, ${gib(gpu.mem_mib)}; ${who}`;
  return (
    <a class={`tile ${gpu.unhealthy ? 'sick' : holders.length ? 'used' : 'free'}`} href={holders.length === 1 ? `#/jobs/${holders[0].label}` : '#/nodes'} title={title} aria-label={title}>
      <b>{gpu.index}</b> <span class="type">{gpu.type}</span>
      <span class="bar" aria-hidden="true"><i style={{ width: `${used}%` }} /></span>
      <span class="who">{gpu.unhealthy || who}</span>
      <span class="nums">{gpu.util_pct !== undefined && gpu.util_pct >= 0 ? `${gpu.util_pct} %` : '–'} · {gib(gpu.mem_used_mib ?? 0)} · {Math.round(gpu.power_w ?? 0)} W</span>
    </a>
  );
}

const today = () => {
  const midnight = new Date();
  midnight.setHours(0, 0, 0, 0);
  return midnight.getTime();
};

export function Overview() {
  const s = status.value!;
  const byId = new Map(jobs.value.map((j) => [j.id, j]));
  const since = today();
  const spent = jobs.value.reduce((a, j) => a + j.cost_nano_usd, 0) + finished.value.filter((j) => j.ended_at && Date.parse(j.ended_at) >= since).reduce((a, j) => a + j.cost_nano_usd, 0);
  const empty = nodes.value.every((n) => n.gpus.length === 0);
  return (
    <>
      <section class="cards" aria-label="At a glance">
        <div class="card"><h2>GPUs free</h2><p class="big">{s.gpus.free.toLocaleString()}<small> of {s.gpus.total}</small></p></div>
        <div class="card"><h2>Running</h2><p class="big">{s.jobs.running}<small> jobs</small></p></div>
        <div class="card"><h2>Waiting</h2><p class="big">{s.jobs.queued}<small> queued, {s.jobs.held} held</small></p></div>
        <div class="card"><h2>Live and recent jobs</h2><p class="big">{usd(spent)}<small> today</small></p></div>
      </section>
      {attention.value.length > 0 && (
        <section class="attention" aria-label="Needs attention"><h2>Needs attention</h2>
          <ul>{attention.value.map((a) => <li><a href={a.href}>{a.text}</a></li>)}</ul>
        </section>
      )}
      {nodes.value.map((node) => (
        <section aria-label={`GPUs of ${node.name}`}>
          <h2>{node.name} <small>{node.state}{node.simulated ? ', simulated' : ''}</small></h2>
          <div class="tiles">{node.gpus.map((gpu) => <Tile node={node.name} gpu={gpu} byId={byId} />)}</div>
        </section>
      ))}
      {empty && <p class="empty">No GPUs here yet. Try <code>billow down && billow up --sim 8xH100</code> to look around with simulated ones.</p>}
      {!jobs.value.length && !finished.value.length && <p class="empty">Nothing has run yet. Start with <a href="#/run">Run</a>, or in a terminal: <code>billow run --gpus 1 -- nvidia-smi</code></p>}
    </>
  );
}
