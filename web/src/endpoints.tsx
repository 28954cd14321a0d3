// Serverless endpoints: what is served, by how many replicas, how fast. Until the first is deployed the page says how.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { get, has } from './api';
import { plural } from './format';
import { Badge, Empty, Line } from './ui';

interface Endpoint {
  name: string; url?: string; state?: string; min?: number; max?: number; replicas?: number | unknown[]; ready?: number; queue?: number; queued?: number; in_flight?: number;
  p50_ms?: number; p99_ms?: number; requests_per_s?: number; gpus?: number; gpu_milli?: number; project?: string; cost?: string; reason?: string;
}

export function Endpoints() {
  const list = useSignal<Endpoint[] | null>(null);
  const can = useSignal(true);
  useEffect(() => {
    let gone = false;
    const load = async () => {
      if (document.hidden) return;
      if (!(await has('/v1/endpoints'))) { can.value = false; list.value = []; return; }
      try { const got = await get<{ endpoints: Endpoint[] }>('/v1/endpoints'); if (!gone) list.value = got.endpoints; } catch { if (!gone) list.value ??= []; }
    };
    void load();
    const timer = window.setInterval(load, 3000);
    return () => { gone = true; window.clearInterval(timer); };
  }, []);
  if (!list.value) return <p class="note">Reading…</p>;
  return (
    <section>
      <h1>Endpoints {list.value.length > 0 && <small>{plural(list.value.length, 'endpoint')}</small>}</h1>
      {list.value.length === 0 ? (
        <Empty title="No endpoint is deployed">
          <p>An endpoint is a command that listens on <code>$PORT</code>. It gets an address, starts when the first request comes, grows with the queue and shrinks to nothing when nobody asks.</p>
          <Line text="billow deploy chat --gpus 0.5 --min 0 --max 8 -- python serve.py --port '$PORT'" />
          {!can.value && <p class="note">This head has no gateway running.</p>}
        </Empty>
      ) : (
        <div class="scroll" tabIndex={0} role="region" aria-label="Endpoints as a table"><table>
          <thead><tr><th>Name</th><th>State</th><th>Replicas</th><th>Waiting</th><th>Requests</th><th>p50</th><th>p99</th><th>Address</th></tr></thead>
          <tbody>{list.value.map((e) => <tr>
            <td><b>{e.name}</b></td><td><Badge state={e.state ?? ((e.ready ?? 0) > 0 ? 'running' : 'idle')} /></td><td>{e.ready ?? (Array.isArray(e.replicas) ? e.replicas.length : e.replicas) ?? 0} of {e.min ?? 0}–{e.max ?? '?'}</td>
            <td class="num">{e.queued ?? e.queue ?? 0}</td><td class="num">{e.requests_per_s != null ? `${e.requests_per_s.toFixed(1)} /s` : '–'}</td><td class="num">{e.p50_ms != null ? `${e.p50_ms.toFixed(0)} ms` : '–'}</td><td class="num">{e.p99_ms != null ? `${e.p99_ms.toFixed(0)} ms` : '–'}</td>
            <td>{e.url ? <code>{e.url}</code> : e.reason ?? ''}</td>
          </tr>)}</tbody>
        </table></div>
      )}
    </section>
  );
}
