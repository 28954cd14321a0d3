// An endpoint over time: requests, errors, latency, replicas, cold starts and cost, with its
// deployments as annotations.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { get, has, problem, type Series } from '../data/api';
import { Chart } from '../parts/chart';
import { route } from '../data/store';
import type { Mark } from '../time/marks';
import { isLive, rangeOf, resolved, usualRange } from '../time/range';
import { RangeBar } from '../time/range_bar';

interface EndpointSeries extends Series {
  usd_per_1000?: number | null;
  requests?: number;
  errors?: number;
}
interface Deployed {
  revisions: { number: number; made_at: string }[];
}
const ms = (v: number) => (v < 1000 ? `${v.toFixed(0)} ms` : `${(v / 1000).toFixed(1)} s`);
const perSecond = (v: number) => `${v < 10 ? v.toFixed(1) : v.toFixed(0)} / s`;
const whole = (v: number) => v.toFixed(v % 1 ? 1 : 0);
const dollars = (v: number) => `$${v.toFixed(v > 0 && v < 0.1 ? 3 : 2)}`;

// Without a range in the address: the history of a young endpoint, at most the last hour.
const hourMs = 3_600_000;
function rangesOf(madeAt: string) {
  const now = Date.now();
  const fallback = usualRange(Math.max(Date.parse(madeAt), now - hourMs), now);
  const query = new URLSearchParams(route.value.split('?')[1] ?? '');
  return { range: rangeOf(query, fallback), fallback };
}
export const EndpointRange = ({ madeAt }: { madeAt: string }) => <RangeBar {...rangesOf(madeAt)} />;

export function EndpointCharts({ name, madeAt }: { name: string; madeAt: string }) {
  const { range } = rangesOf(madeAt);
  const data = useSignal<EndpointSeries | null>(null);
  const marks = useSignal<Mark[]>([]);
  const error = useSignal('');
  const at = `/v1/endpoints/${encodeURIComponent(name)}`;
  useEffect(() => {
    let gone = false;
    const load = async () => {
      if (document.hidden) return;
      if (!(await has('/v1/endpoints/{name}/series'))) {
        error.value = 'This head keeps no history of endpoints; update it.';
        return;
      }
      const view = resolved(range, Date.now());
      try {
        const [series, endpoint] = await Promise.all([
          get<EndpointSeries>(
            `${at}/series?from=${Math.round(view.from)}&to=${Math.round(view.to)}&points=300`,
          ),
          get<Deployed>(at).catch(() => null),
        ]);
        if (gone) return;
        data.value = series;
        error.value = '';
        marks.value = (endpoint?.revisions ?? []).map((r) => ({
          at: Date.parse(r.made_at),
          kind: 'deploy' as const,
          text: `revision ${r.number} deployed`,
        }));
      } catch (e) {
        if (!gone) error.value = problem(e);
      }
    };
    void load();
    const timer = isLive(range) ? window.setInterval(() => void load(), 10_000) : 0;
    return () => {
      gone = true;
      window.clearInterval(timer);
    };
  }, [name, range.from, range.to]);
  const s = data.value;
  const of = (key: string) => s?.series[key] ?? [];
  const any = (key: string) => of(key).some((v) => v != null);
  const requests = s?.requests ?? 0;
  const errors = s?.errors ?? 0;
  // Before the first figures of the range, nothing is known.
  const sum = (n: number) => (any('requests_per_s') ? Math.round(n).toLocaleString() : '–');
  const common = s && { fromMs: s.from_ms, stepS: s.step_s, marks: marks.value };
  return (
    <section aria-label={`${name} over time`}>
      {error.value && <p class="note">{error.value}</p>}
      {s && common && (
        <>
          <p class="endpoint-sum">
            <span>
              <b>{sum(requests)}</b> requests
            </span>
            <span>
              <b>{sum(errors)}</b> errors
              {requests >= 1 && ` (${((errors / requests) * 100).toFixed(2)} %)`}
            </span>
            <span>
              <b>{sum(of('cold_starts').reduce<number>((all, v) => all + (v ?? 0), 0))}</b> cold
              starts and wakes
            </span>
            <span>
              <b>{s.usd_per_1000 == null ? '–' : dollars(s.usd_per_1000)}</b> per 1,000 requests
            </span>
          </p>
          <div class="charts">
            <Chart
              {...common}
              title="Requests"
              least={1}
              format={perSecond}
              lines={[
                { label: 'requests', values: of('requests_per_s'), colour: 1 },
                { label: 'errors', values: of('errors_per_s'), colour: 5 },
              ]}
            />
            {any('p50_ms') && (
              <Chart
                {...common}
                title="Latency to the first byte"
                format={ms}
                lines={[
                  { label: 'p50', values: of('p50_ms'), colour: 1 },
                  { label: 'p95', values: of('p95_ms'), colour: 3 },
                  { label: 'p99', values: of('p99_ms'), colour: 5 },
                ]}
              />
            )}
            <Chart
              {...common}
              title="Replicas"
              format={whole}
              unit="count"
              lines={[
                { label: 'awake', values: of('ready'), colour: 2 },
                { label: 'asleep', values: of('sleeping'), colour: 4 },
              ]}
            />
            <Chart
              {...common}
              title="Cold starts and wakes"
              format={whole}
              unit="count"
              lines={[{ label: 'in each step', values: of('cold_starts'), colour: 3 }]}
            />
            {any('usd_per_hour') && (
              <Chart
                {...common}
                title="Cost"
                format={(v) => `${dollars(v)} / h`}
                lines={[{ label: 'rate', values: of('usd_per_hour'), colour: 4 }]}
              />
            )}
          </div>
        </>
      )}
    </section>
  );
}
