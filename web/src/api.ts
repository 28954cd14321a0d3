// The head as the dashboard sees it. The session is a cookie that scripts cannot read; nothing secret is kept here.
export interface Gpu {
  index: number; type: string; model: string; mem_mib: number; used_milli: number; unhealthy: string; jobs: number[];
  util_pct?: number; mem_used_mib?: number; power_w?: number; temperature_c?: number;
}
export interface Node {
  name: string; state: string; reason: string; gpus: Gpu[]; cpu_milli: number; mem_mib: number; labels: Record<string, string>;
  version: string; simulated: boolean; arch: string; joined_at: string;
}
export interface Task { id: number; rank: number; node: string; state: string; gpus: number[]; gpu_type: string; gpu_milli: number; started_at: string | null }
export interface Job {
  id: number; label: string; name: string; command: string; user: string; project: string; state: string; final: boolean; reason: string;
  attempt: number; retries: number; submitted_at: string; started_at: string | null; ended_at: string | null; gpus: number; gpu_milli: number;
  gpu_types: string[]; cost_nano_usd: number; cost: string; rate: string; cwd: string; labels: Record<string, string>; tasks: Task[]; priority: number;
  spot: boolean; time_limit_s: number; exit?: { text: string }; exit_code?: number; array_spec?: string;
  elements?: { count: number; left: number; running: number; succeeded: number };
}
export interface Status {
  version: string; epoch: number; addresses: string[]; data_dir: string; started_at: string; store: string;
  nodes: { total: number; ready: number }; gpus: { total: number; free: number };
  jobs: { held: number; queued: number; running: number; suspended: number }; you: { user: string; role: string; scope: string };
}
export interface Reason { kind: string; text: string }
export interface Explanation { state: string; reasons: Reason[]; earliest_start: string | null; would_start_now: string | null }

export class ApiError extends Error {
  constructor(public status: number, message: string, public hint: string) { super(message); }
}

export async function call<T>(method: string, path: string, body?: unknown): Promise<T> {
  const response = await fetch(path, {
    method,
    headers: { 'X-Billow-Request': '1', ...(body === undefined ? {} : { 'Content-Type': 'application/json' }) },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await response.text();
  let data: unknown = {};
  try { data = JSON.parse(text); } catch { /* an error page of something in between */ }
  if (!response.ok) {
    const problem = data as { detail?: string; hint?: string };
    throw new ApiError(response.status, problem.detail ?? `the head answered ${response.status}`, problem.hint ?? '');
  }
  return data as T;
}
export const get = <T>(path: string) => call<T>('GET', path);
export const post = <T>(path: string, body: unknown = {}) => call<T>('POST', path, body);
