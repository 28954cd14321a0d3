// The SharedWorker that all tabs of a browser connect to.
import { Hub, type HubPort } from './live_hub';

const hub = new Hub();
// TypeScript's types for pages do not know the scope of a shared worker.
(self as unknown as { onconnect: (event: MessageEvent) => void }).onconnect = (event) => {
  hub.connect(event.ports[0] as unknown as HubPort);
};
