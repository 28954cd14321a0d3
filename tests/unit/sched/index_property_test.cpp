// The index folds likes together: nodes into groups, jobs into kinds and classes. Whatever happened
// before, its answers must be those of an index made anew from the same contents, and must not
// depend on what nodes are called or how their cards are plugged.
#include <algorithm>
#include <set>

#include "base/rng.h"
#include "core/sched/groups.h"
#include "core/sched/index.h"
#include "support.h"

namespace billow::sched {
using namespace test;
namespace {

// A fleet of many shapes, and work that names every kind of constraint there is.
NodeShape any_node(Rng& rng, std::uint64_t id) {
  NodeShape n = node(id, static_cast<int>(rng.below(3)) * 4, rng.chance(0.6) ? "H100" : "A100");
  for (std::size_t i = 0; i < n.gpus.size(); ++i)
    n.gpus[i].nvlink_domain = static_cast<std::int32_t>(i / 2);
  n.pool = rng.chance(0.5) ? "a" : "b";
  n.place = {.region = rng.chance(0.5) ? "eu" : "us",
             .zone = "z" + std::to_string(rng.below(3)),
             .rack = "r" + std::to_string(rng.below(4)),
             .switch_name = "s" + std::to_string(rng.below(4)),
             .placement_group = rng.chance(0.3) ? "pg" : "",
             .fabric = rng.chance(0.5) ? "infiniband" : "tcp"};
  if (rng.chance(0.5))
    n.labels["disk"] = rng.chance(0.5) ? "nvme" : "hdd";
  n.labels["host"] = "n" + std::to_string(id);
  return n;
}
JobRequest any_job(Rng& rng, std::uint64_t id, std::uint64_t nodes) {
  JobRequest j = job(id, rng.chance(0.2) ? 2 : 1, static_cast<int>(rng.between(1, 10)) * 100);
  if (j.resources.gpus > 1)
    j.resources.share.milli = 1000;
  if (rng.chance(0.1))
    j.resources.gpus = 0;
  j.resources.cpu_milli = rng.between(1, 40) * 100;
  if (rng.chance(0.15))
    j.tasks = 2;
  Constraints& k = j.constraints;
  if (rng.chance(0.15))
    k.regions = {"eu"};
  if (rng.chance(0.1))
    k.fabrics = {"infiniband"};
  if (rng.chance(0.1))
    k.pools = {"a"};
  if (rng.chance(0.1))
    k.placement_group = "pg";
  if (rng.chance(0.1))
    k.labels["disk"] = "nvme";
  if (rng.chance(0.1))
    k.avoid_nodes = {NodeId{1 + rng.below(nodes)}, NodeId{1 + rng.below(nodes)}};
  if (rng.chance(0.1))
    k.only_nodes = {NodeId{1 + rng.below(nodes)}, NodeId{1 + rng.below(nodes)}};
  if (rng.chance(0.05)) {
    k.only_nodes = {NodeId{1 + rng.below(nodes)}};
    k.only_gpus = {1, 3};
  }
  if (rng.chance(0.1))
    k.nvlink_required = true;
  if (rng.chance(0.1)) {
    k.spread = Spread::spread;
    k.spread_key = 1 + rng.below(3);
  }
  if (rng.chance(0.1)) {
    k.close = Closeness::rack;
    k.close_required = true;
  }
  if (rng.chance(0.3))
    j.resources.gpu_types = {"H100"};
  return j;
}

void verify(const SchedIndex& index, const Start& s) {
  const JobRequest r = *index.queued(s.job);
  const Constraints& k = r.constraints;
  std::set<std::string> racks;
  for (const Placement& p : s.placements) {
    const NodeShape& n = *index.node(p.node);
    if (!k.regions.empty()) {
      ASSERT_EQ(n.place.region, k.regions[0]);
    }
    if (!k.fabrics.empty()) {
      ASSERT_EQ(n.place.fabric, k.fabrics[0]);
    }
    if (!k.pools.empty()) {
      ASSERT_EQ(n.pool, k.pools[0]);
    }
    if (!k.placement_group.empty()) {
      ASSERT_EQ(n.place.placement_group, k.placement_group);
    }
    if (!k.labels.empty()) {
      ASSERT_EQ(n.labels.at("disk"), "nvme");
    }
    ASSERT_TRUE(std::ranges::find(k.avoid_nodes, p.node) == k.avoid_nodes.end());
    if (!k.only_nodes.empty()) {
      ASSERT_TRUE(std::ranges::find(k.only_nodes, p.node) != k.only_nodes.end());
    }
    std::set<std::int32_t> links;
    for (const GpuShare& g : p.gpus) {
      ASSERT_TRUE(k.only_gpus.empty() ||
                  std::ranges::find(k.only_gpus, g.gpu) != k.only_gpus.end());
    }
    for (const GpuShare& g : p.gpus)
      links.insert(n.gpus[static_cast<std::size_t>(g.gpu)].nvlink_domain);
    if (k.nvlink_required) {
      ASSERT_LE(links.size(), 1u);
    }
    racks.insert(n.place.rack);
  }
  if (k.close_required && r.tasks > 1) {
    ASSERT_EQ(racks.size(), 1u);
  }
}

// The coarse brief decides which groups are looked at: it may let too many pass, but never too few.
TEST(IndexProperty, ACoarseBriefCoversWhateverTheExactOneCovers) {
  Rng rng(5);
  const auto any_brief = [&](bool of_group) {
    const std::uint64_t marks = of_group && rng.chance(0.1) ? 0
                                : rng.chance(0.5)           ? mark_of_any | mark_of(rng.below(70))
                                                            : mark_of(rng.below(70));
    // Numbers of all sizes, also beyond what a field can hold, and negative ones.
    const auto any_number = [&](int bits) {
      return static_cast<std::int64_t>(rng.below(std::uint64_t{1} << rng.below(bits))) -
             (rng.chance(0.05) ? 10 : 0);
    };
    return FreeBrief(marks, any_number(34), any_number(34),
                     static_cast<std::int32_t>(any_number(12)),
                     static_cast<std::int32_t>(any_number(9)));
  };
  int covered = 0, refused = 0;
  for (int round = 0; round < 2000; ++round) {
    const FreeBrief need = any_brief(false);
    std::vector<FreeBrief> groups;
    CoarseBriefs coarse;
    for (std::uint64_t i = rng.below(600); i > 0; --i) {
      groups.push_back(any_brief(true));
      coarse.push_back(CoarseBrief(groups.back()));
    }
    std::set<std::size_t> gone;  // groups that lost their nodes
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (rng.chance(0.2)) {
        gone.insert(i);
        coarse.set(i, {});
      }
    }
    const std::size_t from = groups.empty() ? 0 : rng.below(groups.size());
    std::vector<std::size_t> found;
    coarse.each_covering(CoarseBrief(need), from, [&](std::size_t at) { found.push_back(at); });
    ASSERT_TRUE(std::ranges::is_sorted(found));
    const std::set<std::size_t> kept(found.begin(), found.end());
    ASSERT_EQ(kept.size(), found.size());
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const bool wanted = i >= from && !gone.contains(i) && groups[i].covers(need);
      ASSERT_TRUE(!wanted || kept.contains(i)) << "round " << round << ", group " << i;
      ASSERT_FALSE(kept.contains(i) && (i < from || gone.contains(i)));
      covered += wanted;
      refused += i >= from && !kept.contains(i);
    }
  }
  EXPECT_GT(covered, 1000);
  EXPECT_GT(refused, 100'000);
}

// Long enough for groups to fall asleep, wake up, and give their slots to others.
TEST(IndexProperty, ALongHistoryLeavesNoTraceInTheAnswers) {
  for (std::uint64_t seed = 2; seed <= 3; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    SchedIndex index;
    constexpr std::uint64_t nodes = 24;
    for (std::uint64_t i = 1; i <= nodes; ++i)
      index.upsert_node(any_node(rng, i));
    std::vector<JobId> running;
    WallTime now = t0;
    std::uint64_t next = 0;
    std::uint32_t tenants_max = 0;
    for (int step = 0; step < 1000; ++step) {
      now = now + seconds(30);
      for (int i = 0; i < 3; ++i)
        index.enqueue(any_job(rng, ++next, nodes));
      if (rng.chance(0.02)) {
        NodeShape shape = any_node(rng, 1 + rng.below(nodes));
        if (std::ranges::none_of(running, [&](JobId id) {
              return std::ranges::any_of(index.running(id)->placements,
                                         [&](const Placement& p) { return p.node == shape.id; });
            }))
          index.upsert_node(shape);
      }
      // Suspended jobs come and go, on cards that may not be there any more.
      if (rng.chance(0.1))
        index.asleep({.job = JobId{1'000'000 + rng.below(8)},
                      .node = NodeId{1 + rng.below(nodes)},
                      .gpus = {static_cast<std::int32_t>(rng.below(8))}});
      if (rng.chance(0.1))
        index.awake(JobId{1'000'000 + rng.below(8)});
      const Plan p = plan(index, now);
      if (step % 50 == 49) {
        ASSERT_EQ(p, plan(SchedIndex::rebuild(index.contents()), now));
        check(index);
        if (HasFatalFailure())
          return;
      }
      for (const Start& s : p.starts) {
        verify(index, s);
        if (HasFatalFailure())
          return;
        index.started(s.job, s.placements, now);
        running.push_back(s.job);
      }
      while (index.queued_count() >
             20) {  // the queue stays short: what waits longest is taken back
        const IndexContents c = index.contents();
        for (std::size_t i = 0; i < 10; ++i)
          index.dequeue(c.queued[i].id);
      }
      while (running.size() > 40 || (!running.empty() && rng.chance(0.3))) {
        const std::size_t at = rng.below(running.size());
        index.ended(running[at], now);
        running.erase(running.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
    for (GroupSlot g = 0; g < index.impl().groups.size(); ++g)
      tenants_max = std::max(tenants_max, index.impl().groups.at(g).tenant);
    EXPECT_GT(tenants_max, index.impl().groups.size() + 500)
        << "the history is too short to use slots again";
  }
}

TEST(IndexProperty, TheOrderOfCardsInANodeDoesNotMatter) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::vector<std::pair<std::uint64_t, std::int64_t>> chosen[2];
    for (int side = 0; side < 2; ++side) {
      Rng rng(seed), shuffle(seed + 1000);
      SchedIndex index;
      for (std::uint64_t i = 1; i <= 5; ++i) {
        NodeShape n = node(i, 8);
        for (std::size_t g = 0; g < 8; ++g)
          n.gpus[g].type = g < 4 ? "H100" : "A100";
        n.cpu_milli = rng.between(16, 96) * 1000;
        if (side == 1) {
          for (std::size_t g = 8; g > 1; --g)
            std::swap(n.gpus[g - 1], n.gpus[shuffle.below(g)]);
        }
        index.upsert_node(n);
      }
      for (std::uint64_t i = 1; i <= 60; ++i) {
        JobRequest j = job(i, rng.chance(0.2) ? 2 : 1, static_cast<int>(rng.between(1, 10)) * 100);
        if (j.resources.gpus > 1)
          j.resources.share.milli = 1000;
        if (rng.chance(0.5))
          j.resources.gpu_types = {rng.chance(0.5) ? "H100" : "A100"};
        index.enqueue(j);
        const Plan p = plan(index, t0);
        if (p.starts.empty()) {
          index.dequeue(j.id);
          chosen[side].emplace_back(0, 0);
          continue;
        }
        carry_out(index, p, t0);
        const Placement& at = p.starts[0].placements[0];
        chosen[side].emplace_back(
            at.node.value, std::ranges::count_if(at.gpus, [&](const GpuShare& g) {
              return index.node(at.node)->gpus[static_cast<std::size_t>(g.gpu)].type == "H100";
            }));
      }
    }
    ASSERT_EQ(chosen[0], chosen[1]);
  }
}

// Nodes that differ only in what nobody asked for are one group; once somebody asks, they are not.
TEST(IndexProperty, LabelsDistinguishNodesOnlyIfAJobAsks) {
  SchedIndex index;
  for (std::uint64_t i = 1; i <= 100; ++i) {
    NodeShape n = node(i);
    n.labels["host"] = "n" + std::to_string(i);
    n.place.rack = "r" + std::to_string(i);
    index.upsert_node(n);
  }
  const auto groups = [&] {
    std::size_t n = 0;
    for (GroupSlot g = 0; g < index.impl().groups.size(); ++g)
      n += !index.impl().groups.at(g).members.empty();
    return n;
  };
  EXPECT_EQ(groups(), 1u);
  JobRequest j = job(1);
  j.constraints.labels["host"] = "n42";
  index.enqueue(j);
  const Plan p = plan(index, t0);
  ASSERT_EQ(p.starts.size(), 1u);
  EXPECT_EQ(p.starts[0].placements[0].node, NodeId{42});
  EXPECT_EQ(groups(), 100u);
  check(index);
}

// A suspended image goes back to the very cards it came from, also where another card of the node
// looks the same.
TEST(IndexProperty, NamedCardsAreFoundAmongIdenticalOnes) {
  SchedIndex index;
  index.upsert_node(node(1, 8));
  for (std::int32_t card : {5, 0, 7}) {
    JobRequest j = job(static_cast<std::uint64_t>(card) + 1, 1, 500);
    j.constraints.only_nodes = {NodeId{1}};
    j.constraints.only_gpus = {card};
    index.enqueue(j);
    const Plan p = plan(index, t0);
    ASSERT_EQ(p.starts.size(), 1u);
    EXPECT_EQ(p.starts[0].placements[0].gpus[0].gpu, card);
    carry_out(index, p, t0);
  }
}

// A node named twice is still one node.
TEST(IndexProperty, AGangUsesANodeNamedTwiceOnlyOnce) {
  SchedIndex index;
  index.upsert_node(node(1, 8));
  index.upsert_node(node(2, 8));
  JobRequest j = job(1, 1);
  j.tasks = 2;
  j.constraints.only_nodes = {NodeId{1}, NodeId{1}};
  index.enqueue(j);
  EXPECT_TRUE(plan(index, t0).starts.empty());
}

// With work always waiting, what each project has had follows its weight, whatever the weights and
// the sizes of its jobs.
TEST(IndexProperty, FairShareConvergesToAnyWeights) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    SchedIndex index;
    for (std::uint64_t i = 1; i <= 4; ++i)
      index.upsert_node(node(i, 8));
    const std::uint64_t projects = 2 + rng.below(4);
    std::vector<std::int64_t> weight(projects + 1);
    std::vector<int> milli(projects + 1);
    std::int64_t weights = 0;
    for (std::uint64_t p = 1; p <= projects; ++p) {
      weights += weight[p] = rng.between(1, 8) * 100;
      milli[p] = rng.chance(0.5) ? 1000 : 500;
      index.upsert_project({.id = ProjectId{p}, .weight = weight[p]});
    }
    std::uint64_t next = 0;
    std::vector<int> waiting(projects + 1);
    std::multimap<std::int64_t, std::pair<JobId, std::uint64_t>> ends;
    std::vector<double> had(projects + 1);
    double all = 0;
    WallTime now = t0;
    for (int step = 0; step < 1500; ++step) {
      for (std::uint64_t p = 1; p <= projects; ++p) {
        for (; waiting[p] < 70; ++waiting[p]) {
          JobRequest j = job(++next, 1, milli[p]);
          j.project = ProjectId{p};
          j.submitted = {};
          index.enqueue(j);
        }
      }
      const Plan plan = sched::plan(index, now);
      for (const Start& s : plan.starts) {
        const std::uint64_t p = index.queued(s.job)->project.value;
        --waiting[p];
        const Duration runs = minutes(rng.between(5, 60));
        ends.emplace((now + runs).ns, std::pair{s.job, p});
        if (step > 300) {
          had[p] += runs.seconds() * milli[p];
          all += runs.seconds() * milli[p];
        }
        index.started(s.job, s.placements, now);
      }
      ASSERT_FALSE(ends.empty());
      now = WallTime{ends.begin()->first};
      while (!ends.empty() && ends.begin()->first <= now.ns) {
        index.ended(ends.begin()->second.first, now);
        ends.erase(ends.begin());
      }
    }
    for (std::uint64_t p = 1; p <= projects; ++p)
      EXPECT_NEAR(had[p] / all, static_cast<double>(weight[p]) / static_cast<double>(weights), 0.05)
          << "project " << p << " of weight " << weight[p];
  }
}

}  // namespace
}  // namespace billow::sched
