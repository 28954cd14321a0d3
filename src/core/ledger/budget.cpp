#include "core/ledger/budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/relative_time.h"
#include "base/text.h"

namespace billow::ledger {

namespace {

constexpr std::int64_t second_ns = 1'000'000'000;
constexpr Duration day = hours(24);

const char* period_word(BudgetPeriod period) {
  switch (period) {
    case BudgetPeriod::daily:
      return "today's";
    case BudgetPeriod::monthly:
      return "this month's";
    case BudgetPeriod::total:
      return "the";
  }
  return "the";
}

std::string name_of(const Budget& budget, const std::string& who) {
  const char* adjective = budget.period == BudgetPeriod::total ? "total" : enum_name(budget.period);
  return fmt::format("the {} budget of {} ({})", adjective,
                     who.empty() ? fmt::format("{} {}", enum_name(budget.scope), budget.of) : who,
                     format_usd(budget.limit));
}

NanoUsd left(const Budget& budget, const BudgetUse& use) {
  return {std::max<std::int64_t>(0, (budget.limit - use.spent).value)};
}

std::string already_reserved(const BudgetUse& use) {
  return use.reserved.value > 0 ? fmt::format(" ({} is reserved)", format_usd(use.reserved)) : "";
}

}  // namespace

// Rounded down, so that a promise never exceeds the money.
Duration lasts(NanoUsd amount, Rate rate) {
  if (amount.value <= 0)
    return {};
  return seconds(std::min<std::int64_t>(amount.value / rate.nano_usd_per_s, 100ll * 366 * 86400));
}

BudgetUse outside(const BudgetUse& use) {
  BudgetUse out = use;
  out.spent += use.held_back;
  out.reserved -= use.held_back;
  out.burn.nano_usd_per_s -= use.burn_inside.nano_usd_per_s;
  out.held_back = {};
  out.burn_inside = {};
  return out;
}

NanoUsd uncommitted(const Budget& budget, const BudgetUse& use) {
  return {std::max<std::int64_t>(0, (left(budget, use) - use.reserved).value)};
}

Status check(const Budget& budget) {
  if (budget.limit.value <= 0)
    return fail(Code::invalid, "a budget must be above zero",
                "remove a budget with `billow budget set … none`");
  if (budget.of == 0)
    return fail(Code::invalid, "a budget needs a project, a user or a job");
  if (budget.grace.ns < 0 || budget.grace > day)
    return fail(Code::invalid, "the grace must be between 0 and 24 h");
  return {};
}

Period period_of(BudgetPeriod period, WallTime at) {
  using std::chrono::days, std::chrono::months, std::chrono::sys_days, std::chrono::year_month_day;
  using Nanos = std::chrono::sys_time<std::chrono::nanoseconds>;
  const auto today = std::chrono::floor<days>(Nanos(std::chrono::nanoseconds(at.ns)));
  const auto wall = [](sys_days d) {
    return WallTime{Nanos(d).time_since_epoch().count()};
  };
  switch (period) {
    case BudgetPeriod::daily:
      return {wall(today), wall(today + days(1))};
    case BudgetPeriod::monthly: {
      const year_month_day date(today);
      const year_month_day first = date.year() / date.month() / 1;
      return {wall(sys_days(first)), wall(sys_days(first + months(1)))};
    }
    case BudgetPeriod::total:
      return {};
  }
  return {};
}

std::optional<WallTime> runs_out(const Budget& budget, const BudgetUse& use) {
  if (use.burn.nano_usd_per_s <= 0 || use.spent >= budget.limit)
    return std::nullopt;
  const WallTime gone = use.at + lasts(left(budget, use), use.burn);
  const Period period = period_of(budget.period, use.at);
  if (period.to.ns != 0 && gone >= period.to)
    return std::nullopt;
  return gone;
}

NanoUsd forecast(const Budget& budget, const BudgetUse& use) {
  const Period period = period_of(budget.period, use.at);
  if (period.to.ns == 0)
    return use.spent;
  return use.spent + amount(use.burn, std::max(Duration{}, period.to - use.at));
}

BudgetStep step(const Budget& budget, const BudgetState& before, const BudgetUse& use) {
  BudgetStep out{before, BudgetAction::none, 0, {}};
  const Period period = period_of(budget.period, use.at);
  // A new period starts from scratch.
  if (before.period_from != period.from)
    out.state = {.period_from = period.from};

  const auto pct = static_cast<std::int64_t>(static_cast<__int128>(use.spent.value) * 100 /
                                             std::max<std::int64_t>(1, budget.limit.value));
  // A hard limit includes what it takes to end what burns from it.
  const NanoUsd ahead = budget.hard() ? amount(use.burn, budget.lead) : NanoUsd{};
  const bool capped = use.spent + ahead >= budget.limit;
  if (budget.hard()) {
    if (capped && !before.stopped && use.burn.nano_usd_per_s > 0) {
      out.action = BudgetAction::stop;
      out.text = fmt::format("stopped before it costs more than its limit of {} ({} so far)",
                             format_usd(budget.limit), format_usd(use.spent));
    }
    out.state.stopped = capped;
    out.state.capped_at = !capped ? WallTime{} : before.capped_at ? before.capped_at : use.at;
    return out;
  }
  if (!capped) {
    out.state.capped_at = {};
    out.state.stopped = false;  // the limit was raised, or a correction was posted
  } else if (!budget.stops && out.state.capped_at.ns == 0)
    out.state.capped_at = use.at;

  if (capped && budget.stops) {
    if (out.state.capped_at.ns == 0) {
      out.state.capped_at = use.at;
      out.state.warned_pct = 100;
      out.action = BudgetAction::suspend;
      out.pct = 100;
      out.text = fmt::format("{} {} is spent: suspended, stopped in {} unless it is raised",
                             period_word(budget.period), format_usd(budget.limit),
                             format_duration(budget.grace));
    } else if (!out.state.stopped && use.at - out.state.capped_at >= budget.grace) {
      out.state.stopped = true;
      out.action = BudgetAction::stop;
      out.text =
          fmt::format("{} {} was spent {} ago: stopped", period_word(budget.period),
                      format_usd(budget.limit), format_duration(use.at - out.state.capped_at));
    }
    return out;
  }
  for (const std::int32_t mark : {100, 80, 50}) {
    if (pct < mark || out.state.warned_pct >= mark)
      continue;
    out.state.warned_pct = mark;
    out.action = BudgetAction::warn;
    out.pct = mark;
    out.text = fmt::format("{} % of {} {} is spent", mark, period_word(budget.period),
                           format_usd(budget.limit));
    if (const auto gone = runs_out(budget, use); gone && mark < 100)
      out.text += fmt::format("; at {} it lasts {}, until {}", format_rate_per_hour(use.burn),
                              rough_duration(*gone - use.at), utc_minute(*gone));
    break;
  }
  return out;
}

Status may_start(const std::vector<std::pair<Budget, BudgetUse>>& budgets, const Ask& ask) {
  const NanoUsd need = amount(ask.rate, ask.at_least);
  for (const auto& [budget, use] : budgets) {
    if (!budget.stops)
      continue;
    const NanoUsd free = left(budget, use) - use.reserved;
    if (free >= need && free.value > 0)
      continue;
    const Period period = period_of(budget.period, use.at);
    std::string hint =
        period.to.ns != 0
            ? fmt::format("a new period begins {}; or raise it with `billow budget set`",
                          relative_time(period.to, use.at, Zone::utc))
            : std::string("raise it with `billow budget set`");
    if (const std::int64_t fits = free.value > 0 ? lasts(free, ask.rate).ns / minutes(1).ns : 0;
        fits > 0)
      hint += fmt::format(", or submit the job with --time {}m", fits);
    return fail(Code::exhausted,
                fmt::format("{} leaves {}{}; {} at {} needs {}", name_of(budget, use.who),
                            format_usd(uncommitted(budget, use)), already_reserved(use),
                            format_duration(ask.at_least), format_rate_per_hour(ask.rate),
                            format_usd(need)),
                std::move(hint));
  }
  return {};
}

Error too_dear(const Budget& budget, const BudgetUse& use, NanoUsd need, Duration fits) {
  const Period period = period_of(budget.period, use.at);
  const std::string when =
      period.to.ns != 0
          ? fmt::format(" between {} and {}", utc_minute(period.from), utc_minute(period.to))
          : "";
  const std::int64_t m = fits.ns / minutes(1).ns;
  const std::string shorter = m >= 600 ? fmt::format("{}h", m / 60) : fmt::format("{}m", m);
  return {Code::exhausted,
          fmt::format("{} leaves {}{}; the reservation costs {}{}, used or not",
                      name_of(budget, use.who), format_usd(uncommitted(budget, use)),
                      already_reserved(use), format_usd(need), when),
          m > 0 ? fmt::format("--for {} would fit; or raise the budget with `billow budget set`",
                              shorter)
                : "raise the budget with `billow budget set`, or reserve fewer GPUs"};
}

Duration paid_for(const std::vector<std::pair<Budget, BudgetUse>>& budgets,
                  Rate own,
                  Duration most) {
  Duration shortest = most;
  if (own.nano_usd_per_s <= 0)
    return shortest;
  for (const auto& [budget, use] : budgets) {
    if (!budget.stops)
      continue;
    const Rate burn{std::max(use.burn.nano_usd_per_s, own.nano_usd_per_s)};
    Duration fair = lasts(left(budget, use), burn);
    // A new period brings new money: until the period ends its own remainder decides, after that
    // the next period's limit.
    const Period period = period_of(budget.period, use.at);
    if (period.to.ns != 0 && use.at + fair >= period.to)
      fair = (period.to - use.at) + lasts(budget.limit, burn);
    shortest = std::min(shortest, fair);
  }
  return Duration{shortest.ns / second_ns * second_ns};
}

}  // namespace billow::ledger
