// A small terminal: enough of a VT220/xterm for shells, editors, pagers, `top` and progress bars. Bytes in, a grid of cells out. It makes
// no markup and touches no document; what it draws becomes text nodes (terminal.tsx), so no output can become a page's own.
export interface Cell { ch: string; fg: number; bg: number; flags: number }   // colours: -1 default, 0–255 palette, else 0x1000000 | rgb
export const Bold = 1, Dim = 2, Under = 4, Inverse = 8, Italic = 16;

const blank = (): Cell => ({ ch: ' ', fg: -1, bg: -1, flags: 0 });
const lineOf = (cols: number): Cell[] => Array.from({ length: cols }, blank);
const scrollbackMax = 2000;

export class Screen {
  rows: number; cols: number;
  grid: Cell[][];
  above: Cell[][] = [];                // lines that scrolled away
  x = 0; y = 0;
  cursorShown = true;
  appCursor = false;                   // arrow keys send ESC O
  bracketed = false;                   // pasted text is marked
  title = '';
  reply: (text: string) => void = () => {};
  private main: Cell[][] | null = null;   // while the alternate screen is shown
  private top = 0; private bottom: number;
  private fg = -1; private bg = -1; private flags = 0;
  private saved = { x: 0, y: 0, fg: -1, bg: -1, flags: 0 };
  private wrapNext = false; private autowrap = true; private lineDrawing = false;
  private mode: 'text' | 'esc' | 'csi' | 'osc' | 'skip' | 'charset' = 'text';
  private buffer = '';
  private decoder = new TextDecoder();

  constructor(rows: number, cols: number) { this.rows = rows; this.cols = cols; this.bottom = rows - 1; this.grid = Array.from({ length: rows }, () => lineOf(cols)); }

  resize(rows: number, cols: number): void {
    for (const set of [this.grid, this.main, this.above]) if (set) for (const line of set) { while (line.length < cols) line.push(blank()); line.length = cols; }
    const fit = (grid: Cell[][]) => {
      while (grid.length > rows) { if (grid === this.grid && this.y < grid.length - 1) grid.pop(); else { const gone = grid.shift()!; if (!this.main) this.above.push(gone); if (grid === this.grid) this.y--; } }
      while (grid.length < rows) grid.push(lineOf(cols));
    };
    fit(this.grid);
    if (this.main) fit(this.main);
    this.rows = rows; this.cols = cols; this.top = 0; this.bottom = rows - 1;
    this.x = Math.min(this.x, cols - 1); this.y = Math.max(0, Math.min(this.y, rows - 1));
  }

  write(bytes: Uint8Array): void { for (const ch of this.decoder.decode(bytes, { stream: true })) this.take(ch); }

  private take(ch: string): void {
    const code = ch.codePointAt(0)!;
    switch (this.mode) {
      case 'osc':
        if (code === 7 || ch === '\\') { if (/^[02];/.test(this.buffer)) this.title = this.buffer.slice(2); this.mode = 'text'; } else if (code !== 27 && this.buffer.length < 512) this.buffer += ch;
        return;
      case 'skip': if (code === 7 || ch === '\\') this.mode = 'text'; return;
      case 'charset': this.lineDrawing = ch === '0'; this.mode = 'text'; return;
      case 'esc': this.escape(ch); return;
      case 'csi':
        if (code < 32) { this.control(code); return; }
        if (code >= 0x40 && code <= 0x7e) { this.mode = 'text'; this.csi(this.buffer, ch); } else if (this.buffer.length < 128) this.buffer += ch;
        return;
      case 'text': break;
    }
    if (code === 27) { this.mode = 'esc'; this.buffer = ''; return; }
    if (code < 32 || code === 127) { this.control(code); return; }
    this.print(ch, code);
  }

  private print(ch: string, code: number): void {
    if (this.lineDrawing && code >= 0x60 && code <= 0x7e) ch = '◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·'[code - 0x60] ?? ch;
    if (/\p{M}/u.test(ch)) { const at = this.grid[this.y][Math.max(0, this.x - 1)]; if (at.ch.length < 8) at.ch += ch; return; }
    const wide = code >= 0x1100 && (code <= 0x115f || (code >= 0x2e80 && code <= 0xa4cf) || (code >= 0xac00 && code <= 0xd7a3) || (code >= 0xf900 && code <= 0xfaff) || (code >= 0xfe30 && code <= 0xfe6f) || (code >= 0xff00 && code <= 0xff60) || (code >= 0x1f300 && code <= 0x1faff) || (code >= 0x20000 && code <= 0x3fffd));
    if (this.wrapNext || (wide && this.x === this.cols - 1)) { if (this.autowrap) { this.x = 0; this.feed(); } this.wrapNext = false; }
    const cell = this.grid[this.y][this.x];
    cell.ch = ch; cell.fg = this.fg; cell.bg = this.bg; cell.flags = this.flags;
    if (wide && this.x + 1 < this.cols) { this.x++; const next = this.grid[this.y][this.x]; next.ch = ''; next.fg = this.fg; next.bg = this.bg; next.flags = this.flags; }
    if (this.x === this.cols - 1) this.wrapNext = true; else this.x++;
  }

  private control(code: number): void {
    this.wrapNext = false;
    if (code === 8) this.x = Math.max(0, this.x - 1);
    else if (code === 9) this.x = Math.min(this.cols - 1, (this.x + 8) & ~7);
    else if (code === 10 || code === 11 || code === 12) this.feed();
    else if (code === 13) this.x = 0;
  }
  private feed(): void { if (this.y === this.bottom) this.scroll(1); else if (this.y < this.rows - 1) this.y++; }
  private scroll(n: number): void {
    for (; n > 0; n--) {
      const [gone] = this.grid.splice(this.top, 1);
      if (this.top === 0 && !this.main) { this.above.push(gone); if (this.above.length > scrollbackMax) this.above.shift(); }
      this.grid.splice(this.bottom, 0, this.fresh());
    }
    for (; n < 0; n++) { this.grid.splice(this.bottom, 1); this.grid.splice(this.top, 0, this.fresh()); }
  }
  private fresh(): Cell[] { const line = lineOf(this.cols); if (this.bg !== -1) for (const c of line) c.bg = this.bg; return line; }

  private escape(ch: string): void {
    this.mode = 'text';
    if (ch === '[') { this.mode = 'csi'; this.buffer = ''; }
    else if (ch === ']') { this.mode = 'osc'; this.buffer = ''; }
    else if (ch === 'P' || ch === '_' || ch === '^') this.mode = 'skip';
    else if (ch === '(' || ch === ')') this.mode = 'charset';
    else if (ch === '7') this.saved = { x: this.x, y: this.y, fg: this.fg, bg: this.bg, flags: this.flags };
    else if (ch === '8') Object.assign(this, { x: this.saved.x, y: Math.min(this.saved.y, this.rows - 1), fg: this.saved.fg, bg: this.saved.bg, flags: this.saved.flags });
    else if (ch === 'D') this.feed();
    else if (ch === 'E') { this.x = 0; this.feed(); }
    else if (ch === 'M') { if (this.y === this.top) this.scroll(-1); else this.y = Math.max(0, this.y - 1); }
    else if (ch === 'c') { this.grid = Array.from({ length: this.rows }, () => lineOf(this.cols)); this.x = this.y = 0; this.fg = this.bg = -1; this.flags = 0; }
  }

  private csi(text: string, final: string): void {
    const question = text.startsWith('?');
    if (/[<=> !"'$]/.test(text)) return;
    const args = text.replace('?', '').split(/[;:]/).map((a) => (a === '' ? NaN : Number(a)));
    const n = Number.isNaN(args[0]) ? 1 : Math.max(1, args[0]);
    const v = Number.isNaN(args[0]) ? 0 : args[0];
    const line = this.grid[this.y];
    const wipe = (from: number, to: number, row = line) => { for (let i = Math.max(0, from); i < Math.min(to, this.cols); i++) row[i] = { ch: ' ', fg: -1, bg: this.bg, flags: 0 }; };
    this.wrapNext = false;
    switch (final) {
      case 'A': this.y = Math.max(this.y >= this.top ? this.top : 0, this.y - n); break;
      case 'B': case 'e': this.y = Math.min(this.y <= this.bottom ? this.bottom : this.rows - 1, this.y + n); break;
      case 'C': case 'a': this.x = Math.min(this.cols - 1, this.x + n); break;
      case 'D': this.x = Math.max(0, this.x - n); break;
      case 'E': this.x = 0; this.y = Math.min(this.rows - 1, this.y + n); break;
      case 'F': this.x = 0; this.y = Math.max(0, this.y - n); break;
      case 'G': case '`': this.x = Math.min(this.cols, n) - 1; break;
      case 'd': this.y = Math.min(this.rows, n) - 1; break;
      case 'H': case 'f': this.y = Math.min(this.rows, n) - 1; this.x = Math.min(this.cols, Number.isNaN(args[1] ?? NaN) ? 1 : Math.max(1, args[1])) - 1; break;
      case 'J':
        if (v === 0) { wipe(this.x, this.cols); for (let r = this.y + 1; r < this.rows; r++) wipe(0, this.cols, this.grid[r]); }
        else if (v === 1) { for (let r = 0; r < this.y; r++) wipe(0, this.cols, this.grid[r]); wipe(0, this.x + 1); }
        else { for (const row of this.grid) wipe(0, this.cols, row); if (v === 3) this.above = []; }
        break;
      case 'K': if (v === 0) wipe(this.x, this.cols); else if (v === 1) wipe(0, this.x + 1); else wipe(0, this.cols); break;
      case 'X': wipe(this.x, this.x + n); break;
      case 'P': line.splice(this.x, Math.min(n, this.cols - this.x)); while (line.length < this.cols) line.push(blank()); break;
      case '@': for (let i = 0; i < Math.min(n, this.cols - this.x); i++) line.splice(this.x, 0, blank()); line.length = this.cols; break;
      case 'L': if (this.y >= this.top && this.y <= this.bottom) for (let i = 0; i < Math.min(n, this.bottom - this.y + 1); i++) { this.grid.splice(this.bottom, 1); this.grid.splice(this.y, 0, this.fresh()); } break;
      case 'M': if (this.y >= this.top && this.y <= this.bottom) for (let i = 0; i < Math.min(n, this.bottom - this.y + 1); i++) { this.grid.splice(this.y, 1); this.grid.splice(this.bottom, 0, this.fresh()); } break;
      case 'S': this.scroll(Math.min(n, this.rows)); break;
      case 'T': this.scroll(-Math.min(n, this.rows)); break;
      case 'r': { const b = Number.isNaN(args[1] ?? NaN) ? this.rows : args[1]; if (n < b && b <= this.rows) { this.top = n - 1; this.bottom = b - 1; } else { this.top = 0; this.bottom = this.rows - 1; } this.x = this.y = 0; break; }
      case 's': this.saved = { x: this.x, y: this.y, fg: this.fg, bg: this.bg, flags: this.flags }; break;
      case 'u': this.x = this.saved.x; this.y = Math.min(this.saved.y, this.rows - 1); break;
      case 'm': this.colour(args.map((a) => (Number.isNaN(a) ? 0 : a))); break;
      case 'n': if (v === 6) this.reply(`\x1b[${this.y + 1};${this.x + 1}R`); else if (v === 5) this.reply('\x1b[0n'); break;
      case 'c': if (!question) this.reply('\x1b[?62;22c'); break;
      case 'h': case 'l': if (question) for (const a of args) this.set(a, final === 'h'); break;
    }
  }
  private set(what: number, on: boolean): void {
    if (what === 25) this.cursorShown = on;
    else if (what === 1) this.appCursor = on;
    else if (what === 7) this.autowrap = on;
    else if (what === 2004) this.bracketed = on;
    else if (what === 1049 || what === 47 || what === 1047) {
      if (on && !this.main) { this.saved = { x: this.x, y: this.y, fg: this.fg, bg: this.bg, flags: this.flags }; this.main = this.grid; this.grid = Array.from({ length: this.rows }, () => lineOf(this.cols)); }
      else if (!on && this.main) { this.grid = this.main; this.main = null; this.x = this.saved.x; this.y = Math.min(this.saved.y, this.rows - 1); this.top = 0; this.bottom = this.rows - 1; }
    }
  }
  private colour(args: number[]): void {
    for (let i = 0; i < args.length; i++) {
      const a = args[i];
      if (a === 0) { this.fg = this.bg = -1; this.flags = 0; }
      else if (a === 1) this.flags |= Bold;
      else if (a === 2) this.flags |= Dim;
      else if (a === 3) this.flags |= Italic;
      else if (a === 4) this.flags |= Under;
      else if (a === 7) this.flags |= Inverse;
      else if (a === 22) this.flags &= ~(Bold | Dim);
      else if (a === 23) this.flags &= ~Italic;
      else if (a === 24) this.flags &= ~Under;
      else if (a === 27) this.flags &= ~Inverse;
      else if (a >= 30 && a <= 37) this.fg = a - 30;
      else if (a >= 40 && a <= 47) this.bg = a - 40;
      else if (a >= 90 && a <= 97) this.fg = a - 82;
      else if (a >= 100 && a <= 107) this.bg = a - 92;
      else if (a === 39) this.fg = -1;
      else if (a === 49) this.bg = -1;
      else if (a === 38 || a === 48) {
        let c = -1;
        if (args[i + 1] === 5) { c = (args[i + 2] ?? 0) & 255; i += 2; } else if (args[i + 1] === 2) { c = 0x1000000 | ((args[i + 2] & 255) << 16) | ((args[i + 3] & 255) << 8) | (args[i + 4] & 255); i += 4; }
        if (a === 38) this.fg = c; else this.bg = c;
      }
    }
  }
}

const base = ['#1c2230', '#c4383a', '#2f8f4e', '#a8780f', '#2c62c8', '#9440b8', '#1a8595', '#aab2bf', '#6b7585', '#ff6b6b', '#55c878', '#e6b84d', '#6ea3ff', '#cf8ef0', '#4fc7d8', '#f4f6f9'];
export function paint(c: number): string {
  if (c & 0x1000000) return `#${(c & 0xffffff).toString(16).padStart(6, '0')}`;
  if (c < 16) return base[c];
  if (c >= 232) { const g = (8 + (c - 232) * 10).toString(16).padStart(2, '0'); return `#${g}${g}${g}`; }
  const n = c - 16, level = (v: number) => (v ? 55 + v * 40 : 0).toString(16).padStart(2, '0');
  return `#${level(Math.floor(n / 36))}${level(Math.floor(n / 6) % 6)}${level(n % 6)}`;
}
