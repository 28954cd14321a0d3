// What changed since yesterday, out of the journal, in words. Admins see everything; others the jobs they may see.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { get, type Status } from './api';
import { clock, day, plural } from './format';
import { Empty } from './ui';
import { ended, jobs, jobsTick, nodeName, nodesTick } from './store';

interface Said { seq: number; at: string; kind: string; actor: string; event: Record<string, unknown> }

function words(e: Said): { text: string; href?: string } | null {
  const b = e.event as Record<string, any>;
  const node = b.node ? (typeof b.node === 'object' ? b.node.offer?.name : nodeName(b.node)) : '';
  switch (e.kind) {
    case 'head_started': return { text: `the head started (version ${b.version})` };
    case 'user_added': return { text: `user ${b.user?.name ?? ''} was added` };
    case 'project_added': return { text: `project ${b.project?.name ?? ''} was added` };
    case 'member_set': return { text: `${b.user} became ${b.role ?? 'no member any more'} of a project` };
    case 'token_created': return { text: `a token “${b.token?.name ?? ''}” was made` };
    case 'token_revoked': return { text: 'a token was revoked' };
    case 'node_joined': return { text: `node ${node} joined`, href: `#/nodes/${node}` };
    case 'node_unreachable': return { text: `node ${node} stopped answering`, href: `#/nodes/${node}` };
    case 'node_reachable': return { text: `node ${node} is back`, href: `#/nodes/${node}` };
    case 'node_drained': return { text: b.reason ? `node ${node} was drained: ${b.reason}` : `node ${node} takes work again`, href: `#/nodes/${node}` };
    case 'node_removed': return { text: 'a node was removed' };
    case 'gpu_drained': return { text: b.reason ? `GPU ${b.gpu ?? 0} of ${node} was taken out of service: ${b.reason}` : `GPU ${b.gpu ?? 0} of ${node} takes work again`, href: `#/nodes/${node}` };
    case 'schedule_added': return { text: `schedule ${b.schedule?.name ?? ''} was added` };
    case 'schedule_removed': return { text: 'a schedule was removed' };
    case 'job_ended': return b.state === 'succeeded' ? null : { text: `job ${b.job} ${b.state}${b.reason ? `: ${b.reason}` : ''}`, href: `#/jobs/${b.job}` };
    default: return /^(jobs_|job_|task_|dependency|environment|schedule_fired|meter|lease|node_offer)/.test(e.kind) ? null : { text: e.kind.replace(/_/g, ' ') };
  }
}

export function Activity() {
  const said = useSignal<Said[] | null>(null);
  const error = useSignal('');
  jobsTick.value; nodesTick.value;
  useEffect(() => {
    (async () => {
      try {
        const { seq } = await get<Status>('/v1/status');
        const list: Said[] = [];
        const since = Date.now() - 86_400_000;
        // From the end backwards, a few thousand events at most.
        for (let to = seq, page = 0; to > 0 && page < 5; page++) {
          const from = Math.max(0, to - 1000);
          const got = (await get<{ events: Said[] }>(`/v1/events?after=${from}&limit=1000`)).events.filter((e) => e.seq <= to);
          list.unshift(...got.filter((e) => Date.parse(e.at) >= since));
          if (!got.length || Date.parse(got[0].at) < since) break;
          to = from;
        }
        said.value = list;
      } catch { error.value = 'Only admins see the journal; below are the jobs you may see.'; said.value = []; }
    })();
  }, []);
  const since = Date.now() - 86_400_000;
  const done = ended.value.filter((j) => (j.ended ?? 0) > since);
  const count = (s: string) => done.filter((j) => j.state === s).length;
  const rows = (said.value ?? []).map((e) => ({ e, w: words(e) })).filter((r): r is { e: Said; w: { text: string; href?: string } } => !!r.w).reverse();
  return (
    <section>
      <h1>Since yesterday</h1>
      <p class="lead">{plural(count('succeeded'), 'job')} succeeded, {count('failed')} failed, {count('stopped')} stopped, {count('lost')} lost{done.length >= 100 ? ' among the last hundred or more' : ''}; {[...jobs.values()].length.toLocaleString()} wait or run now.</p>
      {error.value && <p class="note">{error.value}</p>}
      {said.value && rows.length === 0 ? <Empty title="A quiet day"><p>No node came or went, nobody was added, nothing failed.</p></Empty> : (
        <ol class="activity">{rows.slice(0, 400).map(({ e, w }) => <li><time dateTime={e.at}>{day(Date.parse(e.at))} {clock(Date.parse(e.at))}</time> <span>{w.href ? <a href={w.href}>{w.text}</a> : w.text}</span> <small>{e.actor}</small></li>)}</ol>
      )}
    </section>
  );
}
