// MIG instances against NVIDIA's own table of placements (the MIG user guide, "supported
// profiles"): written down again here, so that the scheduler's geometry is checked against another
// source than itself.
#include <map>

#include "base/rng.h"
#include "core/sched/mig.h"
#include "support.h"

namespace billow::sched {
using namespace test;
namespace {

struct Rule {
  int compute, slices;
  std::vector<int> starts;
};
struct Card {
  std::string type;
  std::int64_t memory_mib;
  int slices, compute;
  std::map<std::string, Rule> profiles;
};
const std::vector<Card>& cards() {
  static const std::vector<Card> all{
      {"A100-40",
       40960,
       8,
       7,
       {{"1g.5gb", {1, 1, {0, 1, 2, 3, 4, 5, 6}}},
        {"1g.10gb", {1, 2, {0, 2, 4, 6}}},
        {"2g.10gb", {2, 2, {0, 2, 4}}},
        {"3g.20gb", {3, 4, {0, 4}}},
        {"4g.20gb", {4, 4, {0}}},
        {"7g.40gb", {7, 8, {0}}}}},
      {"H100",
       81920,
       8,
       7,
       {{"1g.10gb", {1, 1, {0, 1, 2, 3, 4, 5, 6}}},
        {"1g.20gb", {1, 2, {0, 2, 4, 6}}},
        {"2g.20gb", {2, 2, {0, 2, 4}}},
        {"3g.40gb", {3, 4, {0, 4}}},
        {"4g.40gb", {4, 4, {0}}},
        {"7g.80gb", {7, 8, {0}}}}},
      {"A30",
       24576,
       4,
       4,
       {{"1g.6gb", {1, 1, {0, 1, 2, 3}}}, {"2g.12gb", {2, 2, {0, 2}}}, {"4g.24gb", {4, 4, {0}}}}},
  };
  return all;
}

NodeShape mig_node(const Card& card, int gpus) {
  NodeShape n = node(1, gpus, card.type);
  for (GpuShape& g : n.gpus) {
    g.memory_mib = card.memory_mib;
    g.mig_enabled = true;
  }
  return n;
}
JobRequest instance(std::uint64_t id, const std::string& profile) {
  JobRequest j = job(id);
  j.resources.share = {};
  j.resources.mig_profile = profile;
  j.resources.cpu_milli = 0;
  return j;
}

// Random comings and goings: every instance lies where the table allows, none overlaps another, and
// one is refused only if the table leaves it no place.
TEST(Mig, EveryPlacementIsInTheTableAndEveryFreeOneIsUsed) {
  int placed = 0, refused = 0;
  for (const Card& card : cards()) {
    for (std::uint64_t seed = 1; seed <= 15; ++seed) {
      SCOPED_TRACE(card.type + ", seed " + std::to_string(seed));
      Rng rng(seed);
      constexpr int gpus = 2;
      SchedIndex index;
      index.upsert_node(mig_node(card, gpus));
      struct Held {
        int gpu, start;
        const Rule* rule;
      };
      std::map<JobId, Held> running;
      for (std::uint64_t id = 1; id <= 60; ++id) {
        auto profile = card.profiles.begin();
        std::advance(profile, static_cast<std::ptrdiff_t>(rng.below(card.profiles.size())));
        const Rule& rule = profile->second;
        const auto free = [&](int gpu, int start) {
          int compute = rule.compute;
          for (const auto& [other, h] : running) {
            if (h.gpu != gpu)
              continue;
            compute += h.rule->compute;
            if (start < h.start + h.rule->slices && h.start < start + rule.slices)
              return false;
          }
          return compute <= card.compute && start + rule.slices <= card.slices;
        };
        bool possible = false;
        for (int gpu = 0; gpu < gpus; ++gpu) {
          for (int start : rule.starts)
            possible = possible || free(gpu, start);
        }
        index.enqueue(instance(id, profile->first));
        const Plan p = plan(index, t0);
        ASSERT_EQ(!p.starts.empty(), possible) << profile->first;
        if (!possible) {
          ++refused;
          index.dequeue(JobId{id});
        } else {
          ++placed;
          const GpuShare& at = p.starts[0].placements.at(0).gpus.at(0);
          ASSERT_NE(std::ranges::find(rule.starts, at.mig_start), rule.starts.end())
              << profile->first << " at " << at.mig_start;
          ASSERT_TRUE(free(at.gpu, at.mig_start)) << profile->first << " at " << at.mig_start;
          running[JobId{id}] = {at.gpu, at.mig_start, &rule};
        }
        carry_out(index, p, t0);
        if (HasFatalFailure())
          return;
        while (!running.empty() && rng.chance(0.4)) {
          auto it = running.begin();
          std::advance(it, static_cast<std::ptrdiff_t>(rng.below(running.size())));
          index.ended(it->first, t0);
          running.erase(it);
        }
      }
    }
  }
  EXPECT_GT(placed, 500);
  EXPECT_GT(refused, 200);
}

TEST(Mig, InstancesAndSharesNeverShareACard) {
  SchedIndex index;
  NodeShape n = node(1, 2);
  n.gpus[1].mig_enabled = true;
  index.upsert_node(n);
  index.enqueue(instance(1, "1g.10gb"));
  index.enqueue(job(2, 1, 100));
  carry_out(index, plan(index, t0), t0);
  EXPECT_EQ(index.running(JobId{1})->placements[0].gpus[0].gpu, 1);
  EXPECT_EQ(index.running(JobId{2})->placements[0].gpus[0].gpu, 0);
  index.enqueue(job(3, 2));
  EXPECT_TRUE(plan(index, t0).starts.empty());
}

TEST(Mig, AProfileTheCardDoesNotHaveIsRefusedAtOnce) {
  SchedIndex index;
  index.upsert_node(mig_node(cards()[0], 1));
  EXPECT_TRUE(feasible(index, instance(1, "3g.20gb")));
  const Status refused = feasible(index, instance(2, "3g.40gb"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::infeasible);
  EXPECT_FALSE(feasible(index, instance(3, "9g.1gb")));
}

}  // namespace
}  // namespace billow::sched
