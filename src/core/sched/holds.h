// Capacity that a pass keeps: for the first job in line (backfill), for a job whose victims are
// leaving, for advance reservations.
//
// For each node, a hold records when its holder starts and what other jobs still running then may
// use (`spare`). While holds exist, the index shows only that much of a held node as free, so every
// other choice respects them; jobs that certainly end earlier may use the true free capacity. A job
// that passes a hold never delays the holder: it has ended by then, or it fits beside what is held.
// Two exceptions: preemptible jobs may use capacity held for a reservation that has not begun,
// because they leave when it begins; and spot jobs may use capacity held for a job that waits for
// the end of a reservation, because that job preempts them.
#pragma once

#include <functional>
#include <map>

#include "core/sched/index.h"

namespace billow::sched {

class Holds {
 public:
  enum class For { job, reservation };
  struct Part {
    WallTime from;
    FreeCapacity spare;
    For whom = For::job;
    bool asks_spot = false;  // the holder preempts spot jobs when it comes
  };
  // When and why a placed job would leave again.
  struct Leaves {
    WallTime end;         // zero: not known
    WallTime asked_from;  // reservations that begin then or later preempt it; zero: none does
    bool spot = false;    // jobs that wait for the end of a reservation preempt it too
  };

  explicit Holds(SchedIndex::Impl& index) : index_(index) {}
  ~Holds() { hide_all(); }  // the index shows the true capacity again
  Holds(const Holds&) = delete;
  Holds& operator=(const Holds&) = delete;

  // Keeps `placement` free at `from`, when the node will have `then`.
  void keep(const Placement& placement,
            const JobRequest& holder,
            FreeCapacity then,
            WallTime from,
            For whom = For::job,
            bool asks_spot = false);
  bool any() const { return !nodes_.empty(); }

  // Takes capacity for a job that leaves as `leaves` says, and updates the holds.
  void take(const Placement& placement, const JobRequest& request, const Leaves& leaves);

  // Takes capacity for its holder; what is spare beside the hold does not change.
  void take_own(const Placement& placement, const JobRequest& request);
  // Whether the placements are truly free together, holds aside.
  bool truly_free(const std::vector<Placement>& placements, const JobRequest& request) const;
  FreeCapacity true_free(Slot slot) const;

  // A place on a held node for one task that leaves so; only holds that it would meet count.
  std::optional<Placement> place_short(const PlacementClass& c, const Leaves& leaves) const;

  // Shows the true capacity, without holds, while the object lives.
  class Truth {
   public:
    explicit Truth(Holds& holds) : holds_(holds) { holds_.hide_all(); }
    ~Truth() { holds_.show_all(); }

   private:
    Holds& holds_;
  };
  // Shows only the holds that bind a job which leaves in this way, or only those of jobs, while the
  // object lives.
  class Met {
   public:
    Met(Holds& holds, const Leaves& leaves)
        : Met(holds, [&](const Part& part) { return binds(part, leaves); }) {}
    static Met of_jobs(Holds& holds) {
      return Met(holds, [](const Part& part) { return part.whom == For::job; });
    }
    ~Met() {
      holds_.hide_all();
      holds_.show_all();
    }
    Met(const Met&) = delete;
    Met& operator=(const Met&) = delete;

   private:
    template <class F>
    Met(Holds& holds, F shown) : holds_(holds) {
      holds_.hide_all();
      for (auto& [slot, held] : holds_.nodes_)
        holds_.show(slot, held, shown);
    }
    Holds& holds_;
  };

 private:
  struct Held {
    std::vector<Part> parts;
    FreeCapacity hidden;  // what the index does not show of the node now
    bool shown = false;
  };
  static bool binds(const Part& part, const Leaves& leaves);
  FreeCapacity true_free(Slot slot, const Held& held) const;
  void show(Slot slot, Held& held);
  void show(Slot slot, Held& held, const std::function<bool(const Part&)>& shown);
  void hide(Slot slot, Held& held);
  void show_all();
  void hide_all();

  SchedIndex::Impl& index_;
  std::map<Slot, Held> nodes_;
};

// Nodes left to run empty for a job that has waited too long, when no end of other jobs is known:
// close together if the job requires it, and chosen so that the jobs that must end first started as
// long ago as possible.
//
// This terminates: jobs that start later beside the held capacity take none of it, and on other
// nodes the newest job only gets newer. So from one pass to the next, the newest job that must end
// never gets newer, whichever nodes are chosen. The job starts no later than the longest run of any
// job after the first choosing pass.
struct Drain {
  Slot slot = no_slot;
  Placement placement;
  FreeCapacity then;  // of the node, after those jobs have ended
};
// `cut` subtracts what is promised to reservations; jobs inside a reservation free nothing when
// they end.
using CutCapacity = std::function<void(FreeCapacity&, Slot)>;
std::vector<Drain> drain_oldest(const SchedIndex::Impl& index,
                                const PlacementClass& c,
                                std::size_t tasks,
                                WallTime now,
                                const CutCapacity& cut);

}  // namespace billow::sched
