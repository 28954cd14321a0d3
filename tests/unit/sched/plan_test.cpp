#include "support.h"

namespace billow::sched {
using namespace test;
namespace {

TEST(Plan, StartsAJobOnAnIdleNode) {
  SchedIndex index;
  index.upsert_node(node(1));
  index.enqueue(job(7));
  const Plan p = plan(index, t0);
  ASSERT_EQ(p.starts.size(), 1u);
  EXPECT_EQ(p.starts[0].job, JobId{7});
  ASSERT_EQ(p.starts[0].placements.size(), 1u);
  EXPECT_EQ(p.starts[0].placements[0].gpus[0].share, (Share{1000, 80 << 10}));
  carry_out(index, p, t0);
  EXPECT_EQ(index.free_milli(NodeId{1}), 7000);
  EXPECT_TRUE(plan(index, t0).empty());
  index.ended(JobId{7}, t0 + seconds(5));
  EXPECT_EQ(index.free_milli(NodeId{1}), 8000);
}

TEST(Plan, HigherPriorityGoesFirstThenSubmitOrder) {
  SchedIndex index;
  index.upsert_node(node(1, 2));
  index.enqueue(job(1));
  index.enqueue(job(2));
  JobRequest urgent = job(3);
  urgent.priority = 5;
  index.enqueue(urgent);
  const Plan p = plan(index, t0);
  ASSERT_EQ(p.starts.size(), 2u);
  EXPECT_EQ(p.starts[0].job, JobId{3});
  EXPECT_EQ(p.starts[1].job, JobId{1});
}

TEST(Plan, FractionsShareACardAndWholeCardsStayWhole) {
  SchedIndex index;
  index.upsert_node(node(1, 2));
  index.enqueue(job(1, 1, 500));
  index.enqueue(job(2, 1, 500));
  index.enqueue(job(3, 1, 1000));
  const Plan p = plan(index, t0);
  ASSERT_EQ(p.starts.size(), 3u);
  EXPECT_EQ(p.starts[0].placements[0].gpus[0].gpu, p.starts[1].placements[0].gpus[0].gpu);
  carry_out(index, p, t0);
  EXPECT_EQ(index.free_milli(NodeId{1}), 0);
}

TEST(Plan, AGangStartsWholeOrNotAtAll) {
  SchedIndex index;
  index.upsert_node(node(1));
  index.upsert_node(node(2));
  JobRequest gang = job(1, 8);
  gang.tasks = 3;
  index.enqueue(gang);
  EXPECT_TRUE(plan(index, t0).empty());
  index.upsert_node(node(3));
  const Plan p = plan(index, t0);
  ASSERT_EQ(p.starts.size(), 1u);
  EXPECT_EQ(p.starts[0].placements.size(), 3u);
}

TEST(Plan, ALostMemberOfAnElasticGangIsReplacedAlone) {
  SchedIndex index;
  for (int i = 1; i <= 3; ++i)
    index.upsert_node(node(static_cast<std::uint64_t>(i)));
  JobRequest gang = job(1, 8);
  gang.tasks = 2;
  gang.elastic = true;
  index.enqueue(gang);
  carry_out(index, plan(index, t0), t0);
  const NodeId lost = index.running(JobId{1})->placements[1].node;
  index.member_lost(JobId{1}, 1, t0);
  index.remove_node(lost);
  const Plan p = plan(index, t0);
  ASSERT_EQ(p.repairs.size(), 1u);
  EXPECT_EQ(p.repairs[0].task_index, 1);
  index.member_replaced(JobId{1}, 1, p.repairs[0].placement);
  EXPECT_TRUE(plan(index, t0).empty());
  ASSERT_TRUE(index.check_invariants());
}

TEST(Plan, AJobDoesNotStartBeforeItIsEligible) {
  SchedIndex index;
  index.upsert_node(node(1));
  JobRequest later = job(1);
  later.eligible_at = t0 + seconds(30);
  index.enqueue(later);
  const Plan p = plan(index, t0);
  EXPECT_TRUE(p.empty());
  EXPECT_EQ(p.wake_at, t0 + seconds(30));
  EXPECT_EQ(plan(index, t0 + seconds(30)).starts.size(), 1u);
}

TEST(Plan, AnArrayRespectsItsRunningLimit) {
  SchedIndex index;
  index.upsert_node(node(1));
  for (std::uint64_t i = 1; i <= 5; ++i) {
    JobRequest j = job(i);
    j.array = JobId{100};
    j.array_running_max = 2;
    index.enqueue(j);
  }
  const Plan p = plan(index, t0);
  EXPECT_EQ(p.starts.size(), 2u);
  carry_out(index, p, t0);
  EXPECT_TRUE(plan(index, t0).empty());
  EXPECT_EQ(explain(index, JobId{4}, t0).reasons.at(0).kind, ReasonKind::array_limit);
}

TEST(Feasible, SaysWhatIsTooLarge) {
  SchedIndex index;
  index.upsert_node(node(1));
  EXPECT_TRUE(feasible(index, job(1, 8)));
  EXPECT_EQ(feasible(index, job(1, 9)).error().message, "no node has 9 GPUs; the largest has 8");
  JobRequest typo = job(1);
  typo.resources.gpu_types = {"H10"};
  EXPECT_EQ(feasible(index, typo).error().message, "unknown GPU type \"H10\"; GPUs here: 8 × H100");
  EXPECT_EQ(feasible(index, typo).error().hint, "did you mean H100?");
  typo.resources.gpu_types = {"A100"};
  EXPECT_EQ(feasible(index, typo).error().message,
            "no node has GPUs of type A100; GPUs here: 8 × H100")
      << "no typing mistake";
  EXPECT_EQ(feasible(index, typo).error().hint, "use --gpu-type H100, or omit it");
}

// The kinds of one family cost and hold differently: which is meant is asked, in words that can be
// pasted.
TEST(Feasible, OffersTheKindsOfAFamily) {
  SchedIndex index;
  NodeShape small = node(1), large = node(2);
  for (GpuShape& g : small.gpus)
    g.type = "A100-40";
  for (GpuShape& g : large.gpus)
    g.type = "A100-80";
  index.upsert_node(small);
  index.upsert_node(large);
  JobRequest wants = job(1);
  wants.resources.gpu_types = {"a100"};
  const auto told = feasible(index, wants);
  ASSERT_FALSE(told);
  EXPECT_EQ(told.error().message,
            "no GPU has exactly the type a100; GPUs here: 8 × A100-40, 8 × A100-80");
  EXPECT_EQ(told.error().hint, "use --gpu-type A100-40,A100-80");
  wants.resources.gpu_types = {"A100-40", "A100-80"};
  EXPECT_TRUE(feasible(index, wants));
  wants.resources.mem_mib = 500'000 * 1024LL;
  EXPECT_NE(feasible(index, wants)
                .error()
                .message.find("no node has 500000 GiB of memory; the largest has "),
            std::string::npos);
}

TEST(Disk, IsGivenOnceAndComesBack) {
  SchedIndex index;
  NodeShape small = node(1), large = node(2);
  small.disk_mib = 100 << 10;
  large.disk_mib = 600 << 10;
  index.upsert_node(small);
  index.upsert_node(large);
  for (std::uint64_t i = 1; i <= 3; ++i) {
    JobRequest wants = job(i);
    wants.resources.disk_mib = 250 << 10;
    index.enqueue(wants);
  }
  carry_out(index, plan(index, t0), t0);
  EXPECT_EQ(index.running_count(), 2u) << "a third does not fit beside them";
  EXPECT_EQ(index.free_disk_mib(NodeId{2}), 100 << 10);
  EXPECT_EQ(index.free_disk_mib(NodeId{1}), 100 << 10);
  EXPECT_TRUE(index.check_invariants());
  const auto why = explain(index, JobId{3}, t0, Advice::none);
  ASSERT_FALSE(why.reasons.empty());
  EXPECT_NE(why.reasons.front().text.find("not enough disk beside them"), std::string::npos)
      << why.reasons.front().text;
  index.ended(JobId{1}, t0 + seconds(1));
  carry_out(index, plan(index, t0 + seconds(1)), t0 + seconds(1));
  EXPECT_NE(index.running(JobId{3}), nullptr);
  JobRequest wants = job(4);
  wants.resources.disk_mib = 700 << 10;
  const auto told = feasible(index, wants);
  ASSERT_FALSE(told);
  EXPECT_EQ(told.error().message, "no node has 700 GiB of free disk; the largest has 600 GiB");
}

TEST(Index, RebuiltEqualsKept) {
  SchedIndex index;
  index.upsert_node(node(1));
  for (std::uint64_t i = 1; i <= 20; ++i)
    index.enqueue(job(i));
  carry_out(index, plan(index, t0), t0);
  index.ended(JobId{3}, t0 + seconds(1));
  const SchedIndex again = SchedIndex::rebuild(index.contents());
  EXPECT_TRUE(index.equals(again));
  EXPECT_EQ(plan(index, t0), plan(again, t0));
}

// A suspended job comes back to its cards or not at all: what is as well off elsewhere goes there.
TEST(Sleepers, CardsOfSuspendedJobsAreTakenLast) {
  SchedIndex index;
  for (std::uint64_t n : {1, 2})
    index.upsert_node(node(n, 2));
  index.asleep({.job = JobId{90}, .node = NodeId{1}, .gpus = {0}});
  std::vector<std::pair<NodeId, std::int32_t>> order;
  for (std::uint64_t id = 1; id <= 4; ++id) {
    index.enqueue(job(id));
    const Plan p = plan(index, t0);
    ASSERT_EQ(p.starts.size(), 1u);
    order.emplace_back(p.starts[0].placements[0].node, p.starts[0].placements[0].gpus[0].gpu);
    carry_out(index, p, t0);
  }
  EXPECT_EQ(order[0].first, NodeId{2}) << "nobody must come back to that node";
  EXPECT_EQ(order[3], std::pair(NodeId(1), 0)) << "but a card is not left idle for it";
  // It wants to come back, and is told whom it waits for.
  JobRequest sleeper = job(90);
  sleeper.constraints.only_nodes = {NodeId{1}};
  sleeper.constraints.only_gpus = {0};
  index.enqueue(sleeper);
  const Explanation e = explain(index, JobId{90}, t0);
  EXPECT_EQ(e.reasons.at(0).kind, ReasonKind::no_capacity);
  EXPECT_EQ(
      e.reasons.at(0).text,
      "It can resume only on GPU 0 of node n1, which holds its memory. GPU 0 is in use by job 4 "
      "(has no time limit).");
  EXPECT_EQ(e.reasons.at(0).behind, JobId{4});
  // People of another project are not told whose job it is.
  JobRequest stranger = sleeper;
  stranger.id = JobId{91};
  stranger.project = ProjectId{2};
  index.enqueue(stranger);
  const Explanation kept = explain(index, JobId{91}, t0);
  EXPECT_EQ(kept.reasons.at(0).text,
            "It can resume only on GPU 0 of node n1, which holds its memory. GPU 0 is in use by "
            "another project's job (has no time limit).");
  EXPECT_EQ(kept.reasons.at(0).behind, JobId{});
  index.dequeue(JobId{91});
  // Several cards are several.
  JobRequest wide = sleeper;
  wide.id = JobId{92};
  wide.resources.gpus = 2;
  wide.constraints.only_gpus = {0, 1};
  index.enqueue(wide);
  const std::string text = explain(index, JobId{92}, t0).reasons.at(0).text;
  EXPECT_TRUE(text.starts_with("It can resume only on GPUs 0, 1 of node n1")) << text;
  EXPECT_NE(text.find(" GPUs 0, 1 are in use by "), std::string::npos) << text;
  index.dequeue(JobId{92});
  index.ended(JobId{4}, t0);
  JobRequest brief = job(5);
  brief.time_limit = hours(1);
  brief.constraints.only_nodes = {NodeId{1}};
  brief.constraints.only_gpus = {0};
  index.dequeue(JobId{90});
  index.enqueue(brief);
  carry_out(index, plan(index, t0), t0);
  index.enqueue(sleeper);
  EXPECT_EQ(explain(index, JobId{90}, t0).earliest_start, t0 + hours(1));
  EXPECT_EQ(forecast(index, JobId{90}, t0), t0 + hours(1));
  index.awake(JobId{90});
  check(index);
}

// Cards of another type are no fragments of this one, and a node that takes no work is named.
TEST(Reasons, CountOnlyNodesThatCouldRunTheJob) {
  SchedIndex index;
  index.upsert_node(node(1, 8));
  NodeShape drained = node(2, 4, "A100");
  drained.use = NodeUse::draining;
  index.upsert_node(drained);
  JobRequest a100 = job(1);
  a100.resources.gpu_types = {"A100"};
  index.enqueue(a100);
  EXPECT_EQ(explain(index, JobId{1}, t0).reasons.at(0).text,
            "No node that could run it accepts jobs now. Closed to new jobs: n2 (drained).");
  JobRequest both = job(2);
  both.tasks = 2;
  index.enqueue(both);
  EXPECT_EQ(explain(index, JobId{2}, t0).reasons.at(0).text,
            "It needs 2 nodes, and only 1 could run it now. Closed to new jobs: n2 (drained).");
  drained.use = NodeUse::schedulable;
  index.upsert_node(drained);
  JobRequest all = job(3);
  all.resources.gpus = 4;
  all.resources.gpu_types = {"A100"};
  for (const JobId waiting : {JobId{1}, JobId{2}})
    index.dequeue(waiting);
  index.enqueue(a100);
  carry_out(index, plan(index, t0), t0);
  index.enqueue(all);
  EXPECT_EQ(explain(index, JobId{3}, t0).reasons.at(0).text,
            "Only 3 of 4 A100 GPUs are free; the job needs 4.");
}

TEST(Reasons, NameTheGpusInUseAndTheNextEnd) {
  SchedIndex index;
  index.upsert_node(node(1, 2));
  JobRequest brief = job(1);
  brief.time_limit = minutes(4);
  index.enqueue(brief);
  index.enqueue(job(2));
  carry_out(index, plan(index, t0), t0);
  index.enqueue(job(3));
  EXPECT_EQ(explain(index, JobId{3}, t0).reasons.at(0).text,
            "No GPU is free: all 2 are in use. Job 1 ends in at most 4 min.");
  JobRequest stranger = job(4);
  stranger.project = ProjectId{2};
  index.enqueue(stranger);
  EXPECT_EQ(explain(index, JobId{4}, t0).reasons.at(0).text,
            "No GPU is free: all 2 are in use. Another project's job ends in at most 4 min.");
}

TEST(Reasons, EveryReasonHasACodeAndASentence) {
  SchedIndex index;
  index.enqueue(job(1));
  const Reason no_node = explain(index, JobId{1}, t0).reasons.at(0);
  EXPECT_EQ(no_node.text, "No node has joined yet.");
  EXPECT_STREQ(reason_name(no_node.kind), "no_room");
  index.upsert_node(node(1, 1));
  index.enqueue(job(2, 4));
  EXPECT_EQ(explain(index, JobId{2}, t0).reasons.at(0).text,
            "No node has 4 GPUs; the largest has 1.");
  JobRequest later = job(3);
  later.eligible_at = t0 + seconds(39);
  index.enqueue(later);
  EXPECT_TRUE(explain(index, JobId{3}, t0).reasons.at(0).text.starts_with("It starts in 39 s ("));
}

}  // namespace
}  // namespace billow::sched
