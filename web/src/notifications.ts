// Notifications of the browser, for what a person chose on the settings page. One tab of a browser
// sends them: the one that holds a lock.
import { effect, signal } from '@preact/signals';
import type { Row } from './api';
import { lasting } from './format';
import { remember, remembered } from './memory';
import { ended, isIdle, jobs, jobsTick, status, summary } from './store';
import { budgetState } from './spend';

export interface Wishes {
  ends: boolean;
  waits: boolean;
  idle: boolean;
  budget: boolean;
}
export const wishes = signal(
  remembered<Wishes>('notify', { ends: false, waits: false, idle: false, budget: false }),
);
export function choose(next: Wishes): void {
  wishes.value = next;
  remember('notify', next);
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
