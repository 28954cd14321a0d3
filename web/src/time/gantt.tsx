// The Gantt chart of GPUs: who used which card when, what stood idle, and what that cost. Drawn on
// a canvas; the table below has the same content for screen readers and for reading figures.
import { useSignal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { clock, route } from '../data/store';
import { lasting, moment, plural } from '../data/format';
import { dark } from '../parts/chart';
import {
  clampView,
  hit,
  knownSince,
  layout,
  pan,
  step,
  timeAt,
  wasteWithin,
  zoom,
  type Hit,
  type View,
} from './blocks';
import { drawAxis, drawRows, lookOf, moneyText, type Scene } from './gantt_draw';
import { GanttTable, HoverCard, Legend } from './gantt_parts';
import { assign } from './palette';
import { absolute, isLive, rangeOf, resolved } from './range';
import { RangeBar, setRange } from './range_bar';
import { useTimeline } from './timeline';
import { fleetRange } from './usual';

const zoomStep = 1.5;

// "1 d", not "1 d 0 h".
const spanText = (view: View) => lasting((view.to - view.from) / 1000).replace(/ 0 (h|min)$/, '');

export function Gantt({ node }: { node?: string }) {
  const query = new URLSearchParams(route.value.split('?')[1] ?? '');
  const fallback = fleetRange();
  const range = rangeOf(query, fallback);
  const moving = useSignal<View | null>(null); // while one zooms, before the address has it
  const now = clock.value;
  const view = moving.value ?? clampView(resolved(range, now));
  const { cards, error, loading, cut } = useTimeline(view, node);
  const folded = useSignal<ReadonlySet<string>>(new Set());
  const only = useSignal('');
  const selected = useSignal<Hit | null>(null);
  const pointer = useSignal<{ x: number; y: number } | null>(null);
  const { rows, height } = useMemo(() => layout(cards, folded.value), [cards, folded.value]);
  const projects = useMemo(
    () => assign(cards.flatMap((c) => c.blocks.map((b) => b.project)).filter(Boolean)),
    [cards],
  );
  const stage = useStage({
    rows,
    height,
    view,
    now,
    projects,
    only: only.value,
    selected: selected.value,
    folded: folded.value,
  });
  const write = useRef(0);
  // Wheel and keys change the view many times a second; the address follows when they rest.
  const move = (next: View) => {
    moving.value = clampView(next);
    window.clearTimeout(write.current);
    write.current = window.setTimeout(() => {
      if (moving.value) setRange(absolute(moving.value), false);
      moving.value = null;
    }, 250);
  };
  const at = (event: MouseEvent): { x: number; y: number; hit: Hit | null } => {
    const box = stage.rowsRef.current!.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    const inPlot = hit(rows, view, stage.plot(), x - stage.gutter(), y + stage.scroll());
    return { x, y, hit: inPlot };
  };
  const drag = useDrag({ view, plot: stage.plot, gutter: stage.gutter, move });
  const open = (h: Hit | null) => {
    const block = h && rows[h.row]?.card?.blocks[h.block];
    if (block?.job) location.hash = `/jobs/${block.job}`;
  };
  const click = (event: MouseEvent) => {
    if (drag.moved()) return;
    const found = at(event);
    const row = found.hit && rows[found.hit.row];
    if (row?.kind === 'node') {
      const next = new Set(folded.value);
      if (!next.delete(row.node)) next.add(row.node);
      folded.value = next;
    } else if (row && found.x < stage.gutter())
      location.hash = `/nodes/${encodeURIComponent(row.node)}?gpu=${row.card!.index}`;
    else open(found.hit);
  };
  const onKey = (event: KeyboardEvent) => {
    const middle = (view.from + view.to) / 2;
    if (event.key === '+' || event.key === '=') move(zoom(view, 1 / zoomStep, middle));
    else if (event.key === '-') move(zoom(view, zoomStep, middle));
    else if (event.key.startsWith('Arrow') && event.shiftKey)
      move(pan(view, event.key === 'ArrowLeft' ? -0.2 : event.key === 'ArrowRight' ? 0.2 : 0));
    else if (event.key.startsWith('Arrow')) {
      selected.value = step(rows, view, selected.value, event.key);
      pointer.value = null;
      if (selected.value) stage.reveal(rows[selected.value.row]);
    } else if (event.key === 'Home') setRange(fallback, true);
    else if (event.key === 'Enter') open(selected.value);
    else if (event.key === 'Escape') selected.value = null;
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  useWheel(stage.boxRef, (event, x) => {
    const around = timeAt(view, stage.plot(), x - stage.gutter());
    if (event.ctrlKey || event.metaKey || event.target === stage.axisRef.current)
      return move(zoom(view, event.deltaY > 0 ? 1.2 : 1 / 1.2, around));
    const sideways = event.shiftKey ? event.deltaY : event.deltaX;
    if (Math.abs(sideways) > Math.abs(event.shiftKey ? 0 : event.deltaY))
      return move(pan(view, sideways / stage.plot()));
    return false;
  });
  const shown = selected.value;
  const waste = wasteWithin(cards, view);
  const parts = [
    waste.idle >= 0.01 && `${moneyText(waste.idle)} idle in jobs`,
    waste.unallocated >= 0.01 && `${moneyText(waste.unallocated)} unallocated (whole GPUs)`,
  ].filter(Boolean);
  const since = knownSince(cards);
  // A young fleet fills only the end of the picture.
  const young = since !== null && since > view.from + (view.to - view.from) / 20;
  return (
    <section class="gantt" aria-label="GPUs over time">
      <div class="filters">
        <RangeBar
          range={range}
          fallback={fallback}
          onZoom={(factor) => move(zoom(view, factor, (view.from + view.to) / 2))}
          onPan={(share) => move(pan(view, share))}
        />
        <p class="gantt-sum" role="status">
          {loading && !cards.length
            ? 'Loading…'
            : since === null
              ? 'Nothing is recorded in this period.'
              : `${parts.join(', ') || 'nothing wasted'} in ${spanText(view)}`}
        </p>
      </div>
      {error && (
        <p role="alert" class="bad">
          {error}
        </p>
      )}
      <Legend projects={projects} only={only} />
      <div class="gantt-box" ref={stage.boxRef}>
        <canvas
          class="gantt-axis"
          ref={stage.axisRef}
          aria-hidden="true"
          onPointerDown={(e) => drag.down(e, true)}
          onPointerMove={drag.moveTo}
          onPointerUp={drag.up}
        />
        <div
          class="gantt-scroll"
          ref={stage.scrollRef}
          tabIndex={0}
          role="application"
          aria-label={
            `${plural(cards.length, 'GPU')} over time. Arrow keys move from block to block, ` +
            'Enter opens the job, plus and minus zoom, Shift with arrows moves in time. ' +
            'The table below has the same content.'
          }
          onScroll={stage.draw}
          onKeyDown={onKey}
          onPointerDown={(e) => drag.down(e, false)}
          onPointerMove={(e) => {
            if (drag.moveTo(e)) {
              pointer.value = null;
              return;
            }
            const found = at(e);
            selected.value = found.x >= stage.gutter() ? found.hit : null;
            pointer.value = { x: found.x, y: found.y + 30 };
          }}
          onPointerUp={drag.up}
          onPointerCancel={drag.up}
          onPointerLeave={() => {
            if (pointer.value) selected.value = null;
            pointer.value = null;
          }}
          onClick={click}
        >
          <div class="gantt-inner" ref={stage.innerRef}>
            <canvas ref={stage.rowsRef} aria-hidden="true" />
          </div>
        </div>
        {drag.band.value && <i class="gantt-band" ref={drag.bandRef} />}
        <HoverCard rows={rows} hit={shown} at={pointer.value} now={now} />
      </div>
      <p class="note">
        Drag to zoom in, Back returns; Ctrl and the wheel zoom, Shift and the wheel move in time.
        {young && ` Records begin ${moment(since, now)}.`}
        {cut && ` ${cut}`}
        {!isLive(range) && ` Shown: ${moment(view.from, now)} until ${moment(view.to, now)}.`}
      </p>
      <GanttTable cards={cards} view={view} now={now} />
    </section>
  );
}

// The canvases: their sizes, and one drawing per frame at most.
function useStage(
  of: Omit<Scene, 'width' | 'height' | 'gutter' | 'scroll' | 'look'> & { height: number },
) {
  const boxRef = useRef<HTMLDivElement>(null);
  const axisRef = useRef<HTMLCanvasElement>(null);
  const rowsRef = useRef<HTMLCanvasElement>(null);
  const scrollRef = useRef<HTMLDivElement>(null);
  const innerRef = useRef<HTMLDivElement>(null);
  const frame = useRef(0);
  const latest = useRef(of);
  latest.current = of;
  const look = useMemo(() => lookOf(dark.value), [dark.value]);
  const gutter = () => ((scrollRef.current?.clientWidth ?? 800) < 560 ? 84 : 132);
  const plot = () => Math.max(50, (scrollRef.current?.clientWidth ?? 800) - gutter());
  const scroll = () => scrollRef.current?.scrollTop ?? 0;
  const paint = () => {
    frame.current = 0;
    const box = scrollRef.current;
    if (!box || !axisRef.current || !rowsRef.current) return;
    const scene: Scene = {
      ...latest.current,
      width: box.clientWidth,
      height: Math.min(box.clientHeight, Math.max(40, latest.current.height)),
      gutter: gutter(),
      scroll: scroll(),
      look,
    };
    drawAxis(axisRef.current, scene);
    drawRows(rowsRef.current, scene);
  };
  const draw = () => {
    if (!frame.current) frame.current = requestAnimationFrame(paint);
  };
  const paintNow = useRef(paint);
  paintNow.current = paint;
  useEffect(() => {
    if (innerRef.current) innerRef.current.style.height = `${Math.max(40, of.height)}px`;
    draw();
  });
  useEffect(() => {
    const watch = new ResizeObserver(() => paintNow.current());
    watch.observe(scrollRef.current!);
    return () => {
      watch.disconnect();
      cancelAnimationFrame(frame.current);
      frame.current = 0;
    };
  }, []);
  const reveal = (row: { y: number; h: number }) => {
    const box = scrollRef.current!;
    if (row.y < box.scrollTop) box.scrollTop = row.y;
    else if (row.y + row.h > box.scrollTop + box.clientHeight)
      box.scrollTop = row.y + row.h - box.clientHeight;
  };
  return { boxRef, axisRef, rowsRef, scrollRef, innerRef, draw, gutter, plot, scroll, reveal };
}

// The wheel needs a listener that may prevent scrolling, which JSX does not offer.
function useWheel(
  ref: { current: HTMLElement | null },
  act: (event: WheelEvent, x: number) => void | false,
) {
  const latest = useRef(act);
  latest.current = act;
  useEffect(() => {
    const el = ref.current!;
    const on = (event: WheelEvent) => {
      const x = event.clientX - el.getBoundingClientRect().left;
      if (latest.current(event, x) !== false) event.preventDefault();
    };
    el.addEventListener('wheel', on, { passive: false });
    return () => el.removeEventListener('wheel', on);
  }, []);
}

interface DragOptions {
  view: View;
  plot: () => number;
  gutter: () => number;
  move: (view: View) => void;
}
// With a mouse, dragging over rows marks a time to zoom to and dragging the axis moves in time;
// with a finger, dragging moves and two fingers zoom.
function useDrag({ view, plot, gutter, move }: DragOptions) {
  const band = useSignal<{ a: number; b: number } | null>(null);
  const bandRef = useRef<HTMLElement>(null);
  const held = useRef(new Map<number, number>());
  const start = useRef<{ x: number; y: number; view: View; pans: boolean; apart: number } | null>(
    null,
  );
  const far = useRef(false);
  useEffect(() => {
    if (!band.value || !bandRef.current) return;
    const [a, b] = [band.value.a, band.value.b].sort((x, y) => x - y);
    bandRef.current.style.left = `${a}px`;
    bandRef.current.style.width = `${b - a}px`;
  });
  const left = (e: PointerEvent) =>
    e.clientX - (e.currentTarget as HTMLElement).getBoundingClientRect().left;
  const apart = () => {
    const xs = [...held.current.values()];
    return xs.length === 2 ? Math.max(20, Math.abs(xs[0] - xs[1])) : 0;
  };
  const down = (e: PointerEvent, axis: boolean) => {
    if (e.button !== 0) return;
    held.current.set(e.pointerId, e.clientX);
    far.current = false;
    const pans = axis || e.pointerType === 'touch';
    start.current = { x: left(e), y: e.clientY, view, pans, apart: apart() };
  };
  const moveTo = (e: PointerEvent): boolean => {
    const from = start.current;
    if (!from || !held.current.has(e.pointerId)) return false;
    held.current.set(e.pointerId, e.clientX);
    const x = left(e);
    if (Math.abs(x - from.x) > 4 && !far.current) {
      far.current = true;
      (e.currentTarget as HTMLElement).setPointerCapture(e.pointerId);
    }
    if (!far.current) return false;
    if (from.apart && held.current.size === 2) {
      const middle = [...held.current.values()].reduce((a, b) => a + b, 0) / 2;
      const box = (e.currentTarget as HTMLElement).getBoundingClientRect();
      const around = timeAt(from.view, plot(), middle - box.left - gutter());
      move(zoom(from.view, from.apart / apart(), around));
    } else if (from.pans) move(pan(from.view, (from.x - x) / plot()));
    else band.value = { a: Math.max(gutter(), from.x), b: Math.max(gutter(), x) };
    return true;
  };
  const up = (e: PointerEvent) => {
    held.current.delete(e.pointerId);
    const marked = band.value;
    if (marked && start.current && e.type === 'pointerup') {
      const [a, b] = [marked.a, marked.b].sort((x, y) => x - y);
      const to = (x: number) => timeAt(start.current!.view, plot(), x - gutter());
      setRange(absolute(clampView({ from: to(a), to: to(b) })), true);
    }
    band.value = null;
    start.current = null;
  };
  return { band, bandRef, down, moveTo, up, moved: () => far.current };
}
