// Keys that work on every page, and the list of them.
import { signal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { pages } from './pages';
import { openPalette, paletteOpen, typeAhead } from './palette_state';

export const helpOpen = signal(false);

const others: [string[], string][] = [
  [['/'], 'search jobs'],
  [['Ctrl', 'K'], 'go to or do anything'],
  [['j'], 'next row of a list'],
  [['k'], 'previous row'],
  [['Enter'], 'open the row'],
  [['x'], 'select the row'],
  [['?'], 'this help'],
  [['Esc'], 'close; leave a field'],
];

export function Help() {
  const box = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    box.current?.showModal();
  }, []);
  const close = () => {
    helpOpen.value = false;
  };
  return (
    <dialog
      ref={box}
      aria-label="Keys"
      onClose={close}
      onClick={(e) => {
        if (e.target === box.current) close();
      }}
    >
      <h2>Keys</h2>
      <div class="two-keys">
        <dl class="keys">
          {others.map(([keys, what]) => (
            <>
              <dt>
                {keys.map((k) => (
                  <>
                    <kbd>{k}</kbd>{' '}
                  </>
                ))}
              </dt>
              <dd>{what}</dd>
            </>
          ))}
        </dl>
        <dl class="keys">
          {pages.map(({ name, key }) => (
            <>
              <dt>
                <kbd>g</kbd> <kbd>{key}</kbd>
              </dt>
              <dd>{name.toLowerCase()}</dd>
            </>
          ))}
        </dl>
      </div>
      <p class="actions end">
        <button class="quiet" onClick={close}>
          Close
        </button>
      </p>
    </dialog>
  );
}

function search(): void {
  const field = () => document.querySelector<HTMLInputElement>('main input[type=search]');
  const here = field();
  if (here) return here.focus();
  location.hash = '/jobs';
  window.setTimeout(() => field()?.focus(), 50);
}

// Rows of a list are links with this mark; the focus moves from one to the next.
const rows = () => [...document.querySelectorAll<HTMLElement>('main [data-row]')];
function moveBy(step: number): void {
  const list = rows();
  if (!list.length) return;
  const at = list.indexOf(document.activeElement as HTMLElement);
  const to = at < 0 ? (step > 0 ? 0 : list.length - 1) : at + step;
  list[Math.max(0, Math.min(list.length - 1, to))].focus();
}

// Returns what stops listening.
export function listenToKeys(closeMenu: () => void): () => void {
  let g = false;
  const onKey = (event: KeyboardEvent) => {
    const target = event.target as HTMLElement;
    const inTerminal = target.closest?.('.term-host') != null;
    const typing =
      inTerminal ||
      /^(TEXTAREA|SELECT)$/.test(target.tagName) ||
      (target.tagName === 'INPUT' && (target as HTMLInputElement).type !== 'checkbox');
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k' && !inTerminal) {
      event.preventDefault();
      if (paletteOpen.value) paletteOpen.value = false;
      else openPalette();
      return;
    }
    if (paletteOpen.value && !document.querySelector('dialog.palette[open]'))
      return typeAhead(event);
    if (event.key === 'Escape') {
      helpOpen.value = false;
      closeMenu();
      if (typing && !inTerminal) target.blur();
    }
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector('dialog[open]') && event.key !== '?') return;
    const page = g && pages.find(({ key }) => key === event.key);
    g = event.key === 'g';
    if (page) location.hash = page.path;
    else if (event.key === '?') helpOpen.value = !helpOpen.value;
    else if (event.key === '/') {
      event.preventDefault();
      search();
    } else if (event.key === 'j') moveBy(1);
    else if (event.key === 'k') moveBy(-1);
  };
  window.addEventListener('keydown', onKey);
  return () => window.removeEventListener('keydown', onKey);
}
