// A job's log: follow, search on the head, timestamps, wrapping, a jump to a time, download. Lines
// become text nodes only, and only those in view are in the document.
import { useSignal, type Signal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { problem } from '../data/api';
import { ansi } from '../parts/ansi';
import { moment, plural, seconds } from '../data/format';
import { targetOf } from './log_goto';
import { LogSource, shownText, type LogLine } from './log_source';
import { route } from '../data/store';

const linePx = 18;
const heightMaxPx = 8_000_000; // browsers limit the height of elements; longer logs are scaled
const wrappedLines = 400; // with wrapping, so many lines are in the document

interface Choices {
  find: Signal<string>;
  regex: Signal<boolean>;
  times: Signal<boolean>;
  wrap: Signal<boolean>;
}

function Text({ line, times, needle }: { line: LogLine; times: boolean; needle: string }) {
  return (
    <>
      {times && (
        <time title={moment(line.at_ms)} dateTime={new Date(line.at_ms).toISOString()}>
          {seconds(line.at_ms)}
        </time>
      )}
      {ansi(shownText(line.text), needle)}
      {line.cut && <i> … cut, {plural(line.text.length, 'character')} shown</i>}
    </>
  );
}

// Lines that contain the text, as the head finds them in the whole log. While the job runs, what it
// has written since is searched too.
function useMatches(source: LogSource, choices: Choices, running: boolean) {
  const found = useSignal<LogLine[] | null>(null);
  const error = useSignal('');
  const more = useSignal(0); // the byte to continue at; 0: there is no more
  const find = choices.find.value,
    regex = choices.regex.value;
  useEffect(() => {
    found.value = null;
    error.value = '';
    more.value = 0;
    if (!find) return;
    const abort = new AbortController();
    let next = 0,
      timer = 0;
    const look = async () => {
      try {
        const got = await source.search(find, regex, next, abort.signal);
        next = got.next_byte;
        found.value = [...(found.value ?? []), ...got.matches];
        more.value = got.end ? 0 : next;
        error.value = '';
        if (got.end && running) timer = window.setTimeout(() => void look(), 2000);
      } catch (e) {
        if (!abort.signal.aborted) error.value = problem(e);
      }
    };
    timer = window.setTimeout(() => void look(), 250);
    return () => {
      abort.abort();
      window.clearTimeout(timer);
    };
  }, [source, find, regex, running]);
  const loadMore = async () => {
    const got = await source.search(find, regex, more.value, new AbortController().signal);
    found.value = [...(found.value ?? []), ...got.matches];
    more.value = got.end ? 0 : got.next_byte;
  };
  return { found: found.value, error: error.value, more: more.value, loadMore };
}

// The window of lines in view. A log taller than browsers allow is scaled: a pixel is then more
// than its share of a line.
function Lines({
  source,
  choices,
  goTo,
  stick,
  empty,
}: {
  source: LogSource;
  choices: Choices;
  goTo: Signal<number>;
  stick: Signal<boolean>;
  empty: string;
}) {
  const box = useRef<HTMLDivElement>(null);
  const inner = useRef<HTMLDivElement>(null);
  const view = useRef<HTMLDivElement>(null);
  const before = useRef(0); // where it was scrolled to
  const top = useSignal(0); // lines above the first in view
  const height = useSignal(288);
  const wrap = choices.wrap.value;
  const begin = source.first.value;
  const total = Math.max(0, source.count.value - begin + 1);
  const fits = Math.ceil(height.value / linePx);
  const tall = Math.min(heightMaxPx, total * linePx);
  const scaled = total * linePx > heightMaxPx;
  const perPx = scaled ? Math.max(0, total - fits) / Math.max(1, tall - height.value) : 1 / linePx;
  source.tick.value;
  useEffect(() => {
    if (inner.current) inner.current.style.height = wrap ? 'auto' : `${tall}px`;
    if (stick.value && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [tall, wrap, source.tick.value, stick.value]);
  useEffect(() => {
    const watch = new ResizeObserver(() => {
      if (box.current) height.value = box.current.clientHeight;
    });
    watch.observe(box.current!);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    if (!goTo.value || !box.current) return;
    stick.value = false;
    const index = Math.max(0, Math.min(total - 1, goTo.value - begin));
    top.value = Math.max(0, index - Math.floor(fits / 3));
    if (!wrap) box.current.scrollTop = top.value / perPx;
  }, [goTo.value]);
  const atEnd = stick.value;
  const first = wrap
    ? Math.max(0, atEnd ? total - wrappedLines : top.value)
    : Math.max(0, Math.floor(top.value) - 20);
  const last = wrap
    ? Math.min(total, first + wrappedLines)
    : Math.min(total, Math.ceil(top.value) + fits + 20);
  useEffect(() => {
    if (total) source.want(begin + first, begin + last - 1);
  }, [first, last, begin, total, source.tick.value]);
  useEffect(() => {
    if (!view.current) return;
    if (wrap) {
      view.current.style.transform = '';
      return;
    }
    const offset = scaled
      ? (box.current?.scrollTop ?? 0) - (top.value - first) * linePx
      : first * linePx;
    view.current.style.transform = `translateY(${Math.max(0, offset)}px)`;
  }, [first, wrap, scaled, top.value]);
  const onScroll = (el: HTMLElement) => {
    // Lines that arrive move the end away; only a person moves up.
    const near = el.scrollHeight - el.scrollTop - el.clientHeight < 30;
    if (near && (!wrap || last >= total)) stick.value = true;
    else if (el.scrollTop < before.current) stick.value = false;
    before.current = el.scrollTop;
    if (!wrap) top.value = Math.max(0, el.scrollTop * perPx);
  };
  const shown: (LogLine | number)[] = [];
  for (let n = begin + first; n < begin + last; n++) shown.push(source.line(n) ?? n);
  const step = (by: number) => {
    stick.value = false;
    top.value = Math.max(0, Math.min(total - 1, first + by));
  };
  return (
    <div
      class={`log${wrap ? ' wrap' : ''}`}
      ref={box}
      tabIndex={0}
      role="log"
      aria-live="off"
      aria-label="Output"
      onScroll={(e) => onScroll(e.currentTarget)}
    >
      <div class="vinner" ref={inner}>
        <div class="vview" ref={view}>
          {wrap && first > 0 && (
            <button class="link" onClick={() => step(-wrappedLines)}>
              Earlier lines
            </button>
          )}
          {total === 0 && <i>{empty}</i>}
          {shown.map((l) =>
            typeof l === 'number' ? (
              <div class="ll" key={l}>
                …
              </div>
            ) : (
              <div class={`ll${l.line === goTo.value ? ' target' : ''}`} key={l.line}>
                <Text line={l} times={choices.times.value} needle="" />
              </div>
            ),
          )}
          {wrap && last < total && (
            <button class="link" onClick={() => step(wrappedLines)}>
              Later lines
            </button>
          )}
        </div>
      </div>
    </div>
  );
}

function Matches({
  found,
  choices,
  open,
  more,
  loadMore,
}: {
  found: LogLine[] | null;
  choices: Choices;
  open: (line: number) => void;
  more: boolean;
  loadMore: () => Promise<void>;
}) {
  const needle = choices.regex.value ? '' : choices.find.value.toLowerCase();
  return (
    <div class="log matches" tabIndex={0} role="region" aria-label="Lines found">
      {found === null && <i>searching…</i>}
      {found?.length === 0 && <i>no line matches</i>}
      {found?.map((l) => (
        <div class="ll" key={l.line}>
          <button
            class="number"
            tabIndex={-1}
            title={`Show line ${l.line} among its neighbours`}
            aria-label={`Show line ${l.line} among its neighbours`}
            onClick={() => open(l.line)}
            data-line={l.line}
          />
          <Text line={l} times={choices.times.value} needle={needle} />
        </div>
      ))}
      {more && (
        <button class="link" onClick={() => void loadMore()}>
          More matches
        </button>
      )}
    </div>
  );
}

function Toggle({ on, children }: { on: Signal<boolean>; children: string }) {
  return (
    <button
      type="button"
      aria-pressed={on.value}
      onClick={() => {
        on.value = !on.value;
      }}
    >
      {children}
    </button>
  );
}

function GoTo({ source, goTo }: { source: LogSource; goTo: Signal<number> }) {
  const error = useSignal('');
  const go = async (event: Event) => {
    event.preventDefault();
    const text = String(new FormData(event.target as HTMLFormElement).get('to'));
    const target = targetOf(text, Date.now());
    error.value = target ? '' : `“${text}” is no line and no time: use 1200, 14:02 or 10 min`;
    if (!target) return;
    try {
      const line = 'line' in target ? target.line : await source.lineAt(target.ms);
      goTo.value = 0;
      goTo.value = line;
    } catch (e) {
      error.value = problem(e);
    }
  };
  return (
    <form class="goto" onSubmit={go}>
      <input
        name="to"
        aria-label="Go to a line or time"
        title="A line (1200), a time (14:02) or a time ago (10 min)"
        placeholder="Go to 14:02"
        autocomplete="off"
      />
      {error.value && (
        <small role="alert" class="bad">
          {error.value}
        </small>
      )}
    </form>
  );
}

export function Log({
  id,
  ranks,
  names,
  attempts,
  final,
  title = 'Log',
}: {
  id: string;
  ranks: number;
  names?: string[]; // of the members of a group
  attempts: number;
  final: boolean;
  title?: string;
}) {
  // Set by a link from the search over all tasks.
  const given = new URLSearchParams(route.value.split('?')[1] ?? '');
  const asked = Number(given.get('task') ?? 0),
    askedLine = Number(given.get('line') ?? 0);
  const rank = useSignal(asked < ranks ? asked : 0);
  const attempt = useSignal(0); // 0: the newest
  const goTo = useSignal(0);
  const stick = useSignal(true);
  const choices: Choices = {
    find: useSignal(''),
    regex: useSignal(false),
    times: useSignal(false),
    wrap: useSignal(false),
  };
  useEffect(() => {
    rank.value = asked < ranks ? asked : 0;
  }, [asked]);
  const source = useMemo(
    () => new LogSource(id, rank.value, attempt.value),
    [id, rank.value, attempt.value, attempts],
  );
  useEffect(() => () => source.close(), [source]);
  const known = source.known.value;
  useEffect(() => {
    if (known && askedLine) goTo.value = askedLine;
  }, [known, askedLine]);
  const { found, error, more, loadMore } = useMatches(source, choices, !source.ended.value);
  const searching = !!choices.find.value;
  const trouble = error || source.trouble.value;
  const empty = !known
    ? trouble
      ? 'the log cannot be read now'
      : 'loading…'
    : final
      ? 'the log is empty'
      : 'no output yet';
  const raw = source.address('logs', 'format=raw');
  return (
    <section aria-label="Log" class="logwrap">
      <div class="filters">
        <h2>{title}</h2>
        <input
          type="search"
          aria-label="Find in the log"
          placeholder="Find in the log"
          value={choices.find.value}
          onInput={(e) => {
            choices.find.value = e.currentTarget.value;
          }}
        />
        <div class="tabs" role="group" aria-label="How the log is shown">
          <Toggle on={choices.regex}>Regex</Toggle>
          <Toggle on={choices.times}>Times</Toggle>
          <Toggle on={choices.wrap}>Wrap</Toggle>
          <Toggle on={stick}>Follow</Toggle>
        </div>
        <GoTo source={source} goTo={goTo} />
        {ranks > 1 && (
          <label>
            {names ? 'Member' : 'Task'}{' '}
            <select
              value={rank.value}
              onChange={(e) => {
                rank.value = Number(e.currentTarget.value);
              }}
            >
              {Array.from({ length: ranks }, (_, i) => (
                <option value={i}>{names?.[i] ?? i}</option>
              ))}
            </select>
          </label>
        )}
        {attempts > 1 && (
          <label>
            Attempt{' '}
            <select
              value={attempt.value || attempts}
              onChange={(e) => {
                const n = Number(e.currentTarget.value);
                attempt.value = n === attempts ? 0 : n;
              }}
            >
              {Array.from({ length: attempts }, (_, i) => (
                <option value={i + 1}>{i + 1}</option>
              ))}
            </select>
          </label>
        )}
        <a class="button quiet small" href={raw} download={`job-${id}.log`}>
          Download
        </a>
        <small role="status">
          {searching
            ? `${plural(found?.length ?? 0, 'match', 'matches')}${more ? ' or more' : ''}`
            : plural(source.count.value, 'line')}
          {source.lost.value ? ', older lines were removed' : ''}
          {source.ended.value && ' · end of the log'}
        </small>
      </div>
      {trouble && (
        <p class="finding" role="status">
          {trouble}
        </p>
      )}
      {searching ? (
        <Matches
          found={found}
          choices={choices}
          more={!!more}
          loadMore={loadMore}
          open={(line) => {
            choices.find.value = '';
            goTo.value = 0;
            window.setTimeout(() => {
              goTo.value = line;
            }, 0);
          }}
        />
      ) : (
        <Lines source={source} choices={choices} goTo={goTo} stick={stick} empty={empty} />
      )}
    </section>
  );
}
