// The keys of an endpoint: what each has used, and a form that creates one.
import { useSignal } from '@preact/signals';
import { call, post } from '../data/api';
import { moment, plural, usd } from '../data/format';
import { mayChange } from '../data/rights';
import { confirm } from '../parts/ui';
import type { Act, Endpoint } from './endpoint_types';

const at = (e: Endpoint) => `/v1/endpoints/${encodeURIComponent(e.name)}/keys`;
const dayS = 86_400;

// What each key has used since midnight, UTC.
function Used({ e, act }: { e: Endpoint; act: Act }) {
  return (
    <>
      <div class="scroll" tabIndex={0} role="region" aria-label={`Keys of ${e.name}`}>
        <table>
          <thead>
            <tr>
              <th>Key</th>
              <th>Project</th>
              <th>Limits</th>
              <th>Expires</th>
              <th class="right">Requests</th>
              <th class="right">Refused</th>
              <th class="right">Tokens in</th>
              <th class="right">Tokens out</th>
              <th class="right">Charge</th>
              {mayChange(e) && (
                <th>
                  <span class="sr">Actions</span>
                </th>
              )}
            </tr>
          </thead>
          <tbody>
            {e.keys.map((k) => (
              <tr>
                <td>{k.name}</td>
                <td>{k.project ?? e.project}</td>
                <td>{k.limits?.join(', ') ?? 'none'}</td>
                <td>
                  {!k.expires_at ? 'never' : k.expired ? 'has expired' : moment(k.expires_at)}
                </td>
                <td class="right">{k.today.requests.toLocaleString()}</td>
                <td class="right">{k.today.refused.toLocaleString()}</td>
                <td class="right">{k.today.tokens_in.toLocaleString()}</td>
                <td class="right">{k.today.tokens_out.toLocaleString()}</td>
                <td class="right">{usd(k.today.charge_nano_usd)}</td>
                {mayChange(e) && (
                  <td>
                    <button
                      class="quiet small ends"
                      aria-label={`Delete the key ${k.name}`}
                      onClick={() =>
                        confirm(
                          `Delete the key ${k.name}?`,
                          `Callers of ${e.name} that use it are refused from now on.`,
                          'Delete',
                          () =>
                            void act(
                              () => call('DELETE', `${at(e)}/${encodeURIComponent(k.name)}`),
                              `The key ${k.name} was deleted`,
                            ),
                        )
                      }
                    >
                      Delete
                    </button>
                  </td>
                )}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="note">
        Since midnight, UTC. <code>billow cost --by key,day</code> shows earlier days.
      </p>
    </>
  );
}

function NewKey({ e, act }: { e: Endpoint; act: Act }) {
  const secret = useSignal('');
  const create = (event: Event) => {
    event.preventDefault();
    const form = event.target as HTMLFormElement;
    const f = new FormData(form);
    const days = Number(f.get('days'));
    const amount = Number(f.get('amount'));
    const of = String(f.get('of'));
    const limit = {
      of,
      per: f.get('per'),
      amount: Math.round(of === 'usd' ? amount * 1e9 : amount),
    };
    const name = String(f.get('name')).trim();
    void act(async () => {
      const made = await post<{ key: string }>(at(e), {
        name,
        ...(days ? { lasts_s: Math.round(days * dayS) } : {}),
        ...(amount ? { limits: [limit] } : {}),
      });
      secret.value = made.key;
      form.reset();
    }, `The key ${name} was created`);
  };
  return (
    <>
      <form class="inline" onSubmit={create} aria-label={`New key of ${e.name}`}>
        <label>
          Name of the key <input name="name" required autocomplete="off" spellcheck={false} />
        </label>
        <label>
          Expires after, days <input name="days" type="number" min="1" placeholder="never" />
        </label>
        <label>
          Limit <input name="amount" type="number" min="0" step="any" placeholder="none" />
        </label>
        <label>
          of{' '}
          <select name="of">
            <option value="requests">requests</option>
            <option value="tokens">tokens</option>
            <option value="usd">US dollars</option>
          </select>
        </label>
        <label>
          per{' '}
          <select name="per">
            <option value="day">day</option>
            <option value="hour">hour</option>
            <option value="min">minute</option>
          </select>
        </label>
        <button class="quiet">Create key</button>
      </form>
      {secret.value && (
        <p class="secret" role="status">
          Copy it now, it is not shown again: <code>{secret.value}</code>
        </p>
      )}
    </>
  );
}

export function Keys({ e, act }: { e: Endpoint; act: Act }) {
  if (!e.keys.length && !mayChange(e)) return null;
  return (
    <details>
      <summary>
        {e.keys.length ? `${plural(e.keys.length, 'key')} and their use today` : 'Keys'}
      </summary>
      {e.keys.length > 0 ? (
        <Used e={e} act={act} />
      ) : (
        <p class="note">
          {e.access === 'open' ? 'Anyone may call it without a key.' : 'It has no key yet.'}
        </p>
      )}
      {mayChange(e) && <NewKey e={e} act={act} />}
    </details>
  );
}
