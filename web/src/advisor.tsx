// Which GPU does a model need, and what does it cost? The head answers (POST /v1/advise); the page asks and shows.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { has, post, problem } from './api';
import { Empty, Line } from './ui';

interface Offer { [key: string]: unknown }
const presets: [string, Record<string, string>][] = [
  ['70B at fp8', { model: '70B', weights: 'fp8', input: '1024', output: '256', rate: '2' }], ['8B chat', { model: '8B', weights: 'bf16', input: '512', output: '256', rate: '5' }],
  ['32B at int4', { model: '32B', weights: 'int4', input: '1024', output: '512', rate: '1' }],
];
const shown = (v: unknown): string => (v == null ? '–' : typeof v === 'number' ? (Number.isInteger(v) ? v.toLocaleString() : v.toPrecision(4)) : typeof v === 'object' ? JSON.stringify(v) : String(v));

export function Advisor() {
  const can = useSignal<boolean | null>(null);
  const form = useSignal<Record<string, string>>({ model: '70B', weights: 'fp8', input: '1024', output: '256', rate: '2', tpot: '', ttft: '' });
  const answer = useSignal<{ offers: Offer[]; text?: string } | null>(null);
  const error = useSignal('');
  const busy = useSignal(false);
  useEffect(() => { void has('/v1/advise').then((yes) => { can.value = yes; if (yes) void ask(); }); }, []);
  const ask = async (event?: Event) => {
    event?.preventDefault();
    busy.value = true;
    const f = form.value;
    try {
      const got = await post<Record<string, unknown>>('/v1/advise', { model: f.model, weights: f.weights, input_tokens: Number(f.input), output_tokens: Number(f.output), requests_per_s: Number(f.rate), ...(f.tpot ? { tpot_ms: Number(f.tpot) } : {}), ...(f.ttft ? { ttft_ms: Number(f.ttft) } : {}) });
      const list = (got.options ?? got.offers ?? got.recommendations ?? got.choices ?? []) as Offer[];
      answer.value = { offers: list, text: typeof got.text === 'string' ? got.text : undefined };
      error.value = '';
    } catch (e) { error.value = problem(e); }
    busy.value = false;
  };
  const set = (key: string) => (e: Event) => { form.value = { ...form.value, [key]: (e.currentTarget as HTMLInputElement).value }; };
  const f = form.value;
  const line = `billow advise ${f.model} --weights ${f.weights} --input ${f.input} --output ${f.output} --rate ${f.rate}`;
  return (
    <section>
      <h1>Advisor</h1>
      <p class="lead">Which GPU does a model need to keep its promise, and what does that cost? From the model's shape, what the cards can do, and prices of the day.</p>
      {can.value === false ? <Empty title="Ask in a terminal"><p>This head answers such questions on the command line.</p><Line text={line} /></Empty> : (
        <>
          <p class="actions">{presets.map(([name, values]) => <button type="button" class="quiet small" onClick={() => { form.value = { ...form.value, ...values }; void ask(); }}>{name}</button>)}</p>
          <form class="grid-form" onSubmit={ask}>
            <label>Model <input value={f.model} onInput={set('model')} placeholder="70B, or a name" required /></label>
            <label>Weights <select value={f.weights} onChange={set('weights')}>{['bf16', 'fp8', 'int8', 'int4'].map((w) => <option>{w}</option>)}</select></label>
            <label>Tokens in <input type="number" min="1" value={f.input} onInput={set('input')} /></label>
            <label>Tokens out <input type="number" min="1" value={f.output} onInput={set('output')} /></label>
            <label>Requests per second <input type="number" min="0" step="any" value={f.rate} onInput={set('rate')} /></label>
            <label>Time per token, at most ms <input type="number" min="0" step="any" value={f.tpot} onInput={set('tpot')} placeholder="no limit" /></label>
            <label>First token, at most ms <input type="number" min="0" step="any" value={f.ttft} onInput={set('ttft')} placeholder="no limit" /></label>
            <button class="full" disabled={busy.value}>{busy.value ? 'Asking…' : 'Ask'}</button>
          </form>
          {error.value && <p role="alert" class="bad">{error.value}</p>}
          {answer.value && (answer.value.offers.length ? <div class="scroll" tabIndex={0} role="region" aria-label="Answers"><table>
            <thead><tr>{Object.keys(answer.value.offers[0]).slice(0, 10).map((k) => <th>{k.replace(/_/g, ' ')}</th>)}</tr></thead>
            <tbody>{answer.value.offers.map((o) => <tr>{Object.keys(answer.value!.offers[0]).slice(0, 10).map((k) => <td>{shown(o[k])}</td>)}</tr>)}</tbody>
          </table></div> : <pre class="line">{answer.value.text ?? 'No card keeps that promise.'}</pre>)}
          <h2>The same in a terminal</h2><Line text={line} />
        </>
      )}
    </section>
  );
}
