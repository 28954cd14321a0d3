// The blocks of the Gantt chart from the head: somewhat more than the view, so that moving and
// zooming show something at once, and again when the view leaves that window.
import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { get, has, problem } from '../data/api';
import { assignLanes, type Block, type Card, type Kind, type View } from './blocks';
import { byName } from './names';
import { serves, windowOf } from './timeline_window';

interface Given {
  from: number;
  to: number;
  kind: Kind;
  job?: string;
  jobs?: number;
  name?: string;
  user?: string;
  project?: string;
  reason?: string;
  milli?: number;
  waste_usd?: number | null;
}
export interface Answer {
  from_ms: number;
  to_ms: number;
  step_ms: number;
  truncated: boolean;
  nodes: { node: string; gpus: { gpu: number; type: string; blocks: Given[] }[] }[];
}

export function cardsOf(answer: Answer): Card[] {
  const nodes = [...answer.nodes].sort((a, b) => byName(a.node, b.node));
  return nodes.flatMap(({ node, gpus }) =>
    gpus.map(({ gpu, type, blocks }) => {
      const list: Block[] = blocks.map((b) => ({
        from: b.from,
        to: b.to,
        kind: b.kind,
        job: b.job ?? '',
        jobs: b.jobs ?? 1,
        name: b.name ?? '',
        user: b.user ?? '',
        project: b.project ?? '',
        reason: b.reason ?? '',
        milli: b.milli ?? 1000,
        waste: b.waste_usd ?? 0,
        lane: 0,
        of: 1,
      }));
      return { node, index: gpu, type, lanes: assignLanes(list), blocks: list };
    }),
  );
}

const refreshMs = 15_000;
const restMs = 120; // while one zooms, one request at the end

export function useTimeline(view: View, node?: string) {
  const cards = useSignal<Card[]>([]);
  const error = useSignal('');
  const cut = useSignal('');
  const loading = useSignal(true);
  const got = useRef<{ node?: string; view: View } | null>(null);
  const latest = useRef(view);
  latest.current = view;
  const load = useRef<() => Promise<void>>(async () => {});
  load.current = async () => {
    const wanted = windowOf(latest.current);
    if (!(await has('/v1/timeline'))) {
      error.value = 'This head has no timeline of its GPUs; update it.';
      loading.value = false;
      return;
    }
    try {
      const answer = await get<Answer>(
        `/v1/timeline?from=${wanted.from}&to=${wanted.to}` +
          (node ? `&node=${encodeURIComponent(node)}` : ''),
      );
      got.current = { node, view: wanted };
      cards.value = cardsOf(answer);
      error.value = '';
      cut.value = answer.truncated
        ? 'Some jobs of this period are left out: zoom in to see all.'
        : answer.step_ms > 0
          ? 'Short jobs are drawn together: zoom in to see each.'
          : '';
    } catch (e) {
      error.value = problem(e);
    }
    loading.value = false;
  };
  const enough = got.current?.node === node && serves(got.current?.view ?? null, view);
  useEffect(() => {
    if (enough) return;
    const timer = window.setTimeout(() => void load.current(), got.current ? restMs : 0);
    return () => window.clearTimeout(timer);
  }, [enough, Math.round(view.from / 1000), Math.round(view.to / 1000), node]);
  useEffect(() => {
    const timer = window.setInterval(() => {
      if (!document.hidden && latest.current.to > Date.now() - 2 * refreshMs) void load.current();
    }, refreshMs);
    return () => window.clearInterval(timer);
  }, []);
  return {
    cards: cards.value,
    error: error.value,
    cut: cut.value,
    loading: loading.value,
  };
}
