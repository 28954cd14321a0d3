// All GPUs at a glance: holder and load, free capacity, cost, waste, and problems. Up to a few
// dozen GPUs are tiles with text; a larger fleet is a field of small squares shaded by load. The
// squares are updated without Preact: a thousand of them change twice a second.
import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { get, type NodeInfo, type Row, type Series } from '../data/api';
import { Approvals } from '../admin/approvals';
import { ago, cents2, gib, gpus, plural, usd } from '../data/format';
import { conditionOf, shadeOf } from '../data/card';
import { lazy } from '../parts/lazy';
import { Badge, Card, Empty, Line, Meter, Spark } from '../parts/ui';
import {
  clock,
  ended,
  gpuTick,
  isIdle,
  jobs,
  jobsTick,
  nodes,
  nodesTick,
  readings,
  status,
  summary,
  type Gpu,
} from '../data/store';
import { attention, dismiss } from '../data/attention';
import { spentToday, wastedWeek } from '../data/spend';

const tilesMax = 48;
const attentionFirst = 6; // the rest is shown on request
const squaresMax = 2000; // beyond, elements of the document are too slow
const HeatMap = lazy(() => import('../time/heat_map').then((m) => m.HeatMap));

function whoHolds(gpu: Gpu): { text: string; href: string } {
  const holders = [...new Set(gpu.jobs)].map((id) => jobs.get(id)).filter((j): j is Row => !!j);
  const none = gpu.milli ? 'another project' : gpu.reserved ? 'reserved' : 'free';
  if (!holders.length) return { text: none, href: '' };
  return {
    text: holders.map((j) => `${j.name || j.command} · ${j.user}`).join(', '),
    href: holders.length === 1 ? `#/jobs/${holders[0].label}` : '',
  };
}

// The type of a node's GPUs if all are of one.
const oneType = (node: NodeInfo) =>
  node.gpus.every((g) => g.type === node.gpus[0].type) ? node.gpus[0]?.type : undefined;

function Tile({ node, gpu, card }: { node: NodeInfo; gpu: Gpu; card: NodeInfo['gpus'][number] }) {
  const who = whoHolds(gpu);
  const kind = conditionOf(node, card, gpu);
  const out = kind === 'sick' || kind === 'drained' || kind === 'lost';
  const known = gpu.util >= 0;
  return (
    <a
      class={`tile ${kind}`}
      href={(!out && who.href) || `#/nodes/${node.name}?gpu=${gpu.index}`}
      data-gpu={gpu.index}
    >
      <span class="sr">{node.name}, </span>
      <span class="head">
        <b>GPU {gpu.index}</b>
        {!oneType(node) && <span class="type">{card.type}</span>}
        <span class="share">
          {out
            ? kind
            : [
                gpu.milli && gpu.milli < 1000 ? `${gpu.milli / 10} % held` : '',
                kind === 'idle' ? 'idle' : '',
              ]
                .filter(Boolean)
                .join(', ')}
        </span>
      </span>
      <span class="who" title={who.text}>
        {out && !gpu.milli ? 'not in use' : who.text}
      </span>
      {card.unhealthy && <span class="ill">{card.unhealthy}</span>}
      <Meter
        part={known ? gpu.util / 100 : 0}
        label={known ? `busy ${gpu.util} %` : 'load unknown'}
      />
      <span class="nums">
        <span>{known ? `${gpu.util} %` : '–'}</span>
        <span>{gib(gpu.mem)}</span>
        <span>{gpu.watts >= 0 ? `${gpu.watts} W` : '–'}</span>
      </span>
    </a>
  );
}

const placeOf = (node: NodeInfo, gpu: Gpu) => `#/nodes/${node.name}?gpu=${gpu.index}`;
const outOfService = (node: NodeInfo, gpu: Gpu) =>
  ['sick', 'drained', 'lost'].includes(conditionOf(node, node.gpus[gpu.index], gpu));
// "sick (an uncorrected memory error), train · ana"
function saidOf(node: NodeInfo, gpu: Gpu): string {
  const who = whoHolds(gpu).text;
  if (!outOfService(node, gpu)) return who;
  const card = node.gpus[gpu.index];
  const why = card.unhealthy || node.reason;
  return conditionOf(node, card, gpu) + (why ? ` (${why})` : '') + (gpu.milli ? `, ${who}` : '');
}

// One square per GPU, grouped by node. The elements are created once and then only recoloured.
function Field() {
  const box = useRef<HTMLDivElement>(null);
  const shown = useSignal<{ node: NodeInfo; gpu: Gpu } | null>(null);
  const squares = useRef<{ el: HTMLAnchorElement; node: number; index: number; level: string }[]>(
    [],
  );
  const structure = nodesTick.value;
  useEffect(() => {
    const host = box.current!;
    host.textContent = '';
    squares.current = [];
    for (const node of [...nodes.values()].sort((a, b) =>
      a.name.localeCompare(b.name, undefined, { numeric: true }),
    )) {
      const group = document.createElement('div');
      group.className = 'group';
      const name = document.createElement('a');
      name.href = `#/nodes/${node.name}`;
      name.textContent = node.name;
      name.className = `name ${node.state}`;
      const cells = document.createElement('div');
      cells.className = 'cells';
      group.append(name, cells);
      node.gpus.forEach((_card, index) => {
        const el = document.createElement('a');
        el.tabIndex = -1;
        el.href = `#/nodes/${node.name}?gpu=${index}`;
        el.dataset.l = '';
        el.setAttribute('aria-label', `GPU ${index} of ${node.name}`);
        cells.append(el);
        squares.current.push({ el, node: node.id, index, level: '' });
      });
      host.append(group);
    }
    recolour();
  }, [structure]);
  const recolour = () => {
    for (const square of squares.current) {
      const gpu = readings.get(square.node)?.[square.index];
      const node = nodes.get(square.node);
      const card = node?.gpus[square.index];
      if (!gpu || !card) continue;
      const level = shadeOf(conditionOf(node, card, gpu), gpu.util);
      if (level === square.level) continue;
      square.level = level;
      square.el.dataset.l = level;
    }
  };
  const tick = gpuTick.value;
  useEffect(recolour, [tick]);
  const find = (target: EventTarget | null) => squares.current.find((s) => s.el === target);
  const point = (target: EventTarget | null) => {
    const square = find(target);
    const gpu = square && readings.get(square.node)?.[square.index],
      node = square && nodes.get(square.node);
    shown.value = gpu && node ? { node, gpu } : null;
    if (square && gpu && node) {
      const who = whoHolds(gpu);
      square.el.href = (!outOfService(node, gpu) && who.href) || placeOf(node, gpu);
      square.el.setAttribute(
        'aria-label',
        `GPU ${gpu.index} of ${node.name}: ${saidOf(node, gpu)}`,
      );
    }
  };
  const onKey = (event: KeyboardEvent) => {
    const at = squares.current.findIndex((s) => s.el === document.activeElement);
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 8, ArrowUp: -8 }[event.key];
    if (!step) return;
    event.preventDefault();
    squares.current[
      Math.max(0, Math.min(squares.current.length - 1, at < 0 ? 0 : at + step))
    ]?.el.focus();
  };
  const s = shown.value;
  return (
    <section class="field-wrap" aria-label="All GPUs">
      <div class="field-head">
        <h2>All GPUs</h2>
        <p class="legend" aria-hidden="true">
          <i data-l="f" /> free <i data-l="0" /> idle <i data-l="1" />
          <i data-l="2" />
          <i data-l="3" />
          <i data-l="4" />
          <i data-l="5" /> busy <i data-l="r" /> reserved <i data-l="d" /> drained <i data-l="x" />{' '}
          sick or lost
        </p>
      </div>
      <p class="hover" role="status">
        {s ? (
          <>
            <b>
              {s.node.name} · GPU {s.gpu.index}
            </b>{' '}
            {saidOf(s.node, s.gpu)} · {s.gpu.util >= 0 ? `${s.gpu.util} %` : 'load unknown'} ·{' '}
            {gib(s.gpu.mem)} · {s.gpu.watts >= 0 ? `${s.gpu.watts} W` : '–'}
          </>
        ) : (
          'Point at a square or use the arrow keys to see its job.'
        )}
      </p>
      <div
        class="field"
        ref={box}
        tabIndex={0}
        role="group"
        aria-label="GPUs as squares, shade by load; arrow keys move, Enter opens"
        onKeyDown={onKey}
        onMouseOver={(e) => point(e.target)}
        onFocusIn={(e) => point(e.target)}
        onMouseLeave={() => {
          shown.value = null;
        }}
      />
    </section>
  );
}

function useFleet(): Series | null {
  const series = useSignal<Series | null>(null);
  useEffect(() => {
    let gone = false;
    const load = () => {
      if (!document.hidden)
        void get<Series>('/v1/history/fleet?span_s=86400&points=96').then(
          (s) => {
            if (!gone) series.value = s;
          },
          () => {},
        );
    };
    load();
    const timer = window.setInterval(load, 60_000);
    return () => {
      gone = true;
      window.clearInterval(timer);
    };
  }, []);
  return series.value;
}

const neededGpus = (milli: number) =>
  milli === 0 ? 'no GPU' : milli === 1000 ? '1 GPU' : `${gpus(milli)} GPUs`;

function Waiting() {
  jobsTick.value;
  const list = [...jobs.values()]
    .filter((j) => j.state === 'queued' || j.state === 'held')
    .sort((a, b) => (a.submitted ?? 0) - (b.submitted ?? 0))
    .slice(0, 6);
  if (!list.length) return null;
  return (
    <section class="panel" aria-label="Waiting longest">
      <h2>Waiting longest</h2>
      <ul class="plain rows">
        {list.map((j) => (
          <li>
            <a href={`#/jobs/${j.label}`}>{j.name || j.command}</a>
            <small>
              {j.user} · {neededGpus(j.gpu_milli)} · {ago(j.submitted, clock.value)}
            </small>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Recent() {
  const list = [...ended.value].sort((a, b) => (b.ended ?? 0) - (a.ended ?? 0)).slice(0, 6);
  if (!list.length) return null;
  return (
    <section class="panel" aria-label="Recently ended">
      <h2>Recently ended</h2>
      <ul class="plain rows">
        {list.map((j) => (
          <li>
            <a href={`#/jobs/${j.label}`}>{j.name || j.command}</a>
            <small>
              <Badge state={j.state} /> {ago(j.ended, clock.value)} ago · {cents2(j.cost_nano)}
            </small>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Tiles() {
  gpuTick.value;
  jobsTick.value;
  nodesTick.value;
  return (
    <>
      {[...nodes.values()].map((node) => (
        <section aria-label={`GPUs of ${node.name}`}>
          <h2>
            <a href={`#/nodes/${node.name}`}>{node.name}</a>{' '}
            {node.state !== 'ready' && <Badge state={node.state} />}{' '}
            <small>
              {oneType(node) && `${node.gpus.length} × ${oneType(node)}`}
              {node.simulated ? ' simulated' : ''}
            </small>
          </h2>
          <div class="tiles">
            {node.gpus.map((card, i) => {
              const gpu = readings.get(node.id)?.[i];
              return gpu && <Tile node={node} gpu={gpu} card={card} />;
            })}
          </div>
        </section>
      ))}
    </>
  );
}

export function Overview() {
  const s = summary.value;
  const fleet = useFleet();
  const all = useSignal(false);
  if (!s) return <p class="note">Loading…</p>;
  const now = clock.value;
  const today = spentToday.value;
  const running = [...jobs.values()];
  jobsTick.value;
  const rateHour = s.spend_nano * 3600;
  const idle = running.filter((j) => isIdle(j));
  // Hours left of this day in UTC, as in the ledger.
  const left = (86_400_000 - (now % 86_400_000)) / 3_600_000;
  const list = attention.value;
  const shown = all.value ? list.length : attentionFirst;
  // Nodes and GPUs are shown to all users, jobs and money only to members.
  const whose = s.scope === 'projects' ? ' in your projects' : '';
  return (
    <>
      <h1 class="sr">Overview</h1>
      <Approvals />
      <section class="cards glance" aria-label="At a glance">
        <Card
          title="GPUs free"
          value={gpus(s.gpus_free_milli) === '–' ? '0' : gpus(s.gpus_free_milli)}
          unit={`of ${s.gpus.toLocaleString()}`}
          href="#/nodes"
          note={
            fleet ? (
              <>
                <Spark
                  values={fleet.series.util_pct}
                  max={100}
                  label="mean GPU load over the last day"
                />
                <span aria-hidden="true">load over 24 h</span>
              </>
            ) : undefined
          }
        />
        <Card
          title={`Jobs${whose}`}
          value={s.running.toLocaleString()}
          unit="running"
          href="#/jobs"
          note={
            `${(s.queued + s.held).toLocaleString()} waiting` +
            (s.suspended ? `, ${s.suspended} suspended` : '')
          }
        />
        <Card
          title={`Spending now${whose}`}
          value={usd(rateHour)}
          unit="/ h"
          href="#/costs"
          note={
            today ? (
              <>
                {usd(today.spent)} today, about {usd(today.spent + s.spend_nano * left * 3600)} by
                midnight UTC
              </>
            ) : undefined
          }
        />
        <Card
          title={`Idle right now${whose}`}
          value={usd(s.idle_nano * 3600)}
          unit="/ h"
          tone={s.idle_nano > 0 ? 'warn' : ''}
          href="#/jobs?show=idle"
          note={
            idle.length
              ? `${plural(idle.length, 'job holds', 'jobs hold')} idle GPUs`
              : 'no job has been idle for a minute'
          }
        />
        <Card
          title="Wasted in 7 days"
          value={wastedWeek.value == null ? '–' : cents2(wastedWeek.value)}
          href="#/waste"
          note="see the jobs that waste most"
        />
      </section>
      {list.length > 0 && (
        <section class="attention" aria-label="Needs attention">
          <h2>Needs attention</h2>
          <ul class="plain">
            {list.slice(0, shown).map((a) => (
              <li class={a.grave ? 'grave' : ''} key={a.key}>
                <a href={a.href} title={a.text}>
                  {a.text}
                </a>
                <button
                  class="dismiss"
                  aria-label={`Dismiss: ${a.text}`}
                  title="Dismiss"
                  onClick={() => dismiss(a.key)}
                >
                  ×
                </button>
              </li>
            ))}
          </ul>
          {list.length > shown && (
            <button
              class="link"
              onClick={() => {
                all.value = true;
              }}
            >
              and {list.length - shown} more
            </button>
          )}
        </section>
      )}
      {s.gpus > squaresMax ? <HeatMap /> : s.gpus > tilesMax ? <Field /> : <Tiles />}
      {s.gpus === 0 && (
        <Empty title="No GPUs yet">
          <p>Try simulated ones:</p>
          <Line text="billow down && billow up --sim 8xH100" />
          <p>or join a machine with GPUs:</p>
          <Line text="billow token create --node" />
        </Empty>
      )}
      {running.length === 0 && ended.value.length === 0 && s.gpus > 0 && (
        <Empty title="Nothing has run yet">
          <p>
            Start a job with <a href="#/run">Run</a>, or on the command line:
          </p>
          <Line text="billow run --gpus 1 -- sh -c 'echo $CUDA_VISIBLE_DEVICES'" />
        </Empty>
      )}
      <div class="two">
        <Waiting />
        <Recent />
      </div>
      <p class="more">
        <a href="#/activity">Changes since yesterday</a>
      </p>
      <p class="foot">Billow {status.value?.version}</p>
    </>
  );
}
