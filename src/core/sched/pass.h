// One planning pass: jobs in the order of lines.h, each kind tried once per state of the nodes. The
// pass takes the capacity it assigns from the index and gives it back at the end, so the caller
// sees an unchanged index.
//
// The first job that finds no free capacity gets a hold (holds.h) on the capacity it will have
// soonest, and the rest of the pass is backfill around it. Three files: plan.cpp walks the queue
// and starts jobs, promises.cpp keeps earlier promises, no_capacity.cpp looks for capacity when
// there is none.
#pragma once

#include "core/sched/holds.h"
#include "core/sched/index.h"
#include "core/sched/lines.h"
#include "core/sched/preempt.h"
#include "core/sched/reserved.h"
#include "core/sched/tally.h"

namespace billow::sched {

class Pass {
 public:
  Pass(SchedIndex::Impl& index, WallTime now, PlanLimits limits)
      : index_(index),
        now_(now),
        limits_(limits),
        holds_(std::in_place, index),
        reserved_(index, now),
        tally_(index, now),
        pass_(++index.passes) {}
  Plan run();

 private:
  void wake_at(WallTime t);

  // ---- What is promised already (promises.cpp)
  void keep_for_waiting();
  void keep_for_moving();
  void keep_reservations();
  void clear_for(const Placement& left, Slot slot);
  // Prepares a hold on `placements`, which were chosen on the free capacity that the index shows
  // now, for the job from `from` on; commit_hold() puts it into effect.
  void hold_for(const JobRequest& request,
                std::vector<Placement> placements,
                WallTime from,
                bool asks_spot = false);
  void commit_hold();

  // ---- The pass and its starts (plan.cpp)
  void fill();
  void look_at(Line& line, Front front);
  bool try_start(Front& front);  // false: nothing more of this kind starts in this pass
  void next_of(Front front, Line& line);
  Front front_of(Kind* kind,
                 const ProjectState& p,
                 WallTime submitted,
                 std::set<ReadyKey>::const_iterator at) const;
  bool in_order(const Kind& kind) const;
  void repair();
  void take(const Placement& placement,
            const JobRequest& request,
            const Holds::Leaves& leaves,
            bool own = false);
  void settle();
  void count_start();
  void start(const Front& front, JobId job, std::vector<Placement> placements, bool own = false);
  std::vector<Placement> place_reserved(const Kind& kind) const;
  std::vector<Placement> place_reserved(const PlacementClass& c,
                                        const JobRequest& request,
                                        std::size_t tasks) const;
  bool may_be_short(const Front& front) const;
  bool start_short(Front& front, std::int32_t depth);
  WallTime end_if_started(JobId id) const;
  Holds::Leaves leaves(const JobRequest& request, WallTime end) const;
  Stay stay_of(const JobRequest& request, WallTime from, WallTime end_if_now) const;
  bool starved(WallTime submitted) const;
  // Results of this pass that are still valid.
  PlacementClass::Tried& tried(const PlacementClass& c) const;
  void forget_tries() { pass_ = ++index_.passes; }

  // ---- When there is no free capacity (no_capacity.cpp)
  const std::vector<std::pair<WallTime, const RunningJob*>>& releases(bool asks_spot = false);
  bool hold_soonest(const JobRequest& request, const PlacementClass& c);
  bool hold_after(const JobRequest& request,
                  const PlacementClass& c,
                  const std::vector<std::pair<WallTime, const RunningJob*>>& ends);
  void hold_after_oldest(const JobRequest& request, const PlacementClass& c);
  bool hold_beside_reservations(const JobRequest& request, const PlacementClass& c);
  void hold_drained(const JobRequest& request, const PlacementClass& c);
  void no_capacity(const Front& front);
  bool ask_to_leave(const JobRequest& request, const PlacementClass& c);

  template <class F>
  static void each_placement(const RunningJob& job, F f) {
    for (const Placement& p : job.placements) {
      if (p.node)
        f(p, job.request);
    }
  }

  SchedIndex::Impl& index_;
  WallTime now_;
  PlanLimits limits_;
  std::optional<Holds> holds_;
  Reserved reserved_;
  Tally tally_;
  Plan plan_;
  std::vector<std::pair<Placement, const JobRequest*>> taken_;
  struct Starting {
    const JobRequest* request = nullptr;  // none: all capacity is taken
    Holds::Leaves leaves;
    bool own = false;
    bool counted = false;  // by tally_
  };
  Starting starting_;             // of the last start, whose capacity is not taken yet
  std::set<JobId> started_jobs_;  // out of turn, by backfill
  std::set<JobId> asked_, waits_for_leavers_;
  std::map<JobId, std::vector<Placement>> own_;              // capacity held for these jobs
  std::vector<std::pair<Placement, FreeCapacity>> pending_;  // a hold found, not yet kept
  struct Commit {
    JobRequest request;
    WallTime from;
    bool asks_spot = false;
  };
  std::optional<Commit> commit_;
  std::vector<std::pair<WallTime, const RunningJob*>> releases_;
  std::list<RunningJob> started_now_;  // by this pass: they end too
  std::int32_t tries_ = 0;
  std::uint64_t pass_ = 0;
  int preemptors_ = 0, holds_tried_ = 0;
  mutable int gangs_tried_ = 0;  // short gangs tried beside holds
  bool head_held_ = false, blocked_ = false;
  bool stuck_ = false;  // the last attempt found no free capacity
};

}  // namespace billow::sched
