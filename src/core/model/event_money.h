// What happens to money: prices, budgets, metering, idleness, and what people keep beside the
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
// An operator's price; it holds from here on, for leases that begin and for nodes as they are
// priced anew.
struct PriceSet {
  static constexpr const char* kind = "price_set";
  PriceRule rule;
  template <class V>
  void fields(V& v) {
    v("rule", rule);
  }
};
struct PriceRemoved {
  static constexpr const char* kind = "price_removed";
  std::string of;
  template <class V>
  void fields(V& v) {
    v("of", of);
  }
};
// What the whole node costs a second from here on, and how much of it can be leased.
struct NodePriceSet {
  static constexpr const char* kind = "node_price_set";
  NodeId node;
  Rate rate;
  std::int64_t capacity_milli = 0;
  template <class V>
  void fields(V& v) {
    v("node", node);
    v("rate", rate);
    v("capacity_milli", capacity_milli);
  }
};

// ---- money: budgets
struct BudgetSet {
  static constexpr const char* kind = "budget_set";
  Budget budget;
  NanoUsd spent;  // by leases that ended before, in the period that runs
  template <class V>
  void fields(V& v) {
    v("budget", budget);
    v("spent", spent);
  }
};
struct BudgetRemoved {
  static constexpr const char* kind = "budget_removed";
  BudgetKey budget;
  template <class V>
  void fields(V& v) {
    v("budget", budget);
  }
};
// A mark was passed (50, 80, 100 %), the cap reached, or a new period begun.
struct BudgetWarned {
  static constexpr const char* kind = "budget_warned";
  BudgetKey budget;
  BudgetState state;
  BudgetAction action = BudgetAction::none;
  std::int32_t pct = 0;
  std::string text;
  template <class V>
  void fields(V& v) {
    v("budget", budget);
    v("state", state);
    v("action", action);
    v("pct", pct);
    v("text", text);
  }
};
// It was about to start and its minimum cannot be paid: out of the queue until it can.
struct JobHeld {
  static constexpr const char* kind = "job_held";
  JobId job;
  std::string reason;
  Rate rate;  // what it would have cost a second
  template <class V>
  void fields(V& v) {
    v("job", job);
    v("reason", reason);
    v("rate", rate);
  }
};

// ---- money: metering
struct MeterMarked {
  static constexpr const char* kind = "meter_marked";
  NodeId node;
  std::vector<TaskMark> marks;
  template <class V>
  void fields(V& v) {
    v("node", node);
    v("marks", marks);
  }
};
// The books are posted up to the end of a day (UTC). The sums are those of the postings.
struct DayClosed {
  static constexpr const char* kind = "day_closed";
  std::int64_t day = 0;  // since 1970-01-01
  NanoUsd fleet, active, idle, unallocated, charge;
  template <class V>
  void fields(V& v) {
    v("day", day);
    v("fleet", fleet);
    v("active", active);
    v("idle", idle);
    v("unallocated", unallocated);
    v("charge", charge);
  }
};
// No posting is made into this month any more: what comes late is posted into the next.
struct MonthClosed {
  static constexpr const char* kind = "month_closed";
  std::string month;  // "2026-11"
  NanoUsd cost, charge;
  template <class V>
  void fields(V& v) {
    v("month", month);
    v("cost", cost);
    v("charge", charge);
  }
};

// ---- money: idleness
struct IdlePolicySet {
  static constexpr const char* kind = "idle_policy_set";
  ProjectId project;                 // none: of every project without its own
  std::optional<IdlePolicy> policy;  // none: as for everybody
  template <class V>
  void fields(V& v) {
    v("project", project);
    v("policy", policy);
  }
};
struct IdleFloorSet {
  static constexpr const char* kind = "idle_floor_set";
  IdleFloor floor;
  template <class V>
  void fields(V& v) {
    v("floor", floor);
  }
};
// What a task's agent found, with its reason. `action` is what its ladder has come to.
struct IdleWarned {
  static constexpr const char* kind = "idle_warned";
  TaskId task;
  JobId job;
  IdleState state = IdleState::idle;  // hung: busy by its own word, at the power of an idle card
  IdleAction action = IdleAction::warn;
  std::string text;  // "idle 12m: SM 0 %, 71 W (idle 68 W), CPU 0.1 %, no I/O; suspending in 3m"
  template <class V>
  void fields(V& v) {
    v("task", task);
    v("job", job);
    v("state", state);
    v("action", action);
    v("text", text);
  }
};
// Every task of the job has come to it.
struct IdleActed {
  static constexpr const char* kind = "idle_acted";
  JobId job;
  IdleAction action = IdleAction::stop;
  std::string text;
  template <class V>
  void fields(V& v) {
    v("job", job);
    v("action", action);
    v("text", text);
  }
};
struct KeptAlive {
  static constexpr const char* kind = "kept_alive";
  JobId job;
  Duration lasts;
  std::string reason;
  bool by_task = false;  // asked for inside the job: its agent knows already
  template <class V>
  void fields(V& v) {
    v("job", job);
    v("lasts_ns", lasts);
    v("reason", reason);
    v("by_task", by_task);
  }
};
// A node of a pool that bills is given back.
struct NodeReleased {
  static constexpr const char* kind = "node_released";
  NodeId node;
  std::string reason;
  template <class V>
  void fields(V& v) {
    v("node", node);
    v("reason", reason);
  }
};

// ---- money: what people keep beside the books
struct WebhookAdded {
  static constexpr const char* kind = "webhook_added";
  Webhook webhook;
  template <class V>
  void fields(V& v) {
    v("webhook", webhook);
  }
};
struct WebhookRemoved {
  static constexpr const char* kind = "webhook_removed";
  std::uint64_t webhook = 0;
  template <class V>
  void fields(V& v) {
    v("webhook", webhook);
  }
};
struct WebhookDelivered {
  static constexpr const char* kind = "webhook_delivered";
  std::uint64_t webhook = 0;
  Seq through = 0;
  template <class V>
  void fields(V& v) {
    v("webhook", webhook);
    v("through", through);
  }
};
struct CommitmentSet {
  static constexpr const char* kind = "commitment_set";
  CommitmentTerms commitment;
  template <class V>
  void fields(V& v) {
    v("commitment", commitment);
  }
};
struct CommitmentRemoved {
  static constexpr const char* kind = "commitment_removed";
  std::string name;
  template <class V>
  void fields(V& v) {
    v("name", name);
  }
};
struct ProjectTagged {
  static constexpr const char* kind = "project_tagged";
  ProjectId project;
  std::string key, value;  // an empty value takes the tag away
  template <class V>
  void fields(V& v) {
    v("project", project);
    v("key", key);
    v("value", value);
  }
};
// A provider's bill was compared with the books.
struct BillImported {
  static constexpr const char* kind = "bill_imported";
  std::string name, digest;
  std::int64_t lines = 0, differing = 0;
  NanoUsd billed, ours;
  template <class V>
  void fields(V& v) {
    v("name", name);
    v("digest", digest);
    v("lines", lines);
    v("differing", differing);
    v("billed", billed);
    v("ours", ours);
  }
};

}  // namespace billow
