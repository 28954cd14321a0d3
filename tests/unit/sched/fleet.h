// A small random fleet with projects, jobs and reservations, for tests of properties.
#pragma once

#include <algorithm>

#include "base/rng.h"
#include "support.h"

namespace billow::sched::test {

inline Reservation reserve(
    SchedIndex& index, std::uint64_t id, int gpus, WallTime from, WallTime until) {
  ReservationRequest r{.project = ProjectId{9},
                       .resources = {.gpus = gpus, .share = {1000, 0}},
                       .from = from,
                       .until = until};
  auto places = place_reservation(index, r, t0);
  Reservation made{.id = ReservationId{id},
                   .project = ProjectId{9},
                   .from = from,
                   .until = until,
                   .placements = {}};
  if (places)
    made.placements = *places;
  if (places)
    index.upsert_reservation(made);
  return made;
}

inline bool started_by(const Plan& p, JobId id) {
  return std::ranges::any_of(p.starts, [&](const Start& s) { return s.job == id; });
}

class Fleet {
 public:
  // `size`: how many times the usual one to three nodes.
  explicit Fleet(std::uint64_t seed, std::uint64_t size = 1) : rng(seed) {
    SchedSettings settings;
    settings.starve_after = hours(6);
    settings.consolidation = false;
    index = SchedIndex(settings);
    for (std::uint64_t i = 1, n = static_cast<std::uint64_t>(rng.between(1, 3)) * size; i <= n;
         ++i) {
      NodeShape shape = node(i, rng.chance(0.5) ? 8 : 4, rng.chance(0.7) ? "H100" : "A100");
      shape.place.switch_name = rng.chance(0.5) ? "a" : "b";
      shape.cpu_milli = rng.between(16, 64) * 1000;
      index.upsert_node(shape);
    }
    for (std::uint64_t p = 1; p <= 2; ++p) {
      ProjectSettings s{.id = ProjectId{p}, .weight = 100};
      if (rng.chance(0.2))
        s.limit_milli = rng.between(2, 10) * 1000;
      if (rng.chance(0.2))
        s.policy = OrderPolicy::fifo;
      if (rng.chance(0.2))
        s.guaranteed_milli = rng.between(1, 3) * 1000;
      index.upsert_project(s);
    }
  }
  JobRequest random_job() {
    static const int parts[] = {250, 500, 1000, 1000, 1000};
    JobRequest j = job(++next, 1, parts[rng.below(5)]);
    if (rng.chance(0.4)) {
      j.resources.gpus = static_cast<std::int32_t>(rng.between(2, 8));
      j.resources.share.milli = 1000;
    }
    if (rng.chance(0.2))
      j.tasks = 2;
    if (rng.chance(0.2)) {
      j.constraints.close = Closeness::switch_;
      j.constraints.close_required = true;
    }
    if (rng.chance(0.2))
      j.resources.gpu_types = {"H100"};
    j.project = ProjectId{1 + rng.below(2)};
    j.user = UserId{1 + rng.below(2)};
    j.priority = static_cast<std::int32_t>(rng.below(3));
    j.submitted = now;
    if (rng.chance(0.2)) {
      j.spot = true;
      j.yields = Yields::by_requeue;
    }
    return j;
  }
  void reservations() {
    for (std::uint64_t id = 1, n = rng.below(4); id <= n; ++id) {
      const WallTime from = now + minutes(rng.between(5, 300));
      reserve(index, id, static_cast<int>(rng.between(1, 6)), from,
              from + minutes(rng.between(10, 200)));
    }
  }

  Rng rng;
  SchedIndex index;
  WallTime now = t0;
  std::uint64_t next = 0;
};

}  // namespace billow::sched::test
