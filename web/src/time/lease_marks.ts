// Annotations from the leases of a job: when it held GPUs, and when it was interrupted.
export interface Mark {
  at: number; // ms
  kind: 'start' | 'end' | 'checkpoint' | 'suspend' | 'resume' | 'preempt' | 'deploy';
  text: string;
}
export interface Lease {
  from: string;
  to: string | null;
  node: string;
}

export function leaseMarks(leases: Lease[], said = ''): Mark[] {
  const spans = leases
    .map((l) => ({
      from: Date.parse(l.from),
      to: l.to ? Date.parse(l.to) : Infinity,
      node: l.node,
    }))
    .sort((a, b) => a.from - b.from);
  const marks: Mark[] = [];
  let until = 0;
  spans.forEach((s, i) => {
    // Tasks of a gang begin together: only a gap is an interruption.
    if (i === 0) marks.push({ at: s.from, kind: 'start', text: `${said}started on ${s.node}` });
    else if (s.from > until + 2000) {
      marks.push({ at: until, kind: 'suspend', text: `${said}interrupted` });
      marks.push({ at: s.from, kind: 'resume', text: `${said}continued on ${s.node}` });
    }
    until = Math.max(until, s.to);
  });
  if (spans.length && until !== Infinity)
    marks.push({ at: until, kind: 'end', text: `${said}ended` });
  return marks;
}
