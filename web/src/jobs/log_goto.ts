// Where "Go to" leads: a line ("1200"), a clock time ("14:02", "14:02:30"), or a time before now
// ("10 min", "2h ago").
export type Target = { line: number } | { ms: number };

const unitMs: Record<string, number> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

export function targetOf(text: string, now: number): Target | null {
  const given = text.trim().toLowerCase();
  if (/^\d+$/.test(given)) return { line: Number(given) };
  const clock = /^(\d{1,2}):(\d\d)(?::(\d\d))?$/.exec(given);
  if (clock) {
    const at = new Date(now);
    at.setHours(Number(clock[1]), Number(clock[2]), Number(clock[3] ?? 0), 0);
    // A time of day that has not come yet was yesterday.
    return { ms: at.getTime() > now ? at.getTime() - unitMs.d : at.getTime() };
  }
  const span = /^(\d+(?:\.\d+)?)\s*(s|m|h|d)[a-z]*(?:\s+ago)?$/.exec(given);
  if (span) return { ms: now - Number(span[1]) * unitMs[span[2]] };
  const date = Date.parse(text.trim());
  return Number.isNaN(date) ? null : { ms: date };
}
