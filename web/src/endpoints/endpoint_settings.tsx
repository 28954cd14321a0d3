// How an endpoint is set up: the options that are not at their defaults, and the names by which it
// is reached besides its own: host names, and names of models at /v1.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { call, get, has, post } from '../data/api';
import { mayChange } from '../data/rights';
import { confirm } from '../parts/ui';
import type { Act, Endpoint } from './endpoint_types';
import { policySettings } from './policy_options';

export function Settings({ e }: { e: Endpoint }) {
  const all = policySettings(e.policy ?? {});
  if (!all.length) return null;
  return (
    <dl class="facts settings">
      <dt>Settings</dt>
      <dd>
        {all.map(({ name, value, help }) => (
          <span class="tag" title={help}>
            {name}
            {value && `: ${value}`}
          </span>
        ))}
      </dd>
    </dl>
  );
}

interface Domain {
  name: string;
  endpoint: string;
}
interface Model {
  name: string;
  to: { endpoint: string; weight?: number }[];
  fallbacks?: string[];
}
// "90 % of the requests", "as a fallback"
function share(model: Model, endpoint: string): string {
  const weight = (each: Model['to'][number]) => each.weight ?? 1;
  const own = model.to.find((each) => each.endpoint === endpoint);
  if (!own) return 'as a fallback';
  const sum = model.to.reduce((all, each) => all + weight(each), 0);
  return model.to.length > 1 ? `${Math.round((weight(own) / sum) * 100)} % of its requests` : '';
}

export function Addresses({ e, act }: { e: Endpoint; act: Act }) {
  const domains = useSignal<Domain[]>([]);
  const models = useSignal<Model[]>([]);
  const load = async () => {
    if (!(await has('/v1/domains'))) return;
    domains.value = (await get<{ domains: Domain[] }>('/v1/domains')).domains.filter(
      (d) => d.endpoint === e.name,
    );
    models.value = (await get<{ models: Model[] }>('/v1/model-routes')).models;
  };
  useEffect(() => {
    load().catch(() => {});
  }, [e.name]);
  const served = models.value.filter(
    (m) => m.to.some((t) => t.endpoint === e.name) || m.fallbacks?.includes(e.name),
  );
  const change = (run: () => Promise<unknown>, said: string) => act(run, said).then(load);
  const add = (event: Event) => {
    event.preventDefault();
    const form = event.target as HTMLFormElement;
    const kind = form.dataset.kind!;
    const name = String(new FormData(form).get('name')).trim();
    if (!name) return;
    form.reset();
    if (kind === 'domain') {
      const to = { name, endpoint: e.name };
      return void change(() => post('/v1/domains', to), `${name} leads to ${e.name}`);
    }
    const route = () =>
      void change(
        () => post('/v1/model-routes', { name, to: [{ endpoint: e.name }] }),
        `The model ${name} is served by ${e.name}`,
      );
    const other = models.value.find((m) => m.name === name);
    if (!other) return route();
    const by = other.to.map((t) => t.endpoint).join(' and ');
    confirm(
      `Serve the model ${name} by ${e.name} alone?`,
      `It is served by ${by} now. Shares between endpoints: billow model set.`,
      'Change',
      route,
    );
  };
  const remove = (what: string, path: string) =>
    confirm(`Remove ${what}?`, 'Requests to this name are no longer served.', 'Remove', () => {
      void change(() => call('DELETE', path), `${what} was removed`);
    });
  const may = mayChange(e);
  if (!may && !domains.value.length && !served.length) return null;
  return (
    <details class="addresses" open={domains.value.length + served.length > 0}>
      <summary>Domains and models</summary>
      <ul class="plain rows wrap">
        {domains.value.map((d) => (
          <li>
            <span>
              <b>{d.name}</b> <small>domain</small>
            </span>
            {may && (
              <button
                class="quiet small"
                aria-label={`Remove the domain ${d.name}`}
                onClick={() =>
                  remove(`the domain ${d.name}`, `/v1/domains/${encodeURIComponent(d.name)}`)
                }
              >
                Remove
              </button>
            )}
          </li>
        ))}
        {served.map((m) => (
          <li>
            <span>
              <b>{m.name}</b> <small>model at /v1 {share(m, e.name)}</small>
            </span>
            {may && m.to.length === 1 && (
              <button
                class="quiet small"
                aria-label={`Remove the model ${m.name}`}
                onClick={() =>
                  remove(
                    `the model ${m.name}`,
                    `/v1/model-routes?name=${encodeURIComponent(m.name)}`,
                  )
                }
              >
                Remove
              </button>
            )}
          </li>
        ))}
      </ul>
      {may && (
        <div class="two">
          <form class="inline" data-kind="domain" onSubmit={add}>
            <label>
              Domain <input name="name" placeholder="api.example.org" autocomplete="off" />
            </label>
            <button class="quiet">Add the domain</button>
          </form>
          <form class="inline" data-kind="model" onSubmit={add}>
            <label>
              Model <input name="name" placeholder="gpt-4o-mini" autocomplete="off" />
            </label>
            <button class="quiet">Add the model</button>
          </form>
        </div>
      )}
    </details>
  );
}
