// What advance reservations keep on each node, as steps over time. Everything that asks for
// capacity asks here what a job may use that stays from one moment to another: the plan, the search
// for the soonest start, for victims, for a place to move to, and for nodes to run empty.
//
// Preemptible jobs leave when a reservation begins, so they may run where one will be, but not if
// it begins within moments.
#pragma once

#include <map>

#include "core/sched/holds.h"
#include "core/sched/index.h"

namespace billow::sched {

// A job that would be preempted sooner than this is not started.
inline constexpr Duration spot_before_reservation_min = minutes(2);

// When a job would be there. `until` zero: not known, it may stay.
struct Stay {
  WallTime from, until;
  bool gives_way = false;
};

class Reserved {
 public:
  struct Step {
    WallTime from, until;  // from: not before now
    Placement used;        // by all that are reserved then, less what their own jobs hold already
  };
  Reserved(const SchedIndex::Impl& index, WallTime now);

  bool any() const { return !steps_.empty(); }
  const std::map<Slot, std::vector<Step>>& steps() const { return steps_; }
  static bool meets(const Step& step, const Stay& stay);
  // Reduces the node's free capacity to what a job may use beside reservations during its stay.
  void cut(FreeCapacity& free, Slot slot, const NodeShape& shape, const Stay& stay) const;
  // When something reserved ends, soonest first.
  std::vector<WallTime> ends() const;

 private:
  std::map<Slot, std::vector<Step>> steps_;
};

// While it lives, the index shows of its free capacity now only what a job with this stay may take.
class ReservedView {
 public:
  ReservedView(SchedIndex::Impl& index, const Reserved& reserved, const Stay& stay);

 private:
  Holds holds_;
};

// A reservation's placement less what its own jobs hold of it, those just started among them.
Placement left_of(const SchedIndex::Impl& index,
                  const Reservation& reservation,
                  const Placement& reserved,
                  const std::deque<RunningJob>& started);

// Where on the node a task of the class would go inside what is reserved of it (all of it, or what
// is left); nothing: nowhere.
std::optional<Placement> fit_reserved(const PlacementClass& c,
                                      const NodeState& node,
                                      const Placement& reserved);

// Whether the job's capacity belongs to its reservation at that time: when the job ends, the
// capacity is free inside the reservation and for nobody else. (Reservations are counted less what
// their own jobs hold, so that capacity must not be counted as free.)
bool holds_for_its_own(const SchedIndex::Impl& index, const JobRequest& job, WallTime at);

// When the job has certainly ended; zero: not known.
WallTime surely_over(const RunningJob& job, WallTime now);

}  // namespace billow::sched
