// The command palette: pages, actions, jobs, nodes and endpoints by a few letters. Jobs that ended
// are found by the head.
import { useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { call, get, has, type JobPage } from '../data/api';
import { helpOpen } from './keys';
import { others, pages } from './pages';
import { openFirst, paletteOpen, paletteText } from './palette_state';
import { may, maySubmit } from '../data/rights';
import { isIdle, jobs, look, nodes, rowOf, signedOut } from '../data/store';
import { stopIdleSoon } from './stopping';
import type { Row } from '../data/api';

interface Item {
  kind: string;
  text: string;
  note?: string;
  run: () => void;
}
const shownMax = 12;
const goTo = (hash: string) => () => {
  location.hash = hash;
};

function fixed(): Item[] {
  const idle = [...jobs.values()].filter(isIdle);
  return [
    ...[...pages, ...others].map((p) => ({ kind: 'Page', text: p.name, run: goTo(p.path) })),
    ...(maySubmit()
      ? [
          { kind: 'Action', text: 'Run a job', run: goTo('/run') },
          { kind: 'Action', text: 'Open a terminal', run: goTo('/terminal') },
          { kind: 'Action', text: 'Deploy an endpoint', run: goTo('/endpoints?deploy=1') },
        ]
      : []),
    ...(may('users.change') ? [{ kind: 'Action', text: 'Add a user', run: goTo('/admin') }] : []),
    ...(idle.length
      ? [{ kind: 'Action', text: `Stop idle jobs (${idle.length})`, run: () => stopIdleSoon(idle) }]
      : []),
    {
      kind: 'Action',
      text: 'Show the keys',
      run: () => {
        helpOpen.value = true;
      },
    },
    {
      kind: 'Action',
      text: 'Sign out',
      run: () => {
        void call('DELETE', '/v1/session')
          .catch(() => {})
          .then(look)
          .then(() => {
            signedOut.value = true;
          });
      },
    },
  ];
}
const jobItem = (row: Row): Item => ({
  kind: 'Job',
  text: `${row.label} ${row.name || row.command.slice(0, 60)}`,
  note: `${row.state}, ${row.user}`,
  run: goTo(`/jobs/${row.label}`),
});

function local(words: string[], endpoints: string[]): Item[] {
  const all: Item[] = [
    ...fixed(),
    ...[...nodes.values()].map((n) => ({
      kind: 'Node',
      text: n.name,
      note: n.state,
      run: goTo(`/nodes/${encodeURIComponent(n.name)}`),
    })),
    ...endpoints.map((name) => ({
      kind: 'Endpoint',
      text: name,
      run: goTo(`/endpoints/${encodeURIComponent(name)}`),
    })),
    ...[...jobs.values()].sort((a, b) => b.id - a.id).map(jobItem),
  ];
  return all.filter((i) => {
    const text = `${i.kind} ${i.text}`.toLowerCase();
    return words.every((w) => text.includes(w));
  });
}

export function Palette() {
  const box = useRef<HTMLDialogElement>(null);
  const at = useSignal(0);
  const endpoints = useSignal<string[]>([]);
  const found = useSignal<Item[]>([]);
  const looking = useSignal(false);
  const search = useRef(0);
  const words = paletteText.value.toLowerCase().split(/\s+/).filter(Boolean);
  const here = local(words, endpoints.value);
  const known = new Set(here.map((i) => i.text));
  const items = [
    ...here.slice(0, shownMax),
    ...found.value.filter((i) => !known.has(i.text)),
  ].slice(0, shownMax + 4);
  const chosen = Math.min(at.value, items.length - 1);
  const close = () => {
    paletteOpen.value = false;
  };
  const run = (item: Item | undefined) => {
    if (!item) return;
    close();
    item.run();
  };
  // Results of other words are taken away at once, or Enter would open one of them.
  const type = (text: string) => {
    window.clearTimeout(search.current);
    paletteText.value = text;
    at.value = 0;
    found.value = [];
    looking.value = text.trim().length >= 2;
    if (!looking.value) return;
    const timer = window.setTimeout(() => {
      const answer = (results: Item[]) => {
        if (search.current !== timer) return;
        looking.value = false;
        found.value = results;
        if (openFirst.value) run(results[0]);
      };
      const query = new URLSearchParams({ state: 'all', limit: '8', search: text });
      get<JobPage>(`/v1/jobs?${query}`).then(
        (page) => answer(page.jobs.map((j) => jobItem(rowOf(j)))),
        () => answer([]),
      );
    }, 150);
    search.current = timer;
  };
  useLayoutEffect(() => {
    box.current?.showModal();
    type(paletteText.value);
    if (openFirst.value) run(items[0]);
    return () => {
      window.clearTimeout(search.current);
      search.current = 0;
    };
  }, []);
  useEffect(() => {
    void has('/v1/endpoints').then((yes) => {
      if (yes)
        void get<{ endpoints: { name: string }[] }>('/v1/endpoints').then(
          (d) => {
            endpoints.value = d.endpoints.map((e) => e.name);
          },
          () => {},
        );
    });
  }, []);
  const onKey = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      at.value = (chosen + step + items.length) % Math.max(1, items.length);
      event.preventDefault();
    } else if (event.key === 'Enter') {
      event.preventDefault();
      openFirst.value = items.length === 0 && looking.value;
      run(items[chosen]);
    }
  };
  return (
    <dialog
      ref={box}
      class="palette"
      aria-label="Go to or do anything"
      onClose={close}
      onClick={(e) => {
        if (e.target === box.current) close();
      }}
    >
      <input
        type="text"
        role="combobox"
        aria-label="Go to or do anything"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={items.length ? `palette-${chosen}` : undefined}
        placeholder="A page, job, node, endpoint or action"
        autocomplete="off"
        spellcheck={false}
        value={paletteText.value}
        onInput={(e) => {
          openFirst.value = false;
          type(e.currentTarget.value);
        }}
        onKeyDown={onKey}
        ref={(el) => {
          if (el && document.activeElement !== el) el.focus();
        }}
      />
      <ul id="palette-list" role="listbox" aria-label="Results">
        {items.map((item, i) => (
          <li
            id={`palette-${i}`}
            role="option"
            aria-selected={i === chosen}
            onMouseMove={() => {
              at.value = i;
            }}
            onClick={() => run(item)}
          >
            <span>{item.text}</span>
            <small>{item.note ? `${item.kind}, ${item.note}` : item.kind}</small>
          </li>
        ))}
        {items.length === 0 && (
          <li role="option" aria-selected="false" aria-disabled="true">
            {looking.value ? 'Looking…' : `Nothing matches “${paletteText.value}”`}
          </li>
        )}
      </ul>
    </dialog>
  );
}
