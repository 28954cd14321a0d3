// Components that the pages share.
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import type { ComponentChildren } from 'preact';
import { signal } from '@preact/signals';

// The class of a table whose rows are drawn as cards on phones. Such a table needs roles: without
// the display of a table its elements have none.
const tablet = matchMedia('(min-width: 640px)');
export const rows = signal(tablet.matches ? '' : 'stacks');
tablet.addEventListener('change', () => {
  rows.value = tablet.matches ? '' : 'stacks';
});

export function Badge({ state, text }: { state: string; text?: string }) {
  return <span class={`state ${state}`}>{text ?? state}</span>;
}

export function Card({
  title,
  value,
  unit,
  note,
  href,
  tone,
  children,
}: {
  title: string;
  value: ComponentChildren;
  unit?: ComponentChildren;
  note?: ComponentChildren;
  href?: string;
  tone?: string;
  children?: ComponentChildren;
}) {
  const inner = (
    <>
      <h2>{title}</h2>
      <p class="big">
        {value}
        {unit && <small> {unit}</small>}
      </p>
      {note && <p class="note">{note}</p>}
      {children}
    </>
  );
  return href ? (
    <a class={`card ${tone ?? ''}`} href={href}>
      {inner}
    </a>
  ) : (
    <div class={`card ${tone ?? ''}`}>{inner}</div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <svg viewBox="0 0 64 32" aria-hidden="true">
        <path d="M2 24c6 0 6-6 12-6s6 6 12 6 6-6 12-6 6 6 12 6 6-6 12-6" />
        <path d="M2 14c6 0 6-6 12-6s6 6 12 6 6-6 12-6 6 6 12 6 6-6 12-6" />
      </svg>
      <h2>{title}</h2>
      {children}
    </div>
  );
}

export function Line({ text }: { text: string }) {
  const copied = useRef(signal(false));
  const copy = () => {
    void navigator.clipboard?.writeText(text).then(() => {
      copied.current.value = true;
      window.setTimeout(() => {
        copied.current.value = false;
      }, 1500);
    });
  };
  return (
    <div class="line">
      <code tabIndex={0}>{text}</code>
      <button class="quiet small" type="button" onClick={copy} aria-label="Copy the command line">
        {copied.current.value ? 'Copied' : 'Copy'}
      </button>
    </div>
  );
}

// A field whose value comes from the head and changes there. While a person edits it, what they
// typed stays; when they are done, the head's value shows again.
export function Kept({ value, ...more }: { value: string } & Record<string, unknown>) {
  const typed = useRef(signal<string | null>(null));
  const own = typed.current;
  const last = useRef(value);
  if (last.current !== value) {
    last.current = value;
    if (own.peek() === value) own.value = null; // the head has taken it over
  }
  return (
    <input
      {...more}
      value={own.value ?? value}
      onInput={(e) => {
        own.value = e.currentTarget.value;
      }}
    />
  );
}

// A bar for the used part of something; the number beside it says the same.
export function Meter({ part, label, tone }: { part: number; label: string; tone?: string }) {
  const bar = useRef<HTMLElement>(null);
  useLayoutEffect(() => {
    if (bar.current) bar.current.style.width = `${Math.max(0, Math.min(100, part * 100))}%`;
  }, [part]);
  return (
    <span class={`meter ${tone ?? ''}`} role="img" aria-label={label}>
      <i ref={bar} />
    </span>
  );
}

// A small line chart without axes; the text beside it says what it shows.
export function Spark({
  values,
  max,
  label,
}: {
  values: (number | null)[];
  max?: number;
  label: string;
}) {
  const known = values.map((v) => v ?? 0);
  const top = Math.max(max ?? 0, ...known, 1e-9);
  const w = 120,
    h = 28;
  const x = (i: number) => (values.length < 2 ? 0 : (i * w) / (values.length - 1));
  const y = (v: number) => h - 1 - (v / top) * (h - 3);
  const d = known.map((v, i) => `${i ? 'L' : 'M'}${x(i).toFixed(1)} ${y(v).toFixed(1)}`).join('');
  return (
    <svg
      class="spark"
      viewBox={`0 0 ${w} ${h}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={label}
    >
      <path class="area" d={`${d}L${w} ${h}L0 ${h}Z`} />
      <path class="stroke" d={d} />
    </svg>
  );
}

export const asking = signal<{ title: string; text: string; yes: string; run: () => void } | null>(
  null,
);
// Asks before an action that cannot be undone.
export function confirm(title: string, text: string, yes: string, run: () => void): void {
  asking.value = { title, text, yes, run };
}
export function Ask() {
  const box = useRef<HTMLDialogElement>(null);
  const q = asking.value;
  useEffect(() => {
    if (q && box.current && !box.current.open) box.current.showModal();
  }, [q]);
  if (!q) return null;
  const close = () => {
    asking.value = null;
  };
  return (
    <dialog ref={box} aria-label={q.title} onClose={close}>
      <h2>{q.title}</h2>
      <p>{q.text}</p>
      <p class="actions end">
        <button class="quiet" onClick={close}>
          Cancel
        </button>
        <button
          class="danger"
          onClick={() => {
            close();
            q.run();
          }}
        >
          {q.yes}
        </button>
      </p>
    </dialog>
  );
}

// Arrow keys move through the links of a list.
export function arrows(event: KeyboardEvent, selector: string): void {
  if (event.key !== 'ArrowDown' && event.key !== 'ArrowUp') return;
  if (
    /^(INPUT|SELECT|TEXTAREA)$/.test((event.target as HTMLElement).tagName) &&
    event.key === 'ArrowUp'
  )
    return;
  const links = [...(event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>(selector)];
  const at = links.indexOf(document.activeElement as HTMLElement);
  links[
    Math.min(links.length - 1, Math.max(0, at + (event.key === 'ArrowDown' ? 1 : -1)))
  ]?.focus();
  event.preventDefault();
}
