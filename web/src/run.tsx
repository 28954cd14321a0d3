// A form that runs a job and shows its price and the equivalent command line.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { get, has, post, problem } from './api';
import { gpus as gpuText, usd } from './format';
import { Line } from './ui';
import { nodes, nodesTick, readings, route, status } from './store';

// Splits a command like a shell: quotes and backslashes only.
export function words(text: string): string[] {
  const out: string[] = [];
  let word = '',
    quote = '',
    open = false;
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (quote) {
      if (c === quote) quote = '';
      else if (c === '\\' && quote === '"' && i + 1 < text.length) word += text[++i];
      else word += c;
    } else if (c === '"' || c === "'") {
      quote = c;
      open = true;
    } else if (c === '\\' && i + 1 < text.length) {
      word += text[++i];
      open = true;
    } else if (/\s/.test(c)) {
      if (open) out.push(word);
      word = '';
      open = false;
    } else {
      word += c;
      open = true;
    }
  }
  if (open) out.push(word);
  return out;
}
const quoted = (word: string) =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replace(/'/g, `'\\''`)}'`;

interface Rates {
  rates: { gpu_type: string; class: string; nano_usd_per_s: number }[];
}

export function RunForm() {
  const given = new URLSearchParams(route.value.split('?')[1] ?? '');
  const command = useSignal(given.get('command') ?? '');
  const count = useSignal(given.get('gpus') ?? '1');
  const type = useSignal(given.get('type') ?? '');
  const name = useSignal(given.get('name') ?? '');
  const cwd = useSignal(given.get('cwd') ?? '');
  const hours = useSignal('');
  const spot = useSignal(given.get('spot') === '1');
  const project = useSignal(given.get('project') ?? '');
  const projects = useSignal<string[]>([]);
  const usual = useSignal('');
  const rates = useSignal<Rates['rates']>([]);
  const error = useSignal('');
  nodesTick.value;
  useEffect(() => {
    void get<{ projects: { name: string; members: Record<string, string> }[] }>(
      '/v1/projects',
    ).then(
      (d) => {
        projects.value = d.projects.map((p) => p.name);
        // The default project: that of the token, else the first in which the user may submit jobs.
        const you = status.value?.you;
        usual.value =
          you?.project ||
          d.projects.find((p) => you && (p.members[you.user] ?? 'viewer') !== 'viewer')?.name ||
          '';
        project.value ||= usual.value;
      },
      () => {},
    );
    void has('/v1/prices/rates').then((yes) => {
      if (yes)
        void get<Rates>('/v1/prices/rates').then(
          (d) => {
            rates.value = d.rates;
          },
          () => {},
        );
    });
  }, []);
  const n = Number(count.value) || 0;
  const free = new Map<string, number>();
  for (const node of nodes.values())
    node.gpus.forEach((g, i) =>
      free.set(
        g.type,
        (free.get(g.type) ?? 0) +
          (g.unhealthy || node.state !== 'ready'
            ? 0
            : (1000 - (readings.get(node.id)?.[i]?.milli ?? 0)) / 1000),
      ),
    );
  const types = [...free.keys()].sort();
  const wanted = type.value ? [type.value] : types;
  const priced = rates.value.filter(
    (r) => wanted.includes(r.gpu_type) && r.class === (spot.value ? 'spot' : 'on-demand'),
  );
  const perHour = priced.map((r) => r.nano_usd_per_s * 3600 * n);
  const low = Math.min(...perHour),
    high = Math.max(...perHour);
  const h = Number(hours.value) || 0;
  const argv = words(command.value);
  const line = [
    'billow',
    'run',
    ...(n ? ['--gpus', String(n)] : []),
    ...(type.value ? ['--gpu-type', type.value] : []),
    ...(name.value ? ['--name', quoted(name.value)] : []),
    ...(cwd.value ? ['--cwd', quoted(cwd.value)] : []),
    ...(h ? ['--time', `${h}h`] : []),
    ...(spot.value ? ['--spot'] : []),
    ...(project.value && project.value !== usual.value ? ['--project', quoted(project.value)] : []),
    '--',
    ...(argv.length ? argv.map(quoted) : ['COMMAND']),
  ].join(' ');
  const submit = async (event: Event) => {
    event.preventDefault();
    const resources =
      n >= 1
        ? { gpus: Math.floor(n), share: { milli: 1000 } }
        : n > 0
          ? { gpus: 1, share: { milli: Math.round(n * 1000) } }
          : {};
    const spec = {
      argv,
      name: name.value,
      cwd: cwd.value,
      spot: spot.value,
      ...(h ? { time_limit_ns: Math.round(h * 3600) * 1e9 } : {}),
      resources: { ...resources, ...(type.value ? { gpu_types: [type.value] } : {}) },
    };
    try {
      const made = await post<{ id: number }>('/v1/jobs', {
        spec,
        ...(project.value ? { project: project.value } : {}),
      });
      location.hash = `/jobs/${made.id}`;
    } catch (e) {
      error.value = problem(e);
    }
  };
  const fits = n === 0 || wanted.some((t) => (free.get(t) ?? 0) >= n);
  return (
    <section class="form">
      <h1>Run</h1>
      <form onSubmit={submit}>
        <label class="full">
          Command{' '}
          <input
            name="command"
            required
            value={command.value}
            onInput={(e) => {
              command.value = e.currentTarget.value;
            }}
            placeholder="python train.py --epochs 10"
            autocomplete="off"
            spellcheck={false}
          />
        </label>
        <label>
          GPUs{' '}
          <input
            name="gpus"
            type="number"
            min="0"
            step="any"
            value={count.value}
            onInput={(e) => {
              count.value = e.currentTarget.value;
            }}
          />
          <small>0.25 is a quarter of a GPU</small>
        </label>
        <label>
          GPU type{' '}
          <select
            name="type"
            value={type.value}
            onChange={(e) => {
              type.value = e.currentTarget.value;
            }}
          >
            <option value="">any</option>
            {types.map((t) => (
              <option value={t}>
                {t} ({gpuText((free.get(t) ?? 0) * 1000)} free)
              </option>
            ))}
          </select>
        </label>
        <label>
          Time limit in hours{' '}
          <input
            name="hours"
            type="number"
            min="0"
            step="any"
            value={hours.value}
            onInput={(e) => {
              hours.value = e.currentTarget.value;
            }}
            placeholder="no limit"
          />
        </label>
        <label>
          Name{' '}
          <input
            name="name"
            value={name.value}
            onInput={(e) => {
              name.value = e.currentTarget.value;
            }}
            autocomplete="off"
          />
        </label>
        <label>
          Directory{' '}
          <input
            name="cwd"
            value={cwd.value}
            onInput={(e) => {
              cwd.value = e.currentTarget.value;
            }}
            placeholder="your home directory"
            autocomplete="off"
          />
        </label>
        {projects.value.length > 1 && (
          <label>
            Project{' '}
            <select
              name="project"
              value={project.value}
              onChange={(e) => {
                project.value = e.currentTarget.value;
              }}
            >
              {projects.value.map((p) => (
                <option>{p}</option>
              ))}
            </select>
          </label>
        )}
        <label class="check">
          <input
            name="spot"
            type="checkbox"
            checked={spot.value}
            onChange={(e) => {
              spot.value = e.currentTarget.checked;
            }}
          />{' '}
          Spot: cheaper, but suspended when others need the GPUs
        </label>
        <div class="price full" role="status">
          {n === 0 ? (
            'Jobs without a GPU are free.'
          ) : perHour.length ? (
            <>
              <b>{low === high ? usd(low) : `${usd(low)} to ${usd(high)}`}</b> per hour
              {h ? (
                <>
                  , at most <b>{usd(high * h)}</b> for {h} h
                </>
              ) : (
                ''
              )}
              {spot.value ? ', spot' : ''}.
            </>
          ) : (
            'The price is known when the job starts.'
          )}
          {n > 0 && types.length > 0 && (
            <> {fits ? 'It can start now.' : 'It will wait: not enough GPUs are free.'}</>
          )}
        </div>
        <button class="full">Run</button>
      </form>
      {error.value && (
        <p role="alert" class="bad">
          {error.value}
        </p>
      )}
      <h2>Same on the command line</h2>
      <Line text={line} />
    </section>
  );
}
