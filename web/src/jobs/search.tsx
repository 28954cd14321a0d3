// Searches the logs of all tasks of a gang, or of all elements of an array, one after the other.
// The logs are searched where they lie; only matches come here, and their number is bounded.
import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { get, problem, type Job } from '../data/api';
import { ansi } from '../parts/ansi';
import { plural } from '../data/format';
import { searchAt, shownText } from './log_source';

const matchesMax = 500;
const elementsMax = 1000;

interface Match {
  task: string;
  href: string;
  line: string;
}
interface Place {
  task: string;
  href: string;
  path: string;
}

async function placesOf(
  id: string,
  ranks: number,
  elements: boolean,
  names?: string[],
): Promise<Place[]> {
  if (!elements)
    return Array.from({ length: ranks }, (_, r) => ({
      task: names?.[r] ?? `task ${r}`,
      href: `#/jobs/${id}?task=${r}`,
      path: `/v1/jobs/${id}/log/search?rank=${r}`,
    }));
  const list = await get<{ jobs: Job[] }>(`/v1/jobs?array=${id}&state=all&limit=${elementsMax}`);
  return list.jobs
    .filter((j) => j.started_at)
    .reverse()
    .map((j) => ({
      task: j.label,
      href: `#/jobs/${j.label}?task=0`,
      path: `/v1/jobs/${j.label}/log/search?rank=0`,
    }));
}

export function SearchAll({
  id,
  ranks,
  elements,
  names,
}: {
  id: string;
  ranks: number;
  elements: boolean;
  names?: string[]; // of the members of a group
}) {
  const found = useSignal<Match[]>([]);
  const state = useSignal('');
  const needle = useSignal('');
  const running = useRef<AbortController | null>(null);
  useEffect(() => () => running.current?.abort(), []);
  const search = async (event: Event) => {
    event.preventDefault();
    const text = String(new FormData(event.target as HTMLFormElement).get('text') ?? '');
    running.current?.abort();
    if (!text) {
      found.value = [];
      state.value = '';
      return;
    }
    const mine = (running.current = new AbortController());
    needle.value = text.toLowerCase();
    found.value = [];
    let read = 0;
    const matches: Match[] = [],
      unread: string[] = [];
    try {
      const places = await placesOf(id, ranks, elements, names);
      for (const place of places) {
        if (mine.signal.aborted || matches.length >= matchesMax) break;
        state.value = `Reading ${place.task}: ${read} of ${places.length} read`;
        const query = `&q=${encodeURIComponent(text)}&ignore_case=1&limit=${matchesMax}`;
        const got = await searchAt(place.path + query, mine.signal).catch((e: unknown) => {
          if (mine.signal.aborted) throw e;
          unread.push(`${place.task}: ${problem(e)}`);
          return null;
        });
        for (const m of got?.matches ?? [])
          if (matches.length < matchesMax)
            matches.push({
              task: place.task,
              href: `${place.href}&line=${m.line}`,
              line: shownText(m.text),
            });
        read++;
        found.value = [...matches];
      }
      const more = matches.length >= matchesMax ? ' or more' : '';
      const count = plural(matches.length, 'match', 'matches');
      state.value =
        `${count}${more} in ${plural(read - unread.length, 'log')}` +
        (unread.length ? `; not searched: ${unread.slice(0, 3).join('; ')}` : '');
    } catch {
      if (!mine.signal.aborted) state.value = 'The head does not answer.';
    }
  };
  return (
    <section aria-label="Search all logs" class="logwrap">
      <form class="filters" onSubmit={search}>
        <h2>Search the logs of all {elements ? 'elements' : names ? 'members' : 'tasks'}</h2>
        <input
          type="search"
          name="text"
          aria-label="Text to find in all logs"
          placeholder="Text to find, then Enter"
        />
        <button class="quiet">Search</button>
        <small role="status">{state.value}</small>
      </form>
      {found.value.length > 0 && (
        <div class="log found" tabIndex={0} role="region" aria-label="Lines found">
          {found.value.map((m) => (
            <div class="ll">
              <a href={m.href}>{m.task}</a> {ansi(m.line, needle.value)}
            </div>
          ))}
        </div>
      )}
    </section>
  );
}
