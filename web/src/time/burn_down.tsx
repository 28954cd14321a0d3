// What is left of each budget, day by day, and where it is going: the cone of likely courses until
// the end of the period.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { get, has } from '../data/api';
import { Chart } from '../parts/chart';
import { day, isoDay, moment, usd } from '../data/format';
import { budgetState, report } from '../data/spend';
import { burnDown, coneText, type Cone } from './forecast';

interface Budget {
  scope: string;
  of: string;
  period: string;
  limit_nano_usd: number;
  spent_nano_usd: number;
}
interface View {
  budget: Budget;
  cone: Cone;
}
const dayMs = 86_400_000;
const shownMax = 8;
const aheadDays = 16; // of a budget without a period

// Days are those of the ledger, in UTC.
export function periodOf(period: string, now: number): { begin: number; end: number } {
  const d = new Date(now);
  const today = Math.floor(now / dayMs) * dayMs;
  if (period === 'monthly')
    return {
      begin: Date.UTC(d.getUTCFullYear(), d.getUTCMonth(), 1),
      end: Date.UTC(d.getUTCFullYear(), d.getUTCMonth() + 1, 1),
    };
  return { begin: today - 14 * dayMs, end: today + aheadDays * dayMs };
}

async function viewOf(budget: Budget, now: number): Promise<View> {
  const { begin, end } = periodOf(budget.period, now);
  const today = Math.floor(now / dayMs) * dayMs;
  const only = `${budget.scope}=${encodeURIComponent(budget.of)}`;
  const { lines } = await report(isoDay(begin), isoDay(today), `day&${only}`);
  const charged = new Map(lines.map((l) => [l.day ?? '', l.charge_nano_usd]));
  const daily: number[] = [];
  for (let t = begin; t <= today; t += dayMs) daily.push(charged.get(isoDay(t)) ?? 0);
  const within = daily.reduce((a, b) => a + b, 0);
  // What was spent before the window lowers where it begins; the ledger's sum is the truth.
  const limit = budget.limit_nano_usd - Math.max(0, budget.spent_nano_usd - within);
  const passed = (now - today) / dayMs;
  return { budget, cone: burnDown({ limit, begin, end, today, passed, daily }) };
}

export function BurnDown() {
  const views = useSignal<View[]>([]);
  const daily = useSignal(0);
  const known = budgetState.value.map((b) => `${b.name}${b.period}${b.limit}`).join();
  useEffect(() => {
    let gone = false;
    const load = async () => {
      if (document.hidden || !(await has('/v1/budgets'))) return;
      try {
        const { budgets } = await get<{ budgets: Budget[] }>('/v1/budgets');
        const fit = budgets.filter((b) => b.period !== 'daily' && b.scope !== 'job');
        const got = await Promise.all(fit.slice(0, shownMax).map((b) => viewOf(b, Date.now())));
        if (gone) return;
        views.value = got;
        daily.value = budgets.length - fit.length;
      } catch {
        /* the live stream reports when the head is unreachable */
      }
    };
    void load();
    const timer = window.setInterval(() => void load(), 60_000);
    return () => {
      gone = true;
      window.clearInterval(timer);
    };
  }, [known]);
  if (!views.value.length) return null;
  const floor = (list: (number | null)[]) => list.map((v) => (v === null ? null : Math.max(0, v)));
  return (
    <section aria-label="Budgets over time">
      <h2>
        Left of each budget <small title={coneText}>with a forecast</small>
      </h2>
      <div class="charts">
        {views.value.map(({ budget, cone }) => (
          <div>
            <Chart
              title={`${budget.scope} ${budget.of}`}
              note={coneText}
              fromMs={cone.days[0]}
              stepS={86_400}
              times={cone.days}
              height={170}
              marks={[]}
              format={usd}
              max={cone.ideal[0]}
              bands={[[3, 2]]}
              lines={[
                { label: 'left', values: cone.left, colour: 1 },
                { label: 'expected', values: floor(cone.middle), colour: 3, dash: true },
                { label: '', values: floor(cone.low), colour: 3 },
                { label: '', values: floor(cone.high), colour: 3 },
                { label: 'even pace', values: cone.ideal, colour: 4, dash: true, still: true },
              ]}
            />
            <p class="note">
              {cone.runsOut
                ? `At the average of the past days it is used up ${moment(cone.runsOut)}.`
                : `At the average of the past days it lasts beyond ${day(cone.days[cone.days.length - 1] - 1)}.`}
            </p>
          </div>
        ))}
      </div>
      <p class="note">{coneText}</p>
      {daily.value > 0 && (
        <p class="note">Daily and single-job budgets are too short for a daily forecast.</p>
      )}
    </section>
  );
}
