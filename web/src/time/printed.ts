// The end of a job's log as lines with their times: the records of GET /v1/jobs/ID/logs?format=
// records. Bounded: only the last megabyte is read.
import type { Printed } from './parse_metrics';

export const tailBytes = 1 << 20;
const headBytes = 16;

// A record is 16 bytes (length, stream, flags, two reserved, time in ns; little-endian) and its
// data. Lines of the two streams are kept apart; a line has the time of its end.
export function linesOf(bytes: Uint8Array): Printed[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const out: Printed[] = [];
  const rest = new Map<number, { decoder: TextDecoder; text: string; at: number }>();
  for (let at = 0; at + headBytes <= bytes.length;) {
    const length = view.getUint32(at, true);
    const stream = view.getUint8(at + 4);
    const time = Number(view.getBigInt64(at + 8, true) / 1_000_000n);
    const begin = at + headBytes;
    if (begin + length > bytes.length) break; // cut off
    at = begin + length;
    if (stream !== 1 && stream !== 2) continue; // says where to resume, or why it ended
    const open = rest.get(stream) ?? { decoder: new TextDecoder(), text: '', at: time };
    const parts = (
      open.text + open.decoder.decode(bytes.subarray(begin, at), { stream: true })
    ).split('\n');
    open.text = parts.pop() ?? '';
    open.at = time;
    for (const text of parts) out.push({ at: time, text });
    rest.set(stream, open);
  }
  for (const open of rest.values()) if (open.text) out.push({ at: open.at, text: open.text });
  return out;
}

export async function loadPrinted(id: string): Promise<Printed[]> {
  const response = await fetch(`/v1/jobs/${id}/logs?format=records&tail=${tailBytes}`, {
    headers: { 'X-Billow-Request': '1' },
  });
  if (!response.ok) return [];
  return linesOf(new Uint8Array(await response.arrayBuffer()));
}
