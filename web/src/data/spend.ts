// Today's charge and the state of budgets, from the ledger. Refreshed every minute while visible.
import { effect, signal } from '@preact/signals';
import { get, has } from './api';
import { isoDay, moment, usd } from './format';
import { budgets } from './attention';
import { ready } from './store';

export const spentToday = signal<{ spent: number } | null>(null);
export const wastedWeek = signal<number | null>(null); // held and idle in the last seven days

// A line of a report: the group and its sums.
export interface CostLine {
  day?: string;
  project?: string;
  user?: string;
  gpu?: string;
  class?: string;
  job?: string;
  what?: string; // the job's name, where the head says it
  charge_nano_usd: number;
  cost_nano_usd?: number;
  idle_nano_usd?: number;
  gpu_hours: number;
}
export interface Report {
  lines: CostLine[];
  total: {
    charge_nano_usd: number;
    idle_nano_usd?: number;
    gpu_hours?: number;
    energy_kwh?: number;
  };
  fleet?: {
    cost_nano_usd: number;
    active_nano_usd: number;
    idle_nano_usd: number;
    unallocated_nano_usd: number;
  };
}
export const report = (from: string, to: string, by: string) =>
  get<Report>(`/v1/cost?since=${from}&until=${to}&by=${by}`);

// What a GPU costs by the second, as the head would charge it now.
export interface Rates {
  rates: {
    gpu_type: string;
    class: string;
    nano_usd_per_s: number;
    built_in?: boolean; // nobody has set a price: the one that comes with the program
    prices_of?: string; // then the date of the newest published price behind it
  }[];
}

export interface BudgetView {
  name: string;
  period: string;
  spent: number;
  limit: number;
  tone: string;
  text: string;
  forecast: number;
  href: string;
}
export const budgetState = signal<BudgetView[]>([]);
interface Budget {
  scope: string;
  of: string;
  period: string;
  limit_nano_usd: number;
  spent_nano_usd: number;
  forecast_nano_usd: number;
  runs_out_at: string | null;
  stops: boolean;
  warned_pct: number;
  capped: boolean;
  spent_since: string | null;
}
export async function loadBudgets(): Promise<void> {
  if (!(await has('/v1/budgets'))) return;
  try {
    const got = await get<{ budgets: Budget[] }>('/v1/budgets');
    budgetState.value = got.budgets.map((b) => {
      const part = b.limit_nano_usd ? b.spent_nano_usd / b.limit_nano_usd : 0;
      const tone = b.capped || part >= 1 ? 'over' : part >= 0.5 || b.warned_pct >= 50 ? 'near' : '';
      const end = b.runs_out_at
        ? `used up ${moment(b.runs_out_at)}, at the current rate`
        : b.forecast_nano_usd > b.spent_nano_usd
          ? `about ${usd(b.forecast_nano_usd)} expected by the end`
          : '';
      const since = b.spent_since ? ` ${moment(b.spent_since)}` : '';
      return {
        name: `${b.scope} ${b.of}`,
        period: b.period,
        spent: b.spent_nano_usd,
        limit: b.limit_nano_usd,
        tone,
        forecast: b.forecast_nano_usd,
        href: '#/costs',
        text: b.capped
          ? `used up${since}; ${b.stops ? 'its jobs are suspended' : 'warning only'}`
          : `${end}${b.stops ? '' : `${end ? '; ' : ''}warning only`}`,
      };
    });
    budgets.value = budgetState.value
      .filter((b) => b.tone)
      .map((b) => ({
        key: `budget ${b.name} ${b.period} ${b.tone}`,
        text:
          `Budget of ${b.name} (${b.period}): ${usd(b.spent)} of ${usd(b.limit)} spent, ` +
          `${Math.round((b.spent / b.limit) * 100)} %${b.text ? `; ${b.text}` : ''}`,
        href: '#/costs',
        grave: b.tone === 'over',
      }));
  } catch {
    /* the live stream reports when the head is unreachable */
  }
}

async function load(): Promise<void> {
  if (document.hidden) return;
  void loadBudgets();
  const today = isoDay(Date.now());
  const weekAgo = isoDay(Date.now() - 6 * 86_400_000);
  try {
    spentToday.value = { spent: (await report(today, today, 'day')).total.charge_nano_usd };
    wastedWeek.value = (await report(weekAgo, today, 'day')).total.idle_nano_usd ?? 0;
  } catch {
    /* see above */
  }
}
effect(() => {
  if (ready.value) void load();
});
window.setInterval(() => {
  if (ready.value) void load();
}, 15_000);
