// The lines of one log, read by range as they are looked at, so that a log of any size opens at
// once. Only pieces near what is in view are kept. The end is asked for again and again while the
// job runs; that costs a short request, unlike a stream, of which a browser has few.
import { signal } from '@preact/signals';
import { ApiError, get, problem } from '../data/api';

export interface LogLine {
  line: number;
  byte: number;
  at_ms: number;
  stream: string;
  text: string;
  open?: boolean;
  cut?: boolean;
}
interface Range {
  lines: LogLine[];
  first_line: number;
  next_line: number;
  next_byte: number;
  lost_bytes: number;
  end: boolean;
  final: boolean;
}
export interface Found {
  matches: LogLine[];
  next_byte: number;
  end: boolean;
  lines: number;
}

const pieceLines = 500;
const piecesMax = 12; // 6,000 lines in memory
const quickMs = 250,
  calmMs = 1000,
  awayMs = 5000;
const matchesMax = 1000;

// Text as a terminal shows it: what a carriage return overwrote is gone.
export function shownText(text: string): string {
  const whole = text.endsWith('\r') ? text.slice(0, -1) : text;
  return whole.slice(whole.lastIndexOf('\r') + 1);
}

// The piece to forget: the farthest from what is in view. The end stays: new lines follow it.
export function farthest(keys: Iterable<number>, inView: number): number {
  const all = [...keys];
  const end = Math.max(...all);
  const rest = all.filter((key) => key !== end);
  return rest.reduce((a, b) => (Math.abs(b - inView) > Math.abs(a - inView) ? b : a), rest[0]);
}

export class LogSource {
  readonly count = signal(0); // lines so far
  readonly first = signal(1); // the oldest that is kept
  readonly lost = signal(0); // bytes that were removed
  readonly tick = signal(0); // lines came or changed
  readonly trouble = signal('');
  readonly ended = signal(false);
  readonly known = signal(false);
  private readonly pieces = new Map<number, LogLine[]>();
  private readonly asked = new Set<number>();
  private inView = 0; // its piece
  private timer = 0;
  private gone = false;

  constructor(
    private readonly id: string,
    private readonly rank: number,
    private readonly attempt: number,
  ) {
    void this.poll();
    document.addEventListener('visibilitychange', this.seen);
  }

  close(): void {
    this.gone = true;
    window.clearTimeout(this.timer);
    document.removeEventListener('visibilitychange', this.seen);
  }

  private readonly seen = () => {
    if (document.hidden || this.ended.peek() || this.gone) return;
    window.clearTimeout(this.timer);
    void this.poll();
  };

  address(route: string, query: string): string {
    const attempt = this.attempt ? `&attempt=${this.attempt}` : '';
    return `/v1/jobs/${this.id}/${route}?${query}&rank=${this.rank}${attempt}`;
  }

  // The end of the log: what was written since the last time, or if that is too much its tail.
  private async poll(): Promise<void> {
    let wait = awayMs;
    try {
      if (!document.hidden) wait = (await this.readEnd()) ? quickMs : calmMs;
      this.trouble.value = '';
    } catch (e) {
      this.trouble.value = problem(e);
      if (e instanceof ApiError && e.status === 404) wait = calmMs;
    }
    if (this.gone || this.ended.peek()) return;
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => void this.poll(), wait);
  }

  // Whether there was something new.
  private async readEnd(): Promise<boolean> {
    const before = this.count.peek();
    const last = before ? this.line(before) : undefined;
    // From the last line on: it may have been unfinished.
    const query = last ? `from_line=${before}&limit=2000` : 'tail=200';
    let got = await get<Range>(this.address('log/range', query));
    if (this.gone) return false;
    if (last && !got.end) got = await get<Range>(this.address('log/range', 'tail=200'));
    if (this.gone) return false;
    // A line without its newline counts: `next_line` is then that line.
    const count = Math.max(0, got.next_line - 1, got.lines.at(-1)?.line ?? 0);
    const changed = this.take(got) || count !== before;
    this.first.value = got.first_line;
    this.lost.value = got.lost_bytes;
    if (got.end) this.count.value = count;
    if (got.end && got.final) this.ended.value = true;
    this.known.value = true;
    if (changed) this.tick.value++;
    return changed;
  }

  private take(range: Range): boolean {
    let changed = false;
    for (const line of range.lines) {
      const key = Math.floor(line.line / pieceLines);
      let piece = this.pieces.get(key);
      if (!piece) this.pieces.set(key, (piece = []));
      const at = line.line % pieceLines;
      if (piece[at]?.text !== line.text) changed = true;
      piece[at] = line;
    }
    while (this.pieces.size > piecesMax)
      this.pieces.delete(farthest(this.pieces.keys(), this.inView));
    return changed;
  }

  line(number: number): LogLine | undefined {
    return this.pieces.get(Math.floor(number / pieceLines))?.[number % pieceLines];
  }

  // Reads what is missing of these lines; `tick` moves when it is there.
  want(from: number, to: number): void {
    this.inView = Math.floor((from + to) / 2 / pieceLines);
    for (let key = Math.floor(from / pieceLines); key <= Math.floor(to / pieceLines); key++) {
      const begin = Math.max(this.first.peek(), from, key * pieceLines),
        end = Math.min(to, this.count.peek(), (key + 1) * pieceLines - 1);
      let first = begin;
      while (first <= end && this.line(first)) first++;
      if (first > end || this.asked.has(key)) continue;
      this.asked.add(key);
      // An answer has a limit of bytes too: what is still missing then is asked for next.
      get<Range>(this.address('log/range', `from_line=${first}&limit=${pieceLines}`))
        .then(
          (range) => {
            if (this.take(range) && !this.gone) this.tick.value++;
          },
          (e) => {
            this.trouble.value = problem(e);
          },
        )
        .finally(() => this.asked.delete(key));
    }
  }

  // The first line written at or after a time, by halving: a few dozen short requests at most.
  async lineAt(ms: number): Promise<number> {
    let low = this.first.peek(),
      high = this.count.peek();
    while (low < high) {
      const middle = Math.floor((low + high) / 2);
      const query = `from_line=${middle}&limit=1`;
      const [line] = (await get<Range>(this.address('log/range', query))).lines;
      if (!line || line.at_ms >= ms) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  search(text: string, regex: boolean, fromByte: number, signal: AbortSignal): Promise<Found> {
    const query = new URLSearchParams({
      q: text,
      regex: regex ? '1' : '0',
      ignore_case: '1',
      limit: String(matchesMax),
      from_byte: String(fromByte),
    });
    return searchAt(this.address('log/search', query.toString()), signal);
  }
}

export async function searchAt(address: string, signal: AbortSignal): Promise<Found> {
  const answer = await fetch(address, { headers: { 'X-Billow-Request': '1' }, signal });
  const data = (await answer.json().catch(() => ({}))) as Found & {
    detail?: string;
    hint?: string;
  };
  if (!answer.ok)
    throw new ApiError(
      answer.status,
      data.detail ?? `the head answered ${answer.status}`,
      data.hint ?? '',
    );
  return data;
}
