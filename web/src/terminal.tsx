// A terminal in the browser: the job's PTY through the same WebSocket `billow attach` uses. Every row is drawn from the screen model as
// text nodes; a connection that breaks is dialled again from where the output stood.
import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { post, problem } from './api';
import { ago } from './format';
import { Badge, Empty, Line } from './ui';
import { jobs, jobsTick, nodes, nodesTick } from './store';
import { Bold, Dim, Inverse, Italic, paint, Screen, Under, type Cell } from './vt';

function style(span: HTMLElement, cell: Cell): void {
  let { fg, bg } = cell;
  if ((cell.flags & Bold) && fg >= 0 && fg < 8) fg += 8;
  const ink = fg === -1 ? '' : paint(fg), paper = bg === -1 ? '' : paint(bg);
  if (cell.flags & Inverse) { span.style.color = paper || 'var(--term-bg)'; span.style.background = ink || 'var(--term-fg)'; } else { if (ink) span.style.color = ink; if (paper) span.style.background = paper; }
  if (cell.flags & Bold) span.style.fontWeight = '700';
  if (cell.flags & Dim) span.style.opacity = '.65';
  if (cell.flags & Italic) span.style.fontStyle = 'italic';
  if (cell.flags & Under) span.style.textDecoration = 'underline';
}
function drawLine(row: HTMLElement, line: Cell[], cursor: number): void {
  row.textContent = '';
  let at = 0;
  while (at < line.length) {
    const cell = line[at];
    let text = '', end = at;
    while (end < line.length && (end === at || end !== cursor) && at !== cursor + 0.5 && line[end].fg === cell.fg && line[end].bg === cell.bg && line[end].flags === cell.flags) { text += line[end].ch; end++; if (at === cursor) break; }
    if (at !== cursor && cell.fg === -1 && cell.bg === -1 && cell.flags === 0) row.append(text);
    else {
      const span = document.createElement('span');
      style(span, cell);
      if (at === cursor) span.className = 'cursor';
      span.textContent = text || ' ';
      row.append(span);
    }
    at = end;
  }
}

const keys: Record<string, string> = {
  Enter: '\r', Backspace: '\x7f', Tab: '\t', Escape: '\x1b', Delete: '\x1b[3~', Insert: '\x1b[2~', PageUp: '\x1b[5~', PageDown: '\x1b[6~',
  F1: '\x1bOP', F2: '\x1bOQ', F3: '\x1bOR', F4: '\x1bOS', F5: '\x1b[15~', F6: '\x1b[17~', F7: '\x1b[18~', F8: '\x1b[19~', F9: '\x1b[20~', F10: '\x1b[21~',
};
const moves: Record<string, string> = { ArrowUp: 'A', ArrowDown: 'B', ArrowRight: 'C', ArrowLeft: 'D', Home: 'H', End: 'F' };
export function bytesOf(event: KeyboardEvent, screen: Screen): string | null {
  if (event.metaKey) return null;
  if (moves[event.key]) return `\x1b${screen.appCursor ? 'O' : '['}${moves[event.key]}`;
  if (event.ctrlKey && !event.altKey && event.key.length === 1) {
    const c = event.key.toUpperCase().charCodeAt(0);
    if (event.shiftKey && (event.key === 'C' || event.key === 'V')) return null;   // copy and paste stay the browser's
    if (c >= 64 && c <= 95) return String.fromCharCode(c - 64);
    if (event.key === ' ') return '\0';
    return null;
  }
  if (keys[event.key]) return keys[event.key];
  if (event.key.length === 1) return (event.altKey ? '\x1b' : '') + event.key;
  return null;
}

export function Terminal({ id }: { id: string }) {
  const box = useRef<HTMLDivElement>(null);
  const state = useSignal('connecting');
  useEffect(() => {
    const host = box.current!;
    const probe = document.createElement('span');
    probe.textContent = 'M'.repeat(20);
    host.append(probe);
    const size = () => ({ cols: Math.max(20, Math.floor((host.clientWidth - 16) / (probe.getBoundingClientRect().width / 20 || 8))), rows: Math.max(6, Math.floor((host.clientHeight - 12) / 18)) });
    const first = size();
    probe.classList.add('sr');
    const screen = new Screen(first.rows, first.cols);
    const back = document.createElement('div'), view = document.createElement('div');
    host.append(back, view);
    let drawnAbove = 0, frame = 0, socket: WebSocket | null = null, closed = false, offset = '0', retry = 0;
    const draw = () => {
      frame = 0;
      const atEnd = host.scrollHeight - host.scrollTop - host.clientHeight < 40;
      if (screen.above.length < drawnAbove) { back.textContent = ''; drawnAbove = 0; }
      for (; drawnAbove < screen.above.length; drawnAbove++) { const row = document.createElement('div'); drawLine(row, screen.above[drawnAbove], -1); back.append(row); }
      while (back.childElementCount > 2000) back.firstElementChild!.remove();
      while (view.childElementCount > screen.rows) view.lastElementChild!.remove();
      while (view.childElementCount < screen.rows) view.append(document.createElement('div'));
      screen.grid.forEach((line, i) => drawLine(view.children[i] as HTMLElement, line, screen.cursorShown && i === screen.y ? screen.x : -1));
      if (atEnd) host.scrollTop = host.scrollHeight;
    };
    const later = () => { if (!frame) frame = requestAnimationFrame(draw); };
    const send = (text: string) => { if (socket?.readyState === WebSocket.OPEN) socket.send(new TextEncoder().encode(text)); };
    screen.reply = send;
    const connect = () => {
      const at = new URL(`/v1/jobs/${id}/attach?offset=${offset}`, location.href);
      at.protocol = at.protocol === 'https:' ? 'wss:' : 'ws:';
      socket = new WebSocket(at);
      socket.binaryType = 'arraybuffer';
      socket.onopen = () => { state.value = 'connected'; socket!.send(JSON.stringify({ type: 'resize', rows: screen.rows, cols: screen.cols })); };
      socket.onmessage = (event) => {
        if (typeof event.data === 'string') {
          const said = JSON.parse(event.data) as { type: string; job?: { state: string; exit?: { text: string } } };
          if (said.type === 'end') { closed = true; state.value = `ended: ${said.job?.exit?.text ?? said.job?.state ?? ''}`; }
          if (said.type === 'state' && said.job?.state === 'running' && socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ type: 'resize', rows: screen.rows, cols: screen.cols }));
          return;
        }
        const view8 = new DataView(event.data as ArrayBuffer);
        offset = view8.getBigUint64(1, true).toString();
        screen.write(new Uint8Array(event.data as ArrayBuffer, 9));
        later();
      };
      socket.onclose = () => { if (!closed) { state.value = 'away, trying again'; retry = window.setTimeout(connect, 1000); } };
    };
    const onKey = (event: KeyboardEvent) => {
      const text = bytesOf(event, screen);
      if (text === null) return;
      event.preventDefault();
      event.stopPropagation();
      send(text);
    };
    const onPaste = (event: ClipboardEvent) => {
      const text = event.clipboardData?.getData('text') ?? '';
      event.preventDefault();
      send(screen.bracketed ? `\x1b[200~${text}\x1b[201~` : text);
    };
    const watch = new ResizeObserver(() => {
      const next = size();
      if (next.cols === screen.cols && next.rows === screen.rows) return;
      screen.resize(next.rows, next.cols);
      if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ type: 'resize', rows: next.rows, cols: next.cols }));
      later();
    });
    watch.observe(host);
    host.addEventListener('keydown', onKey);
    host.addEventListener('paste', onPaste);
    connect();
    later();
    host.focus();
    return () => { closed = true; window.clearTimeout(retry); socket?.close(); watch.disconnect(); cancelAnimationFrame(frame); };
  }, [id]);
  return (
    <>
      <p class="note" role="status">Job {id}: {state.value}. Click into the terminal to type; Tab goes to the program, so leave with Shift+Esc.</p>
      <div class="terminal" ref={box} tabIndex={0} role="textbox" aria-multiline="true" aria-label={`Terminal of job ${id}`}
        onKeyDown={(e) => { if (e.key === 'Escape' && e.shiftKey) (e.currentTarget as HTMLElement).blur(); }} />
    </>
  );
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
    const n = Number(gpus.value);
    try {
      const made = await post<{ id: number }>('/v1/jobs', { spec: { argv: ['bash', '-i'], name: 'shell', pty: true, use_stdin: true, rows: 30, cols: 100, env: undefined, resources: n >= 1 ? { gpus: Math.floor(n), share: { milli: 1000 } } : n > 0 ? { gpus: 1, share: { milli: Math.round(n * 1000) } } : {} }, env: { TERM: 'xterm-256color' } });
      location.hash = `/terminal/${made.id}`;
    } catch (e) { error.value = problem(e); }
  };
  if (id) return <section><h1>Terminal <small>job {id}</small></h1><Terminal id={id} key={id} /></section>;
  return (
    <section>
      <h1>Terminal</h1>
      <p class="lead">A shell on a machine with the GPUs you ask for. It goes on when you close this page, and costs until you leave it (<code>exit</code>) or stop it.</p>
      <form class="inline" onSubmit={start}>
        <label>GPUs <input type="number" min="0" step="any" value={gpus.value} onInput={(e) => { gpus.value = e.currentTarget.value; }} /></label>
        <button>Open a shell</button>
        {types.length > 0 && <span class="note">of {types.join(', ')}</span>}
      </form>
      {error.value && <p role="alert" class="bad">{error.value}</p>}
      <h2>Open terminals</h2>
      {open.length === 0 ? <Empty title="No terminal is open"><p>Open one above, or from your own terminal:</p><Line text="billow shell --gpus 1" /></Empty> : (
        <ul class="plain">{open.map((j) => <li><a href={`#/terminal/${j.label}`}>{j.name || j.command}</a> <Badge state={j.state} /> <small>job {j.label}, {j.user}, since {ago(j.submitted)}</small></li>)}</ul>
      )}
    </section>
  );
}
