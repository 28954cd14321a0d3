// Notifications of the browser, for what a person chose. The head keeps the choice, so it holds in
// all browsers of that person. One tab of a browser sends them: the one that holds a lock.
import { effect, signal } from '@preact/signals';
import { call, get, post, type Row } from '../data/api';
import { lasting } from '../data/format';
import { remember, remembered } from '../data/memory';
import { ended, isIdle, jobs, jobsTick, status, summary } from '../data/store';
import { budgetState } from '../data/spend';

export type Kind = 'ends' | 'waits' | 'idle' | 'budget';
export type Wishes = Record<Kind, boolean>;
const none: Wishes = { ends: false, waits: false, idle: false, budget: false };
// What was chosen last is remembered here too, so that a tab knows it before the head answers.
export const wishes = signal(remembered<Wishes>('notify', none));

interface Chosen {
  id: number;
  via: string;
  on: string[];
}
const chosenAtHead = async () =>
  (await get<{ targets: Chosen[] }>('/v1/notify')).targets.find((t) => t.via === 'browser');
function know(next: Wishes): void {
  wishes.value = next;
  remember('notify', next);
}
export async function loadWishes(): Promise<void> {
  try {
    const on = (await chosenAtHead())?.on ?? [];
    const next = { ...none };
    for (const kind of Object.keys(none) as Kind[]) next[kind] = on.includes(kind);
    know(next);
  } catch {
    /* an older head, or none: what this browser remembers holds */
  }
}
export async function chooseInBrowser(next: Wishes): Promise<void> {
  know(next);
  const on = (Object.keys(next) as Kind[]).filter((kind) => next[kind]);
  const before = await chosenAtHead();
  if (!on.length) {
    if (before) await call('DELETE', `/v1/notify/${before.id}`);
  } else if (before) {
    await call('PUT', `/v1/notify/${before.id}`, { on });
  } else {
    await post('/v1/notify', { via: 'browser', on });
  }
}

const waitMs = 3_600_000;
const budgetPart = 0.8;
const sent = new Set<string>(); // by this tab; the tag keeps other tabs from repeating it

function send(key: string, title: string, body: string, href: string): void {
  if (sent.has(key) || Notification.permission !== 'granted') return;
  sent.add(key);
  const shown = new Notification(title, { body, tag: `billow ${key}` });
  shown.onclick = () => {
    window.focus();
    location.hash = href;
    shown.close();
  };
}
const nameOf = (row: Row) => row.name || row.command.slice(0, 40);

function lookAtJobs(since: number): void {
  const you = status.peek()?.you.user;
  const w = wishes.peek();
  for (const row of jobs.values()) {
    if (row.user !== you) continue;
    const waited = Date.now() - (row.submitted ?? Date.now());
    if (w.waits && row.state === 'queued' && waited > waitMs)
      send(
        `waits ${row.id}`,
        `${nameOf(row)} still waits`,
        `Job ${row.label} has waited for ${lasting(waited / 1000)}.`,
        `/jobs/${row.label}`,
      );
    if (w.idle && isIdle(row))
      send(
        `idle ${row.id}`,
        `${nameOf(row)} is idle`,
        `Job ${row.label} holds GPUs and does not use them.`,
        `/jobs/${row.label}`,
      );
  }
  if (!w.ends) return;
  for (const row of ended.peek())
    if (row.user === you && (row.ended ?? 0) > since)
      send(
        `ends ${row.id}`,
        `${nameOf(row)} ${row.state}`,
        row.reason || row.exit || `Job ${row.label} has ended.`,
        `/jobs/${row.label}`,
      );
}
function lookAtBudgets(): void {
  if (!wishes.peek().budget) return;
  for (const b of budgetState.peek())
    if (b.limit && b.spent / b.limit >= budgetPart)
      send(
        `budget ${b.name} ${b.period}`,
        `Budget of ${b.name} at ${Math.round((b.spent / b.limit) * 100)} %`,
        b.text,
        '/costs',
      );
}

export function watchForNotifications(): () => void {
  if (typeof Notification === 'undefined' || !navigator.locks) return () => {};
  const abort = new AbortController();
  let stop = () => {};
  void navigator.locks
    .request('billow notifications', { signal: abort.signal }, () => {
      const since = Date.now() - 1000; // times of jobs have whole seconds
      if (Notification.permission === 'granted') void loadWishes();
      const stops = [
        effect(() => {
          jobsTick.value;
          summary.value;
          ended.value;
          wishes.value;
          lookAtJobs(since);
        }),
        effect(() => {
          budgetState.value;
          wishes.value;
          lookAtBudgets();
        }),
      ];
      return new Promise<void>((resolve) => {
        stop = () => {
          stops.forEach((s) => s());
          resolve();
        };
      });
    })
    .catch(() => {}); // the page is gone
  return () => {
    abort.abort();
    stop();
  };
}
