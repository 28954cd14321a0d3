// Time per token against price as the load of one replica grows: what more users cost in latency
// and save in money. The same figures are in a table, for screen readers and for exact values.
export interface CurvePoint {
  concurrency: number;
  ttft_ms: number;
  tpot_ms: number;
  requests_per_s: number;
  usd_per_million_output_tokens: number | 'unknown';
}

export interface Drawn {
  x: number;
  y: number;
  point: CurvePoint;
}
const size = { width: 560, height: 240, left: 56, right: 16, top: 24, bottom: 40 };

// Where each point with a known price lies. Prices span powers of ten, so their axis is
// logarithmic; the time per token begins at zero.
export function layout(points: CurvePoint[]): { drawn: Drawn[]; most: number } {
  const priced = points.filter(
    (p) => typeof p.usd_per_million_output_tokens === 'number' && p.tpot_ms > 0,
  );
  const price = (p: CurvePoint) => Math.log(p.usd_per_million_output_tokens as number);
  const low = Math.min(...priced.map(price));
  const high = Math.max(...priced.map(price));
  const most = Math.max(0, ...priced.map((p) => p.tpot_ms));
  const across = size.width - size.left - size.right;
  const down = size.height - size.top - size.bottom;
  return {
    most,
    drawn: priced.map((point) => ({
      x: size.left + (high > low ? (price(point) - low) / (high - low) : 0.5) * across,
      y: size.top + (1 - point.tpot_ms / most) * down,
      point,
    })),
  };
}

const usd = (v: number) => `$${v < 10 ? v.toFixed(2) : v.toFixed(0)}`;

export function AdviceCurve({ points, chosen }: { points: CurvePoint[]; chosen: number }) {
  const { drawn, most } = layout(points);
  if (drawn.length < 3) return null;
  const bottom = size.height - size.bottom;
  const prices = drawn.map((d) => d.point.usd_per_million_output_tokens as number);
  const ends = [Math.min(...prices), Math.max(...prices)];
  return (
    <figure class="advice-curve">
      <figcaption>
        <b>Price and speed by the load of one replica</b>
      </figcaption>
      <svg
        viewBox={`0 0 ${size.width} ${size.height}`}
        width={size.width}
        height={size.height}
        role="img"
        aria-label={`From ${usd(ends[0])} to ${usd(ends[1])} per million output tokens, at up to ${most.toFixed(0)} ms per token; figures in the table below`}
      >
        <line class="axis" x1={size.left} y1={bottom} x2={size.width - size.right} y2={bottom} />
        <line class="axis" x1={size.left} y1={size.top} x2={size.left} y2={bottom} />
        <text class="end" x={size.left - 6} y={size.top + 10}>
          {most.toFixed(0)} ms
        </text>
        <text class="end" x={size.left - 6} y={bottom}>
          0
        </text>
        <text x={size.left} y={size.height - 22}>
          {usd(ends[0])}
        </text>
        <text class="end" x={size.width - size.right} y={size.height - 22}>
          {usd(ends[1])}
        </text>
        <text x={size.left} y={size.height - 5}>
          per million output tokens (logarithmic); up: time per token; figures: sequences at once
        </text>
        <polyline class="curve" points={drawn.map((d) => `${d.x},${d.y}`).join(' ')} />
        {drawn.map((d) => (
          <g class={d.point.concurrency === chosen ? 'chosen' : ''}>
            <circle cx={d.x} cy={d.y} r={d.point.concurrency === chosen ? 6 : 3.5} />
            <text class="mid" x={d.x} y={d.y - 9}>
              {d.point.concurrency}
            </text>
          </g>
        ))}
      </svg>
      <details>
        <summary>As a table</summary>
        <table>
          <thead>
            <tr>
              <th class="right">Sequences</th>
              <th class="right">Per token</th>
              <th class="right">First token</th>
              <th class="right">Per million tokens</th>
            </tr>
          </thead>
          <tbody>
            {drawn.map((d) => (
              <tr>
                <td class="right">
                  {d.point.concurrency}
                  {d.point.concurrency === chosen ? ' (at this load)' : ''}
                </td>
                <td class="right">{d.point.tpot_ms.toFixed(1)} ms</td>
                <td class="right">{d.point.ttft_ms.toFixed(0)} ms</td>
                <td class="right">{usd(d.point.usd_per_million_output_tokens as number)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </details>
    </figure>
  );
}
