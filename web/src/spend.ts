// What has been spent today and where budgets stand, by the ledger's own sums. Read again every minute while the page is seen.
import { effect, signal } from '@preact/signals';
import { get, has } from './api';
import { usd } from './format';
import { budgets, ready } from './store';

export const spentToday = signal<{ spent: number } | null>(null);

export interface UsageRow { day: string; project: string; user: string; gpu_type: string; price_class: string; charge_nano_usd: number; gpu_hours: number }
export interface Usage { rows: UsageRow[]; total_nano_usd: number }
export interface BudgetView { name: string; spent: number; limit: number; tone: string; text: string }
export const budgetState = signal<BudgetView[]>([]);

interface Budget { name?: string; project?: string; limit_nano_usd?: number; amount_nano_usd?: number; spent_nano_usd?: number; state?: string; stopped?: boolean; forecast_nano_usd?: number }
export async function loadBudgets(): Promise<void> {
  if (!(await has('/v1/budgets'))) return;
  try {
    const got = await get<{ budgets: Budget[] }>('/v1/budgets');
    budgetState.value = got.budgets.map((b) => {
      const limit = b.limit_nano_usd ?? b.amount_nano_usd ?? 0, spent = b.spent_nano_usd ?? 0, part = limit ? spent / limit : 0;
      const tone = part >= 1 || b.stopped ? 'over' : part >= 0.5 ? 'near' : '';
      return { name: b.name || b.project || 'everything', spent, limit, tone, text: b.state ?? '' };
    });
    budgets.value = budgetState.value.filter((b) => b.tone).map((b) => ({ text: `Budget ${b.name}: ${usd(b.spent)} of ${usd(b.limit)} spent (${Math.round((b.spent / b.limit) * 100)} %)`, href: '#/costs', grave: b.tone === 'over' }));
  } catch { /* the stream says when the head is away */ }
}

async function load(): Promise<void> {
  if (document.hidden) return;
  void loadBudgets();
  if (!(await has('/v1/usage'))) return;
  const today = new Date().toISOString().slice(0, 10);
  try { spentToday.value = { spent: (await get<Usage>(`/v1/usage?from=${today}&to=${today}`)).total_nano_usd }; } catch { /* as above */ }
}
effect(() => { if (ready.value) void load(); });
window.setInterval(() => { if (ready.value) void load(); }, 20_000);
