#include "store/sim_journal.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/unit/store/store_test_support.h"

namespace billow {
namespace {
using namespace store_test;

// Random appends, steps, faults and crashes. After each crash: all that was reported is there, no
// gap, batches whole.
void live_through(std::uint64_t seed) {
  SimDisk disk;
  Rng rng(seed);
  Seq reported = 0;
  std::vector<Seq> batch_ends = {0};
  for (int life = 0; life < 8; ++life) {
    SimJournal journal(disk, rng.next());
    RC_ASSERT(journal.epoch() == static_cast<Epoch>(life + 1));
    RC_ASSERT(journal.durable_seq() >= reported);
    RC_ASSERT(disk.last_seq == journal.durable_seq());
    RC_ASSERT(std::find(batch_ends.begin(), batch_ends.end(), disk.last_seq) != batch_ends.end());
    while (batch_ends.back() > disk.last_seq)
      batch_ends.pop_back();
    for (std::size_t i = 0; i < disk.records.size(); ++i)
      RC_ASSERT(disk.records[i].seq == i + 1);
    if (disk.last_seq > 0) {
      RC_ASSERT(disk.jobs.rbegin()->first.value == disk.last_seq);
    }
    reported = journal.durable_seq();
    JournalHooks hooks;
    hooks.on_durable = [&](Seq seq) {
      RC_ASSERT(seq > reported);
      reported = seq;
    };
    journal.set_hooks(std::move(hooks));
    for (int act = 0; act < 60; ++act) {
      if (rng.chance(0.05))
        disk.full = !disk.full;
      if (rng.chance(0.5)) {
        Batch batch = batch_of(1 + rng.below(4), std::string(rng.below(500), 'x'));
        batch.jobs.push_back(job(journal.next_seq() + batch.records.size() - 1));
        batch_ends.push_back(journal.append(std::move(batch)));
      } else {
        journal.step();
      }
    }
    if (rng.chance(0.3)) {
      disk.full = false;
      RC_ASSERT(journal.flush({}).has_value());
      RC_ASSERT(reported == batch_ends.back());
    }
    journal.crash();
  }
}

RC_GTEST_PROP(SimJournal, KeepsWhatItReportedThroughAnyCrash, (std::uint64_t seed)) {
  live_through(seed);
}

TEST(SimJournal, AFullDiskHoldsBackAndLosesNothing) {
  SimDisk disk;
  disk.ballast_bytes = 400;
  SimJournal journal(disk, 1);
  std::vector<StoreHealth> seen;
  JournalHooks hooks;
  hooks.on_health = [&](StoreHealth health, const Error&) {
    seen.push_back(health);
  };
  journal.set_hooks(hooks);
  disk.full = true;
  for (int i = 0; i < 20; ++i)
    journal.append(batch_of(1));
  EXPECT_EQ(journal.flush({}).error().code, Code::storage_full);
  EXPECT_GT(journal.durable_seq(), 0u) << "the ballast took some";
  EXPECT_LT(journal.durable_seq(), 20u);
  disk.full = false;
  EXPECT_TRUE(journal.flush({}));
  EXPECT_EQ(journal.durable_seq(), 20u);
  EXPECT_EQ(seen, (std::vector{StoreHealth::disk_low, StoreHealth::ok}));
}

TEST(SimJournal, FencesTheOlderOfTwoHeads) {
  SimDisk disk;
  SimJournal first(disk, 1);
  SimJournal second(disk, 2);
  first.append(batch_of(1));
  EXPECT_FALSE(first.flush({}));
  EXPECT_EQ(first.health(), StoreHealth::fatal);
  second.append(batch_of(1));
  EXPECT_TRUE(second.flush({}));
  EXPECT_EQ(disk.records.size(), 1u);
}

TEST(SimJournal, TheSameSeedTakesTheSameCourse) {
  const auto course = [](std::uint64_t seed) {
    SimDisk disk;
    SimJournal journal(disk, seed);
    std::vector<Seq> durable;
    for (int i = 0; i < 50; ++i)
      journal.append(batch_of(1));
    while (journal.step())
      durable.push_back(journal.durable_seq());
    return durable;
  };
  EXPECT_EQ(course(7), course(7));
  EXPECT_NE(course(7), course(8));
}

}  // namespace
}  // namespace billow
