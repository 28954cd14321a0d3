// What the store's tests share: a data directory that goes away, batches made of small parts,
// polling with a deadline, and the contract: cases that hold for every engine. Those of PostgreSQL
// run where a test server is named in BILLOW_TEST_POSTGRES (see tests/support/with_postgres.py).
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <thread>

#include "base/file.h"
#include "store/postgres/pg_db.h"
#include "store/postgres/pg_store.h"
#include "store/sqlite/sqlite_store.h"

namespace billow::store_test {

class TempDir {
 public:
  TempDir() {
    std::string pattern = ::testing::TempDir() + "/billow-store-XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempDir() { (void)remove_tree(path_); }
  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

inline Record record(std::string payload, std::string kind = "test") {
  return {0, 0, {1}, std::move(kind), std::move(payload)};
}

inline Batch batch_of(std::size_t records,
                      std::string_view payload = "{}",
                      std::string kind = "test") {
  Batch batch;
  for (std::size_t i = 0; i < records; ++i)
    batch.records.push_back(record(std::string(payload), kind));
  return batch;
}

inline JobRow job(std::uint64_t id, std::string state = "queued") {
  JobRow row;
  row.id = JobId(id);
  row.name = "job-" + std::to_string(id);
  row.user = UserId(1 + id % 3);
  row.project = ProjectId(1 + id % 2);
  row.state = std::move(state);
  row.submitted_at = {static_cast<std::int64_t>(id) * 1'000'000'000};
  row.doc = R"({"spec":{}})";
  return row;
}

inline Batch batch_with(JobRow row) {
  Batch batch = batch_of(1);
  batch.jobs.push_back(std::move(row));
  return batch;
}

// A store that must open.
inline std::unique_ptr<SqliteStore> open_store(const std::string& dir,
                                               JournalHooks hooks = {},
                                               std::uint64_t ballast_bytes = 64 << 10) {
  SqliteStoreOptions options;
  options.data_dir = dir;
  options.ballast_bytes = ballast_bytes;
  options.hooks = std::move(hooks);
  auto store = SqliteStore::open(std::move(options));
  if (!store) {
    ADD_FAILURE() << store.error().message;
    std::abort();
  }
  return std::move(*store);
}

inline std::string test_postgres() {
  const char* url = ::getenv("BILLOW_TEST_POSTGRES");
  return url ? url : "";
}

// Somewhere a store can be opened, again and again; empty at first. One at a time.
class Place {
 public:
  explicit Place(std::string engine) : engine_(std::move(engine)) {
    if (engine_ == "postgres")
      sql("DROP SCHEMA IF EXISTS billow CASCADE");
  }
  bool postgres() const { return engine_ == "postgres"; }
  const std::string& dir() const { return dir_.path(); }
  // A store that must open; where its last head was killed, when its lease has run out.
  std::unique_ptr<Store> open(JournalHooks hooks = {}) const {
    if (!postgres())
      return open_store(dir(), std::move(hooks));
    auto store = PgStore::open({.url = test_postgres(),
                                .holder = "a test",
                                .identity = "",
                                .standby = true,
                                .keep_waiting = {},
                                .on_waiting = {},
                                .hooks = std::move(hooks)});
    if (!store) {
      ADD_FAILURE() << store.error().message;
      std::abort();
    }
    return std::move(*store);
  }
  // Makes it possible for another head to open it while the first does not know.
  void forget_the_head() const {
    if (postgres())
      sql("UPDATE billow.leader SET until = '-infinity'");
    else
      ::unlink((dir_ / "lock").c_str());
  }
  static void sql(const std::string& text) {
    auto db = pg::Db::connect(test_postgres());
    ASSERT_TRUE(db) << db.error().message;
    const auto done = (*db)->exec(text);
    ASSERT_TRUE(done) << done.error().message;
  }

 private:
  const std::string engine_;
  TempDir dir_;
};

class EveryEngine : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Store> open(JournalHooks hooks = {}) { return place.open(std::move(hooks)); }
  Place place{GetParam()};
};
inline std::vector<std::string> engines() {
  std::vector<std::string> out = {"sqlite"};
  if (!test_postgres().empty())
    out.push_back("postgres");
  return out;
}
inline std::string engine_name(const ::testing::TestParamInfo<std::string>& info) {
  return info.param;
}

inline std::vector<Record> read_all(const Journal& journal, Seq after = 0) {
  std::vector<Record> records;
  auto read = journal.read(after, SIZE_MAX, [&](const Record& r) {
    records.push_back(r);
    return true;
  });
  EXPECT_TRUE(read) << read.error().message;
  return records;
}

template <class Condition>
bool eventually(Condition condition, std::chrono::seconds deadline = std::chrono::seconds(20)) {
  const auto end = std::chrono::steady_clock::now() + deadline;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end)
      return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace billow::store_test
