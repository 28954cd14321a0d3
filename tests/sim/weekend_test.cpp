// The weekend: a forgotten cluster, in virtual time, with the settings nobody has touched. Eight
// A100 come from a pool, whose provider keeps a meter of its own. On Saturday night something goes
// wrong and nobody looks until Tuesday. The real head (Engine, AgentLinks, core, scheduler) on a
// simulated journal, and the real agent core with its real idle detector; only the machine, its
// processes and the provider are played.
//
// What must hold after each story: the provider bills half an hour at most after the work ended,
// and lists no instance.
#include <gtest/gtest.h>

#include <deque>
#include <filesystem>

#include "agent/task/task_status.h"
#include "base/crypto.h"
#include "base/file.h"
#include "base/text.h"
#include "core/agent/core.h"
#include "head/agent_links.h"
#include "head/engine.h"
#include "pool/command_pool.h"
#include "store/sim_journal.h"

namespace billow {
namespace {

using namespace wire::agent_v1;

struct TestClock final : Clock {
  const std::int64_t* now_ns;
  explicit TestClock(const std::int64_t* n) : now_ns(n) {}
  WallTime wall() const override { return {1'794'000'000'000'000'000 + *now_ns}; }
  SteadyTime steady() const override { return {1'000'000'000 + *now_ns}; }
};

// Bills by the second for as long as an instance exists, whoever has forgotten it. A machine takes
// a minute to go down, and is billed for it.
struct Provider final : pool::Pool {
  struct Instance {
    std::string name;
    std::int64_t from_s, to_s = INT64_MAX;
  };
  const std::int64_t* now_ns;
  std::vector<Instance> instances;
  explicit Provider(const std::int64_t* now) : now_ns(now) {}
  ~Provider() override {
    if (!folder.empty())
      std::filesystem::remove_all(folder);
  }
  std::int64_t now_s() const { return *now_ns / 1'000'000'000; }

  // Reached as a real one is: by the shell commands of a pool, run by the product's own
  // CommandPool. The other side of the commands keeps the meter, a file per instance; only its
  // clock is the test's.
  std::string folder;
  std::unique_ptr<pool::Pool> commands;
  void go_through_commands(billow::Pool& settings) {
    char name[] = "/tmp/billow-weekend-XXXXXX";
    folder = ::mkdtemp(name);
    std::filesystem::create_directory(folder + "/i");
    settings.create_command =
        fmt::format("read now < {0}/now; echo \"$now -\" > {0}/i/$BILLOW_MACHINE", folder);
    settings.list_command = fmt::format(
        "read now < {0}/now; for f in {0}/i/*; do [ -e $f ] || continue; read from to < $f; if [ "
        "$to = - ] || [ $to -gt $now ]; then echo ${{f##*/}} i-${{f##*/}} running; fi; done",
        folder);
    settings.delete_command = fmt::format(
        "read now < {0}/now; read from to < {0}/i/$BILLOW_MACHINE || exit 0; [ $to = - ] && echo "
        "$from $((now + 60)) > {0}/i/$BILLOW_MACHINE; exit 0",
        folder);
    commands =
        std::make_unique<pool::CommandPool>(settings, pool::Options{"inst", folder, "billow"});
  }
  template <class F>
  auto by_command(F call) {
    EXPECT_TRUE(write_file_atomic(folder + "/now", fmt::format("{}\n", now_s())));
    auto out = call(*commands);
    instances.clear();
    for (const auto& file : std::filesystem::directory_iterator(folder + "/i")) {
      const auto words = split(trim(*read_file(file.path())), ' ');
      instances.push_back({file.path().filename(), std::stoll(words[0]),
                           words[1] == "-" ? INT64_MAX : std::stoll(words[1])});
    }
    return out;
  }

  pool::Ordered want(const pool::Order& order) override {
    if (commands)
      return by_command([&](pool::Pool& p) { return p.want(order); });
    instances.push_back({order.machine.name, now_s()});
    return {};
  }
  Result<std::vector<MachineSighting>> nodes() override {
    if (commands)
      return by_command([](pool::Pool& p) { return p.nodes(); });
    std::vector<MachineSighting> out;
    for (const Instance& i : instances)
      if (i.to_s > now_s())
        out.push_back({i.name, "i-" + i.name, "running", {}});
    return out;
  }
  Status release(const MachineSighting& machine) override {
    if (commands)
      return by_command([&](pool::Pool& p) { return p.release(machine); });
    for (Instance& i : instances)
      if (i.name == machine.name)
        i.to_s = std::min(i.to_s, now_s() + 60);
    return {};
  }
  std::int64_t billed_after_s(std::int64_t moment_s) const {
    std::int64_t sum = 0;
    for (const Instance& i : instances)
      sum += std::max<std::int64_t>(0, std::min(i.to_s, now_s()) - std::max(i.from_s, moment_s));
    return sum;
  }
  std::size_t listed() const {
    return static_cast<std::size_t>(
        std::count_if(instances.begin(), instances.end(),
                      [this](const Instance& i) { return i.to_s > now_s(); }));
  }
};

enum class Doing { works, hangs, waits_for_input, finished };

struct Weekend;

struct Wire final : head::AgentLink, std::enable_shared_from_this<Wire> {
  Weekend& weekend;
  bool up = true;
  explicit Wire(Weekend& w) : weekend(w) {}
  bool send(const ToAgent& message, std::string_view blob) override;
  bool open() const override { return up; }
  void close(std::string_view) override { up = false; }
  std::string peer() const override { return "rented"; }
};

// One virtual second after the other. Messages travel within the second.
struct Weekend {
  std::int64_t now_ns = 0;
  TestClock clock{&now_ns};
  SimDisk disk;
  std::unique_ptr<SimJournal> journal;
  std::unique_ptr<head::Engine> engine;
  std::unique_ptr<head::AgentLinks> sessions;
  std::shared_ptr<Wire> wire;
  std::unique_ptr<agent::Core> agent;
  Provider provider{&now_ns};
  std::string machine;  // that is up, or on its way
  std::int64_t boots_at_s = -1;
  Doing doing = Doing::works;
  std::map<TaskId, std::int64_t> running;  // since
  std::int64_t cpu_ns = 0, io_bytes = 0, output = 0;
  std::deque<std::string> to_agent, to_head;
  std::optional<std::pair<TaskId, std::int64_t>> stopping;  // ends at this second
  std::uint32_t stop_reason = 0;
  bool machine_up = false;
  bool can_suspend = true;

  std::int64_t now_s() const { return now_ns / 1'000'000'000; }
  agent::Now now() const { return {clock.wall(), clock.steady()}; }

  explicit Weekend(bool real_commands = false) {
    start_head();
    Pool pool;
    pool.name = "cloud";
    pool.gpu_type = "A100-80";
    pool.gpus = 8;
    pool.idle = limits::node_give_back_after;  // as `billow pool add` has it
    pool.create_command = pool.list_command = pool.delete_command =
        "true";  // the provider is reached directly
    if (real_commands)
      provider.go_through_commands(pool);
    execute(AddPool{pool});
  }
  // What head/pools does on its timer, without its threads: asks for what the state wants, gives
  // back what it releases, tells what it sees.
  void visit_provider() {
    execute(PlanPools{});
    const auto listed = *provider.nodes();
    std::set<std::string> known;
    for (const auto& [name, m] : std::map(engine->state().machines)) {
      known.insert(name);
      const auto there = std::find_if(listed.begin(), listed.end(),
                                      [&](const MachineSighting& s) { return s.name == name; });
      if (m.state == MachineState::wanted && there == listed.end()) {
        execute(OrderToken{.machine = name,
                           .hash = "hash-" + name,
                           .user = engine->state().users.begin()->first,
                           .pool = m.pool,
                           .life = hours(1)});
        ASSERT_TRUE(provider.want({m, "https://head", "secret"}));
        machine = name;
        boots_at_s = now_s() + 90;
      } else if (m.state == MachineState::releasing && there != listed.end() && running.empty()) {
        ASSERT_TRUE(provider.release(*there));
        machine_up = false;
      }
    }
    EXPECT_TRUE(pool::strays_in(listed, known).empty()) << "nothing is there that nobody asked for";
    const WallTime looked = clock.wall();
    for (const auto& [id, p] : std::map(engine->state().pools))
      execute(PoolSeen{id, *provider.nodes(), looked});
  }
  void start_head() {
    journal = std::make_unique<SimJournal>(disk, 7);
    journal->set_hooks({.post = {},
                        .on_durable =
                            [this](Seq durable) {
                              if (engine)
                                engine->on_durable(durable);
                            },
                        .on_health = {}});
    engine = std::move(*head::Engine::restore(
        {.journal = journal.get(),
         .clock = &clock,
         .deliver = [this](const control::Effect& e) { sessions->deliver(e); },
         .observe = {}},
        ledger::PriceBook::market()));
    sessions =
        std::make_unique<head::AgentLinks>(clock, [this]() -> head::Engine& { return *engine; });
    execute(StartHead{"1", journal->epoch(), "ana", "hash", "node-hash"});
  }
  void kill_head() {
    journal->crash();
    sessions.reset();
    engine.reset();
    journal.reset();
    wire.reset();
    to_agent.clear();
    to_head.clear();
    agent->on_disconnected(now());
  }
  void execute(const Command& command) {
    engine->execute(command, {"ana", ""}, {});
    while (journal->step()) {}
  }
  void boot() {
    machine_up = true;
    boots_at_s = -1;
    agent::CoreOptions options;
    options.offer.name = machine;
    options.offer.boot_id = "boot";
    for (int i = 0; i < 8; ++i)
      options.offer.gpus.push_back({.index = i,
                                    .uuid = fmt::format("u{}", i),
                                    .vendor = "nvidia",
                                    .model = "NVIDIA A100-SXM4-80GB",
                                    .type = "A100-80",
                                    .mem_mib = 81920,
                                    .nvlink_domain = 0});
    options.offer.cpu_milli = 96'000;
    options.offer.mem_mib = 1 << 20;
    agent = std::make_unique<agent::Core>(std::move(options), now());
    dial();
  }
  void dial() {
    wire = std::make_shared<Wire>(*this);
    wire->heard = clock.steady();
    for (const auto& [id, token] : std::map(engine->state().tokens))
      if (token.scope == TokenScope::join && token.node == machine && token.joined.empty())
        execute(JoinNode{id, machine, *public_key_of(make_signing_key())});
    for (const auto& [id, token] : engine->state().tokens)
      if (token.scope == TokenScope::node && token.node == machine)
        wire->credential = id;
    agent::Effects effects;
    agent->on_connected(now(), effects);
    perform(effects);
  }
  void perform(const agent::Effects& effects) {
    for (const agent::Effect& effect : effects) {
      if (const auto* send = std::get_if<agent::effect::Send>(&effect)) {
        if (wire)
          to_head.push_back(encode(send->message));
      } else if (const auto* start = std::get_if<agent::effect::StartTask>(&effect)) {
        running[start->start.task] = now_s();
        tell(agent::task_event::Started{start->start.task, clock.wall()});
      } else if (const auto* stop = std::get_if<agent::effect::StopTask>(&effect)) {
        if (running.contains(stop->task) && !stopping) {
          stopping = {stop->task, now_s() + 10};  // it ignores SIGTERM: the grace runs out
          stop_reason = static_cast<std::uint32_t>(stop->reason);
        }
      } else if (const auto* suspend = std::get_if<agent::effect::SuspendTask>(&effect)) {
        tell(agent::task_event::Suspended{suspend->task, suspend->order, 500'000,
                                          can_suspend ? "" : "no GPU memory service"});
      } else if (std::holds_alternative<agent::effect::GiveBack>(effect)) {
        ASSERT_TRUE(provider.release({machine, "", "", {}}));
        machine_up = false;
      }
    }
  }
  void tell(const agent::TaskEvent& event) {
    agent::Effects effects;
    agent->on_task_event(event, now(), effects);
    perform(effects);
  }
  void end_task(TaskId task, int code, bool stopped) {
    running.erase(task);
    supervise::ExitRecord record{};
    record.kind = static_cast<std::uint32_t>(stopped ? supervise::ExitKind::signaled
                                                     : supervise::ExitKind::exited);
    record.signal = stopped ? 9 : 0;
    record.code = code;
    record.cause = static_cast<std::uint32_t>(stopped ? supervise::EndCause::stop_request
                                                      : supervise::EndCause::itself);
    record.stop_reason = stop_reason;
    record.ended_wall_ns = clock.wall().ns;
    tell(agent::task_event::Ended{agent::status_of(task, record)});
  }
  // What an A100 shows: no GPM, utilisation and power. A training keeps all eight busy; a hung one
  // says 100 % at idle power.
  agent::TaskSample sample() {
    agent::TaskSample out;
    out.idle.at = clock.steady();
    const bool works = doing == Doing::works, hangs = doing == Doing::hangs;
    if (works) {
      cpu_ns += 3'000'000'000;
      io_bytes += 40 << 20;
      output += 100;
    } else if (hangs)
      cpu_ns += 2'000'000'000;  // a rank spins in its collective
    else
      cpu_ns += 2'000'000;
    for (int i = 0; i < 8; ++i) {
      agent::GpuSignal gpu;
      gpu.util_pct = works ? 97 : hangs ? 100 : 0;
      gpu.mem_util_pct = works ? 45 : 0;
      gpu.power_w = works ? 330 : hangs ? 84 : 58;
      gpu.power_idle_w = 56;
      gpu.power_limit_w = 400;
      gpu.mem_used_mib = 61'000;
      out.idle.gpus.push_back(gpu);
      out.energy.push_back(agent::TaskSample::Energy{
          static_cast<std::int64_t>(*gpu.power_w * 1000) * now_s(), 1000});
    }
    out.idle.cpu_ns = cpu_ns;
    out.idle.io_bytes = io_bytes;
    out.idle.net_rx_bytes = out.idle.net_tx_bytes = 0;
    out.idle.page_faults = io_bytes / 4096;
    out.idle.rss_mib = 30'000;
    out.idle.output_bytes = output;
    out.idle.processes = 12;
    out.idle.connections = doing == Doing::waits_for_input ? 3 : 0;
    return out;
  }
  void deliver() {
    while (!to_agent.empty() || !to_head.empty()) {
      if (!to_head.empty()) {
        const auto frame = *decode_from_agent(to_head.front());
        to_head.pop_front();
        if (!wire || !engine)
          continue;
        wire->heard = clock.steady();
        visit(
            [&](const auto& m) {
              using T = std::decay_t<decltype(m)>;
              if constexpr (std::is_same_v<T, Hello>)
                sessions->hello(wire, m);
              else if constexpr (std::is_same_v<T, Report>)
                sessions->report(wire, m);
              else if constexpr (std::is_same_v<T, Heartbeat>)
                sessions->heartbeat(wire);
              else if constexpr (std::is_same_v<T, MeterMark>)
                sessions->marks(wire, m);
              else if constexpr (std::is_same_v<T, IdleNote>)
                sessions->idle_note(wire, m);
            },
            frame.message);
        while (journal->step()) {}
      } else {
        const auto frame = *decode_to_agent(to_agent.front());
        to_agent.pop_front();
        if (!machine_up)
          continue;
        agent::Effects effects;
        agent->on_message(frame.message, frame.blob, now(), effects);
        perform(effects);
      }
    }
  }
  void second() {
    now_ns += 1'000'000'000;
    if (boots_at_s == now_s() && engine)
      boot();
    if (machine_up) {
      if (stopping && now_s() >= stopping->second) {
        const TaskId task = stopping->first;
        stopping.reset();
        end_task(task, 0, true);
      }
      agent::Effects effects;
      if (now_s() % 2 == 0) {
        for (const auto& [task, since] : running)
          agent->on_sample(task, sample(), now(), effects);
        if (agent->welcomed())
          effects.push_back(agent::effect::Send{Heartbeat{}});
      }
      agent->tick(now(), effects);
      perform(effects);
    }
    deliver();
    if (engine) {
      if (!machine_up && wire) {
        wire->up = false;
        sessions->closed(wire);
        wire.reset();
      }
      execute(Tick{});
      if (now_s() % 2 == 0)
        execute(MoneyTick{});
      if (now_s() % (provider.commands ? 15 : 5) == 0)
        visit_provider();
      sessions->watch_silence(
          [this](const head::AgentLinkPtr& session) { sessions->closed(session); });
      while (journal->step()) {}
    }
    deliver();
  }
  // Once the machine is gone there is nothing left that could happen within a minute.
  void until(std::int64_t s) {
    while (now_s() < s) {
      if (!machine_up && provider.listed() == 0 &&
          (!engine || (engine->state().nodes.empty() && engine->state().machines.empty())) &&
          boots_at_s < 0 && now_s() + 120 < s)
        now_ns += 59'000'000'000;
      second();
    }
  }

  JobId train(bool pty = false) {
    SubmitJob submit;
    submit.spec.argv = {"python", "train.py"};
    submit.spec.resources.gpus = 8;
    submit.spec.resources.share = {1000, 0};
    submit.spec.pty = pty;
    submit.user = engine->state().users.begin()->first;
    const JobId id(engine->state().next_job);
    execute(submit);
    deliver();
    return id;
  }
  std::vector<Event> events() const {
    std::vector<Event> out;
    for (const Record& r : disk.records)
      out.push_back(*control::decode_event(r.seq, r.at, r.kind, r.payload));
    return out;
  }
};

bool Wire::send(const ToAgent& message, std::string_view blob) {
  if (!up)
    return false;
  weekend.to_agent.push_back(encode(message, blob));
  return true;
}

constexpr std::int64_t hour = 3600, saturday_night = 4 * hour,
                       tuesday_morning = 60 * hour;  // the training began on Saturday evening

struct Story {
  const char* name;
  Doing then;
  bool head_dies = false;
  bool dies_before = false;  // an hour before the work ends
  bool no_service = false;
  std::int64_t dies_after_s = 0;  // the work ends, and this much later the head
};

class TheWeekend : public testing::TestWithParam<Story> {};

TEST_P(TheWeekend, CostsHalfAnHourAtMost) {
  const Story& story = GetParam();
  Weekend w;
  w.can_suspend = !story.no_service;
  w.second();
  const JobId job = w.train(story.then == Doing::waits_for_input);
  w.until(180);
  ASSERT_EQ(w.running.size(), 1u) << "the training runs";
  w.until(saturday_night - hour);
  ASSERT_EQ(w.provider.listed(), 1u) << "nobody takes a machine away from work";
  ASSERT_EQ(w.running.size(), 1u);
  if (story.dies_before)
    w.kill_head();
  w.until(saturday_night);
  ASSERT_EQ(w.running.size(), 1u) << "a job outlives its head";
  if (story.head_dies && !story.dies_before)
    w.kill_head();
  if (story.then == Doing::finished)
    w.end_task(w.running.begin()->first, 1, false);
  w.doing = story.then;
  if (story.dies_after_s) {
    w.until(saturday_night + story.dies_after_s);
    w.kill_head();
  }
  w.until(tuesday_morning);
  EXPECT_EQ(w.provider.listed(), 0u) << "the provider lists no instance";
  EXPECT_EQ(w.provider.instances.size(), 1u) << "and none was rented again";
  const std::int64_t after_s = w.provider.billed_after_s(saturday_night);
  EXPECT_LE(after_s, 30 * 60) << "billed after the work ended";
  EXPECT_GE(after_s, 0);
  RecordProperty("billed_after_s", static_cast<int>(after_s));
  printf("%s: %lld s billed after the work ended\n", story.name, static_cast<long long>(after_s));
  const bool head_lives = !story.head_dies && !story.dies_before && !story.dies_after_s;
  if (head_lives) {
    EXPECT_TRUE(w.engine->state().nodes.empty() && w.engine->state().machines.empty())
        << "the head has let it go too";
    EXPECT_EQ(w.engine->state().find_job(job), nullptr);
    const auto totals = w.engine->state().money.books.totals({}, w.engine->billed());
    EXPECT_EQ((totals.active + totals.idle + totals.unallocated).value, totals.fleet.value);
  }
  bool warned = false, found_hung = false;
  for (const Event& event : w.events())
    if (const auto* e = get_if<IdleWarned>(&event.body)) {
      warned = true;
      found_hung = found_hung || e->state == IdleState::hung;
    }
  const bool head_saw_it = head_lives || story.dies_after_s > 600;
  EXPECT_EQ(warned, head_saw_it && story.then != Doing::finished);
  EXPECT_EQ(found_hung, head_saw_it && story.then == Doing::hangs);
}

INSTANTIATE_TEST_SUITE_P(
    Stories,
    TheWeekend,
    testing::Values(
        Story{"the job errors", Doing::finished},
        Story{"a process hangs", Doing::hangs},
        Story{"a notebook is left open", Doing::waits_for_input},
        Story{"the head dies and the job errors", Doing::finished, true},
        Story{"the head dies and the job errors an hour later", Doing::finished, false, true},
        Story{"the head dies and a process hangs", Doing::hangs, true},
        Story{"the head dies and a notebook is left open", Doing::waits_for_input, true},
        Story{"a process hangs that cannot be suspended", Doing::hangs, false, false, true},
        Story{"the head suspends a notebook and dies", Doing::waits_for_input, false, false, false,
              17 * 60},
        Story{"the head warns and dies", Doing::hangs, false, false, false, 12 * 60}));

// The same through the commands of a pool, as `billow pool add command` makes one, with its default
// settings.
TEST(Weekend, CostsNoMoreThroughTheCommandsOfARealPool) {
  constexpr std::int64_t night = 20 * 60;
  for (const Story& story :
       {Story{"the job errors", Doing::finished}, Story{"a process hangs", Doing::hangs},
        Story{"a notebook is left open", Doing::waits_for_input},
        Story{"the head dies and the job errors", Doing::finished, true}}) {
    SCOPED_TRACE(story.name);
    Weekend w(true);
    w.second();
    w.train(story.then == Doing::waits_for_input);
    w.until(night);
    ASSERT_EQ(w.running.size(), 1u) << "the training runs, on a machine the commands have made";
    ASSERT_EQ(w.provider.listed(), 1u);
    EXPECT_EQ(w.engine->state().machines.begin()->second.external, "i-" + w.machine);
    if (story.head_dies)
      w.kill_head();
    if (story.then == Doing::finished)
      w.end_task(w.running.begin()->first, 1, false);
    w.doing = story.then;
    w.until(night + 2 * hour);
    EXPECT_EQ(w.provider.listed(), 0u) << "the provider lists no instance";
    EXPECT_EQ(w.provider.instances.size(), 1u) << "and none was rented again";
    const std::int64_t after_s = w.provider.billed_after_s(night);
    EXPECT_LE(after_s, 30 * 60);
    EXPECT_GT(after_s, 0);
    printf("%s, by commands: %lld s billed after the work ended\n", story.name,
           static_cast<long long>(after_s));
  }
}

TEST(Weekend, ALongTrainingIsLeftAlone) {
  Weekend w;
  w.second();
  w.train();
  w.until(6 * hour);
  EXPECT_EQ(w.provider.instances.size(), 1u);
  EXPECT_EQ(w.running.size(), 1u);
  EXPECT_EQ(w.provider.listed(), 1u);
  for (const Event& event : w.events())
    EXPECT_FALSE(holds_alternative<IdleWarned>(event.body));
}

}  // namespace
}  // namespace billow
