#include <sys/wait.h>
#include <unistd.h>

#include "base/crypto.h"
#include "base/rng.h"
#include "base/sync.h"
#include "tests/unit/store/store_test_support.h"

namespace billow {
namespace {
using namespace store_test;

class JournalContract : public EveryEngine {};
INSTANTIATE_TEST_SUITE_P(Engines, JournalContract, ::testing::ValuesIn(engines()), engine_name);

TEST_P(JournalContract, GivesSeqsWithoutGapsAndKeepsThemAcrossRestarts) {
  {
    auto store = open();
    EXPECT_EQ(store->journal().next_seq(), 1u);
    EXPECT_EQ(store->journal().append(batch_of(3)), 3u);
    EXPECT_EQ(store->journal().append(batch_of(2)), 5u);
    ASSERT_TRUE(store->journal().flush(seconds(20)));
    EXPECT_EQ(store->journal().durable_seq(), 5u);
  }
  auto store = open();
  EXPECT_EQ(store->journal().durable_seq(), 5u);
  EXPECT_EQ(store->journal().append(batch_of(1)), 6u);
  ASSERT_TRUE(store->journal().flush(seconds(20)));
  const auto records = read_all(store->journal());
  ASSERT_EQ(records.size(), 6u);
  for (std::size_t i = 0; i < records.size(); ++i)
    EXPECT_EQ(records[i].seq, i + 1);
  EXPECT_EQ(records[4].epoch + 1, records[5].epoch) << "each opening raises the epoch";
}

TEST_P(JournalContract, KeepsRecordsAsTheyWereWritten) {
  auto store = open();
  Batch batch;
  batch.records.push_back(
      {0, 0, {1'700'000'000'000'000'000}, "job_submitted", R"({"name":"ü","n":1})"});
  batch.records.push_back({0, 0, {-5}, "", "a\\b'\"\n\t"});
  store->journal().append(batch);
  ASSERT_TRUE(store->journal().flush(seconds(20)));
  auto records = read_all(store->journal());
  ASSERT_EQ(records.size(), 2u);
  batch.records[0].seq = 1;
  batch.records[1].seq = 2;
  batch.records[0].epoch = batch.records[1].epoch = store->journal().epoch();
  ChainCheck chain;
  for (Record& record : records) {
    EXPECT_TRUE(chain.take(linked_facts(record, sha256_hex(record.payload)), record.link));
    record.link.clear();
  }
  EXPECT_EQ(chain.linked(), 2u);
  EXPECT_EQ(records, batch.records);
}

TEST_P(JournalContract, ReportsDurableSeqsAscendingAndOnlyWhatIsReadable) {
  std::vector<Seq> reported;  // written on the writer's thread, read after the store is gone
  {
    std::unique_ptr<Store> store;
    std::atomic<const Journal*> journal{nullptr};
    std::atomic<int> unreadable{0};
    JournalHooks hooks;
    hooks.on_durable = [&](Seq durable) {
      reported.push_back(durable);
      Seq seen = 0;
      (void)journal.load()->read(durable - 1, 1, [&](const Record& r) {
        seen = r.seq;
        return true;
      });
      if (seen != durable)
        ++unreadable;
    };
    store = open(hooks);
    journal = &store->journal();
    for (int i = 0; i < 2000; ++i)
      store->journal().append(batch_of(1 + i % 3));
    ASSERT_TRUE(store->journal().flush(seconds(60)));
    EXPECT_EQ(store->journal().queued_bytes(), 0u);
    store.reset();
    EXPECT_EQ(unreadable, 0);
  }
  ASSERT_FALSE(reported.empty());
  EXPECT_TRUE(std::is_sorted(reported.begin(), reported.end()));
  EXPECT_EQ(std::adjacent_find(reported.begin(), reported.end()), reported.end());
  EXPECT_EQ(reported.back(), 3999u);
  EXPECT_LT(reported.size(), 2000u) << "batches queued during a commit share the next one";
}

TEST_P(JournalContract, CallsBackThroughThePostHook) {
  Sync<std::vector<std::function<void()>>> posted;
  std::atomic<Seq> durable{0};
  JournalHooks hooks;
  hooks.post = [&](std::function<void()> f) {
    posted.lock()->push_back(std::move(f));
  };
  hooks.on_durable = [&](Seq seq) {
    durable = seq;
  };
  auto store = open(hooks);
  store->journal().append(batch_of(1));
  ASSERT_TRUE(eventually([&] { return !posted.lock()->empty(); }));
  EXPECT_EQ(durable, 0u) << "nothing is called outside the loop";
  (*posted.lock())[0]();
  EXPECT_EQ(durable, 1u);
}

TEST_P(JournalContract, ReadsAPageFromASeqOn) {
  auto store = open();
  store->journal().append(batch_of(1000));
  ASSERT_TRUE(store->journal().flush(seconds(20)));
  std::vector<Seq> seen;
  const auto last = store->journal().read(700, 299, [&](const Record& r) {
    seen.push_back(r.seq);
    return true;
  });
  EXPECT_EQ(*last, 999u);
  EXPECT_EQ(seen.front(), 701u);
  EXPECT_EQ(seen.size(), 299u);
  EXPECT_EQ(*store->journal().read(1000, 10, [](const Record&) { return true; }), 1000u)
      << "nothing after the last";
  EXPECT_EQ(*store->journal().read(0, 1000, [](const Record& r) { return r.seq < 5; }), 5u)
      << "stops when told";
}

TEST_P(JournalContract, ClosingMakesWhatIsQueuedDurable) {
  { open()->journal().append(batch_of(50)); }
  EXPECT_EQ(open()->journal().durable_seq(), 50u);
}

TEST_P(JournalContract, StopsWhenAnotherHeadTookOver) {
  std::atomic<StoreHealth> health{StoreHealth::ok};
  JournalHooks hooks;
  hooks.on_health = [&](StoreHealth h, const Error&) {
    health = h;
  };
  auto store = open(hooks);
  store->journal().append(batch_of(1));
  ASSERT_TRUE(store->journal().flush(seconds(20)));
  // The lock file lost (a shared file system without locks) or the lease run out while it slept:
  // another head opens it.
  place.forget_the_head();
  auto other = open();
  store->journal().append(batch_of(1));
  EXPECT_FALSE(store->journal().flush(seconds(20)));
  EXPECT_TRUE(eventually([&] { return health == StoreHealth::fatal; }));
  EXPECT_EQ(other->journal().append(batch_of(1)), 2u);
  ASSERT_TRUE(other->journal().flush(seconds(20)));
  EXPECT_EQ(read_all(other->journal()).size(), 2u) << "the fenced head's record is not there";
}

// A child appends as fast as it can and tells each durable seq through a pipe; it is killed at a
// random moment.
Seq run_and_kill_child(const Place& place, std::chrono::microseconds after) {
  int pipe_ends[2];
  if (::pipe(pipe_ends) != 0)
    return 0;
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(pipe_ends[0]);
    JournalHooks hooks;
    hooks.on_durable = [&](Seq seq) {
      if (::write(pipe_ends[1], &seq, sizeof seq) < 0)
        ::_exit(3);
    };
    auto store = place.open(hooks);
    for (std::uint64_t i = 0;; ++i) {
      Batch batch = batch_of(1 + i % 7, R"({"n":"0123456789"})");
      batch.jobs.push_back(job(store->journal().next_seq() + batch.records.size() - 1));
      store->journal().append(std::move(batch));
      if (store->journal().queued_bytes() > (1 << 20))
        (void)store->journal().flush(seconds(20));
    }
  }
  ::close(pipe_ends[1]);
  Seq reported = 0, seq = 0;
  // The clock starts at the first durable record, so that every kill meets a writer at work.
  if (::read(pipe_ends[0], &seq, sizeof seq) == sizeof seq)
    reported = seq;
  std::this_thread::sleep_for(after);
  ::kill(child, SIGKILL);
  while (::read(pipe_ends[0], &seq, sizeof seq) == sizeof seq)
    reported = seq;
  ::close(pipe_ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  return reported;
}

TEST_P(JournalContract, KillMinusNineLosesNothingThatWasReportedDurable) {
  const std::uint64_t seed = random_u64();
  Rng rng(seed);
  SCOPED_TRACE("seed " + std::to_string(seed));
  Seq before = 0;
  for (int round = 0; round < (place.postgres() ? 3 : 20); ++round) {
    const Seq reported = run_and_kill_child(place, std::chrono::microseconds(rng.below(30'000)));
    auto store = open();
    const Seq last = store->journal().durable_seq();
    ASSERT_GE(last, reported);
    ASSERT_GT(last, before);
    Seq expected = before;
    Epoch epoch = 0;
    for (const Record& r : read_all(store->journal(), before)) {
      ASSERT_EQ(r.seq, ++expected);
      ASSERT_GE(r.epoch, epoch);
      epoch = r.epoch;
    }
    ASSERT_EQ(expected, last);
    // Each batch's row has the id of its last record: rows and records came through together,
    // batches whole.
    auto newest = store->queries().list_jobs({}, JobOrder::newest, "", 1);
    ASSERT_TRUE(newest);
    ASSERT_EQ(newest->jobs.at(0).id.value, last);
    before = last;
  }
}

}  // namespace
}  // namespace billow
