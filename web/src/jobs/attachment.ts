// The connection between a terminal and its job: the same WebSocket that `billow attach` uses. A
// broken connection is opened again and resumes where the output stood.
//
// Memory is bounded: when output arrives faster than the terminal draws it, the connection is
// closed and resumes from the last drawn byte.
import { signal } from '@preact/signals';
import type { OpenedTerminal } from './xterm';

const backlogBytesMax = 4 << 20;
const retryMs = 1000;

interface Message {
  type: string;
  job?: { state: string; exit?: { text: string } };
}

export class Attachment {
  readonly state = signal('connecting');
  private socket: WebSocket | null = null;
  private offset = '0';
  private backlog = 0;
  private ended = false;
  private retry = 0;
  private resuming = false; // the backlog is drawn, the connection is opened again
  private unsent: (Uint8Array<ArrayBuffer> | string)[] = []; // typed while the backlog is drawn

  constructor(
    private readonly id: string,
    private readonly view: OpenedTerminal,
  ) {
    const { terminal } = view;
    terminal.onData((text) => this.send(new TextEncoder().encode(text)));
    terminal.onBinary((text) => this.send(Uint8Array.from(text, (c) => c.charCodeAt(0))));
    terminal.onResize(() => this.sendSize());
    this.connect();
  }

  close(): void {
    this.ended = true;
    window.clearTimeout(this.retry);
    this.socket?.close();
  }

  private send(data: Uint8Array<ArrayBuffer> | string): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(data);
    else if (this.socket === null || this.resuming) this.unsent.push(data);
  }

  private sendSize(): void {
    const { rows, cols } = this.view.terminal;
    this.send(JSON.stringify({ type: 'resize', rows, cols }));
  }

  private connect(): void {
    const at = new URL(`/v1/jobs/${this.id}/attach?offset=${this.offset}`, location.href);
    at.protocol = at.protocol === 'https:' ? 'wss:' : 'ws:';
    const socket = new WebSocket(at);
    socket.binaryType = 'arraybuffer';
    this.socket = socket;
    socket.onopen = () => {
      this.state.value = 'connected';
      this.resuming = false;
      this.sendSize();
      for (const data of this.unsent.splice(0)) this.send(data);
    };
    socket.onmessage = (event: MessageEvent<string | ArrayBuffer>) => {
      if (socket !== this.socket) return; // closed because of the backlog
      if (typeof event.data === 'string') this.told(JSON.parse(event.data) as Message);
      else this.output(event.data);
    };
    socket.onclose = () => {
      if (this.ended || socket !== this.socket) return;
      this.state.value = 'disconnected, reconnecting';
      this.resuming = false;
      this.unsent.length = 0;
      this.retry = window.setTimeout(() => this.connect(), retryMs);
    };
  }

  private told(message: Message): void {
    if (message.type === 'end') {
      this.ended = true;
      this.state.value = `ended: ${message.job?.exit?.text ?? message.job?.state ?? ''}`;
    }
    if (message.type === 'state' && message.job?.state === 'running') this.sendSize();
  }

  // One byte of kind, eight of the offset to resume at, then the output itself.
  private output(frame: ArrayBuffer): void {
    this.offset = new DataView(frame).getBigUint64(1, true).toString();
    const data = new Uint8Array(frame, 9);
    this.backlog += data.length;
    this.view.terminal.write(data, () => this.drawn(data.length));
    if (this.backlog > backlogBytesMax) {
      const socket = this.socket;
      this.socket = null;
      socket?.close();
    }
  }

  private drawn(bytes: number): void {
    this.backlog -= bytes;
    if (this.backlog > 0 || this.socket !== null || this.ended) return;
    this.resuming = true;
    this.connect();
  }
}
