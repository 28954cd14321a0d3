// A head with one pool whose provider answers as the test says, for tests.
#pragma once

#include "head/pools.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ranges>
#include <set>

#include "base/crypto.h"
#include "base/log.h"
#include "core/control/decide/decide.h"
#include "store/sim_journal.h"
#include "tests/unit/control/node_offer.h"

namespace billow::head::pools_tests {
namespace {

struct HandClock final : Clock {
  WallTime wall_now{1'800'000'000'000'000'000};
  SteadyTime steady_now{1'000'000'000'000};
  WallTime wall() const override { return wall_now; }
  SteadyTime steady() const override { return steady_now; }
};

// Answers as the test says.
struct Script {
  MachineOffer offer;
  std::function<pool::Ordered(const pool::Order&)> want;
  std::vector<MachineSighting> listed;
  std::vector<std::string> ordered, released;  // by name, by external name
  bool hold = false;                           // answers to orders are held back
  std::set<std::string> hanging_orders;        // of these machines only
  std::vector<std::function<void()>> held;
  bool silent = false;      // lists fail
  bool hold_lists = false;  // they hang
  int lists = 0;
  std::set<std::string> hanging;  // the ends of these machines, by external name
  std::string refusal;            // of every end; empty: machines are ended
  bool ends_by_name = false;
};

class ScriptedPool final : public pool::Pool {
 public:
  explicit ScriptedPool(Script& script) : script_(script) {}
  pool::Ordered want(const pool::Order& order) override {
    script_.ordered.push_back(order.machine.name);
    return script_.want(order);
  }
  Result<std::vector<MachineSighting>> nodes() override {
    ++script_.lists;
    if (script_.silent)
      return fail(Code::unavailable, "the provider does not answer");
    return script_.listed;
  }
  Status release(const MachineSighting& machine) override {
    script_.released.push_back(machine.external.empty() ? machine.name : machine.external);
    if (!script_.refusal.empty())
      return fail(Code::unavailable, script_.refusal);
    return {};
  }
  bool ends_by_name() const override { return script_.ends_by_name; }
  Result<std::vector<MachineOffer>> offers() override { return std::vector{script_.offer}; }

 private:
  Script& script_;
};

class Pooled : public ::testing::Test {
 protected:
  Pooled() {
    configure_log({.level = LogLevel::error});
    script.offer = {.instance = "g6.xlarge", .region = "us-1", .zone = "us-1a"};
    script.offer.gpu_type = "H100";
    script.offer.gpus = 8;
    script.offer.price = {1000};
    script.want = [](const pool::Order&) {
      return pool::Ordered{};
    };
    JournalHooks hooks;
    hooks.on_durable = [this](Seq durable) {
      if (engine)
        engine->on_durable(durable);
    };
    journal.set_hooks(std::move(hooks));
    engine = std::move(*Engine::restore({.journal = &journal,
                                         .clock = &clock,
                                         .deliver = [](const control::Effect&) {},
                                         .observe = {}},
                                        {}));
    run(StartHead{.version = "1",
                  .epoch = journal.epoch(),
                  .admin = "ana",
                  .admin_token_hash = sha256_hex("a"),
                  .node_token_hash = sha256_hex("n")});
    Pool pool;
    pool.name = "cloud";
    pool.kind = "ec2";
    pool.capabilities = PoolCapabilities{.sizes_to_demand = false,
                                         .several_nodes_at_once = true,
                                         .list_is_final = false,
                                         .from_offers = true,
                                         .bills_from_order = true,
                                         .list_lag = minutes(5)};
    pool.machines_max = 12;
    pool.idle = minutes(1);
    pool.offers = {script.offer};
    run(AddPool{pool});
    start();
  }

  void start() {
    Pools::Options options;
    options.head_url = options.fingerprint = options.authority = [] {
      return std::string();
    };
    options.owner = state().users.begin()->first;
    options.credential = [](const Pool&) -> Result<std::string> {
      return std::string();
    };
    options.needed = [](NodeId) {
      return false;
    };
    options.make = [this](const Pool&,
                          const pool::Options&) -> Result<std::unique_ptr<pool::Pool>> {
      return std::make_unique<ScriptedPool>(script);
    };
    struct HandLane final : Pools::Lane {
      explicit HandLane(Script& s) : script(s) {}
      Status submit(std::function<std::function<void()>()> work) override {
        const std::size_t orders = script.ordered.size(), ends = script.released.size();
        const int lists = script.lists;
        auto answer = work();
        const bool held_back =
            std::ranges::any_of(script.ordered | std::views::drop(orders),
                                [&](const auto& m) { return script.hanging_orders.contains(m); });
        const bool hangs =
            (script.hold && script.ordered.size() > orders) || held_back ||
            (script.hold_lists && script.lists > lists) ||
            (script.released.size() > ends && script.hanging.contains(script.released.back()));
        if (hangs)
          script.held.push_back(std::move(answer));
        else
          answer();
        return {};
      }
      Script& script;
    };
    options.lane = [this] {
      return std::make_unique<HandLane>(script);
    };
    pools = std::make_unique<Pools>(
        loop, clock, [this]() -> Engine& { return *engine; }, std::move(options));
  }

  const control::State& state() const { return engine->state(); }
  void run(const Command& command) {
    engine->execute(command, {"head", ""}, {});
    while (journal.step())
      continue;
  }
  void pass(Duration d) {
    for (Duration passed; passed < d; passed = passed + seconds(5)) {
      clock.wall_now = clock.wall_now + seconds(5);
      clock.steady_now = clock.steady_now + seconds(5);
      pools->look();
      while (journal.step())
        continue;
    }
  }
  // One that needs a whole machine.
  void submit() {
    SubmitJob job;
    job.spec.argv = {"true"};
    job.spec.resources.gpus = 8;
    job.spec.resources.share = {1000, 0};
    job.user = state().users.begin()->first;
    run(job);
  }
  void stop_all() {
    for (const auto& [id, job] : std::map(state().jobs))
      run(StopJob{.job = id, .reason = "enough"});
  }
  // A machine is ordered for a job that is then stopped: the machine is to be given back.
  void order_in_vain() {
    submit();
    pass(seconds(5));
    ASSERT_EQ(script.ordered, std::vector<std::string>{"cloud-1"});
    stop_all();
  }
  // Machines are ordered and listed; their jobs wait for them.
  void order(int count) {
    for (int i = 0; i < count; ++i)
      submit();
    pass(seconds(5));
    ASSERT_EQ(script.ordered.size(), static_cast<std::size_t>(count));
    for (int i = 1; i <= count; ++i) {
      script.listed.push_back(sighting(fmt::format("i-{}", i).c_str()));
      script.listed.back().name = fmt::format("cloud-{}", i);
    }
    pass(seconds(15));
    ASSERT_EQ(state().machines.at("cloud-1").external, "i-1");
  }
  MachineState state_of(const char* machine) const { return state().machines.at(machine).state; }
  bool has(const std::string& machine) const { return state().machines.contains(machine); }
  static pool::Ordered no_answer(const pool::Order&) {
    return std::unexpected(pool::Refusal{RefusalKind::no_answer, "no answer"});
  }
  MachineSighting sighting(const char* external) const {
    return {.name = "cloud-1", .external = external, .billed_from = clock.wall_now};
  }
  void list_failed(const char* external) {
    script.listed = {sighting(external)};
    script.listed[0].failed = RefusalKind::capacity;
  }
  // Two machines of one name, of which the provider ends only the first.
  void two_that_fail() {
    submit();
    pass(seconds(5));
    list_failed("i-1");
    pass(seconds(10));
    ASSERT_FALSE(script.released.empty());
    stop_all();
    script.refusal = "no right to delete";
    list_failed("i-2");
    pass(seconds(10));
  }

  HandClock clock;
  SimDisk disk;
  SimJournal journal{disk, 1};
  std::unique_ptr<Engine> engine;
  net::Loop loop;  // never runs
  Script script;
  std::unique_ptr<Pools> pools;
};

}  // namespace
}  // namespace billow::head::pools_tests
