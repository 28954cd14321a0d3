// Disks that keep the caches of rented machines: when they are ordered, who gets them, what they
// cost, and when they end.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/control/renting/caches.h"
#include "core/control/renting/disk.h"
#include "core/control/renting/pool_limits.h"
#include "core/control/renting/twins.h"
#include "tests/unit/control/pool_world.h"

namespace billow::control::cache_tests {
namespace {

MachineOffer offer_in(std::string zone) {
  MachineOffer o;
  o.instance = "g6.xlarge";
  o.region = zone.substr(0, zone.size() - 1);
  o.zone = std::move(zone);
  o.gpu_type = "H100";
  o.gpus = 8;
  o.price = {1000};
  return o;
}

struct CacheWorld : PoolWorld {
  explicit CacheWorld(std::vector<MachineOffer> offers = {offer_in("us-1a")}, bool each = true) {
    Pool p;
    p.name = "aws";
    p.kind = "ec2";
    p.capabilities = PoolCapabilities{.several_nodes_at_once = true,
                                      .from_offers = true,
                                      .bills_from_order = true,
                                      .list_lag = minutes(5),
                                      .cache_gib_month = {80'000'000}};
    p.options["gang_caches"] = each ? "true" : "false";
    p.machines_max = 8;
    p.cache_gib = 100;
    p.offers = std::move(offers);
    must(AddPool{p});
  }
  void plan() { must(PlanPools{}); }
  PoolId pool_id() const { return state().pools.begin()->first; }
  const Machine* find(const std::string& name) const {
    const auto found = state().machines.find(name);
    return found == state().machines.end() ? nullptr : &found->second;
  }
  // The provider lists everything that was ordered, except these.
  void seen(const std::set<std::string>& missing = {}) {
    PoolSeen list{pool_id(), {}, now};
    for (const auto& [name, m] : state().machines)
      if (!missing.contains(name)) {
        list.machines.emplace_back();
        list.machines.back().name = name;
        list.machines.back().external = "x/" + name;
      }
    must(list);
  }
  void gone(const std::string& name) {
    PoolSeen list{pool_id(), {}, now};
    list.machines.emplace_back();
    list.machines.back().name = name;
    list.machines.back().external = "x/" + name;
    list.machines.back().ended = true;
    for (const auto& [other, m] : state().machines)
      if (other != name) {
        list.machines.emplace_back();
        list.machines.back().name = other;
        list.machines.back().external = "x/" + other;
      }
    must(list);
  }
};
constexpr const char* disk = "aws-cache-us-1a-1";

TEST(Caches, ADiskIsOrderedOnceItsMachineExists) {
  CacheWorld w;
  w.submit(8);
  w.plan();
  ASSERT_TRUE(w.find("aws-1"));
  EXPECT_EQ(w.find("aws-1")->cache, disk);
  EXPECT_FALSE(w.find(disk)) << "the order may still be refused";
  w.seen();
  w.plan();
  ASSERT_TRUE(w.find(disk));
  EXPECT_EQ(w.find(disk)->volume_gib, 100);
  EXPECT_EQ(w.find(disk)->nodes, 0u);
  EXPECT_EQ(w.find(disk)->state, MachineState::wanted);
  w.seen();
  EXPECT_EQ(w.find(disk)->state, MachineState::here);
  EXPECT_FALSE(w.find(disk)->idle_since) << "its machine has it";
  w.check_replay();
}

TEST(Caches, ARefusedMachineLeavesNoDisk) {
  CacheWorld w({offer_in("us-1a"), offer_in("us-1b")});
  w.submit(8);
  w.plan();
  w.refuse(RefusalKind::capacity);
  w.plan();
  ASSERT_EQ(w.wanted().size(), 1u);
  EXPECT_EQ(w.wanted()[0].cache, "aws-cache-us-1b-1");
}

TEST(Caches, TheNextMachineGetsTheSameDiskAndTwoAtOnceGetTwo) {
  CacheWorld w;
  const JobId first = w.submit(8);
  w.plan();
  w.seen();
  w.plan();
  w.seen();
  w.must(StopJob{first});
  w.must(ReleaseMachine{"aws-1", "test"});
  w.gone("aws-1");
  EXPECT_TRUE(w.find(disk)->idle_since);
  w.submit(8);
  w.submit(8);
  w.plan();
  ASSERT_EQ(w.wanted().size(), 2u);
  EXPECT_EQ(w.wanted()[0].cache, disk);
  EXPECT_EQ(w.wanted()[1].cache, "aws-cache-us-1a-2");
  EXPECT_FALSE(w.find(disk)->idle_since);
  w.check_replay();
}

TEST(Caches, EachNodeOfAGangHasADiskIfThePoolSaysSo) {
  for (const bool each : {true, false}) {
    CacheWorld w({offer_in("us-1a")}, each);
    const JobId gang = w.submit(8, 2);
    w.plan();
    ASSERT_TRUE(w.find("aws-1"));
    EXPECT_EQ(w.find("aws-1")->nodes, 2u);
    if (!each) {
      EXPECT_EQ(w.find("aws-1")->cache, "");
      continue;
    }
    EXPECT_EQ(w.find("aws-1")->cache, "aws-cache-us-1a-1,aws-cache-us-1a-2");
    w.seen();
    w.plan();
    w.seen();
    EXPECT_EQ(w.machines().size(), 3u);
    for (const char* one : {"aws-cache-us-1a-1", "aws-cache-us-1a-2"})
      EXPECT_FALSE(w.run(ReleaseMachine{one, "test"})) << "it is in use";
    w.must(StopJob{gang});
    w.must(ReleaseMachine{"aws-1", "test"});
    w.gone("aws-1");
    EXPECT_TRUE(w.find("aws-cache-us-1a-2")->idle_since);
    w.submit(8);
    w.plan();
    ASSERT_EQ(w.wanted().size(), 1u) << "a gang that was given back is no sign of missing capacity";
    EXPECT_EQ(w.wanted()[0].cache, disk) << "a single machine takes the first of them";
    w.check_replay();
  }
}

TEST(Caches, ADiskThatNoMachineUsesIsGivenBackAfterAWhile) {
  CacheWorld w;
  const JobId job = w.submit(8);
  w.plan();
  w.seen();
  w.plan();
  w.seen();
  w.must(StopJob{job});
  w.must(ReleaseMachine{"aws-1", "test"});
  w.gone("aws-1");
  w.now = w.now + limits::cache_kept;
  w.plan();
  EXPECT_EQ(w.find(disk)->state, MachineState::here);
  w.now = w.now + seconds(1);
  w.plan();
  EXPECT_EQ(w.find(disk)->state, MachineState::releasing);
  w.gone(disk);
  EXPECT_FALSE(w.find(disk));
  w.check_replay();
}

TEST(Caches, AHeldDiskIsNotReleasedAloneAndEndsWithItsPool) {
  CacheWorld w;
  w.submit(8);
  w.plan();
  w.seen();
  w.plan();
  w.seen();
  EXPECT_FALSE(w.run(ReleaseMachine{disk, "test"}));
  w.must(RemovePool{"aws"});
  EXPECT_EQ(w.find(disk)->state, MachineState::releasing);
  w.gone("aws-1");
  w.gone(disk);
  EXPECT_TRUE(is_only_watched(w.state(), w.state().pools.begin()->second));
}

TEST(Caches, TheBooksHoldWhatADiskCosts) {
  CacheWorld w;
  const JobId job = w.submit(8);
  w.plan();
  w.seen();
  w.plan();
  const Machine made = *w.find(disk);
  // 100 GiB at $0.08 per GiB and month of 730.5 h.
  EXPECT_EQ(made.offer->price_h.value, 10'951'403);
  EXPECT_EQ(w.state().money.books.node_rate(made.account).nano_usd_per_s, 3042);
  w.seen();
  w.must(StopJob{job});
  w.must(ReleaseMachine{"aws-1", "test"});
  w.gone("aws-1");
  w.now = w.now + hours(10);
  w.must(ReleaseMachine{disk, "test"});
  w.gone(disk);
  ASSERT_FALSE(w.state().machine_bills.empty());
  EXPECT_EQ(w.state().machine_bills.back().machine, disk);
  EXPECT_EQ(w.state().machine_bills.back().amount.value, 109'514'030);
  EXPECT_TRUE(w.state().machine_bills.back().used) << "a cache is no waste";
  w.check_replay();
}

TEST(Caches, ARefusedDiskIsNotAskedForAtOnceAndStopsNothing) {
  CacheWorld w;
  w.submit(8);
  w.plan();
  w.seen();
  w.plan();
  w.must(OrderFailed{disk, "no rights", RefusalKind::capacity});
  w.plan();
  EXPECT_FALSE(w.find(disk));
  EXPECT_TRUE(w.state().pools.at(w.pool_id()).denied.empty());
  ASSERT_TRUE(w.find("aws-1")) << "its machine goes on";
  w.now = w.now + minutes(4);
  w.plan();
  EXPECT_TRUE(w.find(disk));
}

TEST(Caches, DisksCountNeitherAsMachinesNorAsUseless) {
  CacheWorld w;
  std::vector<JobId> jobs;
  for (int i = 0; i < 8; ++i)
    jobs.push_back(w.submit(8));
  w.plan();
  w.seen();
  w.plan();
  w.seen();
  EXPECT_EQ(w.machines().size(), 16u) << "eight machines, which is the maximum, and their disks";
  EXPECT_EQ(w.state().pools.at(w.pool_id()).unused_in_row, 0u);
}

TEST(Caches, OnlyProvidersWithSuchDisksTakeThem) {
  PoolWorld w;
  Pool p = w.pool("slow");
  p.cache_gib = 10;
  const Status added = w.run(AddPool{p});
  ASSERT_FALSE(added);
  EXPECT_NE(added.error().message.find("no disks that outlive"), std::string::npos);
}

// ---- free disk of nodes

TEST(DiskSeen, OnlyALargeChangeIsRecorded) {
  PoolWorld w;
  NodeOffer node = node_offer("n", 1);
  node.disk_mib = 1000 << 10;
  w.must(AgentHello{node, {}, w.credential("n")});
  const NodeId id = w.state().node_by_name("n")->id;
  const auto offered_gib = [&] {
    return w.state().nodes.at(id).offer.disk_mib >> 10;
  };
  w.must(DiskSeen{id, 960 << 10});
  EXPECT_EQ(offered_gib(), 1000);
  w.must(DiskSeen{id, 900 << 10});
  EXPECT_EQ(offered_gib(), 900);
  w.must(DiskSeen{id, 1000 << 10});
  EXPECT_EQ(offered_gib(), 1000) << "what was removed is offered again";
  w.must(DiskSeen{NodeId(999), 5});
  w.check_replay();
}

TEST(DiskSeen, WhatRunningJobsAskedForIsNotSubtractedTwice) {
  PoolWorld w;
  NodeOffer node = node_offer("n", 1);
  node.disk_mib = 1000 << 10;
  w.must(AgentHello{node, {}, w.credential("n")});
  const NodeId id = w.state().node_by_name("n")->id;
  JobSpec spec = PoolWorld::spec(1);
  spec.resources.disk_mib = 600 << 10;
  w.submit(spec);
  ASSERT_TRUE(w.state().tasks_on.contains(id));
  const auto free_gib = [&] {
    return w.state().index.free_disk_mib(id) >> 10;
  };
  EXPECT_EQ(free_gib(), 400);
  w.must(DiskSeen{id, 400 << 10});  // the job has filled its part
  EXPECT_EQ(free_gib(), 400);
  w.must(DiskSeen{id, 100 << 10});  // and somebody else 300 GiB
  EXPECT_EQ(free_gib(), 100);
  w.must(DiskSeen{id, 0});
  EXPECT_EQ(free_gib(), 0) << "never less than nothing";
  // An agent that starts again says what is free, while the job still has its part.
  node.disk_mib = 50 << 10;
  w.must(AgentHello{node, {}, w.state().tokens.rbegin()->first});
  EXPECT_GE(free_gib(), 0);
}

}  // namespace
}  // namespace billow::control::cache_tests
