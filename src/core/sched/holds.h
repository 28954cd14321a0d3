// Room kept for someone while a pass goes on: for the job first in line (backfill), for a job whose
// victims are leaving, for advance reservations.
//
// A hold says, per node, what may still be taken by work that would be there when the holder comes
// (`spare`), and when that is. While holds stand, the index shows held nodes with only that much
// free, so that every other choice respects them by itself; work that surely ends before may look
// at the true room. A job that passes a hold never delays it: either it is gone by then, or it fits
// beside what is held. A hold for a reservation that has not begun does not bind work that gives
// way when it does; nor does that of a job which a reservation holds up bind spot work, which that
// job asks to leave when its time has come.
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
    Room spare;
    For whom = For::job;
    bool asks_spot = false;  // whose it is asks spot work to leave when it comes
  };
  // When and how a job that is placed would be gone again.
  struct Leaves {
    WallTime end;         // zero: nobody knows
    WallTime asked_from;  // it is asked to leave by reservations that begin at this time or later;
                          // zero: by none
    bool spot = false;    // …and so by jobs that a reservation holds up
  };

  explicit Holds(SchedIndex::Impl& index) : index_(index) {}
  ~Holds() { hide_all(); }  // the index shows the truth again
  Holds(const Holds&) = delete;
  Holds& operator=(const Holds&) = delete;

  // On the node of `placement`, keep it free at `from`, when `then` is all the node will have.
  void keep(const Placement& placement,
            const JobRequest& holder,
            Room then,
            WallTime from,
            For whom = For::job,
            bool asks_spot = false);
  bool any() const { return !nodes_.empty(); }

  // Takes room on a node for a job that leaves so, keeping the holds right.
  void take(const Placement& placement, const JobRequest& request, const Leaves& leaves);

  // Takes room for the one it was held for: what is spare beside the hold stays as it was.
  void take_own(const Placement& placement, const JobRequest& request);
  // Whether the node truly has the room of the placement free.
  bool truly_free(const Placement& placement, const JobRequest& request) const;
  Room true_room(Slot slot) const;

  // A place for one task that leaves so on held nodes, counting only the holds it would meet.
  std::optional<Placement> place_short(const PlacementClass& c, const Leaves& leaves) const;

  // The true room, holds aside, while the object lives.
  class Truth {
   public:
    explicit Truth(Holds& holds) : holds_(holds) { holds_.hide_all(); }
    ~Truth() { holds_.show_all(); }

   private:
    Holds& holds_;
  };
  // Only the holds that a job which leaves so would meet, or only those of jobs, while the object
  // lives.
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
    Room hidden;  // what the index does not show of the node now
    bool shown = false;
  };
  static bool binds(const Part& part, const Leaves& leaves);
  Room true_room(Slot slot, const Held& held) const;
  void show(Slot slot, Held& held);
  void show(Slot slot, Held& held, const std::function<bool(const Part&)>& shown);
  void hide(Slot slot, Held& held);
  void show_all();
  void hide_all();

  SchedIndex::Impl& index_;
  std::map<Slot, Held> nodes_;
};

// Room to be left to run empty for a job that has waited too long while nobody knows when others
// end: near each other if the job requires it, and such that what has to end first started as long
// ago as possible.
//
// Why it ends: what starts later beside the held room takes nothing of it, and on other nodes what
// started last only gets newer. So from one pass to the next the newest of those who have to end
// never gets newer, whichever nodes are chosen; and the job starts no later than the longest run of
// any job after the pass that first chose.
struct Drain {
  Slot slot = no_slot;
  Placement placement;
  Room then;  // of the node, when those have ended
};
// `cut` takes away of a node's room what is promised to reservations; what stands inside one now
// makes no room by ending.
using CutRoom = std::function<void(Room&, Slot)>;
std::vector<Drain> drain_oldest(const SchedIndex::Impl& index,
                                const PlacementClass& c,
                                std::size_t tasks,
                                WallTime now,
                                const CutRoom& cut);

}  // namespace billow::sched
