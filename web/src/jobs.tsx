// The list of jobs, and one job with its log.
import { signal, useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { ApiError, get, post, type Explanation, type Job } from './api';
import { ansi } from './ansi';
import { ago, gpus, moment, span } from './format';
import { finished, jobs, version } from './store';

const query = signal('');
const shown = signal('all');

function matches(job: Job, words: string[]): boolean {
  const text = `${job.label} ${job.name} ${job.command} ${job.user} ${job.project} ${job.state} ${Object.entries(job.labels).map(([k, v]) => `${k}=${v}`).join(' ')}`.toLowerCase();
  return words.every((w) => text.includes(w));
}

export function Jobs() {
  const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
  const all = [...jobs.value, ...finished.value].filter((j) => (shown.value === 'all' || (shown.value === 'live') !== j.final) && matches(j, words));
  const rows = all.slice(0, 500);
  const onKey = (event: KeyboardEvent) => {
    if (event.key !== 'ArrowDown' && event.key !== 'ArrowUp') return;
    const links = [...document.querySelectorAll<HTMLAnchorElement>('tbody a')];
    const at = links.indexOf(document.activeElement as HTMLAnchorElement);
    links[Math.min(links.length - 1, Math.max(0, at + (event.key === 'ArrowDown' ? 1 : -1)))]?.focus();
    event.preventDefault();
  };
  return (
    <section onKeyDown={onKey}>
      <h1>Jobs</h1>
      <div class="filters">
        <label>Search <input type="search" placeholder="name, user, state, label=value" value={query.value} onInput={(e) => { query.value = e.currentTarget.value; }} /></label>
        <label>Show <select value={shown.value} onChange={(e) => { shown.value = e.currentTarget.value; }}>
          <option value="all">all</option><option value="live">waiting and running</option><option value="ended">ended</option>
        </select></label>
      </div>
      {rows.length === 0 ? <p class="empty">{jobs.value.length + finished.value.length ? 'No job matches.' : <>No jobs yet. <a href="#/run">Run one</a>.</>}</p> : (
        <div class="scroll"><table>
          <thead><tr><th>Job</th><th>Name</th><th>User</th><th>State</th><th>GPUs</th><th>Age</th><th>Time</th><th>Cost</th><th>Remark</th></tr></thead>
          <tbody>{rows.map((j) => (
            <tr key={j.id}>
              <td><a href={`#/jobs/${j.label}`}>{j.label}</a></td>
              <td class="name">{j.name || j.command}</td><td>{j.user}</td>
              <td><span class={`state ${j.state}`}>{j.state}</span></td>
              <td>{gpus(j.gpu_milli)}</td><td>{ago(j.submitted_at)}</td><td>{span(j.started_at, j.ended_at)}</td><td>{j.cost}</td>
              <td>{j.elements ? `${j.elements.succeeded} of ${j.elements.count} done` : j.final && j.exit_code ? j.exit?.text : j.reason || j.tasks.map((t) => t.node).join(', ')}</td>
            </tr>
          ))}</tbody>
        </table></div>
      )}
      {all.length > rows.length && <p class="note">{all.length - rows.length} more; search to narrow it down.</p>}
    </section>
  );
}

const logLinesMax = 5000;

function Log({ id }: { id: string }) {
  const lines = useSignal<string[]>([]);
  const find = useSignal('');
  const paused = useSignal(false);
  const box = useRef<HTMLPreElement>(null);
  useEffect(() => {
    const decoder = new TextDecoder();
    let rest = '';
    let pending: string[] = [];
    let frame = 0;
    const flush = () => {
      frame = 0;
      if (paused.value) return;
      lines.value = [...lines.value, ...pending].slice(-logLinesMax);
      pending = [];
      const pre = box.current;
      if (pre && pre.scrollHeight - pre.scrollTop - pre.clientHeight < 80) requestAnimationFrame(() => { pre.scrollTop = pre.scrollHeight; });
    };
    const take = (event: MessageEvent<string>) => {
      const bytes = Uint8Array.from(atob(event.data), (c) => c.charCodeAt(0));
      const parts = (rest + decoder.decode(bytes, { stream: true })).split('\n');
      rest = parts.pop() ?? '';
      pending.push(...parts);
      if (!frame) frame = requestAnimationFrame(flush);
    };
    const source = new EventSource(`/v1/jobs/${id}/logs?follow=1&format=sse`);
    source.addEventListener('out', take);
    source.addEventListener('err', take);
    source.addEventListener('end', () => {
      source.close();
      if (rest) pending.push(rest);
      if (!frame) frame = requestAnimationFrame(flush);
    });
    return () => { source.close(); cancelAnimationFrame(frame); };
  }, [id]);
  const needle = find.value.toLowerCase();
  const visible = needle ? lines.value.filter((l) => l.toLowerCase().includes(needle)) : lines.value;
  return (
    <section aria-label="Log">
      <div class="filters">
        <h2>Log</h2>
        <label>Find <input type="search" value={find.value} onInput={(e) => { find.value = e.currentTarget.value; }} /></label>
        <label><input type="checkbox" checked={paused.value} onChange={(e) => { paused.value = e.currentTarget.checked; }} /> hold</label>
      </div>
      <pre class="log" ref={box} tabIndex={0} aria-live="off">{visible.length ? visible.map((l) => <>{ansi(l)}{'\n'}</>) : <i>nothing{needle ? ' that matches' : ' written yet'}</i>}</pre>
    </section>
  );
}

export function JobPage({ id }: { id: string }) {
  const job = useSignal<Job | null>(null);
  const why = useSignal<Explanation | null>(null);
  const error = useSignal('');
  const seen = version.value;
  useEffect(() => {
    let gone = false;
    (async () => {
      try {
        const j = await get<Job>(`/v1/jobs/${id}`);
        if (gone) return;
        job.value = j;
        why.value = j.final || j.state === 'running' ? null : await get<Explanation>(`/v1/jobs/${id}/explain`);
      } catch (e) {
        if (!gone) error.value = e instanceof ApiError ? e.message : 'the head does not answer';
      }
    })();
    return () => { gone = true; };
  }, [id, seen]);
  const act = async (what: string, body: unknown = {}) => {
    try { await post(`/v1/jobs/${id}/${what}`, body); error.value = ''; } catch (e) { error.value = e instanceof ApiError ? `${e.message} ${e.hint}` : String(e); }
  };
  const j = job.value;
  if (!j) return <p class="empty">{error.value || 'Reading…'}</p>;
  const rerun = `#/run?command=${encodeURIComponent(j.command)}&gpus=${j.gpu_milli / 1000}&name=${encodeURIComponent(j.name)}`;
  return (
    <article>
      <h1>{j.name || j.command} <small>job {j.label}</small> <span class={`state ${j.state}`}>{j.state}</span></h1>
      <p class="actions">
        {!j.final && <button onClick={() => act('stop')}>Stop</button>}
        {!j.final && <button class="quiet" onClick={() => act('stop', { force: true })}>Stop at once</button>}
        <a class="button quiet" href={rerun}>Run again…</a>
      </p>
      {error.value && <p role="alert" class="bad">{error.value}</p>}
      {why.value && why.value.reasons.length > 0 && (
        <section class="attention"><h2>Why it waits</h2>
          <ul>{why.value.reasons.map((r) => <li>{r.text}</li>)}</ul>
          {why.value.earliest_start && <p>Expected to start {moment(why.value.earliest_start)}.</p>}
          {why.value.would_start_now && <p>It would start now if: {why.value.would_start_now}</p>}
        </section>
      )}
      <dl class="facts">
        <dt>Command</dt><dd><code>{j.command}</code></dd>
        <dt>Who</dt><dd>{j.user}, project {j.project}</dd>
        <dt>Asked for</dt><dd>{gpus(j.gpu_milli)} GPU{j.gpu_types.length ? ` of ${j.gpu_types.join(' or ')}` : ''}{j.spot ? ', spot' : ''}</dd>
        <dt>Where</dt><dd>{j.tasks.map((t) => `${t.node} (GPU ${t.gpus.join(', ') || '–'})`).join('; ') || '–'}</dd>
        <dt>Submitted</dt><dd>{moment(j.submitted_at)}</dd>
        <dt>Started</dt><dd>{moment(j.started_at)}</dd>
        <dt>Ended</dt><dd>{moment(j.ended_at)} {j.exit ? `(${j.exit.text})` : ''}</dd>
        <dt>Ran for</dt><dd>{span(j.started_at, j.ended_at)}{j.attempt > 1 ? `, attempt ${j.attempt}` : ''}</dd>
        <dt>Cost</dt><dd>{j.cost}{j.rate ? ` at ${j.rate}` : ''}</dd>
        {j.elements && <><dt>Elements</dt><dd>{j.elements.count} ({j.elements.succeeded} done, {j.elements.running} running)</dd></>}
      </dl>
      {!j.elements && <Log id={id} />}
    </article>
  );
}
