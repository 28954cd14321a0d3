// What advance reservations keep on each node, as steps over time. Every search for capacity asks
// here what a job may use during its stay: the plan, and the searches for the soonest start, for
// victims, for a place to move to, and for nodes to run empty.
//
// Preemptible jobs leave when a reservation begins, so they may run on its capacity before, unless
// it begins very soon.
#pragma once

#include <map>

#include "core/sched/holds.h"
#include "core/sched/index.h"

namespace billow::sched {

// A job that would be preempted sooner than this is not started.
inline constexpr Duration spot_before_reservation_min = minutes(2);

// The time that a job would run. `until` zero: no known end.
struct Stay {
  WallTime from, until;
  bool gives_way = false;
};

class Reserved {
 public:
  struct Step {
    WallTime from, until;  // from: not before now
    Placement used;        // by all reservations at that time, less what their own jobs hold
  };
  Reserved(const SchedIndex::Impl& index, WallTime now);

  bool any() const { return !steps_.empty(); }
  const std::map<Slot, std::vector<Step>>& steps() const { return steps_; }
  static bool meets(const Step& step, const Stay& stay);
  // Reduces the node's free capacity to what a job may use beside reservations during its stay.
  void cut(FreeCapacity& free, Slot slot, const NodeShape& shape, const Stay& stay) const;
  // The ends of reservations, soonest first.
  std::vector<WallTime> ends() const;

 private:
  std::map<Slot, std::vector<Step>> steps_;
};

// While it lives, the index shows only the free capacity that a job with this stay may take.
class ReservedView {
 public:
  ReservedView(SchedIndex::Impl& index, const Reserved& reserved, const Stay& stay);

 private:
  Holds holds_;
};

// A reservation's placement less what its own jobs hold, including those just started.
Placement left_of(const SchedIndex::Impl& index,
                  const Reservation& reservation,
                  const Placement& reserved,
                  const std::list<RunningJob>& started);

// Where on the node a task of the class would go inside the reserved capacity (all of it, or what
// is left), if it fits.
std::optional<Placement> fit_reserved(const PlacementClass& c,
                                      const NodeState& node,
                                      const Placement& reserved,
                                      std::int64_t disk_mib);

// Whether the job's capacity belongs to its reservation at that time: when the job ends, the
// capacity is free only inside the reservation. (Reservations are counted less what their own jobs
// hold, so that capacity must not be counted as free.)
// For a placement that belongs to no job.
const JobRequest& nobody();
bool holds_for_its_own(const SchedIndex::Impl& index, const JobRequest& job, WallTime at);

// When the job has certainly ended; zero: not known.
WallTime surely_over(const RunningJob& job, WallTime now);

}  // namespace billow::sched
