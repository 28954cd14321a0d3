// One task under watch: samples in; what its idle ladder comes to and what it has used out. Pure,
// and driven by the core, so that the weekend test runs this very code.
//
// What holds: what the meter counts as active never shrinks and never outruns time; a spell without
// samples (the agent was away) counts as active. The node acts alone only where nobody else will:
// its head is away or does not answer, and of a gang only after `gang_alone_after`, because ranks
// wait for each other and only the head sees all of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/agent/idle.h"
#include "core/agent/idle_ladder.h"
#include "core/model/money.h"

namespace billow::agent {

// Sent to public addresses: since the task began, or since this agent first saw it.
struct Egress {
  std::int64_t bytes = 0;
  bool from_start = false;
};

struct TaskSample {
  IdleSample idle;
  struct Energy {
    std::int64_t counter_mj = 0;  // of the card, since its driver was loaded
    std::int64_t milli = 1000;    // the task's part of the card
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
    set_rules(std::move(rules));
  }

  void set_rules(IdleRules rules);
  void keep(Duration lasts, SteadyTime now) { kept_from_ = now, kept_for_ = lasts; }
  void resumed(SteadyTime now);
  void sent(const Egress& egress);

  struct Around {
    SteadyTime now;
    bool head_here = false;
    bool node_bills = false;
    bool suspended = false;  // it really is
  };
  struct Said {
    IdleState state = IdleState::idle;
    IdleAction action = IdleAction::none;  // none: nothing new
    std::string text;
    bool act_alone = false;  // stop it here and now
  };
  Said add(const TaskSample& sample, const Around& around);

  TaskMeter meter(SteadyTime now) const;
  const IdleVerdict& verdict() const { return tracker_.verdict(); }
  const std::string& text() const { return text_; }

 private:
  void count_energy(const TaskSample& sample);

  IdleRules rules_;
  IdleTracker tracker_;
  LadderState ladder_;
  SteadyTime from_;
  TaskMeter before_;  // of an earlier life of the agent
  SteadyTime kept_from_;
  Duration kept_for_;
  std::int64_t energy_uj_ = 0;  // micro-joules, so that parts of a card do not round away
  std::vector<std::optional<std::int64_t>> counter_mj_;
  std::int64_t sent_bytes_ = 0;  // by this agent and those before; never shrinks
  bool measured_ = false;
  Duration active_by(SteadyTime now) const;

  SteadyTime first_sample_, last_sample_, said_at_, due_at_;
  Duration counted_;                   // the most that was ever counted as active: never taken back
  IdleAction due_ = IdleAction::none;  // the highest rung said in this spell
  std::string text_;
};

}  // namespace billow::agent
