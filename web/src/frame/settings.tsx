// Which notices a user gets, and where. The choice is kept by the head, so it holds in every
// browser; addresses are sent once and never shown again.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { call, get, post, problem } from '../data/api';
import { lasting, moment } from '../data/format';
import { chooseInBrowser, wishes, type Kind } from './notifications';
import { notify } from '../data/store';
import { confirm, Line } from '../parts/ui';

interface Target {
  id: number;
  via: string;
  to: string;
  on: string[];
  wait_s: number;
  budget_pct: number;
  confirmed: boolean;
  waiting: number;
  sent_at: string | null;
  trouble: string;
}
const kinds: [Kind, string][] = [
  ['ends', 'a job of mine ends'],
  ['waits', 'a job of mine waits for more than an hour'],
  ['idle', 'a job of mine holds GPUs and does not use them'],
  ['budget', 'a budget that I can see passes 80 %'],
];
const vias: Record<string, { name: string; label: string; placeholder: string }> = {
  email: { name: 'E-mail', label: 'Mail address', placeholder: 'you@example.org' },
  slack: {
    name: 'Slack',
    label: 'Address of an incoming webhook',
    placeholder: 'https://hooks.slack.com/services/…',
  },
  discord: {
    name: 'Discord',
    label: "Address of a channel's webhook",
    placeholder: 'https://discord.com/api/webhooks/…',
  },
  ntfy: { name: 'ntfy', label: 'Address of a topic', placeholder: 'https://ntfy.sh/your-topic' },
  webhook: { name: 'Webhook', label: 'Address', placeholder: 'https://example.org/hook' },
};

function InBrowser() {
  const can = typeof Notification !== 'undefined';
  const allowed = useSignal(can ? Notification.permission : 'denied');
  const change = async (kind: Kind, on: boolean) => {
    if (on && can && Notification.permission === 'default')
      allowed.value = await Notification.requestPermission();
    try {
      await chooseInBrowser({ ...wishes.value, [kind]: on });
    } catch (e) {
      notify(problem(e));
    }
  };
  return (
    <section aria-label="In the browser">
      <h2>In the browser, when</h2>
      {!can && (
        <p class="finding">
          This browser shows notifications only for pages opened over HTTPS or from the head's own
          machine.
        </p>
      )}
      <form>
        {kinds.map(([kind, text]) => (
          <label class="check">
            <input
              type="checkbox"
              name={kind}
              disabled={!can}
              checked={wishes.value[kind]}
              onChange={(e) => void change(kind, e.currentTarget.checked)}
            />{' '}
            {text}
          </label>
        ))}
      </form>
      {allowed.value === 'denied' && can && Object.values(wishes.value).some(Boolean) && (
        <p role="alert" class="bad">
          The browser does not allow notifications for this page: change that in its settings for
          this site.
        </p>
      )}
      <p class="note">A tab of the dashboard must be open.</p>
    </section>
  );
}

const when = (t: Target) =>
  t.on
    .map((on) =>
      on === 'waits'
        ? `waits for more than ${t.wait_s % 3600 ? lasting(t.wait_s) : `${t.wait_s / 3600} h`}`
        : on === 'budget'
          ? `budget passes ${t.budget_pct} %`
          : on === 'idle'
            ? 'idles'
            : on,
    )
    .join(', ');

function Confirm({ target, changed }: { target: Target; changed: () => void }) {
  const submit = (event: Event) => {
    event.preventDefault();
    const code = String(new FormData(event.currentTarget as HTMLFormElement).get('code') ?? '');
    post(`/v1/notify/${target.id}/confirm`, { code }).then(
      () => {
        notify(`${target.to} is confirmed`);
        changed();
      },
      (e) => notify(problem(e)),
    );
  };
  return (
    <form class="labelling" onSubmit={submit}>
      <input name="code" aria-label={`Code sent to ${target.to}`} placeholder="Code in the mail" />
      <button class="small">Confirm</button>
    </form>
  );
}

function Targets({ targets, changed }: { targets: Target[]; changed: () => void }) {
  const act = (what: Promise<unknown>, said: string) =>
    void what.then(
      () => {
        notify(said);
        changed();
      },
      (e) => notify(problem(e)),
    );
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Targets of notices">
      <table>
        <thead>
          <tr>
            <th>By</th>
            <th>To</th>
            <th>When a job of mine, or a budget</th>
            <th>State</th>
            <th>
              <span class="sr">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {targets.map((t) => (
            <tr>
              <td>{vias[t.via]?.name ?? t.via}</td>
              <td>{t.to}</td>
              <td class="wrap">{when(t)}</td>
              <td class="wrap">
                {!t.confirmed ? (
                  <Confirm target={t} changed={changed} />
                ) : t.trouble ? (
                  <span class="bad">{t.trouble}</span>
                ) : t.waiting ? (
                  `${t.waiting} being sent`
                ) : t.sent_at ? (
                  <>sent {moment(t.sent_at)}</>
                ) : (
                  'nothing sent yet'
                )}
              </td>
              <td class="right">
                {t.confirmed && (
                  <button
                    class="quiet small"
                    aria-label={`Test ${vias[t.via]?.name} ${t.to}`}
                    onClick={() => act(post(`/v1/notify/${t.id}/test`), 'A test notice was sent')}
                  >
                    Test
                  </button>
                )}
                <button
                  class="quiet small"
                  aria-label={`Remove ${vias[t.via]?.name} ${t.to}`}
                  onClick={() =>
                    confirm(`Remove ${t.to}?`, 'It gets no more notices.', 'Remove', () =>
                      act(call('DELETE', `/v1/notify/${t.id}`), 'The target was removed'),
                    )
                  }
                >
                  Remove
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function AddTarget({ mail, changed }: { mail: boolean; changed: () => void }) {
  const via = useSignal(mail ? 'email' : 'slack');
  const error = useSignal('');
  const once = useSignal('');
  const round = useSignal(0); // each target begins with a new form
  const submit = async (event: Event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const text = (name: string) => String(form.get(name) ?? '').trim();
    try {
      const made = await post<{ secret?: string; via: string }>('/v1/notify', {
        via: via.value,
        address: text('address'),
        ...(text('token') ? { token: text('token') } : {}),
        on: kinds.map(([kind]) => kind).filter((kind) => form.get(`on_${kind}`)),
        wait_s: Math.round(Number(text('wait')) * 3600),
        budget_pct: Number(text('budget')),
      });
      error.value = '';
      once.value = made.secret ?? '';
      notify(
        made.via === 'email' ? 'A code was sent: confirm the address' : 'The target was added',
      );
      round.value++;
      changed();
    } catch (e) {
      error.value = problem(e);
    }
  };
  const chosen = vias[via.value];
  return (
    <section aria-label="Add a target">
      <h2>Add a target</h2>
      <form key={round.value} class="grid-form" onSubmit={(e) => void submit(e)}>
        <label>
          By{' '}
          <select
            name="via"
            value={via.value}
            onChange={(e) => {
              via.value = e.currentTarget.value;
            }}
          >
            {Object.entries(vias).map(([key, v]) => (
              <option value={key} disabled={key === 'email' && !mail}>
                {v.name}
                {key === 'email' && !mail ? ' (the head has no mail server)' : ''}
              </option>
            ))}
          </select>
        </label>
        <label class="full">
          {chosen.label}{' '}
          <input
            name="address"
            type={via.value === 'email' ? 'email' : 'url'}
            required
            placeholder={chosen.placeholder}
            autocomplete="off"
            spellcheck={false}
          />
        </label>
        {via.value === 'ntfy' && (
          <label>
            Access token, if the topic needs one{' '}
            <input name="token" type="password" autocomplete="off" />
          </label>
        )}
        <fieldset class="full">
          <legend>Tell me when a job of mine</legend>
          <label class="check">
            <input type="checkbox" name="on_ends" checked /> ends
          </label>
          <label class="check">
            <input type="checkbox" name="on_waits" checked /> waits for more than{' '}
            <input
              class="number"
              name="wait"
              type="number"
              min="0.1"
              max="720"
              step="any"
              value="1"
              aria-label="Hours of waiting"
            />{' '}
            hours
          </label>
          <label class="check">
            <input type="checkbox" name="on_idle" checked /> holds GPUs and does not use them
          </label>
          <label class="check">
            <input type="checkbox" name="on_budget" checked /> or a budget that I can see passes{' '}
            <select class="number" name="budget" aria-label="Percent of a budget">
              <option>50</option>
              <option selected>80</option>
              <option>100</option>
            </select>{' '}
            %
          </label>
        </fieldset>
        <button class="full">Add</button>
      </form>
      {error.value && (
        <p role="alert" class="bad">
          {error.value}
        </p>
      )}
      {once.value && (
        <>
          <p>Messages are signed with this secret, which is shown only now:</p>
          <Line text={once.value} />
        </>
      )}
      <p class="note">
        Addresses are stored encrypted and are not shown again. From a terminal:{' '}
        <code>billow notify add {via.value}</code>
      </p>
    </section>
  );
}

export function Settings() {
  const targets = useSignal<Target[] | null>(null);
  const mail = useSignal(false);
  const error = useSignal('');
  const load = () =>
    void get<{ targets: Target[]; mail: boolean }>('/v1/notify').then(
      (d) => {
        targets.value = d.targets.filter((t) => t.via !== 'browser');
        mail.value = d.mail;
      },
      (e) => {
        error.value = problem(e);
        targets.value = [];
      },
    );
  useEffect(load, []);
  return (
    <section class="form">
      <p class="crumbs">
        <a href="#/more">More</a> / Notifications
      </p>
      <h1>Notifications</h1>
      <InBrowser />
      {error.value && (
        <p role="alert" class="bad">
          {error.value}
        </p>
      )}
      {targets.value === null ? (
        <p class="note">Loading…</p>
      ) : (
        <>
          {targets.value.length > 0 && (
            <section aria-label="Elsewhere">
              <h2>Elsewhere</h2>
              <Targets targets={targets.value} changed={load} />
            </section>
          )}
          <AddTarget mail={mail.value} changed={load} />
        </>
      )}
      <p class="note">
        Notices of the whole installation go to <a href="#/webhooks">Webhooks</a>.
      </p>
    </section>
  );
}
