// The money part of the state: the two books and the settings for prices, budgets and idleness.
// Folded from events like the rest. The books hold open leases and those that closed recently;
// older ones are rows in the store.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/ledger/books.h"
#include "core/model/money.h"

namespace billow::control {

struct BudgetEntry {
  Budget budget;
  BudgetState progress;
  NanoUsd spent_closed;  // by leases that have ended, in the period that began at counted_from
  WallTime counted_from;
  std::string by;  // who set it last, "user:ana"; empty: not known any more
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("budget", s.budget);
    v("progress", s.progress);
    v("spent_closed", s.spent_closed);
    v("counted_from_ns", s.counted_from);
    v("by", s.by);
  }
};

// The last report of a live task's agent.
struct TaskIdle {
  TaskId task;
  IdleState state = IdleState::idle;
  IdleAction action = IdleAction::warn;
  std::string text;
  WallTime at;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("task", s.task);
    v("state", s.state);
    v("action", s.action);
    v("text", s.text);
    v("at_ns", s.at);
  }
};

// A task's totals at its last mark, and the part of them that belongs to its closed leases.
struct MeteredTask {
  TaskId task;
  TaskMeter meter;
  WallTime at;
  Duration base_active;
  std::int64_t base_energy_mj = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("task", s.task);
    v("meter", s.meter);
    v("at_ns", s.at);
    v("base_active_ns", s.base_active);
    v("base_energy_mj", s.base_energy_mj);
  }
};

struct JobKeepAlive {
  JobId job;
  WallTime until;
  std::string reason;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("job", s.job);
    v("until_ns", s.until);
    v("reason", s.reason);
  }
};

struct Money {
  ledger::Books books;
  std::int64_t days_closed =
      0;  // every day before this one (since 1970) is posted; 0: the books are not open yet
  std::set<std::string> months_closed;      // "2026-11"
  std::map<std::string, PriceRule> prices;  // by their subject
  std::map<BudgetKey, BudgetEntry> budgets;
  std::map<JobId, Rate> held;  // jobs that wait for money, with their future cost per second
  IdlePolicy idle;
  std::map<ProjectId, IdlePolicy> idle_of;
  IdleFloor floor;
  bool rules_changed = false;  // ever: then agents get their rules with every hello
  std::map<TaskId, TaskIdle> idling;
  std::map<TaskId, MeteredTask> meters;  // of live tasks, at their last mark
  std::map<JobId, JobKeepAlive> kept_alive;
  std::map<NodeId, WallTime> node_empty_since;  // on the billing clock
  std::set<NodeId> released;                    // being released
  std::uint64_t next_webhook = 1;
  std::map<std::uint64_t, Webhook> webhooks;
  std::map<std::string, CommitmentTerms> commitments;
  std::map<ProjectId, std::map<std::string, std::string>> tags;

  // Left by the last `apply` for the shell to take; not part of the state.
  std::vector<ledger::Entry> posted;

  const IdlePolicy& policy_of(ProjectId project) const {
    const auto own = idle_of.find(project);
    return own == idle_of.end() ? idle : own->second;
  }
};

// As plain tables, for the image of the state.
struct ProjectIdle {
  ProjectId project;
  IdlePolicy policy;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("project", s.project);
    v("policy", s.policy);
  }
};
struct ProjectTags {
  ProjectId project;
  std::map<std::string, std::string> tags;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("project", s.project);
    v("tags", s.tags);
  }
};
struct EmptyNode {
  NodeId node;
  WallTime since;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("node", s.node);
    v("since_ns", s.since);
  }
};
struct HeldJob {
  JobId job;
  Rate rate;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("job", s.job);
    v("rate", s.rate);
  }
};
struct MoneyImage {
  ledger::Books::Image books;
  std::int64_t days_closed = 0;
  std::vector<std::string> months_closed;
  std::vector<PriceRule> prices;
  std::vector<BudgetEntry> budgets;
  std::vector<HeldJob> held;
  IdlePolicy idle;
  std::vector<ProjectIdle> idle_of;
  IdleFloor floor;
  bool rules_changed = false;
  std::vector<TaskIdle> idling;
  std::vector<MeteredTask> meters;
  std::vector<JobKeepAlive> kept_alive;
  std::vector<EmptyNode> empty;
  std::vector<NodeId> released;
  std::uint64_t next_webhook = 1;
  std::vector<Webhook> webhooks;
  std::vector<CommitmentTerms> commitments;
  std::vector<ProjectTags> tags;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("books", s.books);
    v("days_closed", s.days_closed);
    v("months_closed", s.months_closed);
    v("prices", s.prices);
    v("budgets", s.budgets);
    v("held", s.held);
    v("idle", s.idle);
    v("idle_of", s.idle_of);
    v("floor", s.floor);
    v("rules_changed", s.rules_changed);
    v("idling", s.idling);
    v("meters", s.meters);
    v("kept_alive", s.kept_alive);
    v("empty", s.empty);
    v("released", s.released);
    v("next_webhook", s.next_webhook);
    v("webhooks", s.webhooks);
    v("commitments", s.commitments);
    v("tags", s.tags);
  }
};
MoneyImage image_of(const Money& money);
Money restore_money(MoneyImage image);

}  // namespace billow::control
