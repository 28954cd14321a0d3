// Who goes first, who gives way, and what is kept for whom.
#include "support.h"

namespace billow::sched {
using namespace test;
namespace {

TEST(Preemption, OnDemandPreemptsSpotOnlyOnce) {
  SchedIndex index;
  index.upsert_node(node(1, 2));
  for (std::uint64_t i = 1; i <= 2; ++i) {
    JobRequest spot = job(i);
    spot.spot = true;
    spot.yields = Yields::by_suspend;
    index.enqueue(spot);
  }
  carry_out(index, plan(index, t0), t0);
  index.enqueue(job(9));
  const Plan p = plan(index, t0 + seconds(60));
  ASSERT_EQ(p.preempts.size(), 1u);
  EXPECT_EQ(p.preempts[0].mode, Yields::by_suspend);
  EXPECT_EQ(p.preempts[0].cause, PreemptCause::spot);
  EXPECT_EQ(p.preempts[0].for_job, JobId{9});
  index.leaving(p.preempts[0].victim, JobId{9});
  EXPECT_TRUE(plan(index, t0 + seconds(61)).empty());  // its room is on the way
  EXPECT_EQ(explain(index, JobId{9}, t0 + seconds(61)).reasons.at(0).kind, ReasonKind::preempting);
  index.enqueue(job(10));  // a later job must not slip into the room
  index.ended(p.preempts[0].victim, t0 + seconds(62));
  const Plan q = plan(index, t0 + seconds(62));
  ASSERT_GE(q.starts.size(), 1u);
  EXPECT_EQ(q.starts[0].job, JobId{9});
}

TEST(Preemption, RespectsTheMinimumRunTime) {
  SchedIndex index;
  index.upsert_node(node(1, 1));
  JobRequest spot = job(1);
  spot.spot = true;
  spot.yields = Yields::by_requeue;
  spot.run_min = minutes(10);
  index.enqueue(spot);
  carry_out(index, plan(index, t0), t0);
  index.enqueue(job(2));
  EXPECT_TRUE(plan(index, t0 + minutes(9)).preempts.empty());
  EXPECT_EQ(plan(index, t0 + minutes(10)).preempts.size(), 1u);
}

TEST(Preemption, PrefersTheVictimThatLosesLeast) {
  SchedIndex index;
  index.upsert_node(node(1, 2));
  for (std::uint64_t i = 1; i <= 2; ++i) {
    JobRequest j = job(i);
    j.yields = Yields::by_requeue;
    index.enqueue(j);
    carry_out(index, plan(index, t0 + hours(static_cast<std::int64_t>(i))),
              t0 + hours(static_cast<std::int64_t>(i)));
  }
  JobRequest urgent = job(3);
  urgent.priority = 1;
  index.enqueue(urgent);
  const Plan p = plan(index, t0 + hours(3));
  ASSERT_EQ(p.preempts.size(), 1u);
  EXPECT_EQ(p.preempts[0].victim, JobId{2});  // an hour of work rather than two
}

TEST(Quota, BorrowedCapacityIsReclaimedButGuaranteedIsNot) {
  SchedIndex index;
  index.upsert_node(node(1, 4));
  index.upsert_project({.id = ProjectId{1}, .guaranteed_milli = 2000});
  index.upsert_project({.id = ProjectId{2}, .guaranteed_milli = 2000});
  for (std::uint64_t i = 1; i <= 4; ++i) {
    JobRequest j = job(i);
    j.yields = Yields::by_suspend;
    index.enqueue(j);
  }
  carry_out(index, plan(index, t0), t0);
  EXPECT_EQ(index.running_milli(ProjectId{1}), 4000);  // it borrows what the other leaves idle
  for (std::uint64_t i = 11; i <= 14; ++i) {
    JobRequest j = job(i);
    j.project = ProjectId{2};
    j.yields = Yields::by_suspend;
    index.enqueue(j);
  }
  for (int round = 0; round < 10; ++round) {
    const Plan p = plan(index, t0 + seconds(100 + round));
    for (const Preempt& v : p.preempts)
      EXPECT_EQ(v.cause, PreemptCause::reclaim);
    carry_out(index, p, t0 + seconds(100 + round));
  }
  EXPECT_EQ(index.running_milli(ProjectId{1}), 2000);
  EXPECT_EQ(index.running_milli(ProjectId{2}), 2000);
}

TEST(Quota, JobsThatCannotBePreemptedDoNotBorrow) {
  SchedIndex index;
  index.upsert_node(node(1, 4));
  index.upsert_project({.id = ProjectId{2}, .guaranteed_milli = 3000});
  for (std::uint64_t i = 1; i <= 4; ++i)
    index.enqueue(job(i));  // project 1, never yields
  EXPECT_EQ(plan(index, t0).starts.size(), 1u);
}

TEST(Backfill, ShortJobsPassAndLongJobsDoNot) {
  SchedIndex index;
  index.upsert_node(node(1, 2));
  JobRequest first = job(1);
  first.time_limit = hours(1);
  index.enqueue(first);
  carry_out(index, plan(index, t0), t0);
  index.enqueue(job(2, 2));  // needs both cards, so waits for the hour
  JobRequest long_one = job(3);
  long_one.time_limit = hours(2);
  JobRequest short_one = job(4, 1, 500);
  short_one.time_limit = minutes(30);
  JobRequest unknown = job(5, 1, 500);
  index.enqueue(long_one);
  index.enqueue(short_one);
  index.enqueue(unknown);
  const Plan p = plan(index, t0 + minutes(10));
  ASSERT_EQ(p.reserves.size(), 1u);
  EXPECT_EQ(p.reserves[0].job, JobId{2});
  EXPECT_EQ(p.reserves[0].expected_start, t0 + hours(1));
  ASSERT_EQ(p.starts.size(), 1u);
  EXPECT_EQ(p.starts[0].job, JobId{4});
  EXPECT_TRUE(p.starts[0].backfilled);
}

TEST(Reservation, KeepsItsCapacityForItsJobs) {
  SchedIndex index;
  index.upsert_node(node(1, 2));
  ReservationRequest ask{.project = ProjectId{1},
                         .resources = job(1, 2).resources,
                         .from = t0 + hours(1),
                         .until = t0 + hours(2)};
  auto placements = place_reservation(index, ask, t0);
  ASSERT_TRUE(placements);
  index.upsert_reservation({ReservationId{1}, ProjectId{1}, ask.from, ask.until, *placements});
  JobRequest too_long = job(2);
  too_long.time_limit = hours(3);
  JobRequest fits_before = job(3);
  fits_before.time_limit = minutes(50);
  index.enqueue(too_long);
  index.enqueue(fits_before);
  const Plan p = plan(index, t0);
  ASSERT_EQ(p.starts.size(), 1u);
  EXPECT_EQ(p.starts[0].job, JobId{3});
  JobRequest inside = job(4, 2);
  inside.reservation = ReservationId{1};
  index.enqueue(inside);
  EXPECT_TRUE(std::ranges::none_of(plan(index, t0).starts,
                                   [](const Start& s) { return s.job == JobId{4}; }));
  const Plan q = plan(index, t0 + hours(1));
  ASSERT_EQ(q.starts.size(), 1u);
  EXPECT_EQ(q.starts[0].job, JobId{4});
}

// A large job without a limit cannot start before a reservation that is days away, and waits for
// its end. Spot work may have the room until it is asked for: by the reservation, and by that job.
TEST(Reservation, SpotRunsWhileALargeJobWaitsForItsEnd) {
  SchedIndex index;
  index.upsert_node(node(1, 4));
  Placement two{.node = NodeId{1},
                .gpus = {{0, {1000, 80 << 10}, -1}, {1, {1000, 80 << 10}, -1}},
                .cpu_milli = 8000,
                .mem_mib = 8 << 10};
  const WallTime from = t0 + hours(48), until = t0 + hours(50);
  index.upsert_reservation({ReservationId{1}, ProjectId{2}, from, until, {two}});
  index.enqueue(job(1, 4));
  JobRequest spot = job(2, 3);
  spot.spot = true;
  spot.yields = Yields::by_suspend;
  index.enqueue(spot);
  JobRequest firm = job(3);
  index.enqueue(firm);
  Plan p = plan(index, t0);
  ASSERT_EQ(p.reserves.size(), 1u);
  EXPECT_EQ(p.reserves[0].job, JobId{1});
  EXPECT_EQ(p.reserves[0].expected_start, until);
  ASSERT_EQ(p.starts.size(), 1u) << "not the third, which would not leave";
  EXPECT_EQ(p.starts[0].job, JobId{2});
  carry_out(index, p, t0);
  p = plan(index, t0 + hours(1));
  ASSERT_EQ(p.reserves.size(), 1u);
  EXPECT_EQ(p.reserves[0].expected_start, until)
      << "it is not put off by what leaves when it is asked";
  p = plan(index, from);
  ASSERT_EQ(p.preempts.size(), 1u) << "for the reservation";
  carry_out(index, p, from);
  p = plan(index, until - minutes(1));
  EXPECT_TRUE(p.starts.empty()) << "so shortly before it nothing is started";
  index.remove_reservation(ReservationId{1});
  p = plan(index, until);
  ASSERT_EQ(p.starts.size(), 1u);
  EXPECT_EQ(p.starts[0].job, JobId{1}) << "as it was promised";
}

// A member that is lost inside a reservation is replaced inside it, or waits.
TEST(Reservation, AReplacedGangMemberStaysInside) {
  SchedIndex index;
  for (std::uint64_t n = 1; n <= 4; ++n)
    index.upsert_node(node(n, 1));
  const auto all_of = [](std::uint64_t n) {
    return Placement{.node = NodeId{n},
                     .gpus = {{0, {1000, 80 << 10}, -1}},
                     .cpu_milli = 8000,
                     .mem_mib = 8 << 10};
  };
  index.upsert_reservation(
      {ReservationId{1}, ProjectId{1}, t0, t0 + hours(4), {all_of(2), all_of(3), all_of(4)}});
  JobRequest gang = job(1);
  gang.tasks = 2;
  gang.elastic = true;
  gang.reservation = ReservationId{1};
  index.enqueue(gang);
  Plan p = plan(index, t0);
  ASSERT_EQ(p.starts.size(), 1u);
  carry_out(index, p, t0);
  const auto node_of = [&](std::size_t rank) {
    return index.running(JobId{1})->placements.at(rank).node;
  };
  for (int times = 0; times < 2; ++times) {
    const NodeId lost = node_of(0);
    index.member_lost(JobId{1}, 0, t0 + minutes(1), true);
    NodeShape shape = *index.node(lost);
    shape.use = NodeUse::unreachable;
    index.upsert_node(shape);
    p = plan(index, t0 + minutes(1));
    if (times == 1)
      break;
    ASSERT_EQ(p.repairs.size(), 1u);
    EXPECT_NE(p.repairs[0].placement.node, NodeId{1}) << "that is free, and outside";
    carry_out(index, p, t0 + minutes(1));
  }
  EXPECT_TRUE(p.repairs.empty()) << "nothing of it is left";
  index.remove_reservation(ReservationId{1});
  index.left_reservation(JobId{1});
  p = plan(index, t0 + hours(4));
  ASSERT_EQ(p.repairs.size(), 1u);
  EXPECT_EQ(p.repairs[0].placement.node, NodeId{1});
}

// A reservation of card 1 of two, of which its own job 1 holds three quarters, for an hour by its
// limit. Card 0 is full.
SchedIndex with_a_job_inside() {
  SchedIndex index;
  index.upsert_node(node(1, 2));
  const auto on = [](std::int32_t gpu, int milli) {
    return Placement{.node = NodeId{1},
                     .gpus = {{gpu, {milli, (80 << 10) / 1000 * milli}, -1}},
                     .cpu_milli = 1000,
                     .mem_mib = 1024};
  };
  Placement reserved = on(1, 1000);
  reserved.cpu_milli = 28000;
  index.upsert_reservation({ReservationId{1}, ProjectId{1}, t0, t0 + hours(4), {reserved}});
  JobRequest inside = job(1, 1, 750);
  inside.reservation = ReservationId{1};
  inside.time_limit = hours(1);
  inside.moves_after = minutes(10);
  index.enqueue(inside);
  index.started(inside.id, {on(1, 750)}, t0);
  index.enqueue(job(2));
  index.started(JobId{2}, {on(0, 1000)}, t0);
  return index;
}

// Its job's time is up, or it was told to stop, and it is still there: what it leaves is the
// reservation's, and so is what lay beside it.
TEST(Reservation, CapacityFreedByItsJobStaysReserved) {
  for (const bool told : {false, true}) {
    SchedIndex index = with_a_job_inside();
    if (told)
      index.leaving(JobId{1});
    index.enqueue(job(3, 1, 250));
    const WallTime now = t0 + (told ? minutes(1) : minutes(61));
    EXPECT_TRUE(plan(index, now).starts.empty());
    EXPECT_TRUE(plan(SchedIndex::rebuild(index.contents()), now).starts.empty());
    index.ended(JobId{1}, now);
    EXPECT_TRUE(plan(index, now).starts.empty());
    EXPECT_EQ(plan(index, t0 + hours(4)).starts.size(), 1u);
  }
}

TEST(Reservation, ItsCapacityIsNotPromisedBeforeItEnds) {
  SchedIndex index = with_a_job_inside();
  index.enqueue(job(3, 1, 750));
  const Plan p = plan(index, t0 + minutes(1));
  EXPECT_TRUE(p.starts.empty());
  ASSERT_EQ(p.reserves.size(), 1u);
  EXPECT_EQ(p.reserves[0].expected_start, t0 + hours(4))
      << "its job ends after an hour, and the reservation goes on";
}

TEST(Reservation, ItsJobsAreNotMovedOutOfItForOthers) {
  SchedIndex index = with_a_job_inside();
  index.upsert_node(node(2, 1));
  JobRequest only_here = job(3, 1, 500);
  only_here.constraints.only_nodes = {NodeId{1}};
  index.enqueue(only_here);
  const Plan p = plan(index, t0 + minutes(30));
  EXPECT_TRUE(p.preempts.empty());
  EXPECT_TRUE(p.starts.empty());
}

// A job that gives way stands in it beside its own, which is leaving: it is asked at once, for the
// room is all the reservation's.
TEST(Reservation, OtherJobsArePreemptedEvenWhileItsOwnJobLeaves) {
  SchedIndex index = with_a_job_inside();
  JobRequest spot = job(3, 1, 250);
  spot.spot = true;
  index.enqueue(spot);
  index.started(spot.id,
                {Placement{.node = NodeId{1},
                           .gpus = {{1, {250, 20 << 10}, -1}},
                           .cpu_milli = 1000,
                           .mem_mib = 1024}},
                t0);
  index.leaving(JobId{1});
  const Plan p = plan(index, t0 + minutes(1));
  ASSERT_EQ(p.preempts.size(), 1u);
  EXPECT_EQ(p.preempts[0].victim, spot.id);
  EXPECT_EQ(p.preempts[0].cause, PreemptCause::reservation);
}

TEST(Consolidation, MovesAJobToMakeSpaceForALargerOne) {
  SchedIndex index;
  index.upsert_node(node(1, 2));
  index.upsert_node(node(2, 2));
  for (std::uint64_t i = 1; i <= 2; ++i) {
    JobRequest j = job(i);
    j.moves_after = minutes(10);
    index.enqueue(j);
    // One on each node, as departures may leave them.
    Placement p{
        .node = NodeId{i}, .gpus = {{0, {1000, 80 << 10}, -1}}, .cpu_milli = 1000, .mem_mib = 1024};
    index.started(JobId{i}, {p}, t0);
  }
  index.enqueue(job(3, 2));
  EXPECT_TRUE(plan(index, t0 + minutes(5)).preempts.empty());
  const Plan p = plan(index, t0 + minutes(20));
  ASSERT_EQ(p.preempts.size(), 1u);
  EXPECT_EQ(p.preempts[0].cause, PreemptCause::consolidation);
  carry_out(index, p, t0 + minutes(20));
  carry_out(index, plan(index, t0 + minutes(21)), t0 + minutes(21));
  EXPECT_NE(index.running(JobId{3}), nullptr);
  EXPECT_EQ(index.running_count(), 3u);
}

TEST(Consolidation, MovesSeveralJobsForAGangOnlyIfAllFitElsewhere) {
  for (const bool capacity_elsewhere : {true, false}) {
    SchedIndex index;
    for (std::uint64_t i = 1; i <= 4; ++i) {
      NodeShape n = node(i, 2);
      n.place.rack = i <= 2 ? "a" : "b";
      index.upsert_node(n);
    }
    const auto runs = [&](std::uint64_t id, std::uint64_t on, int gpus, bool movable) {
      JobRequest j = job(id, gpus);
      if (movable)
        j.moves_after = minutes(10);
      index.enqueue(j);
      Placement p{.node = NodeId{on}, .gpus = {}, .cpu_milli = 1000, .mem_mib = 1024};
      for (int g = 0; g < gpus; ++g)
        p.gpus.push_back({g, {1000, 80 << 10}, -1});
      index.started(j.id, {p}, t0);
    };
    runs(1, 1, 1, true);
    runs(2, 2, 1, true);
    runs(3, 3, 1, false);
    runs(4, 4, capacity_elsewhere ? 1 : 2, false);
    JobRequest gang = job(9, 2);
    gang.tasks = 2;
    gang.constraints.close = Closeness::rack;
    gang.constraints.close_required = true;
    index.enqueue(gang);
    const Plan p = plan(index, t0 + hours(1));
    if (!capacity_elsewhere) {
      EXPECT_TRUE(p.preempts.empty());
      continue;
    }
    ASSERT_EQ(p.preempts.size(), 2u);
    for (const Preempt& v : p.preempts)
      EXPECT_EQ(v.cause, PreemptCause::consolidation);
    carry_out(index, p, t0 + hours(1));
    for (int round = 0; round < 3; ++round)
      carry_out(index, plan(index, t0 + hours(1) + seconds(1)), t0 + hours(1) + seconds(1));
    EXPECT_EQ(index.running_count(), 5u);
    ASSERT_NE(index.running(gang.id), nullptr);
    for (const Placement& x : index.running(gang.id)->placements)
      EXPECT_LE(x.node.value, 2u);
  }
}

TEST(Topology, AGangStaysUnderOneSwitchAndRequiredMeansRequired) {
  SchedIndex index;
  for (std::uint64_t i = 1; i <= 4; ++i) {
    NodeShape n = node(i);
    n.place.zone = "z";
    n.place.switch_name = i <= 2 ? "s1" : i == 3 ? "s2" : "s3";
    index.upsert_node(n);
  }
  JobRequest gang = job(1, 8);
  gang.tasks = 2;
  index.enqueue(gang);
  const Plan p = plan(index, t0);
  ASSERT_EQ(p.starts.size(), 1u);
  for (const Placement& x : p.starts[0].placements)
    EXPECT_LE(x.node.value, 2u);
  carry_out(index, p, t0);
  JobRequest strict = job(2, 8);
  strict.tasks = 2;
  strict.constraints.close = Closeness::switch_;
  strict.constraints.close_required = true;
  index.enqueue(strict);
  EXPECT_TRUE(plan(index, t0).empty());
  EXPECT_EQ(explain(index, JobId{2}, t0).reasons.at(0).kind, ReasonKind::topology);
}

TEST(Spread, ReplicasKeepApart) {
  SchedIndex index;
  for (std::uint64_t i = 1; i <= 3; ++i)
    index.upsert_node(node(i));
  std::set<NodeId> nodes;
  for (std::uint64_t i = 1; i <= 3; ++i) {
    JobRequest replica = job(i, 1, 250);
    replica.constraints.spread = Spread::spread;
    replica.constraints.spread_key = 7;
    index.enqueue(replica);
    carry_out(index, plan(index, t0), t0);
    nodes.insert(index.running(JobId{i})->placements[0].node);
  }
  EXPECT_EQ(nodes.size(), 3u);
}

TEST(Mig, InstancesFollowThePlacementRules) {
  SchedIndex index;
  NodeShape n = node(1, 1);
  n.gpus[0].mig_enabled = true;
  index.upsert_node(n);
  const auto ask = [&](std::uint64_t id, std::string profile) {
    JobRequest j = job(id);
    j.resources.share = {};
    j.resources.mig_profile = std::move(profile);
    index.enqueue(j);
    carry_out(index, plan(index, t0), t0);
    return index.running(JobId{id}) != nullptr;
  };
  EXPECT_TRUE(ask(1, "1g.10gb"));
  EXPECT_TRUE(ask(2, "3g.40gb"));  // the small one was put where this still fits
  EXPECT_TRUE(ask(3, "2g.20gb"));
  EXPECT_FALSE(
      ask(4, "1g.10gb"));  // what is left is the eighth memory slice, where no instance may begin
}

TEST(WholeNode, TakesTheNodeExclusively) {
  SchedIndex index;
  index.upsert_node(node(1));
  JobRequest whole = job(1, 0);
  whole.resources.whole_node = true;
  index.enqueue(job(2, 1, 100));
  carry_out(index, plan(index, t0), t0);
  index.enqueue(whole);
  EXPECT_TRUE(plan(index, t0).starts.empty());
  index.ended(JobId{2}, t0);
  carry_out(index, plan(index, t0), t0);
  ASSERT_NE(index.running(JobId{1}), nullptr);
  EXPECT_EQ(index.running(JobId{1})->placements[0].gpus.size(), 8u);
  EXPECT_EQ(index.free_cpu_milli(NodeId{1}), 0);
}

TEST(FairShare, ConvergesToTheWeights) {
  SchedIndex index;
  index.upsert_node(node(1, 8));
  index.upsert_project({.id = ProjectId{1}, .weight = 100});
  index.upsert_project({.id = ProjectId{2}, .weight = 300});
  std::uint64_t next = 0;
  std::map<ProjectId, int> queued;
  std::vector<std::pair<WallTime, JobId>> ends;
  WallTime now = t0;
  for (int step = 0; step < 3000; ++step) {
    for (std::uint64_t p : {1, 2}) {
      while (queued[ProjectId{p}] < 10) {
        JobRequest j = job(++next);
        j.project = ProjectId{p};
        index.enqueue(j);
        ++queued[ProjectId{p}];
      }
    }
    const Plan plan_now = plan(index, now);
    for (const Start& s : plan_now.starts) {
      --queued[index.queued(s.job)->project];
      ends.emplace_back(now + minutes(10 + static_cast<std::int64_t>(s.job.value * 7 % 13)), s.job);
    }
    carry_out(index, plan_now, now);
    if (HasFatalFailure())
      return;
    std::ranges::sort(ends, std::greater<>{});
    now = ends.back().first;
    index.ended(ends.back().second, now);
    ends.pop_back();
  }
  EXPECT_NEAR(index.usage(ProjectId{2}, now) / index.usage(ProjectId{1}, now), 3.0, 0.3);
}

TEST(Starvation, ALargeGangStartsDespiteAStreamOfSmallJobs) {
  SchedSettings settings;
  settings.starve_after = hours(2);
  SchedIndex index(settings);
  for (std::uint64_t i = 1; i <= 4; ++i)
    index.upsert_node(node(i, 4));
  JobRequest gang = job(1'000'000, 4);
  gang.tasks = 3;
  gang.order = 1;
  std::uint64_t next = 0;
  std::vector<std::pair<WallTime, JobId>> ends;
  WallTime now = t0;
  const Duration longest = minutes(60);
  bool asked = false;
  // Whatever runs when the gang has starved ends within `longest`; nothing new starts on the nodes
  // it waits for.
  while (now < t0 + settings.starve_after + longest * 2 + minutes(1)) {
    while (index.queued_count() < 40) {
      JobRequest j = job(++next);
      j.submitted = now;
      j.order = next + 10;
      index.enqueue(j);
    }
    const Plan p = plan(index, now);
    for (const Start& s : p.starts) {
      if (s.job == gang.id) {
        EXPECT_LE(now - t0, settings.starve_after + longest * 2);
        return;
      }
      ends.emplace_back(
          now + minutes(5) + minutes(static_cast<std::int64_t>(s.job.value * 31 % 56)), s.job);
    }
    carry_out(index, p, now);
    if (HasFatalFailure())
      return;
    if (!std::exchange(asked, true))
      index.enqueue(gang);
    std::ranges::sort(ends, std::greater<>{});
    now = ends.back().first;
    index.ended(ends.back().second, now);
    ends.pop_back();
  }
  FAIL() << "the gang starved";
}

}  // namespace
}  // namespace billow::sched
