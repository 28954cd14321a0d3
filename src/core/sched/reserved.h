// What advance reservations keep of each node, as steps over time: all that is reserved on the node
// between two moments at which something begins or ends. Every question about room asks this one
// place what a job may take that stays from then until then: the plan, the search for the soonest
// room, for victims, for room to move to, and for room that is left to run empty.
//
// Work that gives way (spot) leaves when a reservation begins, so it may stand where one will be;
// but not if that is about to happen.
#pragma once

#include <map>

#include "core/sched/holds.h"
#include "core/sched/index.h"

namespace billow::sched {

// Starting what is asked to leave at once does nobody good.
inline constexpr Duration spot_before_reservation_min = minutes(2);

// When a job would be there. `until` zero: nobody knows, it may stay for ever.
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
  // Leaves of the node's room what a job may take beside what is reserved during its stay.
  void cut(Room& room, Slot slot, const NodeShape& shape, const Stay& stay) const;
  // When something reserved ends, soonest first.
  std::vector<WallTime> ends() const;

 private:
  std::map<Slot, std::vector<Step>> steps_;
};

// While it lives, the index shows of the rooms it has now only what a job with this stay may take.
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

// Whether what the job holds is its own reservation's at that time: when it ends before, that makes
// room in the reservation and for nobody else. (What is reserved is counted less what its own jobs
// hold, so whoever lets them go must not count their room as free.)
bool holds_for_its_own(const SchedIndex::Impl& index, const JobRequest& job, WallTime at);

// When the job is surely over; zero: nobody knows.
WallTime surely_over(const RunningJob& job, WallTime now);

}  // namespace billow::sched
