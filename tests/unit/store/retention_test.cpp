// What the journal removes, what it keeps of it, and that a crash in the middle, a restart, a
// backup and an upgrade leave a journal that replays and whose chain is whole.
#include "store/retention.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "base/crypto.h"
#include "base/rng.h"
#include "core/model/chain.h"
#include "store/sqlite/migrations.h"
#include "store/store_copy.h"
#include "store_test_support.h"

namespace billow {
namespace {
using namespace store_test;

class RetentionContract : public EveryEngine {
 protected:
  Result<ChainCheck> check() const {
    return place.postgres() ? check_postgres(test_postgres()) : check_sqlite(place.dir());
  }
};
INSTANTIATE_TEST_SUITE_P(Engines, RetentionContract, ::testing::ValuesIn(engines()), engine_name);

constexpr std::int64_t sim_second = 1'000'000'000;

// Each tenth record belongs to the audit trail, each tenth after it stores variables. Record N is
// from second N.
Batch life(Seq first, std::size_t records) {
  Batch batch;
  for (Seq seq = first; seq < first + records; ++seq) {
    Record r = record(fmt::format(R"({{"n":{}}})", seq), "task_ended");
    if (seq % 10 == 3)
      r.kind = "token_created";
    if (seq % 10 == 4) {
      r.kind = "environment_stored";
      r.payload = fmt::format(R"({{"event":{{"digest":"d{}"}},"n":{}}})", seq % 100, seq);
    }
    r.at = {static_cast<std::int64_t>(seq) * sim_second};
    batch.records.push_back(std::move(r));
  }
  return batch;
}

void fill_to(Journal& journal, std::size_t records) {
  while (journal.next_seq() <= records)
    journal.append(life(journal.next_seq(), std::min<Seq>(1000, records + 1 - journal.next_seq())));
  ASSERT_TRUE(journal.flush(seconds(60)));
}

TEST_P(RetentionContract, RoutineRecordsGoAndTheAuditTrailStays) {
  auto store = open();
  Journal& journal = store->journal();
  fill_to(journal, 5000);
  ASSERT_TRUE(journal.save_snapshot(4000, "a"));
  ASSERT_TRUE(journal.save_snapshot(5000, "b"));
  // Seconds up to 2999 are too old.
  ASSERT_TRUE(journal.retain({seconds(2000), std::nullopt, std::nullopt}, {5000 * sim_second}));
  EXPECT_EQ(journal.records(), 2001u);
  const auto left = read_all(journal);
  ASSERT_EQ(left.size(), 2001u + 300u);
  for (std::size_t i = 0; i < 300; ++i) {
    EXPECT_EQ(left[i].kind, "token_created");
    EXPECT_EQ(left[i].seq, 10 * i + 3);
  }
  EXPECT_EQ(left[300].seq, 3000u);
  const auto chain = check();
  ASSERT_TRUE(chain) << chain.error().message;
  EXPECT_EQ(chain->linked(), 2301u);
  EXPECT_EQ(chain->removed(), 2699u);
  EXPECT_EQ(chain->last(), 5000u);

  EXPECT_EQ(*store->queries().stored_variables("d34"), R"({"event":{"digest":"d34"},"n":4934})");
  store.reset();
  store = open();
  EXPECT_EQ(store->journal().records(), 2001u) << "also after a restart";
  EXPECT_EQ(store->journal().append(life(5001, 1)), 5001u);
  ASSERT_TRUE(store->journal().flush(seconds(20)));
  EXPECT_TRUE(check());
}

TEST_P(RetentionContract, VariablesOfOldJobsAreFoundAndTheNewestOfADigestCounts) {
  auto store = open();
  fill_to(store->journal(), 3000);
  ASSERT_TRUE(store->journal().save_snapshot(2990, "a"));
  ASSERT_TRUE(store->journal().save_snapshot(3000, "b"));
  ASSERT_TRUE(store->journal().prune(2991));
  for (const int digest : {4, 14, 94})
    EXPECT_EQ(*store->queries().stored_variables(fmt::format("d{}", digest)),
              fmt::format(R"({{"event":{{"digest":"d{}"}},"n":{}}})", digest, 2900 + digest));
  EXPECT_EQ(*store->queries().stored_variables("d5"), "");
}

TEST_P(RetentionContract, WhatReplayNeedsStays) {
  auto store = open();
  Journal& journal = store->journal();
  fill_to(journal, 3000);
  const Retention nothing{seconds(1), 1, seconds(1)};
  const WallTime late{1'000'000 * sim_second};
  ASSERT_TRUE(journal.retain(nothing, late));
  EXPECT_EQ(journal.records(), 3000u) << "without snapshots";
  ASSERT_TRUE(journal.save_snapshot(1000, "a"));
  ASSERT_TRUE(journal.retain(nothing, late));
  EXPECT_EQ(journal.records(), 3000u) << "one snapshot alone may be damaged";
  ASSERT_TRUE(journal.save_snapshot(2000, "b"));
  ASSERT_TRUE(journal.retain(nothing, late));
  EXPECT_EQ(journal.records(), 2000u);
  EXPECT_EQ((*journal.load_snapshot())->seq, 2000u);
  const auto left = read_all(journal);
  EXPECT_EQ(left.size(), 2000u) << "the audit trail was too old as well";
  EXPECT_EQ(left[0].seq, 1001u);
  EXPECT_TRUE(check());
}

TEST_P(RetentionContract, AtMostSoManyRecordsAreKept) {
  auto store = open();
  Journal& journal = store->journal();
  fill_to(journal, 3000);
  ASSERT_TRUE(journal.save_snapshot(2900, "a"));
  ASSERT_TRUE(journal.save_snapshot(3000, "b"));
  ASSERT_TRUE(journal.retain({std::nullopt, 500, std::nullopt}, {3000 * sim_second}));
  EXPECT_EQ(journal.records(), 500u);
  ASSERT_TRUE(journal.retain({std::nullopt, std::nullopt, seconds(1000)}, {3000 * sim_second}));
  EXPECT_EQ(journal.records(), 500u);
  const auto left = read_all(journal);
  ASSERT_GT(left.size(), 500u);
  EXPECT_EQ(left[0].seq, 2003u) << "of the audit trail, the last thousand seconds";
  EXPECT_TRUE(check());
}

// A standby that takes over, or a head that is started without options, keeps what was kept.
TEST_P(RetentionContract, TheOperatorsLimitsAreStored) {
  {
    auto store = open();
    fill_to(store->journal(), 3000);
    ASSERT_TRUE(store->journal().save_snapshot(2900, "a"));
    ASSERT_TRUE(store->journal().save_snapshot(3000, "b"));
    const Retention forever{std::nullopt, std::nullopt, std::nullopt, true};
    ASSERT_TRUE(store->journal().retain(forever, {3000 * sim_second}));
  }
  Retention usual;
  usual.events_max = 1000;
  {
    auto store = open();
    ASSERT_TRUE(store->journal().retain(usual, {3000 * sim_second}));
    EXPECT_EQ(store->journal().records(), 3000u) << "the operator chose to keep all";
    const Retention few{std::nullopt, 2000, std::nullopt, true};
    ASSERT_TRUE(store->journal().retain(few, {3000 * sim_second}));
    EXPECT_EQ(store->journal().records(), 2000u);
  }
  auto store = open();
  ASSERT_TRUE(store->journal().retain(usual, {3000 * sim_second}));
  EXPECT_EQ(store->journal().records(), 2000u);
}

TEST_P(RetentionContract, ARecordThatSomebodyRemovesIsMissed) {
  auto store = open();
  fill_to(store->journal(), 300);
  ASSERT_TRUE(store->journal().save_snapshot(200, "a"));
  ASSERT_TRUE(store->journal().save_snapshot(300, "b"));
  ASSERT_TRUE(store->journal().prune(101));
  ASSERT_TRUE(check());
  store.reset();
  if (place.postgres()) {
    Place::sql("DELETE FROM billow.events WHERE seq < 150");
  } else {
    auto db = sqlite::Db::open(place.dir() + "/billow.db", sqlite::Mode::read_write, 256);
    ASSERT_TRUE((*db)->exec("DELETE FROM events WHERE seq < 150"));
  }
  EXPECT_FALSE(check());
}

// A child removes records while it appends others, and is killed in the middle.
void prune_in_a_child_and_kill_it(const Place& place, std::chrono::microseconds after) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto store = place.open();
    Journal& journal = store->journal();
    const Seq last = journal.durable_seq();
    std::thread appender([&] {
      while (true) {
        journal.append(life(journal.next_seq(), 5));
        (void)journal.flush(seconds(20));
      }
    });
    const char begun = 'b';
    if (::write(ends[1], &begun, 1) != 1)
      ::_exit(3);
    (void)journal.retain({std::nullopt, 100, std::nullopt},
                         {static_cast<std::int64_t>(last) * sim_second});
    ::pause();
  }
  ::close(ends[1]);
  char begun = 0;
  ASSERT_EQ(::read(ends[0], &begun, 1), 1);
  ::close(ends[0]);
  std::this_thread::sleep_for(after);
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
}

TEST_P(RetentionContract, KillMinusNineInTheMiddleLosesNothingThatIsKept) {
  const std::uint64_t seed = random_u64();
  Rng rng(seed);
  SCOPED_TRACE("seed " + std::to_string(seed));
  const Seq records = place.postgres() ? 25'000 : 60'000;
  {
    auto store = open();
    fill_to(store->journal(), records);
    ASSERT_TRUE(store->journal().save_snapshot(records - 10, "a"));
    ASSERT_TRUE(store->journal().save_snapshot(records, "b"));
  }
  int in_the_middle = 0;
  // Later and later, until one has met a removal: how long it takes depends on the machine.
  const int rounds = place.postgres() ? 4 : 12;
  for (int round = 0; round < rounds || (in_the_middle == 0 && round < 3 * rounds); ++round) {
    prune_in_a_child_and_kill_it(
        place, std::chrono::microseconds(rng.below(60'000ull << std::min(round, 7))));
    auto store = open();
    const Journal& journal = store->journal();
    const Seq last = journal.durable_seq();
    const Seq first = last + 1 - journal.records();
    in_the_middle += first > 1 && first < records - 9 ? 1 : 0;
    ASSERT_EQ((*journal.load_snapshot())->seq, records);
    const auto chain = check();
    ASSERT_TRUE(chain) << chain.error().message;
    const auto left = read_all(journal);
    std::size_t at = 0;
    for (Seq seq = 1; seq <= last; ++seq) {
      if (seq >= first || seq % 10 == 3) {
        ASSERT_EQ(left[at++].seq, seq);
      }
    }
    ASSERT_EQ(at, left.size());
    for (Seq digest = 4; digest < 100; digest += 10)
      ASSERT_NE(*store->queries().stored_variables(fmt::format("d{}", digest)), "");
  }
  EXPECT_GT(in_the_middle, 0) << "no kill met a removal";
}

TEST(Retention, ABackupOfAPrunedJournalIsRestored) {
  TempDir dir;
  {
    auto store = open_store(dir / "live");
    fill_to(store->journal(), 3000);
    ASSERT_TRUE(store->journal().save_snapshot(2900, "a"));
    ASSERT_TRUE(store->journal().save_snapshot(3000, "b"));
    ASSERT_TRUE(store->journal().prune(2901));
    ASSERT_TRUE(store->backup_to(dir / "copy"));
  }
  ASSERT_TRUE(restore_sqlite(dir / "copy", dir / "restored"));
  auto store = open_store(dir / "restored");
  EXPECT_EQ((*store->journal().load_snapshot())->bytes, "b");
  EXPECT_EQ(store->journal().records(), 100u);
  EXPECT_EQ(read_all(store->journal()).size(), 100u + 290u);
  const auto chain = check_sqlite(dir / "restored");
  ASSERT_TRUE(chain) << chain.error().message;
  ASSERT_TRUE(store->journal().retain({seconds(1), 1, std::nullopt}, {9'000 * sim_second}));
  EXPECT_EQ(store->journal().records(), 100u) << "a restored store has one snapshot only";
}

TEST(Retention, AnOlderDirectoryIsCheckedAndThenPruned) {
  TempDir dir;
  {
    auto store = open_store(dir.path());
    fill_to(store->journal(), 3000);
    ASSERT_TRUE(store->journal().save_snapshot(2900, "a"));
    ASSERT_TRUE(store->journal().save_snapshot(3000, "b"));
  }
  {
    auto db = sqlite::Db::open(dir / "billow.db", sqlite::Mode::read_write, 256);
    ASSERT_TRUE(
        (*db)->exec("DROP TABLE kept_events; DROP TABLE kept_variables; DROP TABLE pruned; "
                    "UPDATE meta SET value = 9 WHERE key = 'format'"));
  }
  ASSERT_TRUE(check_sqlite(dir.path())) << "before a head has opened it";
  auto store = open_store(dir.path());
  ASSERT_TRUE(
      store->journal().retain({seconds(1), std::nullopt, std::nullopt}, {9'000 * sim_second}));
  EXPECT_EQ(store->journal().records(), 100u);
  EXPECT_TRUE(check_sqlite(dir.path()));
}

TEST(Retention, DamagedSnapshotsKeepTheJournal) {
  TempDir dir;
  auto store = open_store(dir.path());
  fill_to(store->journal(), 3000);
  ASSERT_TRUE(store->journal().save_snapshot(2900, "a"));
  ASSERT_TRUE(store->journal().save_snapshot(3000, "b"));
  ASSERT_TRUE(write_file_atomic(fmt::format("{}/snapshots/{:020}.snap", dir.path(), 2900), "x"));
  const Retention nothing{seconds(1), 1, std::nullopt};
  ASSERT_TRUE(store->journal().retain(nothing, {9'000 * sim_second}));
  EXPECT_EQ(store->journal().records(), 3000u);
  ASSERT_TRUE(store->journal().save_snapshot(2999, "c"));
  ASSERT_TRUE(store->journal().retain(nothing, {9'000 * sim_second}));
  EXPECT_EQ(store->journal().records(), 1u);
}

// Somebody holds the lock of the database for longer than SQLite waits for it.
TEST(Retention, ACommitThatMustWaitForALongTimeIsNotFatal) {
  TempDir dir;
  auto store = open_store(dir.path());
  Journal& journal = store->journal();
  fill_to(journal, 10);
  auto other = sqlite::Db::open(dir / "billow.db", sqlite::Mode::write_too, 256);
  ASSERT_TRUE(other);
  ASSERT_TRUE((*other)->exec("BEGIN IMMEDIATE"));
  journal.append(life(11, 1));
  EXPECT_FALSE(journal.flush(seconds(12)));
  EXPECT_EQ(journal.health(), StoreHealth::ok);
  ASSERT_TRUE((*other)->exec("COMMIT"));
  EXPECT_TRUE(journal.flush(seconds(20)));
  EXPECT_EQ(journal.durable_seq(), 11u);
}

// A backup that takes long keeps the log from shrinking: removals wait for it.
TEST(Retention, RemovalsDoNotLetTheLogGrowWhileSomebodyReads) {
  TempDir dir;
  auto store = open_store(dir.path());
  Journal& journal = store->journal();
  const auto fill = [&](Seq last) {
    while (journal.next_seq() <= last) {
      Batch batch = life(journal.next_seq(), 500);
      for (Record& r : batch.records) {
        r.kind = "task_ended";
        r.payload = fmt::format(R"({{"n":"{}"}})", std::string(2000, 'x'));
      }
      journal.append(std::move(batch));
    }
    ASSERT_TRUE(journal.flush(seconds(120)));
  };
  fill(60'000);
  ASSERT_TRUE(journal.save_snapshot(59'990, "a"));
  ASSERT_TRUE(journal.save_snapshot(60'000, "b"));
  auto reader = sqlite::Db::open(dir / "billow.db", sqlite::Mode::read_only, 256);
  ASSERT_TRUE(reader);
  ASSERT_TRUE((*reader)->exec("BEGIN"));
  ASSERT_TRUE((*reader)->scalar("SELECT count(*) FROM events"));
  const Retention few{std::nullopt, 100, std::nullopt};
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(journal.retain(few, {1}));
  EXPECT_GT(journal.records(), 10'000u) << "it went on";
  EXPECT_LT(std::filesystem::file_size(dir / "billow.db-wal"), std::size_t{100} << 20);
  ASSERT_TRUE((*reader)->exec("COMMIT"));
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(journal.retain(few, {1}));
  EXPECT_EQ(journal.records(), 100u);
}

// The pages of removed records are used again, and commits go on meanwhile.
TEST(Retention, TheDatabaseStopsGrowing) {
  TempDir dir;
  auto store = open_store(dir.path());
  Journal& journal = store->journal();
  const auto round = [&] {
    const Seq last = journal.next_seq() + 20'000 - 1;
    while (journal.next_seq() <= last) {
      Batch batch = life(journal.next_seq(), 500);
      for (Record& r : batch.records)
        r.kind = "task_ended";
      journal.append(std::move(batch));
    }
    ASSERT_TRUE(journal.flush(seconds(60)));
    ASSERT_TRUE(journal.save_snapshot(last - 10, "a"));
    ASSERT_TRUE(journal.save_snapshot(last, "b"));
    ASSERT_TRUE(journal.retain({std::nullopt, 1'000, std::nullopt}, {1}));
    EXPECT_EQ(journal.records(), 1'000u);
  };
  const auto pages = [&] {
    auto db = sqlite::Db::open(dir / "billow.db", sqlite::Mode::read_only, 256);
    return *(*db)->scalar("PRAGMA page_count");
  };
  round();
  round();
  const auto before = pages();
  for (int i = 0; i < 8; ++i)
    round();
  EXPECT_LE(pages(), before + before / 10);
}

}  // namespace
}  // namespace billow
