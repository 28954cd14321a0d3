// What must hold for any cluster and any workload. Every case is made from a seed, and a failure
// names it.
#include <algorithm>
#include <bit>
#include <functional>

#include "base/rng.h"
#include "support.h"

namespace billow::sched {
using namespace test;
namespace {

class World {
 public:
  explicit World(std::uint64_t seed) : rng(seed) {
    SchedSettings settings;
    settings.starve_after = hours(6);
    index = SchedIndex(settings);
    const int nodes = static_cast<int>(rng.between(1, 8));
    for (int i = 1; i <= nodes; ++i)
      index.upsert_node(random_node(static_cast<std::uint64_t>(i)));
    for (std::uint64_t p = 1; p <= 3; ++p) {
      ProjectSettings s{.id = ProjectId{p}, .weight = rng.between(1, 5) * 100};
      if (rng.chance(0.3))
        s.guaranteed_milli = rng.between(1, 6) * 1000;
      if (rng.chance(0.2))
        s.limit_milli = rng.between(2, 20) * 1000;
      if (rng.chance(0.4))
        s.policy = rng.chance(0.5) ? OrderPolicy::fifo : OrderPolicy::shortest;
      if (rng.chance(0.2))
        s.user_running_max = static_cast<std::int32_t>(rng.between(1, 6));
      index.upsert_project(s);
    }
  }
  NodeShape random_node(std::uint64_t id) {
    static const int sizes[] = {0, 1, 2, 4, 8};
    NodeShape n = node(id, sizes[rng.below(5)], rng.chance(0.5) ? "H100" : "A100");
    n.cpu_milli = rng.between(4, 64) * 1000;
    n.place.zone = rng.chance(0.5) ? "a" : "b";
    n.place.switch_name = "s" + std::to_string(rng.below(3));
    if (rng.chance(0.3))
      n.labels["disk"] = "nvme";
    for (GpuShape& g : n.gpus)
      g.healthy = !rng.chance(0.05);
    return n;
  }
  JobRequest random_job(std::uint64_t id) {
    static const int parts[] = {100, 250, 500, 1000};
    JobRequest j =
        job(id, static_cast<int>(rng.below(4)) == 0 ? static_cast<int>(rng.between(2, 4)) : 1,
            parts[rng.below(4)]);
    if (rng.chance(0.1))
      j.resources.gpus = 0;
    j.resources.cpu_milli = rng.between(0, 16) * 1000;
    j.project = ProjectId{static_cast<std::uint64_t>(rng.between(1, 3))};
    j.user = UserId{static_cast<std::uint64_t>(rng.between(1, 2))};
    j.priority = static_cast<std::int32_t>(rng.below(3));
    j.submitted = now;
    if (rng.chance(0.25))
      j.tasks = static_cast<std::int32_t>(rng.between(2, 3));
    if (rng.chance(0.3))
      j.resources.gpu_types = {"H100"};
    if (rng.chance(0.1))
      j.constraints.labels["disk"] = "nvme";
    if (rng.chance(0.1))
      j.constraints.zones = {"a"};
    if (rng.chance(0.2)) {
      j.constraints.close = Closeness::switch_;
      j.constraints.close_required = true;
    }
    if (rng.chance(0.6))
      j.time_limit = minutes(rng.between(5, 300));
    if (rng.chance(0.3))
      j.spot = true;
    if (rng.chance(0.5))
      j.yields = rng.chance(0.5) ? Yields::by_suspend : Yields::by_requeue;
    if (rng.chance(0.05))
      j.resources.whole_node = true;
    if (j.tasks == 1 && rng.chance(0.3))
      j.moves_after = minutes(10);
    if (rng.chance(0.2))
      make_group(j);
    return j;
  }
  void make_group(JobRequest& j) {
    j.tasks = 0;
    j.elastic = true;
    j.moves_after = {};
    j.resources.whole_node = false;
    for (std::int64_t n = rng.between(1, 3); n > 0; --n) {
      RolePart part{.name = "r" + std::to_string(n), .resources = j.resources};
      part.tasks = static_cast<std::int32_t>(rng.between(1, 3));
      part.resources.gpus = static_cast<std::int32_t>(rng.below(3));
      if (part.resources.gpus > 1)
        part.resources.share.milli = 1000;
      part.resources.cpu_milli = rng.between(0, 4) * 1000;
      if (rng.chance(0.3))
        part.resources.gpu_types = {"A100"};
      j.tasks += part.tasks;
      j.parts.push_back(std::move(part));
    }
  }
  // Each member gets what its role asks for.
  void verify_member(const JobRequest& group, std::size_t task, const Placement& p) {
    for (const RolePart& part : group.parts) {
      if (task >= static_cast<std::size_t>(part.tasks)) {
        task -= static_cast<std::size_t>(part.tasks);
        continue;
      }
      ASSERT_EQ(p.gpus.size(), static_cast<std::size_t>(part.resources.gpus));
      ASSERT_EQ(p.cpu_milli, part.resources.cpu_milli);
      for (const GpuShare& g : p.gpus) {
        const GpuShape& card = index.node(p.node)->gpus.at(static_cast<std::size_t>(g.gpu));
        ASSERT_TRUE(card.healthy);
        ASSERT_EQ(g.share.milli, part.resources.share.milli);
        if (!part.resources.gpu_types.empty()) {
          ASSERT_EQ(card.type, part.resources.gpu_types[0]);
        }
      }
      return;
    }
    FAIL() << "more placements than members";
  }
  void verify(const Start& s) {
    const JobRequest r = *index.queued(s.job);
    ASSERT_EQ(s.placements.size(), static_cast<std::size_t>(r.tasks)) << "a gang starts whole";
    std::set<NodeId> nodes;
    std::set<std::string> switches;
    for (const Placement& p : s.placements) {
      const NodeShape* n = index.node(p.node);
      ASSERT_NE(n, nullptr);
      ASSERT_EQ(n->use, NodeUse::schedulable);
      ASSERT_TRUE(nodes.insert(p.node).second || !r.parts.empty())
          << "members of a gang are on different nodes";
      switches.insert(n->place.switch_name);
      if (!r.constraints.zones.empty()) {
        ASSERT_EQ(n->place.zone, r.constraints.zones[0]);
      }
      for (const auto& [k, v] : r.constraints.labels)
        ASSERT_EQ(n->labels.at(k), v);
      if (!r.parts.empty()) {
        verify_member(r, static_cast<std::size_t>(&p - s.placements.data()), p);
        continue;
      }
      if (!r.resources.whole_node) {
        ASSERT_EQ(p.gpus.size(), static_cast<std::size_t>(r.resources.gpus));
      }
      for (const GpuShare& g : p.gpus) {
        const GpuShape& card = n->gpus.at(static_cast<std::size_t>(g.gpu));
        ASSERT_TRUE(card.healthy);
        if (!r.resources.gpu_types.empty()) {
          ASSERT_EQ(card.type, r.resources.gpu_types[0]);
        }
      }
    }
    if (r.constraints.close_required && r.tasks > 1) {
      ASSERT_EQ(switches.size(), 1u);
    }
  }

  Rng rng;
  SchedIndex index;
  WallTime now = t0;
  std::uint64_t next = 0;
};

TEST(Property, NeverOversubscribesNorBreaksAConstraintAndPlanningChangesNothing) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World w(seed);
    std::vector<JobId> running;
    for (int step = 0; step < 60; ++step) {
      for (std::uint64_t n = w.rng.below(4); n > 0; --n)
        w.index.enqueue(w.random_job(++w.next));
      if (w.rng.chance(0.05)) {
        NodeShape shape = *w.index.node(NodeId{1});
        shape.use = w.rng.chance(0.5) ? NodeUse::draining : NodeUse::schedulable;
        w.index.upsert_node(shape);
      }
      const IndexContents before = w.index.contents();
      const Plan p = plan(w.index, w.now);
      ASSERT_TRUE(before == w.index.contents()) << "plan() is pure";
      ASSERT_TRUE(w.index.check_invariants()) << "plan() gives back what it took";
      ASSERT_EQ(p, plan(SchedIndex::rebuild(before), w.now)) << "a rebuilt index plans the same";
      for (const Start& s : p.starts) {
        w.verify(s);
        if (HasFatalFailure())
          return;
        running.push_back(s.job);
      }
      for (const Preempt& v : p.preempts)
        std::erase(running, v.victim);
      carry_out(w.index, p, w.now);
      if (HasFatalFailure())
        return;
      w.now = w.now + minutes(static_cast<std::int64_t>(w.rng.below(40)));
      for (std::uint64_t n = w.rng.below(3); n > 0 && !running.empty(); --n) {
        const std::size_t at = w.rng.below(running.size());
        w.index.ended(running[at], w.now);
        running.erase(running.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
  }
}

TEST(Property, PreemptionTerminates) {
  for (std::uint64_t seed = 100; seed < 160; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World w(seed);
    for (int i = 0; i < 40; ++i)
      w.index.enqueue(w.random_job(++w.next));
    w.now = w.now + hours(1);
    int rounds = 0;
    for (;; ++rounds) {
      ASSERT_LT(rounds, 300) << "victims and victors chase each other";
      const Plan p = plan(w.index, w.now);
      if (p.empty() && !p.more)
        break;
      carry_out(w.index, p, w.now);
      if (HasFatalFailure())
        return;
    }
  }
}

// Jobs run exactly as long as their limit: the first in line starts no later than any plan ever
// promised it.
TEST(Property, BackfillNeverDelaysTheReservation) {
  for (std::uint64_t seed = 200; seed < 260; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    SchedIndex index;
    for (std::uint64_t i = 1; i <= 3; ++i)
      index.upsert_node(node(i, 4));
    std::map<JobId, WallTime> promised;
    std::vector<std::pair<WallTime, JobId>> ends;
    WallTime now = t0;
    std::uint64_t next = 0;
    for (int step = 0; step < 200; ++step) {
      for (std::uint64_t n = next < 150 ? rng.below(3) : 0; n > 0; --n) {
        static const int parts[] = {250, 500, 1000, 1000};
        JobRequest j = job(++next, 1, parts[rng.below(4)]);
        if (rng.chance(0.3)) {
          j.resources.gpus = static_cast<std::int32_t>(rng.between(2, 4));
          j.resources.share.milli = 1000;
        }
        if (rng.chance(0.2))
          j.tasks = static_cast<std::int32_t>(rng.between(2, 3));
        j.time_limit = minutes(rng.between(5, 120));
        j.submitted = {};  // no starvation: order alone
        index.enqueue(j);
      }
      const Plan p = plan(index, now);
      for (const Start& s : p.starts) {
        if (auto it = promised.find(s.job); it != promised.end()) {
          ASSERT_LE(now.ns, it->second.ns) << "job " << s.job.value << " was delayed";
        }
        ends.emplace_back(now + index.queued(s.job)->time_limit, s.job);
      }
      for (const Reserve& r : p.reserves) {
        if (!r.expected_start)
          continue;
        auto [it, fresh] = promised.emplace(r.job, r.expected_start);
        if (!fresh) {
          ASSERT_LE(r.expected_start.ns, it->second.ns) << "job " << r.job.value << " was put off";
          it->second = r.expected_start;
        }
      }
      carry_out(index, p, now);
      if (HasFatalFailure())
        return;
      if (ends.empty())
        continue;
      std::ranges::sort(ends, std::greater<>{});
      const WallTime end = ends.back().first;
      if (rng.chance(0.3) && now + minutes(1) < end) {
        now = now + minutes(1);
        continue;
      }
      now = end;
      while (!ends.empty() && ends.back().first == now) {
        index.ended(ends.back().second, now);
        ends.pop_back();
      }
    }
  }
}

// Reservations ahead, and spot work that uses what they and their victims wait for.
class Promises {
 public:
  explicit Promises(std::uint64_t seed) : rng_(seed) {
    for (std::uint64_t i = 1; i <= 3; ++i)
      index_.upsert_node(node(i, 4));
    for (std::uint64_t r = 1, n = static_cast<std::uint64_t>(rng_.between(1, 3)); r <= n; ++r)
      reserve(ReservationId{r});
  }

  void step() {
    submit_some();
    settle();
    if (testing::Test::HasFatalFailure())
      return;
    check_reservations();
    now_ = next_moment();
    end_what_is_over();
  }

  int passed = 0;  // spot jobs that started before others
  int kept = 0;    // promises

 private:
  void reserve(ReservationId id) {
    const WallTime from = t0 + hours(rng_.between(2, 30));
    const ReservationRequest ask{
        .project = ProjectId{2},
        .resources = job(1, static_cast<int>(rng_.between(1, 4))).resources,
        .from = from,
        .until = from + hours(rng_.between(1, 6))};
    const auto placements = place_reservation(index_, ask, t0);
    if (!placements)
      return;
    reservations_[id] = {id, ProjectId{2}, ask.from, ask.until, *placements};
    index_.upsert_reservation(reservations_[id]);
  }

  void submit_some() {
    for (std::uint64_t n = next_ < 80 ? rng_.below(3) : 0; n > 0; --n) {
      JobRequest j = job(++next_, static_cast<int>(rng_.between(1, 4)));
      j.submitted = {};
      if (rng_.chance(0.5)) {
        j.spot = true;
        j.yields = Yields::by_suspend;
      } else if (rng_.chance(0.6))
        j.time_limit = minutes(rng_.between(5, 300));
      index_.enqueue(j);
    }
  }

  void settle() {
    for (int rounds = 0; rounds < 50; ++rounds) {
      const Plan p = plan(index_, now_);
      for (const Start& s : p.starts)
        started(s);
      for (const Preempt& v : p.preempts)
        ends_.erase(v.victim);
      for (const Reserve& r : p.reserves)
        promise(r);
      carry_out(index_, p, now_);
      if (testing::Test::HasFatalFailure() || (p.empty() && !p.more))
        return;
    }
  }

  void started(const Start& s) {
    const JobRequest r = *index_.queued(s.job);
    if (auto it = promised_.find(s.job); it != promised_.end() && !r.spot) {
      ASSERT_LE(now_.ns, it->second.ns) << "job " << s.job.value << " was delayed";
      ++kept;
    }
    if (r.spot && s.backfilled)
      ++passed;
    ends_[s.job] =
        r.time_limit.ns > 0 ? now_ + r.time_limit : now_ + minutes(rng_.between(20, 2000));
  }

  // Only the first of those that are not spot has a promise: nobody may know when the others start.
  void promise(const Reserve& r) {
    const auto first = [&] {
      for (std::uint64_t id = 1;; ++id)
        if (const auto q = index_.queued(JobId{id}); q && !q->spot)
          return JobId{id};
    };
    if (!r.expected_start || index_.queued(r.job)->spot || r.job != first())
      return;
    auto [it, fresh] = promised_.emplace(r.job, r.expected_start);
    if (fresh)
      return;
    ASSERT_LE(r.expected_start.ns, it->second.ns) << "job " << r.job.value << " was put off";
    it->second = r.expected_start;
  }

  void check_reservations() {
    for (const auto& [id, r] : reservations_) {
      if (now_ < r.from || now_ >= r.until)
        continue;
      for (const Placement& p : r.placements)
        for (const RunningJob& j : index_.contents().running)
          ASSERT_FALSE(overlaps(j, p))
              << "job " << j.request.id.value << " stands in reservation " << id.value;
    }
  }

  static bool overlaps(const RunningJob& j, const Placement& reserved) {
    for (const Placement& q : j.placements)
      for (const GpuShare& g : q.gpus)
        if (q.node == reserved.node &&
            std::ranges::any_of(reserved.gpus,
                                [&](const GpuShare& mine) { return mine.gpu == g.gpu; }))
          return true;
    return false;
  }

  WallTime next_moment() {
    WallTime then = now_ + hours(3);
    for (const auto& [id, end] : ends_)
      then = std::min(then, end);
    for (const auto& [id, r] : reservations_)
      for (const WallTime t : {r.from, r.until})
        if (t > now_)
          then = std::min(then, t);
    return rng_.chance(0.3) && now_ + minutes(1) < then ? now_ + minutes(1) : then;
  }

  void end_what_is_over() {
    std::erase_if(ends_, [&](const auto& end) {
      if (end.second <= now_)
        index_.ended(end.first, now_);
      return end.second <= now_;
    });
    std::erase_if(reservations_, [&](const auto& each) {
      if (each.second.until <= now_)
        index_.remove_reservation(each.first);
      return each.second.until <= now_;
    });
  }

  Rng rng_;
  SchedIndex index_;
  std::map<ReservationId, Reservation> reservations_;
  std::map<JobId, WallTime> promised_, ends_;
  WallTime now_ = t0;
  std::uint64_t next_ = 0;
};

// What was promised holds: reservations find their GPUs free when they begin, and a job that is not
// spot starts no later than any plan said.
TEST(Property, SpotJobsDelayNoReservationAndNoJobBehindOne) {
  int passed = 0, kept = 0;
  for (std::uint64_t seed = 900; seed < 930; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Promises promises(seed);
    for (int step = 0; step < 150; ++step) {
      promises.step();
      if (HasFatalFailure())
        return;
    }
    passed += promises.passed;
    kept += promises.kept;
  }
  EXPECT_GT(passed, 100);
  EXPECT_GT(kept, 100);
}

// Every way of giving a task its cards on every node, for one task.
bool exhaustive(const SchedIndex& index, const IndexContents& contents, const JobRequest& r) {
  for (const NodeShape& n : contents.nodes) {
    if (index.free_cpu_milli(n.id) < r.resources.cpu_milli ||
        index.free_mem_mib(n.id) < r.resources.mem_mib)
      continue;
    std::vector<std::pair<std::int64_t, std::int64_t>> free(n.gpus.size());
    for (std::size_t i = 0; i < n.gpus.size(); ++i)
      free[i] = n.gpus[i].healthy
                    ? std::pair<std::int64_t, std::int64_t>{1000, n.gpus[i].memory_mib}
                    : std::pair<std::int64_t, std::int64_t>{0, 0};
    for (const RunningJob& j : contents.running) {
      for (const Placement& p : j.placements) {
        if (p.node != n.id)
          continue;
        for (const GpuShare& g : p.gpus) {
          free[static_cast<std::size_t>(g.gpu)].first -= g.share.milli;
          free[static_cast<std::size_t>(g.gpu)].second -= g.share.mem_mib;
        }
      }
    }
    for (std::uint32_t set = 0; set < (1u << n.gpus.size()); ++set) {
      if (std::popcount(set) != r.resources.gpus)
        continue;
      bool ok = true;
      for (std::size_t i = 0; i < n.gpus.size() && ok; ++i) {
        if (!(set >> i & 1u))
          continue;
        const std::int64_t mem = r.resources.share.mem_mib > 0 && r.resources.share.milli < 1000
                                     ? r.resources.share.mem_mib
                                     : n.gpus[i].memory_mib * r.resources.share.milli / 1000;
        ok = free[i].first >= r.resources.share.milli && free[i].second >= mem &&
             (r.resources.gpu_types.empty() || n.gpus[i].type == r.resources.gpu_types[0]);
      }
      if (ok)
        return true;
    }
  }
  return false;
}

TEST(Property, ASingleTaskIsPlacedIfItFitsAnywhere) {
  int placed = 0, refused = 0;
  for (std::uint64_t seed = 300; seed < 700; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    SchedIndex index;
    for (std::uint64_t i = 1, n = static_cast<std::uint64_t>(rng.between(1, 3)); i <= n; ++i) {
      NodeShape shape =
          node(i, static_cast<int>(rng.between(0, 4)), rng.chance(0.5) ? "H100" : "A100");
      shape.cpu_milli = rng.between(1, 12) * 1000;
      index.upsert_node(shape);
    }
    const auto random = [&](std::uint64_t id) {
      JobRequest j =
          job(id, static_cast<int>(rng.between(0, 3)), static_cast<int>(rng.between(1, 10)) * 100);
      j.resources.cpu_milli = rng.between(0, 4) * 1000;
      if (rng.chance(0.3))
        j.resources.share.mem_mib = rng.between(1, 80) << 10;
      if (rng.chance(0.3))
        j.resources.gpu_types = {"H100"};
      return j;
    };
    for (std::uint64_t i = 1; i <= 8; ++i) {
      index.enqueue(random(i));
      const Plan p = plan(index, t0);
      if (p.starts.empty())
        index.dequeue(JobId{i});
      carry_out(index, p, t0);
    }
    const JobRequest probe = random(99);
    const bool possible = exhaustive(index, index.contents(), probe);
    index.enqueue(probe);
    ASSERT_EQ(!plan(index, t0).starts.empty(), possible);
    ++(possible ? placed : refused);
  }
  EXPECT_GT(placed, 40);
  EXPECT_GT(refused, 40);
}

TEST(Property, ResultsDoNotDependOnNodeNamesOrOrder) {
  for (std::uint64_t seed = 800; seed < 820; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::vector<std::uint64_t> used[2];
    for (int side = 0; side < 2; ++side) {
      Rng rng(seed);
      SchedIndex index;
      std::vector<NodeShape> shapes;
      for (std::uint64_t i = 1; i <= 6; ++i) {
        NodeShape n = node(i, static_cast<int>(rng.between(1, 8)));
        n.cpu_milli = rng.between(16, 96) * 1000;
        shapes.push_back(n);
      }
      if (side == 1) {
        std::ranges::reverse(shapes);
        for (std::size_t i = 0; i < shapes.size(); ++i) {
          shapes[i].id = NodeId{100 + i};
          shapes[i].name = "other";
        }
      }
      for (const NodeShape& n : shapes)
        index.upsert_node(n);
      for (std::uint64_t i = 1; i <= 40; ++i) {
        JobRequest j = job(i, 1, static_cast<int>(rng.between(1, 10)) * 100);
        j.resources.cpu_milli = rng.between(1, 8) * 1000;
        index.enqueue(j);
        const Plan p = plan(index, t0);
        used[side].push_back(p.starts.empty() ? 0
                                              : static_cast<std::uint64_t>(index.free_milli(
                                                    p.starts[0].placements[0].node)));
        if (p.starts.empty())
          index.dequeue(j.id);
        carry_out(index, p, t0);
      }
    }
    ASSERT_EQ(used[0], used[1]);
  }
}

}  // namespace
}  // namespace billow::sched
