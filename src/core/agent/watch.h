// Watches one task: samples go in; steps of the idle ladder and usage come out. Pure, and driven by
// the core, so the weekend test runs exactly this code.
//
// Guarantees: metered active time never shrinks and never exceeds elapsed time; a period without
// samples (no agent) counts as active. The node acts alone only if the head is unreachable or does
// not react, and for a task of a gang only after `gang_alone_after`, because ranks wait for each
// other and only the head sees all of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/agent/idle.h"
#include "core/agent/idle_ladder.h"
#include "core/model/money.h"

namespace billow::agent {

// Bytes sent to public addresses, since the task began or since this agent first saw it.
struct Egress {
  std::int64_t bytes = 0;
  bool from_start = false;
};

struct TaskSample {
  IdleSample idle;
  struct Energy {
    std::int64_t counter_mj = 0;  // of the card, since its driver was loaded
    std::int64_t milli = 1000;    // the task's share of the card
  };
  std::vector<std::optional<Energy>> energy;  // per GPU
  Egress egress;
};

inline constexpr Duration head_answers_within = minutes(2);
inline constexpr Duration gang_alone_after = hours(1);
inline constexpr Duration idle_said_again_after = minutes(1);

class TaskWatch {
 public:
  TaskWatch(IdleRules rules, SteadyTime now, TaskMeter before = {})
      : from_(now), before_(before), sent_bytes_(before.egress_bytes) {
    set_rules(rules);
  }

  void set_rules(IdleRules rules);
  void keep(Duration lasts, SteadyTime now) {
    kept_from_ = now;
    kept_for_ = lasts;
  }
  void resumed(SteadyTime now);
  void sent(const Egress& egress);

  struct Around {
    SteadyTime now;
    bool head_here = false;
    bool node_bills = false;
    bool suspended = false;  // the task is suspended now
  };
  struct Said {
    IdleState state = IdleState::idle;
    IdleAction action = IdleAction::none;  // none: nothing to report
    std::string text;
    bool act_alone = false;  // stop the task without waiting for the head
  };
  Said add(const TaskSample& sample, const Around& around);

  TaskMeter meter(SteadyTime now) const;
  const IdleVerdict& verdict() const { return tracker_.verdict(); }
  const std::string& text() const { return text_; }

 private:
  void count(const TaskSample& sample, SteadyTime now);
  void count_energy(const TaskSample& sample);
  Said add_suspended(const Around& around) const;
  void climb_ladder(const Around& around, Said& out);
  bool must_act_alone(const Around& around) const;
  bool due() const;  // a suspend or stop has been announced

  IdleRules rules_;
  IdleTracker tracker_;
  LadderState ladder_;
  SteadyTime from_;
  TaskMeter before_;  // from an earlier agent process
  SteadyTime kept_from_;
  Duration kept_for_;
  std::int64_t energy_uj_ = 0;  // micro-joules, so that shares of a card are not rounded away
  std::vector<std::optional<std::int64_t>> counter_mj_;
  std::int64_t sent_bytes_ = 0;  // counted by this agent process and earlier ones; never shrinks
  bool measured_ = false;
  Duration active_by(SteadyTime now) const;

  SteadyTime first_sample_, last_sample_, said_at_, due_at_;
  Duration counted_;                   // the most that was ever counted as active
  IdleAction due_ = IdleAction::none;  // the highest step announced in this idle period
  std::string text_;
};

}  // namespace billow::agent
