#include <gtest/gtest.h>

#include "base/relative_time.h"
#include "base/rng.h"
#include "core/ledger/budget.h"

namespace billow::ledger {
namespace {

const WallTime november_15{1'794'700'800'000'000'000};  // 2026-11-15T00:00:00Z
NanoUsd dollars(std::int64_t n) {
  return {n * 1'000'000'000};
}
Rate per_hour(std::int64_t n) {
  return {n * 1'000'000'000 / 3600};
}
Budget monthly(std::int64_t limit) {
  return {.scope = BudgetScope::project,
          .of = 3,
          .period = BudgetPeriod::monthly,
          .limit = dollars(limit)};
}

TEST(Budget, PeriodsAreDaysAndMonthsOfUtc) {
  ASSERT_EQ(format_utc(november_15), "2026-11-15T00:00:00Z");
  EXPECT_EQ(format_utc(period_of(BudgetPeriod::monthly, november_15).from), "2026-11-01T00:00:00Z");
  EXPECT_EQ(format_utc(period_of(BudgetPeriod::monthly, november_15).to), "2026-12-01T00:00:00Z");
  EXPECT_EQ(period_of(BudgetPeriod::daily, november_15 + hours(23)).from, november_15);
  EXPECT_EQ(period_of(BudgetPeriod::total, november_15).to.ns, 0);
}

TEST(Budget, WarnsOnceAtEachMarkThenSuspendsThenStopsAfterTheGrace) {
  const Budget budget = monthly(100);
  BudgetState state;
  std::vector<std::pair<BudgetAction, std::int32_t>> taken;
  BudgetUse use{.burn = per_hour(10)};
  for (int minute = 0; minute < 12 * 60; ++minute) {
    use.at = november_15 + minutes(minute);
    use.spent = std::min(dollars(100), amount(per_hour(10), minutes(minute)) + NanoUsd{1});
    const BudgetStep s = step(budget, state, use);
    state = s.state;
    if (s.action != BudgetAction::none)
      taken.emplace_back(s.action, s.pct);
  }
  const std::vector<std::pair<BudgetAction, std::int32_t>> wanted{{BudgetAction::warn, 50},
                                                                  {BudgetAction::warn, 80},
                                                                  {BudgetAction::suspend, 100},
                                                                  {BudgetAction::stop, 0}};
  // Rates are whole nano-dollars, so a hundred dollars take a moment longer than ten hours.
  EXPECT_EQ(taken, wanted);
}

TEST(Budget, ANewPeriodOrAHigherLimitLiftsTheCap) {
  Budget budget = monthly(100);
  BudgetUse use{.spent = dollars(100), .at = november_15};
  const BudgetState capped = step(budget, {}, use).state;
  EXPECT_NE(capped.capped_at.ns, 0);
  budget.limit = dollars(150);
  EXPECT_EQ(step(budget, capped, use).state.capped_at.ns, 0);
  budget.limit = dollars(100);
  use.at = november_15 + hours(24 * 20);
  use.spent = {};
  EXPECT_EQ(step(budget, capped, use).state.warned_pct, 0);
}

TEST(Budget, ForecastsTheBurnAndSaysWhenTheMoneyIsGone) {
  const Budget budget = monthly(500);
  const BudgetUse use{.spent = dollars(400), .burn = per_hour(4), .at = november_15};
  EXPECT_EQ(format_utc(*runs_out(budget, use)).substr(0, 13), "2026-11-16T01");
  EXPECT_EQ(step(budget, {}, use).text,
            "80 % of this month's $500.00 is spent; at $4.00/h it lasts 25 h, until " +
                utc_minute(november_15 + hours(25)));
  EXPECT_NEAR(static_cast<double>(forecast(budget, use).value) / 1e9, 400 + 4 * 24 * 16, 0.01);
  EXPECT_FALSE(runs_out(budget, {.spent = dollars(1), .burn = {1}, .at = november_15}));
  EXPECT_FALSE(runs_out(budget, {.spent = budget.limit, .burn = {1'000'000}, .at = november_15}))
      << "it is gone: no date that moves on";
}

TEST(Budget, AJobWhoseMinimumCannotBePaidIsHeldWithTheReason) {
  const Budget budget = monthly(100);
  BudgetUse use{.spent = dollars(98), .reserved = dollars(1), .at = november_15};
  const Ask ask{.rate = per_hour(12), .at_least = minutes(10)};
  const Status held = may_start({{budget, use}}, ask);
  ASSERT_FALSE(held);
  EXPECT_EQ(held.error().code, Code::exhausted);
  EXPECT_EQ(held.error().message,
            "the monthly budget of project 3 ($100.00) leaves $1.00 ($1.00 is reserved); 10m at "
            "$12.00/h needs $2.00");
  EXPECT_TRUE(held.error().hint.starts_with(
      "a new period begins in 16 d (2026-12-01 00:00 UTC); or raise it with"))
      << held.error().hint;
  use.reserved = {};
  EXPECT_TRUE(may_start({{budget, use}}, ask));
}

TEST(Budget, PaidTimeNeverExceedsTheRemainingMoney) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    Rng rng(seed);
    const Budget budget{.scope = BudgetScope::user,
                        .of = 1,
                        .period = BudgetPeriod::total,
                        .limit = {rng.between(1, 1'000'000'000'000)}};
    BudgetUse use{.spent = {rng.between(0, 1'000'000'000'000)}, .at = november_15};
    std::vector<Rate> leases;
    for (auto n = rng.between(1, 20); n > 0; --n)
      leases.push_back({rng.between(1, 30'000'000)});
    for (const Rate r : leases)
      use.burn.nano_usd_per_s += r.nano_usd_per_s;
    NanoUsd spent_alone = use.spent;
    for (const Rate r : leases)
      spent_alone += amount(r, paid_for({{budget, use}}, r, hours(24 * 365)));
    EXPECT_LE(spent_alone, std::max(budget.limit, use.spent)) << seed;
  }
}

TEST(Budget, TheTightestDecidesAndADayBringsNewMoney) {
  const BudgetUse use{.spent = dollars(1), .burn = per_hour(2), .at = november_15 + hours(23)};
  const Budget daily{
      .scope = BudgetScope::user, .of = 1, .period = BudgetPeriod::daily, .limit = dollars(10)};
  const Budget total{
      .scope = BudgetScope::job, .of = 1, .period = BudgetPeriod::total, .limit = dollars(3)};
  EXPECT_NEAR(paid_for({{daily, use}}, per_hour(2), hours(100)).seconds(), 6 * 3600, 5);
  EXPECT_NEAR(paid_for({{daily, use}, {total, use}}, per_hour(2), hours(100)).seconds(), 3600, 5);
  EXPECT_EQ(paid_for({{daily, use}}, per_hour(2), minutes(30)), minutes(30));
}

}  // namespace
}  // namespace billow::ledger
