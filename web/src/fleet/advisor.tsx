// Which GPUs a model needs and what they cost; the head computes it (POST /v1/advise).
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { has, post, problem } from '../data/api';
import { plural } from '../data/format';
import { Empty, Line } from '../parts/ui';
import { AdviceCurve, type CurvePoint } from './advice_curve';

interface Offer {
  gpu: string;
  gpus: number;
  precision: string;
  parallelism: string;
  replicas: number;
  slice?: string;
  instance: string | null;
  usd_month: number | null;
  ttft_ms: number;
  tpot_ms: number;
  kind: string;
  binding: string;
  price_date: string | null;
  price_age_days?: number | null;
}
// The date of a price: it may have changed since.
const priced = (o: Offer) =>
  o.price_date
    ? `; prices from ${o.price_date}${o.price_age_days ? `, ${o.price_age_days} days old` : ''}`
    : '';
const presets: [string, Record<string, string>][] = [
  ['70B at fp8', { model: '70B', weights: 'fp8', input: '1024', output: '256', rate: '2' }],
  ['8B chat', { model: '8B', weights: 'bf16', input: '512', output: '256', rate: '5' }],
  ['32B at int4', { model: '32B', weights: 'int4', input: '1024', output: '512', rate: '1' }],
];
const monthly = (offers: Offer[]) =>
  offers[0].usd_month != null
    ? `$${offers[0].usd_month.toLocaleString()} per month`
    : 'nothing extra on GPUs you have';
export function Advisor() {
  const can = useSignal<boolean | null>(null);
  const form = useSignal<Record<string, string>>({
    model: '70B',
    weights: 'fp8',
    input: '1024',
    output: '256',
    rate: '2',
    tpot: '',
    ttft: '',
  });
  const answer = useSignal<{
    offers: Offer[];
    text?: string;
    asked: string;
    curve: CurvePoint[];
    load: number;
  } | null>(null);
  const error = useSignal('');
  const busy = useSignal(false);
  useEffect(() => {
    void has('/v1/advise').then((yes) => {
      can.value = yes;
      if (yes) void ask();
    });
  }, []);
  const ask = async (event?: Event) => {
    event?.preventDefault();
    busy.value = true;
    const f = form.value;
    try {
      const got = await post<Record<string, unknown>>('/v1/advise', {
        model: f.model,
        weights: f.weights,
        input_tokens: Number(f.input),
        output_tokens: Number(f.output),
        requests_per_s: Number(f.rate),
        ...(f.tpot ? { tpot_ms: Number(f.tpot) } : {}),
        ...(f.ttft ? { ttft_ms: Number(f.ttft) } : {}),
      });
      const list = (got.options ?? []) as Offer[];
      answer.value = {
        offers: list,
        text: typeof got.text === 'string' ? got.text : undefined,
        asked: `${f.model} at ${f.weights} for ${f.rate || '1'} requests per second`,
        curve: (got.curve ?? []) as CurvePoint[],
        load: Number(
          (got.best as { concurrency_per_replica?: number } | null)?.concurrency_per_replica,
        ),
      };
      error.value = '';
    } catch (e) {
      error.value = problem(e);
    }
    busy.value = false;
  };
  const set = (key: string) => (e: Event) => {
    form.value = { ...form.value, [key]: (e.currentTarget as HTMLInputElement).value };
  };
  const f = form.value;
  const line = [
    'billow advise',
    f.model,
    '--precision',
    f.weights,
    '--input',
    f.input,
    '--output',
    f.output,
    ...(f.rate ? ['--rps', f.rate] : []),
    ...(f.ttft ? ['--ttft', `${f.ttft}ms`] : []),
    ...(f.tpot ? ['--tps', (1000 / Number(f.tpot)).toFixed(1)] : []),
  ].join(' ');
  return (
    <section>
      <h1>Advisor</h1>
      <p class="lead">
        Finds the GPUs that serve a model within your latency limits, and their cost, from the
        model's shape, GPU performance data and current prices.
      </p>
      {can.value === false ? (
        <Empty title="Not available on this head">
          <p>Use the command line instead:</p>
          <Line text={line} />
        </Empty>
      ) : (
        <>
          <p class="actions">
            {presets.map(([name, values]) => (
              <button
                type="button"
                class="quiet small"
                onClick={() => {
                  form.value = { ...form.value, ...values };
                  void ask();
                }}
              >
                {name}
              </button>
            ))}
          </p>
          <form class="grid-form" onSubmit={ask}>
            <label>
              Model{' '}
              <input value={f.model} onInput={set('model')} placeholder="70B, or a name" required />
            </label>
            <label>
              Weights{' '}
              <select value={f.weights} onChange={set('weights')}>
                {['bf16', 'fp8', 'int8', 'int4'].map((w) => (
                  <option>{w}</option>
                ))}
              </select>
            </label>
            <label>
              Input tokens <input type="number" min="1" value={f.input} onInput={set('input')} />
            </label>
            <label>
              Output tokens <input type="number" min="1" value={f.output} onInput={set('output')} />
            </label>
            <label>
              Requests per second{' '}
              <input type="number" min="0" step="any" value={f.rate} onInput={set('rate')} />
            </label>
            <label>
              Time per token, max. ms{' '}
              <input
                type="number"
                min="0"
                step="any"
                value={f.tpot}
                onInput={set('tpot')}
                placeholder="no limit"
              />
            </label>
            <label>
              First token, max. ms{' '}
              <input
                type="number"
                min="0"
                step="any"
                value={f.ttft}
                onInput={set('ttft')}
                placeholder="no limit"
              />
            </label>
            <button class="full" disabled={busy.value}>
              {busy.value ? 'Computing…' : 'Compute'}
            </button>
          </form>
          {error.value && (
            <p role="alert" class="bad">
              {error.value}
            </p>
          )}
          {answer.value &&
            (answer.value.offers.length ? (
              <>
                <p class="finding best">
                  <b>
                    {answer.value.asked} costs {monthly(answer.value.offers)}
                  </b>{' '}
                  on {answer.value.offers[0].gpus} × {answer.value.offers[0].gpu}
                  {answer.value.offers[0].instance
                    ? ` (${answer.value.offers[0].instance})`
                    : ', which you own'}
                  : first token after {answer.value.offers[0].ttft_ms.toFixed(0)} ms, then one every{' '}
                  {answer.value.offers[0].tpot_ms.toFixed(0)} ms
                  {priced(answer.value.offers[0])}.
                </p>
                <AdviceCurve points={answer.value.curve} chosen={answer.value.load} />
                <h2>Options, best first</h2>
                <div class="scroll" tabIndex={0} role="region" aria-label="Options">
                  <table>
                    <thead>
                      <tr>
                        <th>GPUs</th>
                        <th>Instance</th>
                        <th class="right">Per month</th>
                        <th class="right">First token</th>
                        <th class="right">Per token</th>
                        <th>Setup</th>
                        <th>Limited by</th>
                        <th>Basis</th>
                      </tr>
                    </thead>
                    <tbody>
                      {answer.value.offers.map((o) => (
                        <tr>
                          <td class="wrap">
                            <b>
                              {o.gpus} × {o.gpu}
                            </b>
                            {o.slice ? ` (${o.slice})` : ''}
                          </td>
                          <td class="wrap any">{o.instance ?? 'your own'}</td>
                          <td class="right">
                            {o.usd_month != null ? `$${o.usd_month.toLocaleString()}` : '–'}
                          </td>
                          <td class="right">{o.ttft_ms.toFixed(0)} ms</td>
                          <td class="right">{o.tpot_ms.toFixed(1)} ms</td>
                          <td class="wrap">
                            {o.precision}, {plural(o.replicas, 'replica')}
                            {o.parallelism ? `, ${o.parallelism}` : ''}
                          </td>
                          <td class="wrap">{o.binding}</td>
                          <td class="wrap">
                            {o.kind}
                            {priced(o)}
                          </td>
                        </tr>
                      ))}
                    </tbody>
                  </table>
                </div>
                {answer.value.text && (
                  <details>
                    <summary>Explanation</summary>
                    <pre class="words">{answer.value.text}</pre>
                  </details>
                )}
              </>
            ) : (
              <pre class="words">{answer.value.text ?? 'No GPU meets these limits.'}</pre>
            ))}
          <h2>Same on the command line</h2>
          <Line text={line} />
        </>
      )}
    </section>
  );
}
