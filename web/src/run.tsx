// A form that runs a job, and shows the command line that would do the same.
import { useSignal } from '@preact/signals';
import { ApiError, post } from './api';
import { nodes } from './store';

// Splits as a shell would: quotes and backslashes, nothing else.
export function words(text: string): string[] {
  const out: string[] = [];
  let word = '', quote = '', open = false;
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (quote) {
      if (c === quote) quote = '';
      else if (c === '\\' && quote === '"' && i + 1 < text.length) word += text[++i];
      else word += c;
    } else if (c === '"' || c === "'") { quote = c; open = true; }
    else if (c === '\\' && i + 1 < text.length) { word += text[++i]; open = true; }
    else if (/\s/.test(c)) { if (open) out.push(word); word = ''; open = false; }
    else { word += c; open = true; }
  }
  if (open) out.push(word);
  return out;
}

export function RunForm() {
  const given = new URLSearchParams(location.hash.split('?')[1] ?? '');
  const command = useSignal(given.get('command') ?? '');
  const gpus = useSignal(given.get('gpus') ?? '1');
  const type = useSignal('');
  const name = useSignal(given.get('name') ?? '');
  const cwd = useSignal('');
  const error = useSignal('');
  const types = [...new Set(nodes.value.flatMap((n) => n.gpus.map((g) => g.type)))];
  const line = ['billow', 'submit', ...(Number(gpus.value) ? ['--gpus', gpus.value] : []), ...(type.value ? ['--gpu-type', type.value] : []),
    ...(name.value ? ['--name', name.value] : []), ...(cwd.value ? ['--cwd', cwd.value] : []), '--', command.value || 'COMMAND'].join(' ');
  const submit = async (event: Event) => {
    event.preventDefault();
    const count = Number(gpus.value);
    const resources = count >= 1 ? { gpus: Math.floor(count), share: { milli: 1000 } } : count > 0 ? { gpus: 1, share: { milli: Math.round(count * 1000) } } : {};
    const spec = { argv: words(command.value), name: name.value, cwd: cwd.value, resources: { ...resources, ...(type.value ? { gpu_types: [type.value] } : {}) } };
    try {
      const made = await post<{ id: number }>('/v1/jobs', { spec });
      location.hash = `/jobs/${made.id}`;
    } catch (e) { error.value = e instanceof ApiError ? `${e.message}${e.hint ? ` (${e.hint})` : ''}` : 'the head does not answer'; }
  };
  return (
    <section class="form">
      <h1>Run</h1>
      <form onSubmit={submit}>
        <label>Command <input name="command" required value={command.value} onInput={(e) => { command.value = e.currentTarget.value; }} placeholder="python train.py" autocomplete="off" spellcheck={false} /></label>
        <label>GPUs <input name="gpus" type="number" min="0" step="any" value={gpus.value} onInput={(e) => { gpus.value = e.currentTarget.value; }} /></label>
        <label>GPU type <select name="type" value={type.value} onChange={(e) => { type.value = e.currentTarget.value; }}><option value="">any</option>{types.map((t) => <option>{t}</option>)}</select></label>
        <label>Name <input name="name" value={name.value} onInput={(e) => { name.value = e.currentTarget.value; }} autocomplete="off" /></label>
        <label>Directory <input name="cwd" value={cwd.value} onInput={(e) => { cwd.value = e.currentTarget.value; }} placeholder="/home/me/project" autocomplete="off" /></label>
        <button>Run</button>
      </form>
      {error.value && <p role="alert" class="bad">{error.value}</p>}
      <h2>The same in a terminal</h2>
      <pre class="line">{line}</pre>
    </section>
  );
}
