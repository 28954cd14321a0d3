// Annotations in charts: what happened to a job, an endpoint or a node at a time.
import { signal } from '@preact/signals';
import { get } from '../data/api';
import { status } from '../data/store';
import { leaseMarks, type Lease, type Mark } from './lease_marks';

export type { Mark };

export const pageMarks = signal<Mark[]>([]); // of the page that is shown

const kinds: Record<string, [Mark['kind'], string]> = {
  job_checkpointed: ['checkpoint', 'checkpoint'],
  job_suspending: ['suspend', 'suspending'],
  job_resuming: ['resume', 'resuming'],
  job_requeued: ['preempt', 'preempted or restarted'],
  revision_added: ['deploy', 'deployed'],
};
const eventPages = 3; // of the journal, newest first; more would be a search, not an annotation

// Leases are known to all who may see the job. The journal knows why one ended, for those
// who may read it.
export async function jobMarks(id: string, label = ''): Promise<Mark[]> {
  const said = label ? `${label}: ` : '';
  const { leases } = await get<{ leases?: Lease[] }>(`/v1/jobs/${id}/cost`);
  const marks = leaseMarks(leases ?? [], said);
  const seq = status.peek()?.seq ?? 0;
  if (!status.peek()?.you.permissions.includes('audit.read') || !seq) return marks;
  try {
    const told = await journal(id, seq, said);
    // A precise reason replaces the plain "interrupted" of the lease.
    const near = (m: Mark) => told.some((t) => Math.abs(t.at - m.at) < 30_000);
    return [...marks.filter((m) => m.kind !== 'suspend' || !near(m)), ...told].sort(
      (a, b) => a.at - b.at,
    );
  } catch {
    return marks;
  }
}

interface Event {
  seq: number;
  at: string;
  kind: string;
  event: Record<string, unknown>;
}
// What was read of the journal for a job, so that a page that stays open reads only what is new.
const readMax = 8;
const read = new Map<number, { upTo: number; marks: Mark[] }>();

async function journal(id: string, seq: number, said: string): Promise<Mark[]> {
  const wanted = Number(id.split('.')[0]);
  const before = read.get(wanted);
  const marks = [...(before?.marks ?? [])];
  const take = async (after: number, limit: number) => {
    const { events } = await get<{ events: Event[] }>(`/v1/events?after=${after}&limit=${limit}`);
    for (const e of events) {
      const kind = kinds[e.kind];
      if (kind && e.event.job === wanted)
        marks.push({ at: Date.parse(e.at), kind: kind[0], text: kind[1] });
    }
    return events;
  };
  if (!before)
    for (let to = seq, page = 0; to > 0 && page < eventPages; page++) {
      const from = Math.max(0, to - 1000);
      await take(from, to - from);
      to = from;
    }
  let upTo = before?.upTo ?? seq;
  for (let page = 0; page < eventPages; page++) {
    const events = await take(upTo, 1000);
    upTo = events.at(-1)?.seq ?? upTo;
    if (events.length < 1000) break;
  }
  if (!before && read.size >= readMax) read.clear();
  read.set(wanted, { upTo, marks });
  return marks.map((m) => ({ ...m, text: said + m.text }));
}
