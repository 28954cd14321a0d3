// A job's live log with search and colours. Lines become text nodes only, and only those in view
// are in the document.
import { useSignal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { ansi, plain } from './ansi';
import { plural } from './format';
import { route } from './store';

const linesMax = 50_000;
const linePx = 18;

export function Log({ id, ranks, final }: { id: string; ranks: number; final: boolean }) {
  const lines = useRef<string[]>([]);
  const dropped = useRef(0);
  const tick = useSignal(0);
  const find = useSignal('');
  // Set by a link from the search over all tasks.
  const asked = Number(new URLSearchParams(route.value.split('?')[1] ?? '').get('task') ?? 0);
  const rank = useSignal(asked);
  useEffect(() => {
    rank.value = asked < ranks ? asked : 0;
  }, [asked]);
  const stick = useSignal(true);
  const scroll = useSignal(0);
  const height = useSignal(400);
  const note = useSignal('');
  const box = useRef<HTMLDivElement>(null);
  const inner = useRef<HTMLDivElement>(null);
  useEffect(() => {
    lines.current = [];
    dropped.current = 0;
    note.value = '';
    const decoder = new TextDecoder();
    let rest = '',
      frame = 0,
      offset = '',
      stop = false,
      retry = 0;
    let source: EventSource | null = null;
    const flush = () => {
      frame = 0;
      tick.value++;
    };
    const later = () => {
      if (!frame) frame = requestAnimationFrame(flush);
    };
    const add = (text: string) => {
      const parts = (rest + text).split('\n');
      rest = parts.pop() ?? '';
      // Text overwritten after a carriage return is not shown: progress bars would fill the page.
      for (const part of parts)
        lines.current.push(
          part.endsWith('\r') ? part.slice(0, -1) : part.slice(part.lastIndexOf('\r') + 1),
        );
      if (lines.current.length > linesMax) {
        const over = lines.current.length - linesMax;
        lines.current.splice(0, over);
        dropped.current += over;
      }
      later();
    };
    const open = () => {
      source = new EventSource(
        `/v1/jobs/${id}/logs?follow=1&format=sse&rank=${rank.value}` +
          (offset ? `&offset=${offset}` : ''),
      );
      const take = (event: MessageEvent<string>) => {
        offset = event.lastEventId || offset;
        const raw = atob(event.data);
        const bytes = new Uint8Array(raw.length);
        for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
        add(decoder.decode(bytes, { stream: true }));
      };
      source.addEventListener('out', take);
      source.addEventListener('err', take);
      source.addEventListener('gap', (event) => {
        add(`\x1b[2m… ${(event as MessageEvent<string>).data} bytes were dropped here …\x1b[0m\n`);
      });
      source.addEventListener('end', () => {
        stop = true;
        source?.close();
        if (rest) add('\n');
        note.value = 'end of the log';
      });
      source.onerror = () => {
        source?.close();
        if (!stop) retry = window.setTimeout(open, 1000);
      };
    };
    open();
    return () => {
      stop = true;
      source?.close();
      window.clearTimeout(retry);
      cancelAnimationFrame(frame);
    };
  }, [id, rank.value]);
  const needle = find.value.toLowerCase();
  const now = tick.value;
  const shown = useMemo(
    () =>
      needle ? lines.current.filter((l) => plain(l).toLowerCase().includes(needle)) : lines.current,
    [now, needle],
  );
  useEffect(() => {
    if (inner.current) inner.current.style.height = `${shown.length * linePx}px`;
    if (box.current && stick.value) box.current.scrollTop = box.current.scrollHeight;
  }, [shown.length, now]);
  useEffect(() => {
    const watch = new ResizeObserver(() => {
      if (box.current) height.value = box.current.clientHeight;
    });
    watch.observe(box.current!);
    return () => watch.disconnect();
  }, []);
  const first = Math.max(0, Math.floor(scroll.value / linePx) - 20),
    last = Math.min(shown.length, Math.ceil((scroll.value + height.value) / linePx) + 20);
  const view = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (view.current) view.current.style.transform = `translateY(${first * linePx}px)`;
  }, [first]);
  const onScroll = (e: Event) => {
    const el = e.currentTarget as HTMLElement;
    scroll.value = el.scrollTop;
    stick.value = el.scrollHeight - el.scrollTop - el.clientHeight < 30;
  };
  return (
    <section aria-label="Log" class="logwrap">
      <div class="filters">
        <h2>Log</h2>
        <input
          type="search"
          aria-label="Find in the log"
          placeholder="Find in the log"
          value={find.value}
          onInput={(e) => {
            find.value = e.currentTarget.value;
          }}
        />
        {ranks > 1 && (
          <label>
            Task{' '}
            <select
              value={rank.value}
              onChange={(e) => {
                rank.value = Number(e.currentTarget.value);
              }}
            >
              {Array.from({ length: ranks }, (_, i) => (
                <option value={i}>{i}</option>
              ))}
            </select>
          </label>
        )}
        <small>
          {plural(shown.length, needle ? 'match' : 'line', needle ? 'matches' : 'lines')}
          {dropped.current ? `, ${dropped.current} older lines not shown` : ''}
          {note.value && ` · ${note.value}`}
          {!stick.value && (
            <>
              {' '}
              ·{' '}
              <button
                class="link"
                onClick={() => {
                  stick.value = true;
                  if (box.current) box.current.scrollTop = box.current.scrollHeight;
                }}
              >
                follow
              </button>
            </>
          )}
        </small>
      </div>
      <div
        class="log"
        ref={box}
        tabIndex={0}
        role="log"
        aria-live="off"
        aria-label="Output"
        onScroll={onScroll}
      >
        <div class="vinner" ref={inner}>
          <div class="vview" ref={view}>
            {shown.length ? (
              shown.slice(first, last).map((l) => <div class="ll">{ansi(l, needle)}</div>)
            ) : (
              <i>{needle ? 'no line matches' : final ? 'the log is empty' : 'no output yet'}</i>
            )}
          </div>
        </div>
      </div>
    </section>
  );
}
