// Opening a data directory: who may, in which format, with which snapshot; and copying it.
#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include "store/sqlite/migrations.h"
#include "tests/unit/store/store_test_support.h"

namespace billow {
namespace {
using namespace store_test;

Result<std::unique_ptr<SqliteStore>> try_open(const std::string& dir) {
  SqliteStoreOptions options;
  options.data_dir = dir;
  options.ballast_bytes = 4096;
  return SqliteStore::open(options);
}

void run_sql(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  char* error = nullptr;
  EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
  sqlite3_close(db);
}

TEST(DataDir, RefusesASecondHeadNamingTheFirst) {
  TempDir dir;
  auto store = open_store(dir.path());
  auto second = try_open(dir.path());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::conflict);
  EXPECT_NE(second.error().message.find("pid " + std::to_string(::getpid())), std::string::npos)
      << second.error().message;
  EXPECT_NE(second.error().hint.find("billow down"), std::string::npos);
  store.reset();
  EXPECT_TRUE(try_open(dir.path())) << "the lock goes with its owner";
}

TEST(DataDir, RefusesANewerFormatAndLeavesItAsItWas) {
  TempDir dir;
  open_store(dir.path())->journal().append(batch_of(1));
  run_sql(dir / "billow.db", "UPDATE meta SET value = 7777 WHERE key = 'format'");
  auto opened = try_open(dir.path());
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::unsupported);
  EXPECT_EQ(opened.error().message,
            "data directory " + dir.path() +
                " was written by a newer Billow (format 7777; this one reads up to " +
                std::to_string(format_newest()) + ")");
  EXPECT_EQ(opened.error().hint, "upgrade billow or use --data with another directory");
  run_sql(dir / "billow.db",
          "UPDATE meta SET value = " + std::to_string(format_newest()) + " WHERE key = 'format'");
  EXPECT_EQ(open_store(dir.path())->journal().epoch(), 2u)
      << "the refused opening did not raise the epoch";
}

TEST(DataDir, RefusesAnotherProgramsDatabaseAndGarbage) {
  TempDir dir;
  run_sql(dir / "billow.db", "CREATE TABLE notes (text)");
  auto foreign = try_open(dir.path());
  ASSERT_FALSE(foreign);
  EXPECT_NE(foreign.error().message.find("another program"), std::string::npos);
  ASSERT_TRUE(write_file_atomic(dir / "billow.db", std::string(10'000, 'x')));
  auto garbage = try_open(dir.path());
  ASSERT_FALSE(garbage);
  EXPECT_NE(garbage.error().hint.find("backup"), std::string::npos) << garbage.error().message;
}

TEST(DataDir, BringsAnOlderFormatUpToThePresent) {
  TempDir dir;
  // A directory as format 2 left it: rows, but neither counts nor daily sums.
  std::string sql;
  for (const Migration& step : migrations()) {
    if (step.format <= 2)
      sql += step.sql;
  }
  sql += R"sql(
    PRAGMA application_id = 1114205292;
    UPDATE meta SET value = 2 WHERE key = 'format';
    UPDATE meta SET value = 41 WHERE key = 'epoch';
    INSERT INTO events VALUES (1, 41, 5, 'job_submitted', '{}');
    INSERT INTO jobs VALUES (1,'a',1,1,'queued',1,0,0,NULL,0,0,'[]','',0,0,0,'{}','{}');
    INSERT INTO jobs VALUES (2,'b',1,1,'failed',1,2,3,1,0,0,'["n1"]','H100',1,1000,77,
      '{"team":"x"}','{}');
    INSERT INTO jobs VALUES (3,'c',1,2,'queued',1,0,0,NULL,0,0,'[]','',0,0,0,'{}','{}');
    INSERT INTO leases VALUES (1,2,1,1,1,'n1','H100',500,'spot',
      86400000000000,86401000000000,0,77,50);
    INSERT INTO leases VALUES (2,2,1,1,1,'n1','H100',500,'spot',
      86401000000000,86403000000000,0,3,2);
  )sql";
  run_sql(dir / "billow.db", sql);
  auto store = open_store(dir.path());
  EXPECT_EQ(store->journal().epoch(), 42u);
  EXPECT_EQ(store->journal().durable_seq(), 1u);
  const auto counts = *store->queries().count_jobs();
  ASSERT_EQ(counts.size(), 3u);
  EXPECT_EQ(counts[0].state, "failed");
  EXPECT_EQ(counts[1].jobs, 1u);
  UsageQuery by_day;
  by_day.by_day = true;
  const auto usage = *store->queries().usage(by_day);
  ASSERT_EQ(usage.size(), 1u);
  EXPECT_EQ(usage[0].day, 1);
  EXPECT_EQ(usage[0].charge.value, 80);
  EXPECT_EQ(usage[0].cost.value, 52);
  EXPECT_EQ(usage[0].gpu_milli_ms, 500 * 3000);
}

std::vector<std::string> snapshot_files(const std::string& dir) {
  std::vector<std::string> names;
  for (Seq seq = 0; seq < 100; ++seq) {
    const std::string path = fmt::format("{}/snapshots/{:020}.snap", dir, seq);
    if (file_exists(path))
      names.push_back(path);
  }
  return names;
}

void flip_byte(const std::string& path, off_t offset_from_end) {
  Fd fd(::open(path.c_str(), O_RDWR));
  const off_t at = ::lseek(fd.get(), 0, SEEK_END) - offset_from_end;
  char byte = 0;
  ASSERT_EQ(::pread(fd.get(), &byte, 1, at), 1);
  byte ^= 1;
  ASSERT_EQ(::pwrite(fd.get(), &byte, 1, at), 1);
}

TEST(Snapshots, TheNewestIsLoadedAndTwoAreKept) {
  TempDir dir;
  auto store = open_store(dir.path());
  ASSERT_TRUE(store->journal().load_snapshot());
  EXPECT_FALSE(store->journal().load_snapshot()->has_value());
  store->journal().append(batch_of(30));
  const std::string binary("state\n\0after thirty", 19);
  ASSERT_TRUE(store->journal().save_snapshot(10, "ten"));
  ASSERT_TRUE(store->journal().save_snapshot(20, "twenty"));
  ASSERT_TRUE(store->journal().save_snapshot(30, binary));
  EXPECT_EQ(snapshot_files(dir.path()).size(), 2u);
  const auto loaded = *store->journal().load_snapshot();
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->seq, 30u);
  EXPECT_EQ(loaded->bytes, binary);
}

TEST(Snapshots, ADamagedOneIsReplacedByTheOlderOneAndReplay) {
  TempDir dir;
  {
    auto store = open_store(dir.path());
    store->journal().append(batch_of(30));
    ASSERT_TRUE(store->journal().save_snapshot(10, "the state after ten"));
    ASSERT_TRUE(store->journal().save_snapshot(20, "the state after twenty"));
  }
  flip_byte(snapshot_files(dir.path())[1], 3);
  auto store = open_store(dir.path());
  const auto loaded = *store->journal().load_snapshot();
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->seq, 10u);
  EXPECT_EQ(read_all(store->journal(), loaded->seq).size(), 20u);
  ASSERT_EQ(::truncate(snapshot_files(dir.path())[0].c_str(), 5), 0);
  EXPECT_FALSE(store->journal().load_snapshot()->has_value())
      << "with both damaged, replay begins at the start";
}

TEST(Snapshots, OneAheadOfTheJournalIsPassedOver) {
  TempDir dir;
  {
    auto store = open_store(dir.path());
    store->journal().append(batch_of(30));
    ASSERT_TRUE(store->journal().save_snapshot(30, "thirty"));
  }
  run_sql(dir / "billow.db", "DELETE FROM events WHERE seq > 20");
  EXPECT_FALSE(open_store(dir.path())->journal().load_snapshot()->has_value());
}

TEST(Prune, ForgetsOnlyWhatTwoSnapshotsCover) {
  TempDir dir;
  auto store = open_store(dir.path());
  Journal& journal = store->journal();
  journal.append(batch_of(2500, "{}", "task_ended"));
  ASSERT_TRUE(journal.save_snapshot(2400, "a"));
  EXPECT_EQ(journal.prune(100).error().code, Code::conflict) << "one snapshot alone may be damaged";
  ASSERT_TRUE(journal.save_snapshot(2500, "b"));
  EXPECT_FALSE(journal.prune(2402));
  ASSERT_TRUE(journal.prune(2401));
  const auto left = read_all(journal);
  ASSERT_EQ(left.size(), 100u);
  EXPECT_EQ(left[0].seq, 2401u);
  EXPECT_EQ(journal.append(batch_of(1)), 2501u);
  ASSERT_TRUE(journal.flush(seconds(20)));
  flip_byte(fmt::format("{}/snapshots/{:020}.snap", dir.path(), 2500), 1);
  EXPECT_EQ((*journal.load_snapshot())->seq, 2400u);
  flip_byte(fmt::format("{}/snapshots/{:020}.snap", dir.path(), 2400), 1);
  EXPECT_FALSE(journal.load_snapshot())
      << "a journal without its beginning and no snapshot is an error, not an empty state";
}

TEST(Backup, IsADataDirectoryWithAllThatIsDurable) {
  TempDir dir;
  auto store = open_store(dir / "live");
  store->journal().append(batch_of(10));
  ASSERT_TRUE(store->journal().save_snapshot(10, "ten"));
  store->journal().append(batch_with(job(5)));
  ASSERT_TRUE(store->journal().flush(seconds(20)));
  std::atomic<bool> stop{false};
  std::thread appender([&] {  // the head runs on meanwhile
    while (!stop) {
      store->journal().append(batch_of(1));
      (void)store->journal().flush(seconds(20));
    }
  });
  const auto done = store->backup_to(dir / "copy");
  stop = true;
  appender.join();
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(store->backup_to(dir / "copy").error().code, Code::conflict);

  auto restored = open_store(dir / "copy");
  EXPECT_GE(restored->journal().durable_seq(), 11u);
  const auto records = read_all(restored->journal());
  EXPECT_EQ(records.size(), restored->journal().durable_seq());
  EXPECT_EQ((*restored->journal().load_snapshot())->bytes, "ten");
  EXPECT_EQ(restored->queries().get_job(JobId(5))->value(), job(5));
  const Seq next = restored->journal().next_seq();
  EXPECT_EQ(restored->journal().append(batch_of(1)), next) << "and goes on from there";
  EXPECT_TRUE(restored->journal().flush(seconds(20)));
}

}  // namespace
}  // namespace billow
