// The workload that placement keeps capacity free for is learned from the queue: soon after a
// change, from what cannot start, too, and the same after a replay.
#include "base/rng.h"
#include "support.h"

namespace billow::sched {
namespace {

using namespace test;

// Part of the learned tasks that ask for so many GPUs.
double part_of(const SchedIndex& index, int gpus) {
  double all = 0, some = 0;
  for (const auto& [resources, count] : index.learned().typical) {
    all += count;
    some += resources.gpus == gpus ? count : 0;
  }
  return all > 0 ? some / all : 0;
}

// Queues tasks of which `part_of_eight` ask for 8 GPUs and the others for one, and takes them back:
// nothing ever starts.
void submit(SchedIndex& index, Rng& rng, int tasks, double part_of_eight, std::uint64_t& id) {
  for (int i = 0; i < tasks; ++i) {
    const JobRequest j = job(++id, rng.chance(part_of_eight) ? 8 : 1);
    index.enqueue(j);
    index.dequeue(j.id);
  }
}

TEST(Learn, KindsOfTaskThatNeverStartCount) {
  SchedIndex index;
  Rng rng(1);
  std::uint64_t id = 0;
  submit(index, rng, 256, 0.3, id);
  EXPECT_NEAR(part_of(index, 8), 0.3, 0.1);
}

TEST(Learn, FollowsAChangeWithinAFewHundredTasks) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SchedIndex index;
    Rng rng(seed);
    std::uint64_t id = 0;
    submit(index, rng, 20'000, 0.02, id);
    ASSERT_LT(part_of(index, 8), 0.05) << seed;
    submit(index, rng, 1'000, 0.4, id);
    EXPECT_NEAR(part_of(index, 8), 0.4, 0.1) << seed;
  }
}

TEST(Learn, ASteadyWorkloadKeepsItsModel) {
  SchedIndex index;
  Rng rng(7);
  std::uint64_t id = 0;
  submit(index, rng, 5'000, 0.2, id);
  const auto model = index.learned().typical;
  int changes = 0;
  for (int i = 0; i < 40; ++i) {
    submit(index, rng, 500, 0.2, id);
    changes += index.learned().typical != model;
  }
  EXPECT_EQ(changes, 0);
}

TEST(Learn, AFewTasksOfANewSizeAreNoChange) {
  SchedIndex index;
  Rng rng(3);
  std::uint64_t id = 0;
  submit(index, rng, 5'000, 0, id);
  const auto model = index.learned().typical;
  for (int i = 0; i < 3; ++i)
    index.enqueue(job(++id, 4));
  submit(index, rng, 1'000, 0, id);
  EXPECT_EQ(index.learned().typical, model);
}

TEST(Learn, EveryTaskOfAGangCounts) {
  SchedIndex index;
  std::uint64_t id = 0;
  for (int i = 0; i < 32; ++i) {
    JobRequest gang = job(++id, 8);
    gang.tasks = 16;
    index.enqueue(gang);
    index.enqueue(job(++id, 1));
  }
  EXPECT_GT(part_of(index, 8), 0.85);
}

TEST(Learn, AQueuedJobThatChangesCountsOnce) {
  SchedIndex index;
  for (int i = 0; i < 1'000; ++i)
    index.enqueue(job(1, 8));
  EXPECT_EQ(index.learned().tasks, 1);
}

TEST(Learn, MoreKindsThanAreRememberedDoNotEndTheLearning) {
  SchedIndex index;
  std::uint64_t id = 0;
  for (int i = 0; i < 6'000; ++i) {
    JobRequest j = job(++id, 1);
    j.resources.cpu_milli = 1'000 + i;
    index.enqueue(j);
  }
  EXPECT_LE(index.learned().recent.size(), 512u);
  Rng rng(4);
  submit(index, rng, 2'000, 0.5, id);
  EXPECT_NEAR(part_of(index, 8), 0.5, 0.15);
}

// A head that takes over from a snapshot in the middle of a window learns what the first one does.
TEST(Learn, ARebuiltIndexLearnsTheSame) {
  SchedIndex index;
  Rng rng(5);
  std::uint64_t id = 0;
  submit(index, rng, 3'333, 0.1, id);
  SchedIndex other = SchedIndex::rebuild(index.contents());
  ASSERT_EQ(other.learned(), index.learned());
  Rng again = rng;
  std::uint64_t same = id;
  submit(index, rng, 3'333, 0.4, id);
  submit(other, again, 3'333, 0.4, same);
  EXPECT_EQ(other.learned(), index.learned());
}

}  // namespace
}  // namespace billow::sched
