// An endpoint as the head describes it.
export interface Replica {
  job: number;
  revision: number;
  state: string;
  spot: boolean;
  node?: string;
  reason?: string;
}
export interface Revision {
  number: number;
  state: string;
  made_at: string;
  command: string;
  reason: string;
  release?: { traffic_pct: number; mirror_pct: number; auto_rollback: string };
}
export interface Key {
  name: string;
  project?: string;
  expires_at?: string;
  expired?: boolean;
  limits?: string[];
  today: {
    requests: number;
    refused: number;
    tokens_in: number;
    tokens_out: number;
    charge_nano_usd: number;
  };
}
export interface Counts {
  ready?: number;
  coming?: number;
  sleeping?: number;
  in_flight?: number;
  held?: number;
  requests?: number;
  cold_starts?: number;
  wakes?: number;
}
export interface GatewayShare {
  id: string;
  name: string;
  region: string;
  address: string;
  state: string;
  ready: number; // replicas that it steers
  in_flight: number;
  requests: number;
}
export interface Endpoint {
  name: string;
  project: string;
  user: string;
  status: string;
  urls: string[];
  revision: number;
  rolling: number;
  canary: number;
  made_at: string;
  command?: string;
  min?: number;
  max?: number;
  access?: string;
  policy?: Record<string, unknown>;
  revisions: Revision[];
  keys: Key[];
  replicas: Replica[];
  gateways?: GatewayShare[];
  last_failure?: string;
  failed_job?: number; // whose end that was
  waiting?: string; // why a replica that is wanted has not started yet
  notes?: string[];
  cost_usd: number;
  figures?: Counts & {
    // While a canary runs: it, and the revision that serves.
    revisions?: {
      revision: number;
      requests?: number;
      errors?: number;
      first_byte_p95_us?: number;
    }[];
  };
  p50_ms?: number;
  p99_ms?: number;
  usd_per_request?: number;
  usd_per_1000_tokens?: number;
}
export const tone: Record<string, string> = {
  serving: 'running',
  canary: 'running',
  updating: 'queued',
  starting: 'queued',
  failed: 'failed',
};
// Does something with an endpoint, shows the answer, and reads the endpoint again.
export type Act = (run: () => Promise<unknown>, said: string) => Promise<void>;
export const addressOf = (name: string) => `#/endpoints/${encodeURIComponent(name)}`;
