#include "store/queries.h"

#include <map>

#include "base/crypto.h"
#include "base/rng.h"
#include "tests/unit/store/store_test_support.h"

namespace billow {
namespace {
using namespace store_test;

class QueryContract : public EveryEngine {};
INSTANTIATE_TEST_SUITE_P(Engines, QueryContract, ::testing::ValuesIn(engines()), engine_name);

std::vector<std::uint64_t> ids(const JobPage& page) {
  std::vector<std::uint64_t> out;
  for (const auto& row : page.jobs)
    out.push_back(row.id.value);
  return out;
}

// All pages of a listing, checked to go on strictly.
std::vector<JobRow> list_all(const Queries& queries,
                             const JobFilter& filter,
                             JobOrder order = JobOrder::newest,
                             std::size_t limit = 7) {
  std::vector<JobRow> all;
  std::string cursor;
  do {
    auto page = queries.list_jobs(filter, order, cursor, limit);
    if (!page) {
      ADD_FAILURE() << page.error().message;
      return all;
    }
    EXPECT_LE(page->jobs.size(), limit);
    all.insert(all.end(), page->jobs.begin(), page->jobs.end());
    EXPECT_TRUE(page->next.empty() || page->next != cursor);
    cursor = page->next;
  } while (!cursor.empty());
  return all;
}

JobRow full_row() {
  JobRow row = job(9, "failed");
  row.started_at = {20};
  row.ended_at = {30};
  row.exit_code = -9;
  row.array = JobId(4);
  row.array_index = 17;
  row.nodes = {"node-a", "n\"b"};
  row.gpu_type = "H100";
  row.gpu_count = 2;
  row.gpu_milli = 2000;
  row.charge = {123'456'789'012};
  row.labels = {{"team", "vision"}, {"ü\"", ""}};
  row.doc = R"({"a":[1,2]})";
  row.words = " team vision h100";
  return row;
}

TEST_P(QueryContract, ARowComesBackAsItWasWrittenAndAnUpsertReplacesIt) {
  auto store = open();
  store->journal().append(batch_with(full_row()));
  ASSERT_TRUE(store->journal().flush(seconds(20)));
  EXPECT_EQ(store->queries().get_job(JobId(9))->value(), full_row());
  EXPECT_FALSE(store->queries().get_job(JobId(10))->has_value());
  JobRow changed = full_row();
  changed.doc = "{}";  // no index touched
  changed.nodes = {};
  changed.exit_code.reset();
  store->journal().append(batch_with(changed));
  ASSERT_TRUE(store->journal().flush(seconds(20)));
  EXPECT_EQ(store->queries().get_job(JobId(9))->value(), changed);
}

TEST_P(QueryContract, InvisibleRowsAreFilteredBeforeCounting) {
  auto store = open();
  Batch batch = batch_of(1);
  for (std::uint64_t id = 1; id <= 60; ++id) {
    JobRow row = job(id, "succeeded");
    row.project = ProjectId(1 + id % 3);
    if (id > 30 && id % 2)
      row.array = JobId(30);
    batch.jobs.push_back(std::move(row));
  }
  store->journal().append(batch);
  ASSERT_TRUE(store->journal().flush(seconds(20)));
  JobFilter filter;
  filter.visible = std::vector{ProjectId(1), ProjectId(3)};
  filter.elements = false;
  std::vector<std::uint64_t> expected;
  for (std::uint64_t id = 60; id >= 1; --id)
    if (id % 3 != 1 && !(id > 30 && id % 2))
      expected.push_back(id);
  std::vector<std::uint64_t> found;
  for (const JobRow& row : list_all(store->queries(), filter))
    found.push_back(row.id.value);
  EXPECT_EQ(found, expected);
  const auto page = *store->queries().list_jobs(filter, JobOrder::newest, "", 5);
  EXPECT_EQ(page.jobs.size(), 5u) << "a page is full while there is more";
  filter.visible = std::vector<ProjectId>{};
  EXPECT_TRUE(list_all(store->queries(), filter).empty());
}

std::vector<std::uint64_t> found_by(const Queries& queries, std::vector<std::string> words) {
  JobFilter filter;
  filter.words = std::move(words);
  std::vector<std::uint64_t> out;
  for (const JobRow& row : list_all(queries, filter))
    out.push_back(row.id.value);
  return out;
}

TEST_P(QueryContract, ASearchFindsTheBeginningsOfWords) {
  auto store = open();
  Batch batch = batch_of(1);
  for (std::uint64_t id = 1; id <= 40; ++id) {
    JobRow row = job(id, id % 2 ? "failed" : "succeeded");
    row.ended_at = {static_cast<std::int64_t>(id)};
    row.words = id % 10 == 0 ? " sweep vision h100" : " train vision";
    batch.jobs.push_back(std::move(row));
  }
  store->journal().append(batch);
  ASSERT_TRUE(store->journal().flush(seconds(20)));
  const Queries& queries = store->queries();
  EXPECT_EQ(found_by(queries, {"swee"}), (std::vector<std::uint64_t>{40, 30, 20, 10}));
  EXPECT_EQ(found_by(queries, {"vision", "h1"}), (std::vector<std::uint64_t>{40, 30, 20, 10}));
  EXPECT_EQ(found_by(queries, {"weep"}), std::vector<std::uint64_t>{}) << "not inside of a word";
  EXPECT_EQ(found_by(queries, {"17"}), std::vector<std::uint64_t>{17}) << "a job's own number";
  EXPECT_EQ(found_by(queries, {"train", "sweep"}), std::vector<std::uint64_t>{});
  EXPECT_EQ(found_by(queries, {"vision"}).size(), 40u);
  JobFilter failed;
  failed.words = {"train"};
  failed.states = {"failed"};
  failed.visible = std::vector{ProjectId(2)};
  for (const JobRow& row : list_all(queries, failed))
    EXPECT_TRUE(row.state == "failed" && row.project == ProjectId(2)) << row.id.value;
  EXPECT_EQ(list_all(queries, failed).size(), 20u);
}

TEST_P(QueryContract, LeasesAreFoundByTheTimeTheyCover) {
  auto store = open();
  Batch batch = batch_of(1);
  for (std::uint64_t id = 1; id <= 9; ++id) {
    LeaseRow row;
    row.id = LeaseId(id);
    row.job = JobId(id);
    row.gpus = id == 5 ? 0 : 1;
    row.from = {static_cast<std::int64_t>(id) * 100};
    row.to = {static_cast<std::int64_t>(id) * 100 + 150};
    row.open = false;
    row.cards = "0:1000,1:500";
    batch.leases.push_back(std::move(row));
  }
  store->journal().append(batch);
  ASSERT_TRUE(store->journal().flush(seconds(20)));
  const auto rows = *store->queries().leases_between({400}, {700}, 100);
  std::vector<std::uint64_t> got;
  for (const LeaseRow& row : rows)
    got.push_back(row.id.value);
  EXPECT_EQ(got, (std::vector<std::uint64_t>{3, 4, 6})) << "5 holds no GPU, 7 begins at the end";
  EXPECT_EQ(rows.at(0).cards, "0:1000,1:500");
  EXPECT_EQ(store->queries().leases_between({400}, {700}, 1)->size(), 1u);
}

TEST_P(QueryContract, VariablesAreFoundByTheirDigest) {
  auto store = open();
  Batch batch = batch_of(3);
  const auto stored = [](const char* digest, const char* value) {
    return fmt::format(R"({{"actor":"user:ana","event":{{"digest":"{}","env":{{"A":"{}"}}}}}})",
                       digest, value);
  };
  for (const auto& [digest, value] :
       {std::pair("aa11", "one"), std::pair("bb22", "tw\\u0000o"), std::pair("aa11", "again")})
    batch.records.push_back({.seq = 0,
                             .epoch = 0,
                             .at = {5},
                             .kind = "environment_stored",
                             .payload = stored(digest, value)});
  batch.records.push_back({.seq = 0,
                           .epoch = 0,
                           .at = {5},
                           .kind = "other",
                           .payload = stored("cc33", "of another kind")});
  store->journal().append(batch);
  ASSERT_TRUE(store->journal().flush(seconds(20)));
  EXPECT_EQ(store->queries().stored_variables("aa11").value(), stored("aa11", "again"));
  EXPECT_EQ(store->queries().stored_variables("cc33").value(), "");
  EXPECT_EQ(store->queries().stored_variables("").value(), "");
}

TEST_P(QueryContract, TasksAndLeasesOfAJob) {
  auto store = open();
  Batch batch = batch_of(1);
  TaskRow task{TaskId(3), JobId(1), NodeId(2), "n2", "ended", {5}, {6}, 0, "{}"};
  batch.tasks = {
      task, TaskRow{TaskId(4), JobId(2), NodeId(2), "n2", "running", {5}, {}, std::nullopt, "{}"}};
  LeaseRow lease{LeaseId(1), JobId(1), TaskId(3), ProjectId(1), UserId(1), "n2", "H100",
                 1000,       "spot",   {100},     {200},        false,     {7},  {5}};
  LeaseRow later = lease;
  later.id = LeaseId(2);
  later.project = ProjectId(2);
  later.job = JobId(2);
  later.from = {300};
  later.to = {400};
  later.open = true;
  batch.leases = {lease, later};
  store->journal().append(batch);
  ASSERT_TRUE(store->journal().flush(seconds(20)));
  EXPECT_EQ(*store->queries().tasks_of(JobId(1)), std::vector{task});
  const auto ask = [&](LeaseQuery q) {
    return *store->queries().leases(q);
  };
  EXPECT_EQ(ask({}).size(), 2u);
  EXPECT_EQ(ask({.job = JobId(1)}), std::vector{lease});
  EXPECT_EQ(ask({.project = ProjectId(2)}), std::vector{later});
  EXPECT_EQ(ask({.project = ProjectId(1), .job = JobId(2)}).size(), 0u);
  EXPECT_EQ(ask({.from = {200}, .before = {300}}).size(), 0u) << "bounds are half open";
  EXPECT_EQ(ask({.from = {199}, .before = {300}}), std::vector{lease});
  EXPECT_EQ(ask({.from = {5000}}), std::vector{later}) << "an open lease goes on";
  EXPECT_EQ(ask({.after = LeaseId(1)}), std::vector{later});
  EXPECT_EQ(ask({.limit = 1}), std::vector{lease});
}

bool passes(const JobFilter& f, const JobRow& row) {
  if (!f.states.empty() && std::find(f.states.begin(), f.states.end(), row.state) == f.states.end())
    return false;
  if (f.project && row.project != f.project)
    return false;
  if (f.user && row.user != f.user)
    return false;
  if (f.array && row.array != f.array)
    return false;
  if (!f.name.empty() && row.name != f.name)
    return false;
  if (f.ended_from && (!row.ended_at || row.ended_at < f.ended_from))
    return false;
  if (f.ended_before && (!row.ended_at || row.ended_at >= f.ended_before))
    return false;
  return std::all_of(f.labels.begin(), f.labels.end(), [&](const Label& l) {
    return std::find(row.labels.begin(), row.labels.end(), l) != row.labels.end();
  });
}

JobRow random_row(Rng& rng, std::uint64_t id) {
  static const char* const states[] = {"queued", "running", "succeeded", "failed"};
  JobRow row = job(id, states[rng.below(4)]);
  row.name = "name-" + std::to_string(rng.below(4));
  row.array = JobId(rng.chance(0.5) ? 0 : 1 + rng.below(2));
  if (row.state == "succeeded" || row.state == "failed")
    row.ended_at = {static_cast<std::int64_t>(1 + rng.below(50))};
  if (rng.chance(0.6))
    row.labels.emplace_back("team", rng.chance(0.5) ? "a" : "b");
  if (rng.chance(0.3))
    row.labels.emplace_back("run", "x");
  return row;
}

JobFilter random_filter(Rng& rng) {
  JobFilter f;
  if (rng.chance(0.3))
    f.states = {"queued"};
  else if (rng.chance(0.4))
    f.states = {"succeeded", "failed", "succeeded"};
  if (rng.chance(0.3))
    f.project = ProjectId(1 + rng.below(2));
  if (rng.chance(0.3))
    f.user = UserId(1 + rng.below(4));
  if (rng.chance(0.2))
    f.array = JobId(1 + rng.below(2));
  if (rng.chance(0.2))
    f.name = "name-1";
  if (rng.chance(0.3))
    f.labels.emplace_back("team", "a");
  if (rng.chance(0.2))
    f.labels.emplace_back("run", "x");
  if (rng.chance(0.2))
    f.ended_from = {10};
  if (rng.chance(0.2))
    f.ended_before = {30};
  return f;
}

TEST_P(QueryContract, ListingsCountsAndSumsEqualWhatTheRowsSay) {
  auto store = open();
  const std::uint64_t seed = random_u64();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Rng rng(seed);
  std::map<JobId, JobRow> model;
  for (int i = 0; i < 1500; ++i) {  // rows are written over and over, several times within a commit
    JobRow row = random_row(rng, 1 + rng.below(200));
    if (rng.chance(0.2))
      row.project = ProjectId(1);
    model[row.id] = row;
    store->journal().append(batch_with(row));
    if (rng.chance(0.02)) {
      ASSERT_TRUE(store->journal().flush(seconds(20)));
    }
  }
  ASSERT_TRUE(store->journal().flush(seconds(20)));

  for (int i = 0; i < 300; ++i) {
    const JobFilter filter = random_filter(rng);
    std::vector<JobRow> expected;
    for (auto it = model.rbegin(); it != model.rend(); ++it) {
      if (passes(filter, it->second))
        expected.push_back(it->second);
    }
    ASSERT_EQ(list_all(store->queries(), filter), expected);
    std::erase_if(expected, [](const JobRow& r) { return !r.ended_at; });
    std::sort(expected.begin(), expected.end(), [](const JobRow& a, const JobRow& b) {
      return std::tie(a.ended_at, a.id) > std::tie(b.ended_at, b.id);
    });
    ASSERT_EQ(list_all(store->queries(), filter, JobOrder::recently_ended), expected);
  }
  std::map<std::pair<std::string, ProjectId>, std::uint64_t> counts, kept;
  for (const auto& [id, row] : model)
    ++counts[{row.state, row.project}];
  const auto rows = *store->queries().count_jobs();
  for (const auto& c : rows)
    kept[{c.state, c.project}] = c.jobs;
  EXPECT_EQ(kept, counts);
}

TEST_P(QueryContract, PagesNeitherRepeatNorSkipWhileJobsAreAdded) {
  auto store = open();
  const auto add = [&](std::uint64_t from, std::uint64_t to) {
    for (auto id = from; id <= to; ++id)
      store->journal().append(batch_with(job(id)));
    ASSERT_TRUE(store->journal().flush(seconds(20)));
  };
  add(1, 30);
  JobFilter filter;
  filter.states = {"queued", "running"};
  auto first = *store->queries().list_jobs(filter, JobOrder::newest, "", 10);
  add(31, 60);
  store->journal().append(
      batch_with(job(15, "running")));  // moves to another index range meanwhile
  ASSERT_TRUE(store->journal().flush(seconds(20)));
  auto second = *store->queries().list_jobs(filter, JobOrder::newest, first.next, 10);
  auto third = *store->queries().list_jobs(filter, JobOrder::newest, second.next, 10);
  EXPECT_EQ(ids(first).back(), 21u);
  EXPECT_EQ(ids(second).front(), 20u);
  EXPECT_EQ(ids(second).back(), 11u);
  EXPECT_EQ(ids(third).back(), 1u);
  EXPECT_EQ(third.next, "");
}

TEST_P(QueryContract, RefusesACursorThatIsNotOne) {
  auto store = open();
  for (const char* cursor :
       {"x", "n", "n-1", "n1.2", "e5.5", "n99999999999999999999", "n1' OR 1"}) {
    EXPECT_EQ(store->queries().list_jobs({}, JobOrder::newest, cursor, 10).error().code,
              Code::invalid)
        << cursor;
  }
  EXPECT_FALSE(store->queries().list_jobs({}, JobOrder::recently_ended, "n5", 10));
}

TEST_P(QueryContract, UsageAddsEachStepOfALeaseToItsDay) {
  auto store = open();
  constexpr std::int64_t hour = 3'600'000'000'000;
  LeaseRow lease{LeaseId(1), JobId(1), TaskId(1),   ProjectId(1), UserId(2), "n",  "H100",
                 500,        "spot",   {22 * hour}, {23 * hour},  true,      {10}, {6}};
  Batch batch = batch_of(1);
  batch.leases.push_back(lease);
  lease.to = {24 * hour - 1};  // the mark at midnight still belongs to the day that ends
  lease.charge = {20};
  lease.cost = {12};
  batch.leases.push_back(lease);
  lease.to = {26 * hour - 1};
  lease.charge = {39};
  lease.cost = {24};
  lease.open = false;
  batch.leases.push_back(lease);
  LeaseRow other = lease;
  other.id = LeaseId(2);
  other.user = UserId(3);
  other.gpu_type = "L4";
  other.charge = {1};
  other.cost = {1};
  batch.leases.push_back(other);
  store->journal().append(batch);
  ASSERT_TRUE(store->journal().flush(seconds(20)));
  lease.charge = {35};  // a correction
  batch = batch_of(1);
  batch.leases.push_back(lease);
  store->journal().append(batch);
  ASSERT_TRUE(store->journal().flush(seconds(20)));

  const auto ask = [&](UsageQuery q) {
    return *store->queries().usage(q);
  };
  const auto days = ask({.user = UserId(2), .by_day = true});
  ASSERT_EQ(days.size(), 2u);
  EXPECT_EQ(days[0].charge.value, 20);
  EXPECT_EQ(days[1].charge.value, 15);
  EXPECT_EQ(days[0].cost.value + days[1].cost.value, 24);
  EXPECT_EQ(days[0].gpu_milli_ms + days[1].gpu_milli_ms, 500 * (4 * hour / 1'000'000 - 1));
  const auto total = ask({});
  ASSERT_EQ(total.size(), 1u);
  EXPECT_EQ(total[0].charge.value, 36);
  EXPECT_EQ(total[0].user, UserId());
  const auto types = ask({.project = ProjectId(1), .by_gpu_type = true, .by_class = true});
  ASSERT_EQ(types.size(), 2u);
  EXPECT_EQ(types[1].gpu_type, "L4");
  EXPECT_EQ(types[1].charge.value, 1);
  EXPECT_EQ(ask({.day_from = 5}).size(), 0u);
}

TEST_P(QueryContract, PostingsNodeDaysAndRuns) {
  auto store = open();
  Batch batch = batch_with(job(1, "succeeded"));
  JobRow unnamed = job(2, "failed");
  unnamed.name = "";
  unnamed.doc = R"({"command":"python train.py"})";
  batch.jobs.push_back(unnamed);
  for (std::uint64_t i = 1; i <= 4; ++i) {
    EntryRow entry{i,
                   i == 4 ? "charge" : "active",
                   NodeId(7),
                   LeaseId(i % 2),
                   JobId(1),
                   ProjectId(1),
                   UserId(1),
                   {static_cast<std::int64_t>(i) * 10},
                   {static_cast<std::int64_t>(i) * 10 + 5},
                   {static_cast<std::int64_t>(i)},
                   i == 3};
    batch.entries.push_back(entry);
  }
  batch.node_days = {{20'000, "b", "local", {5}},
                     {20'000, "B", "local", {7}},
                     {20'001, "b", "local", {1}},
                     {20'000, "b", "local", {2}}};
  for (std::uint64_t i = 1; i <= 3; ++i) {
    LeaseRow lease{LeaseId(i),
                   JobId(i == 3 ? 2 : 1),
                   TaskId(i),
                   ProjectId(1),
                   UserId(1),
                   "n",
                   "H100",
                   1000,
                   "spot",
                   {100},
                   {200 + static_cast<std::int64_t>(i)},
                   i == 2,
                   {7},
                   {5}};
    lease.gpus = 1;
    lease.measured = i == 3;
    lease.mem_peak_mib = 1LL << 40;
    batch.leases.push_back(lease);
  }
  store->journal().append(batch);
  ASSERT_TRUE(store->journal().flush(seconds(20)));
  const auto entries = [&](EntryQuery q) {
    return *store->queries().entries(q);
  };
  EXPECT_EQ(entries({}), batch.entries);
  EXPECT_EQ(entries({.lease = LeaseId(1)}), (std::vector{batch.entries[0], batch.entries[2]}));
  EXPECT_EQ(entries({.after = 2, .limit = 1}), std::vector{batch.entries[2]});
  EXPECT_EQ(entries({.from = {25}, .before = {35}}), std::vector{batch.entries[1]});
  EXPECT_EQ(*store->queries().node_days(20'000, 20'000),
            (std::vector<NodeDayRow>{{20'000, "B", "local", {7}}, {20'000, "b", "local", {7}}}))
      << "added up, by bytes";
  const auto runs = *store->queries().runs({}, {0}, {}, 10);
  ASSERT_EQ(runs.size(), 2u) << "those that ended";
  EXPECT_EQ(runs[0].what, "python train.py");
  EXPECT_EQ(runs[0].lease, batch.leases[2]);
  EXPECT_EQ(runs[1].what, "job-1");
  EXPECT_EQ(store->queries().runs(ProjectId(2), {0}, {}, 10)->size(), 0u);
  EXPECT_EQ(store->queries().runs({}, {0}, {203}, 10)->size(), 1u) << "bounds are half open";
}

TEST_P(QueryContract, ServeManyThreadsBesideTheWriter) {
  auto store = open();
  store->journal().append(batch_with(job(1)));
  ASSERT_TRUE(store->journal().flush(seconds(20)));
  std::atomic<int> failures{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 8; ++i) {
    readers.emplace_back([&] {
      std::uint64_t newest = 0;
      while (!stop) {
        auto page = store->queries().list_jobs({}, JobOrder::newest, "", 5);
        if (!page || page->jobs.empty() || page->jobs[0].id.value < newest)
          ++failures;
        else
          newest = page->jobs[0].id.value;
      }
    });
  }
  for (std::uint64_t id = 2; id < 500; ++id) {
    store->journal().append(batch_with(job(id)));
    if (id % 10 == 0) {
      ASSERT_TRUE(store->journal().flush(seconds(20)));
    }
  }
  stop = true;
  for (auto& reader : readers)
    reader.join();
  EXPECT_EQ(failures, 0);
}

}  // namespace
}  // namespace billow
