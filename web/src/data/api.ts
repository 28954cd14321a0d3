// The head's API. The session is a cookie that scripts cannot read; nothing secret is kept here.
export interface NodeGpu {
  index: number;
  type: string;
  model: string;
  mem_mib: number;
  unhealthy: string;
  uuid: string;
  nvlink_domain: number;
  numa: number;
  mig_instances?: { profile: string; start: number; job: number | null }[];
  mig_any?: boolean;
}
export interface NodeInfo {
  id: number;
  name: string;
  state: string;
  reason: string;
  gpus: NodeGpu[];
  cpu_milli: number;
  mem_mib: number;
  labels: Record<string, string>;
  version: string;
  simulated: boolean;
  arch: string;
  joined_at: string;
  pool?: string;
}
// A row of the live stream: times in ms, money in nano-dollars, `where` as [node, gpu, gpu…] per
// task.
export interface Row {
  id: number;
  label: string;
  name: string;
  command: string;
  user: string;
  project: string;
  state: string;
  reason: string;
  gpu_milli: number;
  spot: boolean;
  pty: boolean;
  attempt: number;
  submitted?: number;
  started?: number;
  ended?: number;
  since?: number;
  ran?: number;
  suspended?: number; // when it entered its state; earlier run and suspended times
  where: number[][];
  nodes?: string;
  cost_nano: number;
  rate_nano: number;
  at: number;
  final?: boolean;
  exit?: string;
  exit_code?: number;
  idle?: boolean;
  gpu_types?: string[]; // asked for; only in rows made of a job's document
}
export interface Task {
  id: number;
  rank: number;
  node: string;
  node_id: number;
  state: string;
  gpus: number[];
  gpu_type: string;
  gpu_milli: number;
  started_at: string | null;
  ended_at: string | null;
  exit?: { text: string };
  mig?: { gpu: number; profile: string; start: number }[];
  role?: string; // of a group: the member's name, such as "trainer" or "rollout.2"
}
// A role of a group; the resources are those of each member.
export interface Role {
  name: string;
  count: number;
  command: string;
  gpu_milli: number;
  gpu_mem_mib: number;
  gpu_types: string[];
  service: boolean;
  cost_nano_usd: number;
  options?: Partial<Spec>; // what differs from the job
}
export interface Job {
  id: number;
  label: string;
  name: string;
  command: string;
  argv: string[];
  user: string;
  project: string;
  state: string;
  final: boolean;
  reason: string;
  attempt: number;
  retries: number;
  submitted_at: string;
  started_at: string | null;
  ended_at: string | null;
  gpus: number;
  gpu_milli: number;
  gpu_mem_mib: number;
  gpu_types: string[];
  cost_nano_usd: number;
  cost: string;
  rate: string;
  cwd: string;
  labels: Record<string, string>;
  tasks: Task[];
  priority: number;
  nodes: number;
  spot: boolean;
  pty: boolean;
  time_limit_s: number;
  cpu_milli: number;
  mem_mib: number;
  exit?: { text: string };
  exit_code?: number;
  array_spec?: string;
  array?: { id: number; index: number };
  leases?: number;
  ran_s?: number;
  suspended_s?: number;
  suspendable?: { can: boolean; why: string };
  mig_profile?: string;
  waits_for?: string; // placed but not started: what is still being fetched
  suspension?: { phase: string; since: string | null; resumes_by_itself: boolean };
  elements?: { count: number; left: number; running: number; succeeded: number };
  roles?: Role[]; // of a group
  spec?: Spec;
}
// A job's specification as it is submitted; members that the pages do not know are kept.
export interface Spec {
  argv: string[];
  name?: string;
  cwd?: string;
  spot?: boolean;
  time_limit_ns?: number;
  resources?: {
    gpus?: number;
    share?: { milli?: number; mem_mib?: number };
    gpu_types?: string[];
    [more: string]: unknown;
  };
  [more: string]: unknown;
}
export interface JobPage {
  jobs: Job[];
  next: string;
  truncated?: boolean;
}
export interface Status {
  version: string;
  epoch: number;
  seq: number;
  addresses: string[];
  data_dir: string;
  started_at: string;
  store: string;
  pid: number;
  you: {
    user: string;
    role: string;
    scope: string;
    project?: string;
    permissions: string[]; // everywhere
    permissions_in: Record<string, string[]>; // in projects of which the person is a member
  };
}
export interface Summary {
  gpus: number;
  gpus_free_milli: number;
  nodes: number;
  nodes_ready: number;
  held: number;
  queued: number;
  running: number;
  suspended: number;
  spend_nano: number;
  idle_nano: number;
  idle_jobs: number[];
  scope: string;
  store: string;
}
export interface Reason {
  kind: string;
  text: string;
}
export interface Explanation {
  state: string;
  reasons: Reason[];
  earliest_start: string | null;
  latest_start?: string | null;
  start_unknown?: string | null;
  would_start_now: string | null;
}
export interface Series {
  from_ms: number;
  step_s: number;
  points: number;
  series: Record<string, (number | null)[]>;
  cores?: number;
  findings?: { kind: string; text: string; hint: string }[];
}

export class ApiError extends Error {
  constructor(
    public status: number,
    message: string,
    public hint: string,
  ) {
    super(message);
  }
}
export function problem(e: unknown): string {
  if (e instanceof ApiError) return e.hint ? `${e.message} (${e.hint})` : e.message;
  return 'the head does not answer';
}

export async function call<T>(method: string, path: string, body?: unknown): Promise<T> {
  const response = await fetch(path, {
    method,
    headers: {
      'X-Billow-Request': '1',
      ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
    },
    body: body === undefined ? undefined : JSON.stringify(body),
    keepalive: method === 'POST', // sent even if the page is closed at once
  });
  const text = await response.text();
  let data: unknown = {};
  try {
    data = JSON.parse(text);
  } catch {
    /* an error page of a proxy */
  }
  if (!response.ok) {
    const told = data as { detail?: string; hint?: string };
    throw new ApiError(
      response.status,
      told.detail ?? `the head answered ${response.status}`,
      told.hint ?? '',
    );
  }
  return data as T;
}
export const get = <T>(path: string) => call<T>('GET', path);
export const post = <T>(path: string, body: unknown = {}) => call<T>('POST', path, body);

// The routes of this head: pages for missing ones say so instead of failing.
let routes: Promise<Set<string>> | undefined;
export function has(route: string): Promise<boolean> {
  routes ??= get<{ routes: string[] }>('/v1/routes').then(
    (d) => new Set(d.routes.map((r) => r.slice(r.indexOf(' ') + 1))),
    () => {
      routes = undefined;
      return new Set<string>();
    },
  );
  return routes.then((r) => r.has(route));
}
