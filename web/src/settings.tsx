// What this browser tells the person, chosen here. Nothing of it leaves the browser.
import { useSignal } from '@preact/signals';
import { choose, wishes, type Wishes } from './notifications';

const kinds: [keyof Wishes, string][] = [
  ['ends', 'a job of mine ends'],
  ['waits', 'a job of mine waits for more than an hour'],
  ['idle', 'a job of mine holds GPUs and does not use them'],
  ['budget', 'a budget that I can see passes 80 %'],
];

export function Settings() {
  const can = typeof Notification !== 'undefined';
  const allowed = useSignal(can ? Notification.permission : 'denied');
  const change = async (kind: keyof Wishes, on: boolean) => {
    if (on && can && Notification.permission === 'default')
      allowed.value = await Notification.requestPermission();
    choose({ ...wishes.value, [kind]: on });
  };
  return (
    <section class="form">
      <h1>Settings</h1>
      <h2>Notify me in this browser when</h2>
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
      <p class="note">
        A tab of the dashboard must be open. For mail, Slack, Discord or ntfy see{' '}
        <a href="#/webhooks">Webhooks</a>.
      </p>
    </section>
  );
}
