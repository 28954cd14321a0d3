// A form that runs a job. It says what the head would do with it (the price, whether it can start),
// and how the same is written on the command line, in Python and in a job file. A job that is
// changed and run again keeps what the form does not show.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { freeOf } from '../data/card';
import { get, has, post, problem, type Job, type Spec } from '../data/api';
import { dateOf, gpus as gpuText, usd } from '../data/format';
import type { Rates } from '../data/spend';
import { gpusOf } from './run_command';
import { asCli, asPython, asToml } from './run_forms';
import { shared, usePresets } from './presets';
import { alsoKept, options, type Option } from './run_options';
import { fieldsOf, specOf, type Fields } from './run_spec';
import { projects, usualProject } from '../data/rights';
import { Line } from '../parts/ui';
import { nodes, nodesTick, readings, route } from '../data/store';

interface Quote {
  rents?: { text: string; usd_per_h: number } | null;
  starts?: { now: boolean; text: string };
}

// GPUs that are free now, by type.
function freeGpus(): Map<string, number> {
  const free = new Map<string, number>();
  for (const node of nodes.values())
    node.gpus.forEach((g, i) =>
      free.set(
        g.type,
        (free.get(g.type) ?? 0) + freeOf(node, g, readings.get(node.id)?.[i]) / 1000,
      ),
    );
  return free;
}

// What the head says about it: whether it can start, and what it would rent.
function useQuote(spec: Spec, project: string, ready: boolean): Quote | null {
  const quote = useSignal<Quote | null>(null);
  const key = JSON.stringify([spec, project]);
  useEffect(() => {
    quote.value = null;
    if (!ready) return;
    const timer = window.setTimeout(() => {
      post<Quote>('/v1/jobs?quote=1', { spec, ...(project ? { project } : {}) }).then(
        (q) => {
          quote.value = q;
        },
        () => {},
      );
    }, 400);
    return () => window.clearTimeout(timer);
  }, [key, ready]);
  return quote.value;
}

function useRates(): Rates['rates'] {
  const rates = useSignal<Rates['rates']>([]);
  useEffect(() => {
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
  return rates.value;
}

function Price({ fields, spec, quote }: { fields: Fields; spec: Spec; quote: Quote | null }) {
  nodesTick.value;
  const rates = useRates();
  const { milli, error } = gpusOf(fields.gpus ?? '');
  const n = (milli / 1000) * Number(spec.nodes ?? 1);
  const wanted = fields.type ? fields.type.split(',') : [...freeGpus().keys()];
  const kind = fields.spot ? 'spot' : 'on-demand';
  const used = rates.filter((r) => wanted.includes(r.gpu_type) && r.class === kind);
  const perHour = used.map((r) => r.nano_usd_per_s * 3600 * n);
  const builtIn = used.filter((r) => r.built_in);
  const builtInOf = builtIn
    .map((r) => r.prices_of ?? '')
    .sort()
    .at(-1);
  const low = Math.min(...perHour),
    high = Math.max(...perHour);
  const hours = Number(fields.hours) || 0;
  if (error) return null;
  return (
    <div class="price full" role="status">
      {n === 0 ? (
        'Jobs without a GPU are free.'
      ) : perHour.length ? (
        <>
          <b>{low === high ? usd(low) : `${usd(low)} to ${usd(high)}`}</b> per hour
          {hours > 0 && (
            <>
              , at most <b>{usd(high * hours)}</b> for {hours} h
            </>
          )}
          {fields.spot ? ', spot' : ''}.
          {builtInOf && (
            <small class="dim">
              {' '}
              {builtIn.length < used.length
                ? 'Partly built-in prices'
                : builtIn.length > 1
                  ? 'Built-in prices'
                  : 'Built-in price'}{' '}
              as of {dateOf(builtInOf)}.
            </small>
          )}
        </>
      ) : (
        'The price is known when the job starts.'
      )}{' '}
      {quote?.starts && <span id="starts">{quote.starts.text}</span>}{' '}
      {quote?.rents && `It rents ${quote.rents.text}.`}
    </div>
  );
}

function Field({
  o,
  fields,
  set,
}: {
  o: Option;
  fields: Fields;
  set: (k: string, v: string) => void;
}) {
  const value = fields[o.flag] ?? '';
  const change = (e: Event) => set(o.flag, (e.currentTarget as HTMLInputElement).value);
  if (o.kind === 'switch')
    return (
      <label class="check">
        <input
          name={o.flag}
          type="checkbox"
          checked={!!value}
          onChange={(e) => set(o.flag, e.currentTarget.checked ? 'on' : '')}
        />
        <span>
          --{o.flag} <small>{o.help}</small>
        </span>
      </label>
    );
  return (
    <label>
      --{o.flag}
      {o.kind === 'choice' && o.choices ? (
        <select name={o.flag} value={value} onChange={change}>
          <option value="">default</option>
          {o.choices.map((c) => (
            <option>{c}</option>
          ))}
        </select>
      ) : (
        <input
          name={o.flag}
          value={value}
          placeholder={o.form}
          onInput={change}
          autocomplete="off"
          spellcheck={false}
        />
      )}
      <small>{o.help}</small>
    </label>
  );
}

function More({ fields, set }: { fields: Fields; set: (k: string, v: string) => void }) {
  const groups = [...new Set(options.map((o) => o.group))];
  const used = options.filter((o) => fields[o.flag]).length;
  return (
    <details class="full more-options" open={used > 0}>
      <summary>More options{used ? ` (${used} set)` : ''}</summary>
      {groups.map((group) => (
        <fieldset>
          <legend>{group}</legend>
          {options
            .filter((o) => o.group === group)
            .map((o) => (
              <Field key={o.flag} o={o} fields={fields} set={set} />
            ))}
        </fieldset>
      ))}
    </details>
  );
}

const forms: [string, string, (spec: Spec, project: string) => string][] = [
  ['cli', 'Command line', asCli],
  ['python', 'Python', asPython],
  ['toml', 'Job file', asToml],
];
function Elsewhere({ spec, project }: { spec: Spec; project: string }) {
  const shown = useSignal('cli');
  const form = forms.find(([id]) => id === shown.value)!;
  return (
    <section aria-label="The same elsewhere" class="elsewhere">
      <div class="filters">
        <h2>The same as</h2>
        <div class="tabs" role="group" aria-label="Form">
          {forms.map(([id, name]) => (
            <button
              type="button"
              aria-pressed={shown.value === id}
              onClick={() => {
                shown.value = id;
              }}
            >
              {name}
            </button>
          ))}
        </div>
      </div>
      <Line text={form[2](spec, project)} />
    </section>
  );
}

export function RunForm() {
  const given = new URLSearchParams(route.value.split('?')[1] ?? '');
  const from = given.get('from') ?? '';
  const base = useSignal<Spec | null>(null);
  const fields = useSignal<Fields>({
    gpus: '1',
    ...Object.fromEntries([...given].filter(([k]) => shared.has(k))),
  });
  const error = useSignal('');
  const of = useSignal('');
  useEffect(() => {
    if (!from) return;
    get<Job>(`/v1/jobs/${from}`).then(
      (job) => {
        const spec = job.spec ?? { argv: job.argv };
        of.value = job.project;
        base.value = spec;
        fields.value = { ...fieldsOf(spec), project: job.project };
      },
      (e) => {
        error.value = problem(e);
      },
    );
  }, [from]);
  const set = (key: string, value: string) => {
    fields.value = { ...fields.value, [key]: value };
  };
  const f = fields.value;
  const project = f.project || usualProject();
  const { spec, errors, shell } = specOf(f, base.value);
  const quote = useQuote(spec, project, spec.argv.length > 0 && !errors.length);
  nodesTick.value;
  const free = freeGpus();
  const types = [...free.keys()].sort();
  if (f.type && !types.includes(f.type)) types.push(f.type);
  const kept = base.value ? alsoKept(spec) : [];
  const submit = async (event: Event) => {
    event.preventDefault();
    if (errors.length) {
      error.value = errors[0];
      return;
    }
    try {
      // A changed job keeps its variables, which only the head knows.
      const made = await (base.value
        ? post<{ id: number }>(`/v1/jobs/${from}/rerun`, { spec })
        : post<{ id: number }>('/v1/jobs', { spec, ...(project ? { project } : {}) }));
      location.hash = `/jobs/${made.id}`;
    } catch (e) {
      error.value = problem(e);
    }
  };
  const presets = usePresets({ fields, spec, wrong: errors.length > 0, project });
  const input = (name: string, more: Record<string, unknown> = {}) => (
    <input
      name={name}
      value={f[name] ?? ''}
      onInput={(e) => set(name, e.currentTarget.value)}
      autocomplete="off"
      spellcheck={false}
      {...more}
    />
  );
  const cliProject = project !== usualProject() ? project : '';
  return (
    <section class="form">
      <h1>Run {from && <small>job {from} again, with changes</small>}</h1>
      {presets.choice}
      <form onSubmit={submit} noValidate>
        <label class="full">
          Command {input('command', { required: true, placeholder: 'python train.py --epochs 10' })}
          {shell && (
            <small id="shell">
              The line has shell syntax, so <code>sh -c</code> runs it.
            </small>
          )}
        </label>
        <label>
          GPUs {input('gpus', { inputMode: 'decimal' })}
          <small>0.25 is a quarter of a GPU</small>
        </label>
        <label>
          GPU type{' '}
          <select
            name="type"
            value={f.type ?? ''}
            onChange={(e) => set('type', e.currentTarget.value)}
          >
            <option value="">any</option>
            {types.map((t) => (
              <option value={t}>
                {t}
                {free.has(t) ? ` (${gpuText(free.get(t)! * 1000).replace('–', '0')} free)` : ''}
              </option>
            ))}
          </select>
        </label>
        <label>
          Time limit in hours {input('hours', { inputMode: 'decimal', placeholder: 'no limit' })}
        </label>
        <label>Name {input('name')}</label>
        <label>Directory {input('cwd', { placeholder: 'your home directory' })}</label>
        {projects.value.length > 1 && (
          <label>
            Project{' '}
            <select
              name="project"
              value={project}
              disabled={!!base.value}
              onChange={(e) => set('project', e.currentTarget.value)}
            >
              {projects.value.map((p) => (
                <option>{p.name}</option>
              ))}
            </select>
          </label>
        )}
        <label class="check">
          <input
            name="spot"
            type="checkbox"
            checked={!!f.spot}
            onChange={(e) => set('spot', e.currentTarget.checked ? 'on' : '')}
          />{' '}
          Spot: cheaper, but suspended when others need the GPUs
        </label>
        <More fields={f} set={set} />
        {base.value && (
          <p class="full note" id="kept">
            Also kept: {kept.length ? <code>{kept.join('  ')}</code> : 'nothing else was set'}; its
            variables and files stay as they were.
          </p>
        )}
        <Price fields={f} spec={spec} quote={quote} />
        {f.command && errors.length > 0 && (
          <p role="alert" class="bad full">
            {errors.join(' ')}
          </p>
        )}
        <button class="full" disabled={!!f.command && errors.length > 0}>
          Run
        </button>
      </form>
      {error.value && (
        <p role="alert" class="bad">
          {error.value}
        </p>
      )}
      {presets.keep}
      <Elsewhere spec={spec} project={of.value ? '' : cliProject} />
    </section>
  );
}
