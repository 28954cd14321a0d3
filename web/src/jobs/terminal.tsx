// Terminals in the browser: the list of open ones, and one that fills the page.
import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { post, problem } from '../data/api';
import { Attachment } from './attachment';
import { ago } from '../data/format';
import { Badge, Empty, Line } from '../parts/ui';
import { jobs, jobsTick, nodes, nodesTick } from '../data/store';
import type { OpenedTerminal } from './xterm';

// Copy and paste keep the keys of other terminals; Shift+Esc gives the keyboard back to the page.
function handleKey(event: KeyboardEvent, view: OpenedTerminal, leave: () => void): boolean {
  const clipboard = event.ctrlKey && event.shiftKey;
  if (clipboard && event.code === 'KeyC') {
    const selected = view.terminal.getSelection();
    if (event.type === 'keydown' && selected) void navigator.clipboard?.writeText(selected);
    event.preventDefault();
    return false;
  }
  if (clipboard && event.code === 'KeyV') return false; // the browser pastes
  if (event.shiftKey && event.key === 'Escape') {
    if (event.type === 'keydown') leave();
    return false;
  }
  return true;
}

export function Terminal({ id }: { id: string }) {
  const box = useRef<HTMLDivElement>(null);
  const find = useRef<HTMLInputElement>(null);
  const view = useRef<OpenedTerminal | null>(null);
  const state = useSignal('loading');
  useEffect(() => {
    let gone = false;
    let close = () => {};
    const start = async () => {
      const { openTerminal } = await import('./xterm');
      if (gone) return;
      const opened = openTerminal(box.current!, `Terminal of job ${id}`);
      view.current = opened;
      opened.terminal.attachCustomKeyEventHandler((event) =>
        handleKey(event, opened, () => find.current?.focus()),
      );
      const attachment = new Attachment(id, opened);
      const unsubscribe = attachment.state.subscribe((text) => {
        state.value = text;
      });
      opened.terminal.focus();
      close = () => {
        unsubscribe();
        attachment.close();
        opened.dispose();
        view.current = null;
      };
    };
    start().catch((e) => {
      state.value = `the terminal could not be loaded: ${problem(e)}`;
    });
    return () => {
      gone = true;
      close();
    };
  }, [id]);
  const search = (event: KeyboardEvent & { currentTarget: HTMLInputElement }) => {
    if (event.key === 'Escape') view.current?.terminal.focus();
    if (event.key !== 'Enter') return;
    const word = event.currentTarget.value;
    if (event.shiftKey) view.current?.search.findNext(word);
    else view.current?.search.findPrevious(word);
  };
  return (
    <>
      <div class="term-bar">
        <p class="note" role="status">
          Job {id}: {state.value}.
        </p>
        <input
          type="search"
          ref={find}
          placeholder="Find"
          aria-label="Find in the terminal"
          title="Enter: previous match, Shift+Enter: next match"
          onKeyDown={search}
        />
      </div>
      <div class="term-host" ref={box} />
      <p class="note">
        Copy with <kbd>Ctrl</kbd> <kbd>Shift</kbd> <kbd>C</kbd>, paste with <kbd>Ctrl</kbd>{' '}
        <kbd>Shift</kbd> <kbd>V</kbd>, leave the terminal with <kbd>Shift</kbd> <kbd>Esc</kbd>.
      </p>
    </>
  );
}

function shellResources(gpus: number) {
  if (gpus >= 1) return { gpus: Math.floor(gpus), share: { milli: 1000 } };
  if (gpus > 0) return { gpus: 1, share: { milli: Math.round(gpus * 1000) } };
  return {};
}

export function TerminalPage({ id }: { id: string }) {
  jobsTick.value;
  nodesTick.value;
  const error = useSignal('');
  const gpus = useSignal('1');
  const open = [...jobs.values()].filter((j) => j.pty);
  const types = [...new Set([...nodes.values()].flatMap((n) => n.gpus.map((g) => g.type)))];
  const start = async (event: Event) => {
    event.preventDefault();
    const spec = {
      argv: ['bash', '-i'],
      name: 'shell',
      pty: true,
      use_stdin: true,
      rows: 30,
      cols: 100,
      resources: shellResources(Number(gpus.value)),
    };
    try {
      const made = await post<{ id: number }>('/v1/jobs', {
        spec,
        env: { TERM: 'xterm-256color' },
      });
      location.hash = `/terminal/${made.id}`;
    } catch (e) {
      error.value = problem(e);
    }
  };
  if (id) {
    return (
      <section class="term-page">
        <h1>
          Terminal <small>job {id}</small>
        </h1>
        <Terminal id={id} key={id} />
      </section>
    );
  }
  return (
    <section>
      <h1>Terminal</h1>
      <p class="lead">
        A shell on a node with the GPUs you request. It keeps running, and is charged, after you
        close this page, until you leave it with <code>exit</code> or stop the job.
      </p>
      <form class="inline" onSubmit={start}>
        <label>
          GPUs{' '}
          <input
            type="number"
            min="0"
            step="any"
            value={gpus.value}
            onInput={(e) => {
              gpus.value = e.currentTarget.value;
            }}
          />
        </label>
        <button>Open a shell</button>
        {types.length > 0 && <span class="note">available: {types.join(', ')}</span>}
      </form>
      {error.value && (
        <p role="alert" class="bad">
          {error.value}
        </p>
      )}
      <h2>Open terminals</h2>
      {open.length === 0 ? (
        <Empty title="No terminal is open">
          <p>Open one above, or on the command line:</p>
          <Line text="billow shell --gpus 1" />
        </Empty>
      ) : (
        <ul class="plain">
          {open.map((j) => (
            <li>
              <a href={`#/terminal/${j.label}`}>{j.name || j.command}</a> <Badge state={j.state} />{' '}
              <small>
                job {j.label}, {j.user}, since {ago(j.submitted)}
              </small>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}
