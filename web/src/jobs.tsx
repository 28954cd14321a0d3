// The list of jobs. There may be thousands of rows: only those in view are in the document.
import { signal, useSignal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import type { Row } from './api';
import { ago, gpus, lasting, plural, usd } from './format';
import { arrows, Badge, Empty, Line } from './ui';
import {
  clock,
  costOf,
  ended,
  isIdle,
  jobs,
  jobsTick,
  nodesTick,
  ranMs,
  route,
  summary,
  suspendedMs,
  whereText,
} from './store';
import { stopIdleSoon } from './stopping';

const query = signal('');
const rowPx = 40;
const shows: [string, string][] = [
  ['all', 'All'],
  ['running', 'Running'],
  ['waiting', 'Waiting'],
  ['idle', 'Idle'],
  ['suspended', 'Suspended'],
  ['ended', 'Ended'],
  ['failed', 'Failed'],
];

// The text that is searched, computed once per row.
const texts = new WeakMap<Row, string>();
function textOf(row: Row): string {
  let text = texts.get(row);
  if (text === undefined)
    texts.set(
      row,
      (text = [row.label, row.name, row.command, row.user, row.project, row.state]
        .join(' ')
        .toLowerCase()),
    );
  return text;
}
function shownBy(row: Row, show: string): boolean {
  switch (show) {
    case 'running':
      return row.state === 'running';
    case 'waiting':
      return row.state === 'queued' || row.state === 'held';
    case 'idle':
      return isIdle(row);
    case 'suspended':
      return row.state === 'suspended';
    case 'ended':
      return !!row.final;
    case 'failed':
      return row.state === 'failed' || row.state === 'lost';
    default:
      return true;
  }
}

function remark(row: Row, now: number): string {
  if (row.final) return row.state === 'succeeded' ? '' : row.reason || row.exit || '';
  return [
    isIdle(row) ? 'idle' : '',
    row.state === 'suspended' ? `suspended for ${lasting(suspendedMs(row, now) / 1000)}` : '',
    row.reason,
    whereText(row),
  ]
    .filter(Boolean)
    .join(' · ');
}

function JobRow({ row, now, top, index }: { row: Row; now: number; top: number; index: number }) {
  const el = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (el.current) el.current.style.transform = `translateY(${top}px)`;
  }, [top]);
  return (
    <div class="vrow" role="row" aria-rowindex={index + 2} ref={el}>
      <span role="cell">
        <a href={`#/jobs/${row.label}`}>{row.label}</a>
      </span>
      <span role="cell" class="name">
        <a href={`#/jobs/${row.label}`} tabIndex={-1}>
          {row.name || row.command}
        </a>
      </span>
      <span role="cell" class="wide">
        {row.user}
      </span>
      <span role="cell">
        <Badge state={row.state} />
      </span>
      <span role="cell" class="num">
        {gpus(row.gpu_milli)}
      </span>
      <span role="cell" class="num wide">
        {ago(row.submitted, now)}
      </span>
      <span role="cell" class="num">
        {row.started ? lasting(ranMs(row, now) / 1000) : '–'}
      </span>
      <span role="cell" class="num">
        {usd(costOf(row, now))}
      </span>
      <span role="cell" class="remark wide">
        {remark(row, now)}
      </span>
    </div>
  );
}

export function Jobs() {
  const given = new URLSearchParams(route.value.split('?')[1] ?? '');
  const show = given.get('show') ?? 'all';
  const project = given.get('project') ?? '';
  const scroll = useSignal(0);
  const height = useSignal(600);
  const box = useRef<HTMLDivElement>(null);
  const inner = useRef<HTMLDivElement>(null);
  const tick = jobsTick.value,
    done = ended.value,
    words = query.value;
  nodesTick.value;
  if (show === 'idle') summary.value;
  const rows = useMemo(() => {
    const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
    const out: Row[] = [];
    const take = (row: Row) => {
      if (
        shownBy(row, show) &&
        (!project || row.project === project) &&
        wanted.every((w) => textOf(row).includes(w))
      )
        out.push(row);
    };
    if (show !== 'ended') {
      const live = [...jobs.values()];
      live.sort((a, b) => b.id - a.id);
      live.forEach(take);
    }
    done.forEach(take);
    return out;
  }, [tick, done, words, show, project, show === 'idle' ? summary.value : 0]);
  useEffect(() => {
    const el = box.current;
    if (!el) return;
    const watch = new ResizeObserver(() => {
      height.value = el.clientHeight;
    });
    watch.observe(el);
    return () => watch.disconnect();
  }, [rows.length === 0]);
  useEffect(() => {
    if (inner.current) inner.current.style.height = `${rows.length * rowPx}px`;
  }, [rows.length]);
  const first = Math.max(0, Math.floor(scroll.value / rowPx) - 6),
    last = Math.min(rows.length, Math.ceil((scroll.value + height.value) / rowPx) + 6);
  const now = clock.value;
  const total = jobs.size + done.length;
  return (
    <section onKeyDown={(e) => arrows(e, '.vrow > span:first-child a')}>
      <h1>
        Jobs{' '}
        <small>
          {rows.length === total
            ? plural(total, 'job')
            : `${rows.length.toLocaleString()} of ${total.toLocaleString()}`}
        </small>
      </h1>
      <div class="filters">
        <input
          type="search"
          aria-label="Search jobs"
          placeholder="Search by name, command, user, project or state"
          value={words}
          onInput={(e) => {
            query.value = e.currentTarget.value;
            if (box.current) box.current.scrollTop = 0;
          }}
        />
        <div class="tabs" role="group" aria-label="Which jobs">
          {shows.map(([id, name]) => (
            <a href={`#/jobs?show=${id}`} aria-current={show === id ? 'true' : undefined}>
              {name}
            </a>
          ))}
        </div>
        {show === 'idle' && rows.length > 0 && (
          <button class="danger" onClick={() => stopIdleSoon(rows)}>
            Stop {rows.length === 1 ? 'this idle job' : `these ${rows.length} idle jobs`}
          </button>
        )}
      </div>
      {rows.length === 0 ? (
        total ? (
          <Empty title="No job matches">
            {show === 'idle' ? (
              <p>No running job holds an idle GPU.</p>
            ) : (
              <p>No job matches “{words || show}”.</p>
            )}
          </Empty>
        ) : (
          <Empty title="No jobs yet">
            <p>
              Start one with <a href="#/run">Run</a>, or on the command line:
            </p>
            <Line text="billow run --gpus 1 -- python train.py" />
          </Empty>
        )
      ) : (
        <div class="vtable" role="table" aria-label="Jobs" aria-rowcount={rows.length + 1}>
          <div class="vhead" role="row" aria-rowindex={1}>
            {['Job', 'Name', 'User', 'State', 'GPUs', 'Age', 'Run time', 'Cost', 'Remark'].map(
              (h, i) => (
                <span
                  role="columnheader"
                  class={
                    i === 2 || i === 5 || i === 8
                      ? `wide${i === 5 ? ' num' : ''}`
                      : i >= 4 && i <= 7
                        ? 'num'
                        : ''
                  }
                >
                  {h}
                </span>
              ),
            )}
          </div>
          <div
            class="vbody"
            ref={box}
            role="rowgroup"
            tabIndex={0}
            aria-label="Rows"
            onScroll={(e) => {
              scroll.value = e.currentTarget.scrollTop;
            }}
          >
            <div ref={inner} role="presentation" class="vinner">
              {rows.slice(first, last).map((row, i) => (
                <JobRow
                  key={row.id}
                  row={row}
                  now={now}
                  top={(first + i) * rowPx}
                  index={first + i}
                />
              ))}
            </div>
          </div>
        </div>
      )}
    </section>
  );
}
