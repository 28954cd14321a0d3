// What only PostgreSQL can show: the lease and its fence, commits whose answers get lost, text it
// cannot hold, snapshots in parts.
#include "store/postgres/pg_schema.h"

#include "base/crypto.h"
#include "store/sqlite/migrations.h"
#include "tests/unit/store/store_test_support.h"

namespace billow {
namespace {
using namespace store_test;

TEST(PgText, ParametersAreNumbered) {
  EXPECT_EQ(pg::numbered_parameters("a = ? AND b = '?' AND c = ?"),
            "a = $1 AND b = '?' AND c = $2");
  EXPECT_EQ(pg::numbered_parameters("? ? (?3 = 0 OR x = ?3) ?"), "$1 $2 ($3 = 0 OR x = $3) $4");
  EXPECT_EQ(pg::numbered_parameters("?12"), "$12");
}
TEST(PgText, PasswordsAreNotShown) {
  EXPECT_EQ(pg::shown("postgres://me:secret@db:5432/billow"), "postgres://me@db:5432/billow");
  EXPECT_EQ(pg::shown("postgres://me@db/billow"), "postgres://me@db/billow");
  EXPECT_EQ(pg::shown("postgres://db/billow?user=me&password=secret&sslmode=require"),
            "postgres://db/billow?user=me&password=…&sslmode=require");
  EXPECT_EQ(pg::shown("postgres://db:5432/b?x=a@b:c"), "postgres://db:5432/b?x=a@b:c");
}
TEST(PgText, TextThatPostgresRejectsIsRepaired) {
  EXPECT_EQ(pg::repaired_text("grüße"), "");
  EXPECT_EQ(pg::repaired_text(std::string_view("a\0ü", 4)), "a\xef\xbf\xbdü");
  EXPECT_EQ(pg::repaired_text("a\xff"), "a\xef\xbf\xbd");
}

class PgOnly : public EveryEngine {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PgOnly);
INSTANTIATE_TEST_SUITE_P(
    Engines,
    PgOnly,
    ::testing::ValuesIn(std::vector<std::string>(test_postgres().empty() ? 0 : 1, "postgres")),
    engine_name);

Result<std::unique_ptr<PgStore>> try_open(std::string holder) {
  return PgStore::open({.url = test_postgres(),
                        .holder = std::move(holder),
                        .identity = "",
                        .standby = false,
                        .keep_waiting = {},
                        .on_waiting = {},
                        .hooks = {}});
}
void broken_connections() {
  Place::sql(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND "
      "backend_type = 'client backend'");
}

TEST_P(PgOnly, ASecondHeadLearnsWhichOneLeads) {
  auto first = try_open("the head on alpha");
  ASSERT_TRUE(first) << first.error().message;
  auto second = try_open("the head on beta");
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::conflict);
  EXPECT_NE(second.error().message.find("alpha"), std::string::npos) << second.error().message;
  first->reset();
  EXPECT_TRUE(try_open("the head on beta")) << "one that ends gives the lease up";
}

TEST_P(PgOnly, AHeadThatWasKilledNeedNotWaitForItsOwnLease) {
  const auto as = [&](std::string identity) {
    return PgStore::open({.url = test_postgres(),
                          .holder = "alpha",
                          .identity = std::move(identity),
                          .standby = false,
                          .keep_waiting = {},
                          .on_waiting = {},
                          .hooks = {}});
  };
  auto first = as("one");
  ASSERT_TRUE(first);
  EXPECT_FALSE(as("two"));
  auto again = as("one");
  ASSERT_TRUE(again) << again.error().message;
  (*first)->journal().append(batch_of(1));
  EXPECT_FALSE((*first)->journal().flush(seconds(20)))
      << "and what is left of the old one is fenced";
}

TEST_P(PgOnly, AStandbyWaitsAndTakesOver) {
  auto first = try_open("alpha");
  ASSERT_TRUE(first);
  (*first)->journal().append(batch_of(5));
  ASSERT_TRUE((*first)->journal().flush(seconds(20)));
  std::atomic<bool> waiting{false};
  std::unique_ptr<Store> second;
  std::thread standby([&] {
    second = std::move(*PgStore::open({.url = test_postgres(),
                                       .holder = "beta",
                                       .identity = "",
                                       .standby = true,
                                       .keep_waiting = {},
                                       .on_waiting = [&](const std::string&) { waiting = true; },
                                       .hooks = {}}));
  });
  EXPECT_TRUE(eventually([&] { return waiting.load(); }));
  const Epoch before = (*first)->journal().epoch();
  first->reset();
  standby.join();
  EXPECT_EQ(second->journal().epoch(), before + 1);
  EXPECT_EQ(second->journal().durable_seq(), 5u);
}

TEST_P(PgOnly, AQuietLeaderKeepsItsLease) {
  auto first = try_open("alpha");
  ASSERT_TRUE(first);
  Place::sql("UPDATE billow.leader SET until = clock_timestamp() + interval '1500 milliseconds'");
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(4);
  while (std::chrono::steady_clock::now() < until)
    ASSERT_FALSE(try_open("beta"));
}

TEST_P(PgOnly, AConnectionThatBreaksLosesAndDoublesNothing) {
  auto store = open();
  const std::uint64_t seed = random_u64();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::atomic<bool> stop{false};
  std::thread breaker([&] {
    while (!stop) {
      broken_connections();
      std::this_thread::sleep_for(std::chrono::milliseconds(5 + random_u64() % 40));
    }
  });
  for (int i = 1; i <= 300; ++i) {
    Batch batch = batch_of(2);
    batch.node_days.push_back({1, "n", "local", {1}});  // added, so a commit repeated would show
    store->journal().append(batch);
    Batch rows_only;
    rows_only.node_days.push_back({2, "n", "local", {1}});
    store->journal().append(rows_only);
    if (i % 3 == 0) {
      EXPECT_TRUE(store->journal().flush(seconds(60)));
    }
  }
  EXPECT_TRUE(store->journal().flush(seconds(60)));
  stop = true;
  breaker.join();
  EXPECT_EQ(store->journal().health(), StoreHealth::ok);
  EXPECT_EQ(read_all(store->journal()).size(), 600u);
  const auto days = store->queries().node_days(0, 10);
  ASSERT_TRUE(days) << days.error().message;
  ASSERT_EQ(days->size(), 2u);
  EXPECT_EQ((*days)[0].cost.value, 300);
  EXPECT_EQ((*days)[1].cost.value, 300);
}

TEST_P(PgOnly, OddTextIsKeptAsFarAsItCanBe) {
  auto store = open();
  JobRow row = job(1);
  row.name = std::string("a\0\xff", 3);
  row.labels = {{"k", "{\"'\\"}};
  store->journal().append(batch_with(row));
  ASSERT_TRUE(store->journal().flush(seconds(20)));
  const auto kept = store->queries().get_job(JobId(1))->value();
  EXPECT_EQ(kept.name, "a\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(kept.labels, row.labels);
  JobFilter filter;
  filter.labels = row.labels;
  EXPECT_EQ(store->queries().list_jobs(filter, JobOrder::newest, "", 5)->jobs.size(), 1u);
}

TEST_P(PgOnly, SnapshotsInPartsAreCheckedAndTwoAreKept) {
  auto store = open();
  store->journal().append(batch_of(30, "{}", "task_ended"));
  EXPECT_FALSE(store->journal().load_snapshot()->has_value());
  std::string large(9 << 20, 'x');
  for (std::size_t i = 0; i < large.size(); i += 997)
    large[i] = static_cast<char>(i);
  ASSERT_TRUE(store->journal().save_snapshot(10, "ten"));
  ASSERT_TRUE(store->journal().save_snapshot(20, "twenty"));
  const auto saved = store->journal().save_snapshot(30, large);
  ASSERT_TRUE(saved) << saved.error().message;
  EXPECT_TRUE((*store->journal().load_snapshot())->bytes == large);
  Place::sql("UPDATE billow.snapshot_parts SET bytes = '\\x00' WHERE seq = 30 AND part = 1");
  EXPECT_EQ((*store->journal().load_snapshot())->bytes, "twenty");
  EXPECT_EQ(store->journal().prune(21).error().code, Code::conflict) << "one of two is damaged";
  ASSERT_TRUE(store->journal().save_snapshot(30, large));
  EXPECT_EQ(store->journal().prune(22).error().code, Code::conflict);
  ASSERT_TRUE(store->journal().prune(21));
  EXPECT_EQ(read_all(store->journal()).size(), 10u);
  Place::sql("DELETE FROM billow.snapshot_parts");
  EXPECT_FALSE(store->journal().load_snapshot())
      << "a journal without its beginning and no snapshot is an error, not an empty state";
}

TEST_P(PgOnly, ANewerFormatIsRefused) {
  open().reset();
  Place::sql("UPDATE billow.meta SET value = 7777 WHERE key = 'format'");
  auto opened = try_open("alpha");
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::unsupported);
}

TEST_P(PgOnly, SharedSecretsAreTheSameForAll) {
  auto store = try_open("alpha");
  EXPECT_EQ(*(*store)->shared_secret("key", "one"), "one");
  EXPECT_EQ(*(*store)->shared_secret("key", "two"), "one");
  EXPECT_TRUE((*store)->set_shared_secret("key", "three"));
  EXPECT_EQ(*(*store)->shared_secret("key", "two"), "three");
}

}  // namespace
}  // namespace billow
