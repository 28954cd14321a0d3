// How fast the journal becomes durable, and how long a page of jobs takes among a million. Runs on
// the disk of TMPDIR (or /tmp): a tmpfs there would measure no fsync.
#include <benchmark/benchmark.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <condition_variable>

#include "base/file.h"
#include "store/sqlite/sqlite_store.h"

namespace billow {
namespace {

class BenchStore {
 public:
  BenchStore() {
    const char* tmp = ::getenv("TMPDIR");
    std::string pattern = std::string(tmp ? tmp : "/tmp") + "/billow-bench-XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
    SqliteStoreOptions options;
    options.data_dir = dir_;
    options.hooks.on_durable = [this](Seq seq) {
      std::lock_guard lock(mutex_);
      durable_ = seq;
      moved_.notify_one();
    };
    store_ = std::move(*SqliteStore::open(std::move(options)));
  }
  ~BenchStore() {
    store_.reset();
    (void)remove_tree(dir_);
  }
  Journal& journal() { return store_->journal(); }
  const Queries& queries() { return store_->queries(); }
  void wait_durable(Seq seq) {
    std::unique_lock lock(mutex_);
    moved_.wait(lock, [&] { return durable_ >= seq; });
  }

 private:
  std::string dir_;
  std::mutex mutex_;
  std::condition_variable moved_;
  Seq durable_ = 0;
  std::unique_ptr<SqliteStore> store_;
};

const std::string payload =
    R"({"actor":"user:1","job":123456,"task":7,"node":"gpu-node-17","state":"running","detail":")" +
    std::string(120, 'x') + "\"}";

JobRow job_row(std::uint64_t id, const char* state) {
  JobRow row;
  row.id = JobId(id);
  row.name = "train-" + std::to_string(id % 1000);
  row.user = UserId(1 + id % 50);
  row.project = ProjectId(1 + id % 10);
  row.state = state;
  row.submitted_at = {static_cast<std::int64_t>(id) * 1'000'000'000};
  row.nodes = {"gpu-node-17"};
  row.gpu_type = "H100";
  row.doc = R"({"argv":["python","train.py"],"env":{},"resources":{"gpus":1},"pad":")" +
            std::string(300, 'y') + "\"}";
  return row;
}

// Appended as fast as the loop can, at most 4 MiB ahead of the disk.
void append_bounded(Journal& journal, Batch batch) {
  journal.append(std::move(batch));
  if (journal.queued_bytes() > (4 << 20))
    (void)journal.flush(seconds(60));
}

void events_batched(benchmark::State& state) {
  BenchStore store;
  std::int64_t events = 0;
  for (auto _ : state) {
    for (int i = 0; i < 20'000; ++i) {
      Batch batch;
      batch.records.push_back({0, 0, {1}, "task_started", payload});
      append_bounded(store.journal(), std::move(batch));
    }
    (void)store.journal().flush(seconds(60));
    events += 20'000;
  }
  state.counters["events_per_s"] =
      benchmark::Counter(static_cast<double>(events), benchmark::Counter::kIsRate);
}
BENCHMARK(events_batched)->Unit(benchmark::kMillisecond)->UseRealTime()->MinTime(1.0);

// Three transitions of each job, each with its record and its row, a thousand jobs at a time.
void job_lives(benchmark::State& state) {
  BenchStore store;
  std::uint64_t next = 1;
  for (auto _ : state) {
    for (const char* to : {"queued", "running", "succeeded"}) {
      for (std::uint64_t id = next; id < next + 1000; ++id) {
        Batch batch;
        batch.records.push_back({0, 0, {1}, "job_changed", payload});
        batch.jobs.push_back(job_row(id, to));
        if (to[0] == 's')
          batch.jobs.back().ended_at = {static_cast<std::int64_t>(id)};
        append_bounded(store.journal(), std::move(batch));
      }
    }
    (void)store.journal().flush(seconds(60));
    next += 1000;
  }
  state.counters["jobs_per_s"] =
      benchmark::Counter(static_cast<double>(next - 1), benchmark::Counter::kIsRate);
}
BENCHMARK(job_lives)->Unit(benchmark::kMillisecond)->UseRealTime()->MinTime(1.0);

// One event with its row at a time: from append to the durable callback.
void append_to_durable(benchmark::State& state) {
  BenchStore store;
  std::vector<double> us;
  std::uint64_t id = 0;
  for (auto _ : state) {
    Batch batch;
    batch.records.push_back({0, 0, {1}, "job_submitted", payload});
    batch.jobs.push_back(job_row(++id, "queued"));
    const auto begin = std::chrono::steady_clock::now();
    store.wait_durable(store.journal().append(std::move(batch)));
    us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
                     .count());
  }
  std::sort(us.begin(), us.end());
  state.counters["p50_us"] = us[us.size() / 2];
  state.counters["p99_us"] = us[us.size() * 99 / 100];
  state.counters["max_us"] = us.back();
}
BENCHMARK(append_to_durable)->Unit(benchmark::kMicrosecond)->UseRealTime()->Iterations(5000);

// An array of 100,000 jobs in one batch, and then the one event that comes right behind it.
void array_of_100000(benchmark::State& state) {
  BenchStore store;
  std::uint64_t id = 0;
  double behind_ms = 0;
  for (auto _ : state) {
    Batch batch;
    batch.records.push_back({0, 0, {1}, "array_submitted", payload});
    for (int i = 0; i < 100'000; ++i)
      batch.jobs.push_back(job_row(++id, "queued"));
    store.wait_durable(store.journal().append(std::move(batch)));
    const auto begin = std::chrono::steady_clock::now();
    Batch behind;
    behind.records.push_back({0, 0, {1}, "job_submitted", payload});
    store.wait_durable(store.journal().append(std::move(behind)));
    behind_ms =
        std::max(behind_ms,
                 std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
                     .count());
  }
  state.counters["behind_max_ms"] = behind_ms;
}
BENCHMARK(array_of_100000)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(3);

constexpr std::uint64_t finished_jobs = 1'000'000;

BenchStore& million_jobs() {
  static std::unique_ptr<BenchStore> store = [] {
    auto made = std::make_unique<BenchStore>();
    for (std::uint64_t id = 1; id <= finished_jobs;) {
      Batch batch;
      for (int i = 0; i < 1000; ++i, ++id) {
        JobRow row = job_row(id, id % 20 == 0 ? "failed" : "succeeded");
        row.ended_at = {static_cast<std::int64_t>(id) * 2'000'000'000};
        if (id % 100 == 0)
          row.labels = {{"team", "vision"}};
        batch.jobs.push_back(std::move(row));
      }
      append_bounded(made->journal(), std::move(batch));
    }
    (void)made->journal().flush(seconds(600));
    return made;
  }();
  return *store;
}

void page_of(benchmark::State& state, const JobFilter& filter, JobOrder order, std::string cursor) {
  BenchStore& store = million_jobs();
  std::vector<double> ms;
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    auto page = store.queries().list_jobs(filter, order, cursor, 100);
    ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
                     .count());
    if (!page || page->jobs.size() != 100)
      state.SkipWithError("not a full page");
  }
  std::sort(ms.begin(), ms.end());
  state.counters["p99_ms"] = ms[ms.size() * 99 / 100];
  struct rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  state.counters["rss_max_mib"] = static_cast<double>(usage.ru_maxrss) / 1024;
}
void page_newest(benchmark::State& s) {
  page_of(s, {}, JobOrder::newest, "");
}
void page_deep(benchmark::State& s) {
  page_of(s, {}, JobOrder::newest, "n500000");
}
void page_by_state(benchmark::State& s) {
  page_of(s, {.states = {"failed", "queued", "running"}}, JobOrder::newest, "n700000");
}
void page_by_project(benchmark::State& s) {
  page_of(s, {.project = ProjectId(3)}, JobOrder::newest, "n300000");
}
void page_by_user(benchmark::State& s) {
  page_of(s, {.states = {"succeeded"}, .user = UserId(7)}, JobOrder::newest, "n300000");
}
void page_by_label(benchmark::State& s) {
  page_of(s, {.labels = {{"team", "vision"}}}, JobOrder::newest, "n600000");
}
void page_by_end(benchmark::State& s) {
  page_of(s, {.ended_before = {1'000'000'000'000'000}}, JobOrder::recently_ended, "");
}
BENCHMARK(page_newest)->Unit(benchmark::kMillisecond);
BENCHMARK(page_deep)->Unit(benchmark::kMillisecond);
BENCHMARK(page_by_state)->Unit(benchmark::kMillisecond);
BENCHMARK(page_by_project)->Unit(benchmark::kMillisecond);
BENCHMARK(page_by_user)->Unit(benchmark::kMillisecond);
BENCHMARK(page_by_label)->Unit(benchmark::kMillisecond);
BENCHMARK(page_by_end)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace billow

BENCHMARK_MAIN();
