// This tab's connection to the hub, which has the stream of the head's state for all tabs.
import { Hub, type HubPort, type ToHub, type ToPage } from './live_hub';

declare const LIVE_WORKER: string; // its file, by build.mjs

let port: MessagePort | null = null;
let listen: (message: ToPage) => void = () => {};

function connect(): MessagePort {
  let opened: MessagePort;
  if (typeof SharedWorker === 'undefined') {
    const channel = new MessageChannel();
    new Hub().connect(channel.port2 as unknown as HubPort);
    opened = channel.port1;
  } else opened = new SharedWorker(`/${LIVE_WORKER}`, { name: 'billow live' }).port;
  opened.onmessage = (event: MessageEvent<ToPage>) => {
    if (event.data.type === 'ping') say({ type: 'alive' });
    else listen(event.data);
  };
  window.addEventListener('pagehide', () => say({ type: 'bye' }));
  window.addEventListener('pageshow', (event) => {
    if (event.persisted) say({ type: 'hello' });
  });
  return opened;
}
function say(message: ToHub): void {
  port?.postMessage(message);
}

// Begins with everything the head shows; later calls (after signing in) open the stream anew.
export function follow(listener: (message: ToPage) => void): void {
  listen = listener;
  if (port) return say({ type: 'again' });
  port = connect();
  say({ type: 'hello' });
}

// This tab needs the stream no more: its session has ended.
export const leave = () => say({ type: 'bye' });
