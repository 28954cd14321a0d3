// The list of jobs. There may be thousands of rows: only those in view are in the document. What is
// shown stands in the address, so that a view can be kept, shared and returned to.
import { useSignal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import type { ComponentChildren } from 'preact';
import type { Row } from '../data/api';
import { ago, cents2, gpus, lasting, plural } from '../data/format';
import {
  addressOf,
  gpuTypes,
  hasEnded,
  loadReasons,
  merged,
  Pages,
  reasons,
  shows,
  sorted,
  viewOf,
  type View,
} from './jobs_query';
import { SelectionBar } from './jobs_actions';
import { SavedViews } from '../parts/saved_views';
import { arrows, Badge, Empty, Line } from '../parts/ui';
import {
  clock,
  costOf,
  ended,
  isIdle,
  jobs,
  jobsTick,
  nodesTick,
  placeKey,
  ranMs,
  readdress,
  route,
  status,
  summary,
  suspendedMs,
  whereText,
} from '../data/store';
import { stopIdleSoon } from '../frame/stopping';

const rowPx = 40;
const phoneRowPx = 58; // two lines (lists.css)
const phonePx = 560;
const moreBeforeEndPx = 800; // the next page is asked for before the end is in view
const scrolled = new Map<number, number>(); // where each entry of the history was scrolled to

// f2 to f4: in narrow lists these columns are left out, f2 first (pages.css).
const columns: { id: string; name: string; class: string }[] = [
  { id: 'id', name: 'Job', class: '' },
  { id: 'name', name: 'Name', class: '' },
  { id: 'user', name: 'User', class: 'f4' },
  { id: 'project', name: 'Project', class: 'f3' },
  { id: 'state', name: 'State', class: 'st' },
  { id: 'gpus', name: 'GPUs', class: 'num f4' },
  { id: 'type', name: 'Type', class: 'f2' },
  { id: 'age', name: 'Age', class: 'num f3' },
  { id: 'ran', name: 'Run time', class: 'num f4' },
  { id: 'cost', name: 'Cost', class: 'num co' },
  { id: 'remark', name: 'Remark', class: 'remark f4' },
];
const classOf = Object.fromEntries(columns.map((c) => [c.id, c.class]));

function remark(row: Row, now: number): string {
  if (row.final) return row.state === 'succeeded' ? '' : row.reason || row.exit || '';
  const waits = row.state === 'queued' || row.state === 'held';
  return [
    isIdle(row) ? 'idle' : '',
    row.state === 'suspended' ? `suspended for ${lasting(suspendedMs(row, now) / 1000)}` : '',
    row.reason || (waits ? (reasons.value.get(row.id) ?? '') : ''),
    whereText(row),
  ]
    .filter(Boolean)
    .join(' · ');
}

interface RowProps {
  row: Row;
  now: number;
  top: number;
  index: number;
  chosen: boolean;
  choose: (row: Row, range: boolean) => void;
}
function JobRow({ row, now, top, index, chosen, choose }: RowProps) {
  const el = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (el.current) el.current.style.transform = `translateY(${top}px)`;
  }, [top]);
  const cell = (id: string, content: ComponentChildren) => (
    <span role="cell" class={classOf[id]}>
      {content}
    </span>
  );
  const note = remark(row, now);
  return (
    <div
      class={`vrow${chosen ? ' chosen' : ''}`}
      role="row"
      aria-rowindex={index + 2}
      aria-selected={chosen}
      ref={el}
      onKeyDown={(e) => {
        if (e.key !== 'x' || e.ctrlKey || e.metaKey) return;
        choose(row, false);
      }}
    >
      <span role="cell" class="pick">
        <input
          type="checkbox"
          tabIndex={-1}
          aria-label={`Select job ${row.label}`}
          checked={chosen}
          onClick={(e) => choose(row, e.shiftKey)}
        />
      </span>
      {cell(
        'id',
        <a href={`#/jobs/${row.label}`} data-row>
          {row.label}
        </a>,
      )}
      <span role="cell" class="name">
        <a href={`#/jobs/${row.label}`} tabIndex={-1}>
          {row.name || row.command}
        </a>
        <small class="phone" aria-hidden="true">
          {[
            row.user,
            row.gpu_milli ? plural(row.gpu_milli / 1000, 'GPU') : '',
            row.started ? lasting(ranMs(row, now) / 1000) : ago(row.submitted, now),
          ]
            .filter(Boolean)
            .join(' · ')}
        </small>
      </span>
      {cell('user', row.user)}
      {cell('project', row.project)}
      {cell('state', <Badge state={row.state} />)}
      {cell('gpus', gpus(row.gpu_milli))}
      {cell('type', gpuTypes(row) || '–')}
      {cell('age', ago(row.submitted, now))}
      {cell('ran', row.started ? lasting(ranMs(row, now) / 1000) : '–')}
      {cell('cost', cents2(costOf(row, now)))}
      <span role="cell" class="remark f4" title={note}>
        {note && (
          <a href={`#/jobs/${row.label}`} tabIndex={-1}>
            {note}
          </a>
        )}
      </span>
    </div>
  );
}

function Head({
  view,
  all,
  chooseAll,
}: {
  view: View;
  all: boolean;
  chooseAll: (all: boolean) => void;
}) {
  const column = view.sort.replace('-', ''),
    down = view.sort.startsWith('-');
  return (
    <div class="vhead" role="row" aria-rowindex={1}>
      <span role="columnheader" class="pick">
        <input
          type="checkbox"
          aria-label="Select all shown jobs"
          checked={all}
          onClick={() => chooseAll(!all)}
        />
      </span>
      {columns.map(({ id, name, class: more }) => {
        if (id === 'remark')
          return (
            <span role="columnheader" class={more}>
              {name}
            </span>
          );
        // The oldest jobs have the smallest numbers.
        const by = id === 'age' ? 'id' : id;
        const current = column === by && (id !== 'age' || column !== 'id');
        const first = /^(id|gpus|ran|cost|started)$/.test(by) ? `-${by}` : by;
        const turned = view.sort === first ? (down ? by : `-${by}`) : first;
        return (
          <span
            role="columnheader"
            class={more}
            aria-sort={current ? (down ? 'descending' : 'ascending') : undefined}
          >
            <a href={`#${addressOf({ ...view, sort: turned })}`}>
              {name}
              {current ? (down ? ' ↓' : ' ↑') : ''}
            </a>
          </span>
        );
      })}
    </div>
  );
}

// Jobs that are selected, and how a click with Shift extends the selection.
function useSelection(rows: Row[]) {
  const chosen = useSignal<Set<number>>(new Set());
  const last = useRef<number | null>(null);
  const choose = (row: Row, range: boolean) => {
    const next = new Set(chosen.value);
    const from = rows.findIndex((r) => r.id === last.current),
      to = rows.indexOf(row);
    if (range && from >= 0 && to >= 0)
      for (let i = Math.min(from, to); i <= Math.max(from, to); i++) next.add(rows[i].id);
    else if (!next.delete(row.id)) next.add(row.id);
    last.current = row.id;
    chosen.value = next;
  };
  return { chosen, choose };
}

function usePages(view: View, you: string): Pages {
  const key = JSON.stringify(view);
  const pages = useMemo(() => new Pages(view, you), [key]);
  useEffect(() => {
    // While somebody types, only the last word is searched.
    const wait = window.setTimeout(
      () => {
        if (view.words || hasEnded(view)) void pages.load();
      },
      view.words ? 200 : 0,
    );
    return () => {
      window.clearTimeout(wait);
      pages.stop();
    };
  }, [key]);
  return pages;
}

export function Jobs() {
  const view = viewOf(route.value);
  const you = status.value?.you.user ?? '';
  const pages = usePages(view, you);
  const scroll = useSignal(0);
  const height = useSignal(600);
  const tall = useSignal(rowPx);
  const box = useRef<HTMLDivElement>(null);
  const inner = useRef<HTMLDivElement>(null);
  const tick = jobsTick.value,
    done = ended.value;
  nodesTick.value;
  const idle = view.show === 'idle' ? summary.value : 0;
  const now = clock.value;
  const rows = useMemo(
    () => sorted(merged(view, you, pages, done), view.sort, now),
    [tick, done, route.value, idle, pages.rows.value, pages.known.value],
  );
  const { chosen, choose } = useSelection(rows);
  const waiting = rows.some((r) => r.state === 'queued' || r.state === 'held');
  useEffect(() => {
    if (!waiting) return;
    void loadReasons(view);
    const timer = window.setInterval(() => void loadReasons(view), 10_000);
    return () => window.clearInterval(timer);
  }, [waiting, view.project]);
  useEffect(() => {
    const el = box.current;
    if (!el) return;
    const watch = new ResizeObserver(() => {
      height.value = el.clientHeight;
      tall.value = el.clientWidth <= phonePx ? phoneRowPx : rowPx;
    });
    watch.observe(el);
    return () => watch.disconnect();
  }, [rows.length === 0]);
  // Back returns to the row where one was.
  const restore = useRef(scrolled.get(placeKey()) ?? 0);
  useEffect(() => {
    if (inner.current) inner.current.style.height = `${rows.length * tall.value}px`;
    const el = box.current;
    if (!el || !restore.current) return;
    if (el.scrollHeight - el.clientHeight >= restore.current) {
      el.scrollTop = restore.current;
      restore.current = 0;
    } else if (pages.more.value) void pages.load();
  }, [rows.length, tall.value]);
  const first = Math.max(0, Math.floor(scroll.value / tall.value) - 6),
    last = Math.min(rows.length, Math.ceil((scroll.value + height.value) / tall.value) + 6);
  const picked = rows.filter((r) => chosen.value.has(r.id));
  const more = pages.more.value;
  const onScroll = (el: HTMLElement) => {
    scroll.value = el.scrollTop;
    scrolled.set(placeKey(), el.scrollTop);
    if (more && el.scrollHeight - el.scrollTop - el.clientHeight < moreBeforeEndPx)
      void pages.load();
  };
  const set = (change: Partial<View>) => readdress(addressOf({ ...view, ...change }));
  return (
    <section onKeyDown={(e) => arrows(e, '[data-row]')}>
      <h1>
        Jobs{' '}
        <small>{`${rows.length.toLocaleString()}${more ? '+' : ''} ${rows.length === 1 ? 'job' : 'jobs'}`}</small>
      </h1>
      <div class="filters">
        <input
          type="search"
          aria-label="Search jobs"
          placeholder="Search all jobs, or user:ana"
          title="Words of a name or command, user:ana, project:nlp, label:model=7b, type:H100, node:n1"
          value={view.words}
          onInput={(e) => {
            set({ words: e.currentTarget.value });
            if (box.current) box.current.scrollTop = 0;
          }}
        />
        <div class="tabs" role="group" aria-label="Which jobs">
          {shows.map(([id, name]) => (
            <a
              href={`#${addressOf({ ...view, show: id })}`}
              aria-current={view.show === id ? 'true' : undefined}
            >
              {name}
            </a>
          ))}
        </div>
        {view.project && (
          <span class="view">
            <span>project {view.project}</span>
            <button
              class="dismiss"
              aria-label={`Show all projects, not only ${view.project}`}
              onClick={() => set({ project: '' })}
            >
              ×
            </button>
          </span>
        )}
        {view.show === 'idle' && rows.length > 0 && (
          <button class="danger" onClick={() => stopIdleSoon(rows)}>
            Stop {rows.length === 1 ? 'this idle job' : `these ${rows.length} idle jobs`}
          </button>
        )}
        <SavedViews />
      </div>
      <SelectionBar
        rows={picked}
        clear={() => {
          chosen.value = new Set();
        }}
      />
      {pages.error.value && (
        <p role="alert" class="bad">
          {pages.error.value}
        </p>
      )}
      {rows.length === 0 ? (
        <NoRows view={view} loading={!pages.known.value && (!!view.words || hasEnded(view))} />
      ) : (
        <div class="vtable" role="table" aria-label="Jobs" aria-rowcount={rows.length + 1}>
          <Head
            view={view}
            all={picked.length === rows.length}
            chooseAll={(all) => {
              chosen.value = new Set(all ? rows.map((r) => r.id) : []);
            }}
          />
          <div
            class="vbody"
            ref={box}
            role="rowgroup"
            tabIndex={0}
            aria-label="Rows"
            onScroll={(e) => onScroll(e.currentTarget)}
          >
            <div ref={inner} role="presentation" class="vinner">
              {rows.slice(first, last).map((row, i) => (
                <JobRow
                  key={row.id}
                  row={row}
                  now={now}
                  top={(first + i) * tall.value}
                  index={first + i}
                  chosen={chosen.value.has(row.id)}
                  choose={choose}
                />
              ))}
            </div>
          </div>
        </div>
      )}
      {more && (
        <p class="more">
          <button class="link" onClick={() => void pages.load()}>
            {pages.loading.value ? 'Loading older jobs…' : 'Load older jobs'}
          </button>
        </p>
      )}
    </section>
  );
}

function NoRows({ view, loading }: { view: View; loading: boolean }) {
  if (loading) return <p class="note">Loading…</p>;
  if (jobs.size + ended.value.length === 0)
    return (
      <Empty title="No jobs yet">
        <p>
          Start one with <a href="#/run">Run</a>, or on the command line:
        </p>
        <Line text="billow run --gpus 1 -- python train.py" />
      </Empty>
    );
  const where = view.project ? ` in project ${view.project}` : '';
  return (
    <Empty title="No job matches">
      {view.words ? (
        <p>
          No job that ever ran{where} matches “{view.words}”
          {view.show !== 'all' ? ` in ${view.show}` : ''}. {plural(jobs.size, 'job')} not ended.
        </p>
      ) : view.show === 'idle' ? (
        <p>No running job holds an idle GPU{where}.</p>
      ) : (
        <p>
          No job{where} is in “{view.show}”.
        </p>
      )}
    </Empty>
  );
}
