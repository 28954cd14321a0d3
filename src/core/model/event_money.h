// Events of money: prices, budgets, metering, idleness, and records that people keep beside the
// books. See event.h.
#pragma once

#include <string>
#include <vector>

#include "base/ids.h"
#include "core/model/job.h"
#include "core/model/money.h"
#include "core/model/node.h"

namespace billow {

// ---- money: prices
// An operator's price. It applies from now on to new leases and to nodes when they are next priced.
struct PriceSet {
  static constexpr const char* kind = "price_set";
  PriceRule rule;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("rule", s.rule);
  }
};
struct PriceRemoved {
  static constexpr const char* kind = "price_removed";
  std::string of;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("of", s.of);
  }
};
// The cost of the whole node per second from now on, and how much of it can be leased.
struct NodePriceSet {
  static constexpr const char* kind = "node_price_set";
  NodeId node;
  Rate rate;
  std::int64_t capacity_milli = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("node", s.node);
    v("rate", s.rate);
    v("capacity_milli", s.capacity_milli);
  }
};

// ---- money: budgets
struct BudgetSet {
  static constexpr const char* kind = "budget_set";
  Budget budget;
  NanoUsd spent;  // by leases that ended before, in the current period
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("budget", s.budget);
    v("spent", s.spent);
  }
};
struct BudgetRemoved {
  static constexpr const char* kind = "budget_removed";
  BudgetKey budget;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("budget", s.budget);
  }
};
// A threshold was passed (50, 80, 100 %), the cap was reached, or a new period began.
struct BudgetWarned {
  static constexpr const char* kind = "budget_warned";
  BudgetKey budget;
  BudgetState state;
  BudgetAction action = BudgetAction::none;
  std::int32_t pct = 0;
  std::string text;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("budget", s.budget);
    v("state", s.state);
    v("action", s.action);
    v("pct", s.pct);
    v("text", s.text);
  }
};
// It was about to start but its minimum cannot be paid: out of the queue until it can.
struct JobHeld {
  static constexpr const char* kind = "job_held";
  JobId job;
  std::string reason;
  Rate rate;  // its cost per second if it had started
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("job", s.job);
    v("reason", s.reason);
    v("rate", s.rate);
  }
};

// ---- money: metering
struct MeterMarked {
  static constexpr const char* kind = "meter_marked";
  NodeId node;
  std::vector<TaskMark> marks;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("node", s.node);
    v("marks", s.marks);
  }
};
// The books are posted up to the end of a day (UTC). The sums are those of the postings.
struct DayClosed {
  static constexpr const char* kind = "day_closed";
  std::int64_t day = 0;  // since 1970-01-01
  NanoUsd fleet, active, idle, unallocated, charge;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("day", s.day);
    v("fleet", s.fleet);
    v("active", s.active);
    v("idle", s.idle);
    v("unallocated", s.unallocated);
    v("charge", s.charge);
  }
};
// No more postings into this month: late ones go into the next.
struct MonthClosed {
  static constexpr const char* kind = "month_closed";
  std::string month;  // "2026-11"
  NanoUsd cost, charge;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("month", s.month);
    v("cost", s.cost);
    v("charge", s.charge);
  }
};

// ---- money: idleness
struct IdlePolicySet {
  static constexpr const char* kind = "idle_policy_set";
  ProjectId project;                 // none: every project without its own policy
  std::optional<IdlePolicy> policy;  // none: the default policy
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("project", s.project);
    v("policy", s.policy);
  }
};
struct IdleFloorSet {
  static constexpr const char* kind = "idle_floor_set";
  IdleFloor floor;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("floor", s.floor);
  }
};
// A finding of a task's agent, with its reason. `action` is the step reached on the idle ladder.
struct IdleWarned {
  static constexpr const char* kind = "idle_warned";
  TaskId task;
  JobId job;
  IdleState state = IdleState::idle;  // hung: reports as busy, but draws the power of an idle card
  IdleAction action = IdleAction::warn;
  std::string text;  // "idle 12m: SM 0 %, 71 W (idle 68 W), CPU 0.1 %, no I/O; suspending in 3m"
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("task", s.task);
    v("job", s.job);
    v("state", s.state);
    v("action", s.action);
    v("text", s.text);
  }
};
// Every task of the job has reached this step.
struct IdleActed {
  static constexpr const char* kind = "idle_acted";
  JobId job;
  IdleAction action = IdleAction::stop;
  std::string text;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("job", s.job);
    v("action", s.action);
    v("text", s.text);
  }
};
struct KeptAlive {
  static constexpr const char* kind = "kept_alive";
  JobId job;
  Duration lasts;
  std::string reason;
  bool by_task = false;  // requested from inside the job: its agent already knows
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("job", s.job);
    v("lasts_ns", s.lasts);
    v("reason", s.reason);
    v("by_task", s.by_task);
  }
};
// A node of a billed pool is released.
struct NodeReleased {
  static constexpr const char* kind = "node_released";
  NodeId node;
  std::string reason;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("node", s.node);
    v("reason", s.reason);
  }
};

// ---- money: records that people keep beside the books
struct WebhookAdded {
  static constexpr const char* kind = "webhook_added";
  Webhook webhook;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("webhook", s.webhook);
  }
};
struct WebhookRemoved {
  static constexpr const char* kind = "webhook_removed";
  std::uint64_t webhook = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("webhook", s.webhook);
  }
};
struct WebhookDelivered {
  static constexpr const char* kind = "webhook_delivered";
  std::uint64_t webhook = 0;
  Seq through = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("webhook", s.webhook);
    v("through", s.through);
  }
};
struct CommitmentSet {
  static constexpr const char* kind = "commitment_set";
  CommitmentTerms commitment;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("commitment", s.commitment);
  }
};
struct CommitmentRemoved {
  static constexpr const char* kind = "commitment_removed";
  std::string name;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
  }
};
struct ProjectTagged {
  static constexpr const char* kind = "project_tagged";
  ProjectId project;
  std::string key, value;  // an empty value removes the tag
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("project", s.project);
    v("key", s.key);
    v("value", s.value);
  }
};
// A provider's bill was compared with the books.
struct BillImported {
  static constexpr const char* kind = "bill_imported";
  std::string name, digest;
  std::int64_t lines = 0, differing = 0;
  NanoUsd billed, ours;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("digest", s.digest);
    v("lines", s.lines);
    v("differing", s.differing);
    v("billed", s.billed);
    v("ours", s.ours);
  }
};

}  // namespace billow
