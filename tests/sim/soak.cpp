#include "soak.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "base/crypto.h"
#include "head/engine.h"
#include "net/loop.h"
#include "store/sqlite/sqlite_store.h"
#include "tests/unit/control/node_offer.h"

namespace billow::sim {
namespace {

constexpr std::uint64_t jobs_at_once = 2000;
constexpr int nodes = 32;
constexpr Duration between_batches = hours(4);
constexpr std::size_t queued_bytes_max = 16 << 20;
constexpr Retention retention{.events_max = 500'000};  // as a head removes events, from fewer on

struct PassingClock final : Clock {
  std::int64_t passed_ns = 0;
  WallTime wall() const override { return {1'790'000'000'000'000'000 + passed_ns}; }
  SteadyTime steady() const override { return {1'000'000'000 + passed_ns}; }
};

std::int64_t resident_kib() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t pages = 0, resident = 0;
  statm >> pages >> resident;
  return resident * (::sysconf(_SC_PAGESIZE) / 1024);
}

double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto s = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return s(used.ru_utime) + s(used.ru_stime);
}

class Soak {
 public:
  static Result<std::unique_ptr<Soak>> create(const SoakOptions& options) {
    auto soak = std::unique_ptr<Soak>(new Soak(options));
    soak->store_ = BILLOW_TRY(SqliteStore::open({.data_dir = options.data_dir, .hooks = {}}));
    JournalHooks hooks;
    hooks.post = [at = soak.get()](std::function<void()> fn) {
      at->loop_.post(std::move(fn));
    };
    hooks.on_durable = [at = soak.get()](Seq durable) {
      at->engine_->on_durable(durable);
    };
    soak->journal().set_hooks(std::move(hooks));
    soak->engine_ = BILLOW_TRY(head::Engine::restore({.journal = &soak->journal(),
                                                      .clock = &soak->clock_,
                                                      .deliver = [](const control::Effect&) {},
                                                      .observe = {}},
                                                     {}));
    soak->run(StartHead{.version = "1",
                        .epoch = soak->journal().epoch(),
                        .admin = "ana",
                        .admin_token_hash = sha256_hex("a"),
                        .node_token_hash = sha256_hex("n")});
    for (int i = 0; i < nodes; ++i)
      soak->run(AgentHello{control::node_offer("n" + std::to_string(i), 8), {}});
    return soak;
  }
  ~Soak() {
    store_.reset();
    engine_.reset();
  }

  Status all() {
    std::uint64_t told = 0;
    for (std::uint64_t done = 0; done < options_.jobs; done += jobs_at_once) {
      jobs();
      settle();
      BILLOW_TRY_VOID(snapshot());
      BILLOW_TRY_VOID(journal().retain(retention, clock_.wall()));
      const std::uint64_t now = done + jobs_at_once;
      if (now / options_.report_every > told || now >= options_.jobs) {
        told = now / options_.report_every;
        options_.report(figures(now));
      }
    }
    return {};
  }

 private:
  explicit Soak(const SoakOptions& options) : options_(options) {}
  Journal& journal() { return store_->journal(); }
  const control::State& state() const { return engine_->state(); }

  void run(const Command& command) {
    engine_->execute(command, {"head", ""}, {});
    if (journal().queued_bytes() > queued_bytes_max)
      settle();
  }
  // What waits for the disk is told, too: without that it would pile up in the engine.
  void settle() {
    loop_.run_until([&] { return journal().durable_seq() == state().seq; }, minutes(10));
    bool told = false;
    loop_.post([&] { told = true; });
    loop_.run_until([&] { return told; }, minutes(10));
    engine_->on_durable(journal().durable_seq());
  }

  // Half of them in an array, the others one by one with names of their own; some fail and some
  // are stopped.
  void jobs() {
    const std::uint64_t first = state().next_job;
    SubmitJob submit;
    submit.spec.argv = {"train", "--seed", std::to_string(first)};
    submit.spec.resources.gpus = 1;
    submit.spec.resources.share = {250, 0};
    submit.user = state().users.begin()->first;
    for (std::uint64_t i = 0; i < jobs_at_once / 2; ++i) {
      submit.spec.name = "job-" + std::to_string(first + i);
      submit.env = {{"RUN", std::to_string(first + i)}};
      run(submit);
    }
    submit.spec.array = ArraySpec{.first = 0, .last = jobs_at_once / 2 - 1, .step = 1};
    run(submit);
    // The books keep what has ended until its day is closed: days must pass.
    clock_.passed_ns += between_batches.ns;
    while (!state().jobs.empty()) {
      clock_.passed_ns += seconds(1).ns;
      run(Tick{});
      run(MoneyTick{});
      settle();
      const std::map<NodeId, std::set<TaskId>> live(state().tasks_on.begin(),
                                                    state().tasks_on.end());
      for (const auto& [node, tasks] : live)
        for (const TaskId task : tasks)
          end(node, task);
    }
  }
  void end(NodeId node, TaskId task) {
    if (++ended_ % 1000 == 0)
      return run(StopJob{.job = state().find_task(task)->job, .reason = "", .force = true});
    run(AgentReport{node,
                    {.task = task,
                     .state = TaskState::ended,
                     .started_at = clock_.wall(),
                     .ended_at = clock_.wall(),
                     .exit = {.code = ended_ % 50 == 0 ? 1 : 0}}});
  }
  Status snapshot() {
    const auto due = engine_->snapshot_due(limits::snapshot_every_events);
    if (!due)
      return {};
    settle();
    BILLOW_TRY_VOID(journal().save_snapshot(due->seq, due->bytes));
    snapshot_bytes_ = static_cast<std::int64_t>(due->bytes.size());
    return {};
  }

  SoakFigures figures(std::uint64_t jobs) {
    settle();
    SoakFigures f{.jobs = jobs,
                  .resident_kib = resident_kib(),
                  .records = journal().records(),
                  .journal_ever = state().seq,
                  .snapshot_bytes = snapshot_bytes_};
    for (const auto& file : std::filesystem::directory_iterator(options_.data_dir))
      if (file.is_regular_file() && file.path().filename().string().starts_with("billow.db"))
        f.database_bytes += static_cast<std::int64_t>(file.file_size());
    f.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
    f.cpu_seconds = cpu_seconds();
    return f;
  }

  const SoakOptions options_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  PassingClock clock_;
  net::Loop loop_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<head::Engine> engine_;
  std::uint64_t ended_ = 0;
  std::int64_t snapshot_bytes_ = 0;
};

}  // namespace

Status soak(const SoakOptions& options) {
  auto made = BILLOW_TRY(Soak::create(options));
  return made->all();
}

}  // namespace billow::sim
