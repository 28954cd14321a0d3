// Money as values: prices, budgets, idle rules, commitments, and the measured use of tasks. Events
// and messages to agents contain them, so they live here; ledger/, control/ and agent/ act on them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/enums.h"
#include "base/ids.h"
#include "base/money.h"
#include "core/model/states.h"

namespace billow {

// ---- budgets
enum class BudgetScope { project, user, job, token };
enum class BudgetPeriod { daily, monthly, total };  // days and months in UTC
enum class BudgetAction { none, warn, suspend, stop };
BILLOW_ENUM_NAMES(BudgetScope,
                  {BudgetScope::project, "project"},
                  {BudgetScope::user, "user"},
                  {BudgetScope::job, "job"},
                  {BudgetScope::token, "token"});
BILLOW_ENUM_NAMES(BudgetPeriod,
                  {BudgetPeriod::daily, "daily"},
                  {BudgetPeriod::monthly, "monthly"},
                  {BudgetPeriod::total, "total"});
BILLOW_ENUM_NAMES(BudgetAction,
                  {BudgetAction::none, "none"},
                  {BudgetAction::warn, "warn"},
                  {BudgetAction::suspend, "suspend"},
                  {BudgetAction::stop, "stop"});

// There is one budget per scope, owner and period; setting it again replaces it.
struct BudgetKey {
  BudgetScope scope = BudgetScope::project;
  std::uint64_t of = 0;  // ProjectId, UserId, JobId or TokenId
  BudgetPeriod period = BudgetPeriod::monthly;
  auto operator<=>(const BudgetKey&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("scope", s.scope);
    v("of", s.of);
    v("period", s.period);
  }
};
struct Budget {
  BudgetScope scope = BudgetScope::project;
  std::uint64_t of = 0;
  BudgetPeriod period = BudgetPeriod::monthly;
  NanoUsd limit;
  bool stops = true;             // false: only warns
  Duration grace = minutes(10);  // between suspending and stopping
  // Of a job that an agent token submitted: the part of that token's budget that the job may use. A
  // hard limit: the job is stopped `lead` before the money is gone, so that it ends within it.
  TokenId agent;
  Duration lead;
  bool hard() const { return static_cast<bool>(agent); }
  BudgetKey key() const { return {scope, of, period}; }
  bool operator==(const Budget&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("scope", s.scope);
    v("of", s.of);
    v("period", s.period);
    v("limit", s.limit);
    v("stops", s.stops);
    v("grace_ns", s.grace);
    v("agent", s.agent);
    v("lead_ns", s.lead);
  }
};
struct BudgetState {
  WallTime period_from;         // the warnings below belong to the period that began then
  std::int32_t warned_pct = 0;  // the highest warning given: 50, 80, 100
  WallTime capped_at;           // 0: below the cap
  bool stopped = false;
  bool operator==(const BudgetState&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("period_from_ns", s.period_from);
    v("warned_pct", s.warned_pct);
    v("capped_at_ns", s.capped_at);
    v("stopped", s.stopped);
  }
};

// ---- idleness
enum class IdleState { active, idle, hung };
enum class IdleAction { none, warn, suspend, stop, recovered };
BILLOW_ENUM_NAMES(IdleState,
                  {IdleState::active, "active"},
                  {IdleState::idle, "idle"},
                  {IdleState::hung, "hung"});
BILLOW_ENUM_NAMES(IdleAction,
                  {IdleAction::none, "none"},
                  {IdleAction::warn, "warn"},
                  {IdleAction::suspend, "suspend"},
                  {IdleAction::stop, "stop"},
                  {IdleAction::recovered, "recovered"});

// Durations of idleness since the job was last active.
struct IdlePolicy {
  bool enabled = true;
  Duration warn_after = seconds(9 * 60 + 30);
  Duration suspend_after = minutes(15);
  // On nodes that bill; including the return of the node, at most half an hour.
  Duration stop_after = minutes(22);
  // Added if a task's CPU is busy without progress: the only doubtful case.
  Duration spin_leash = minutes(3);
  Duration keepalive_max = hours(4);  // a keep-alive lasts at most this long
  bool operator==(const IdlePolicy&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("enabled", s.enabled);
    v("warn_after_ns", s.warn_after);
    v("suspend_after_ns", s.suspend_after);
    v("stop_after_ns", s.stop_after);
    v("spin_leash_ns", s.spin_leash);
    v("keepalive_max_ns", s.keepalive_max);
  }
};
// The administrator's limits. Zero: no limit.
struct IdleFloor {
  // Idleness never lasts longer, whatever a project or a keep-alive says.
  Duration suspend_by = hours(12);
  Duration stop_by;  // on nodes that bill
  bool operator==(const IdleFloor&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("suspend_by_ns", s.suspend_by);
    v("stop_by_ns", s.stop_by);
  }
};
// What a task's agent needs to know to watch it.
struct IdleRules {
  IdlePolicy policy;
  IdleFloor floor;
  bool can_suspend = false;  // it can be suspended, which frees its GPUs
  // Ranks wait for each other: the head decides while it is reachable, not one node.
  bool gang = false;
  bool operator==(const IdleRules&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("policy", s.policy);
    v("floor", s.floor);
    v("can_suspend", s.can_suspend);
    v("gang", s.gang);
  }
};

// ---- what was measured
// Totals since the task's lease began; peaks over its life.
struct TaskMeter {
  Duration active;
  std::int64_t energy_mj = 0;
  std::int64_t gpu_mem_peak_mib = 0;  // on its fullest card
  std::int32_t sm_peak_pct = 0;
  std::int32_t engine_p95_pct = 0;  // of max(SM, memory activity)
  bool measured = false;            // the card could measure it
  std::int64_t egress_bytes = 0;    // sent to public addresses
  NanoUsd egress;                   // their cost, computed by the head on receipt
  bool operator==(const TaskMeter&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("active_ns", s.active);
    v("energy_mj", s.energy_mj);
    v("gpu_mem_peak_mib", s.gpu_mem_peak_mib);
    v("sm_peak_pct", s.sm_peak_pct);
    v("engine_p95_pct", s.engine_p95_pct);
    v("measured", s.measured);
    v("egress_bytes", s.egress_bytes);
    v("egress", s.egress);
  }
};
struct TaskMark {
  TaskId task;
  TaskMeter meter;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("task", s.task);
    v("meter", s.meter);
  }
};

// ---- prices
// Prices that an operator set for a kind of GPU ("gpu:H100"), a pool ("pool:aws") or one node
// ("node:gpu-1"); the narrowest applies. Cost is what the hardware costs, charge what projects pay;
// the charge defaults to the cost.
struct PriceRule {
  std::string of;            // "gpu:H100", "pool:aws", "node:gpu-1"
  std::optional<Rate> cost;  // per GPU-second; on nodes without GPUs per second of the node
  std::optional<Rate> charge;
  std::optional<Rate> charge_spot;
  NanoUsd storage_gib_month, egress_gib;  // if the pool prices them
  std::string how;  // for people: "$250,000 over 4 years, 10.2 kW at $0.15/kWh"
  bool operator==(const PriceRule&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("of", s.of);
    v("cost", s.cost);
    v("charge", s.charge);
    v("charge_spot", s.charge_spot);
    v("storage_gib_month", s.storage_gib_month);
    v("egress_gib", s.egress_gib);
    v("how", s.how);
  }
};

// GPUs paid for whether used or not.
struct CommitmentTerms {
  std::string name;
  std::string gpu;
  std::int64_t gpus = 0;
  Rate rate;                              // of one GPU
  std::int64_t from_day = 0, to_day = 0;  // days since 1970; the second exclusive
  bool operator==(const CommitmentTerms&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("gpu", s.gpu);
    v("gpus", s.gpus);
    v("rate", s.rate);
    v("from_day", s.from_day);
    v("to_day", s.to_day);
  }
};

// Where notices go. The signing secret is derived from the installation's key and is not stored
// here.
struct Webhook {
  std::uint64_t id = 0;
  std::string url;
  std::vector<std::string> kinds;  // "budget", "idle", "job", "node"; empty: all
  Seq delivered = 0;               // every event up to this one has been sent or given up
  UserId by;                       // the admin who added it; 0: unknown (version 0.1)
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("id", s.id);
    v("url", s.url);
    v("kinds", s.kinds);
    v("delivered", s.delivered);
    v("by", s.by);
  }
};

// Limits of money, kept beside its values so that a change rebuilds only code that handles money.
namespace limits {
// Without a job, on a node that bills: with the idle ladder under half an hour.
inline constexpr Duration node_give_back_after = minutes(3);
// After this a node that bills and runs nothing shuts itself down.
inline constexpr Duration head_gone_after = minutes(10);
inline constexpr Duration meter_mark_every = minutes(5);    // to the journal, per task
inline constexpr Duration meter_say_every = minutes(1);     // by an agent, for all its tasks
inline constexpr Duration lease_renew_every = seconds(30);  // paid time, if a budget limits it
inline constexpr Duration money_tick = seconds(2);          // interval of budget checks
inline constexpr std::size_t webhooks_max = 64;
}  // namespace limits

}  // namespace billow
