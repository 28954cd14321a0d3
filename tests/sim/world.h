// The fault simulator: the real head (Engine, AgentLinks, control core, scheduler) and the real
// agent core, on simulated machines, disks, processes, clocks and wires, all driven by one seed in
// virtual time. A run has two parts: faults, and then quiet, in which everything is repaired and
// every job must end. After every event the audit compares the journal with what the simulated
// processes did. The same seed repeats a run exactly.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "store/sim_journal.h"

namespace billow::sim {

// From this seed on people set and remove secrets, and jobs ask for them. Smaller seeds keep the
// runs they always had.
inline constexpr std::uint64_t first_seed_with_secrets = 100'000;

// Bugs planted on purpose: a simulator that does not find them could not find others.
enum class Mutation {
  none,
  ack_before_durable,      // clients get answers before the journal is durable
  deliver_before_durable,  // agents get orders before the journal is durable
  start_twice,             // task directories are neither checked nor recovered
  lease_freed_early,       // a task that is being stopped is reported as ended
  exit_mangled,            // signals are reported as exit codes
  epoch_forgotten,         // the agent's memory file is never written
  suspended_early,         // a task is reported as suspended while it still runs
  orders_forgotten,        // a restarted agent takes suspended tasks for running ones
  secret_unminded,         // a job runs although its secret was removed
  secret_stale,            // a job gets a secret's earlier value
  snapshot_inexact,        // a snapshot has a counter that the state does not have
};

struct Failure {
  std::string what;
};
[[noreturn]] void broken(std::string what);

class SimHead;
class SimNode;
class Audit;
class Clients;
class EndpointClients;
class SimProvider;
class Readings;

// The clocks of one machine. Wall time may be stepped; steady time counts up from each boot.
struct MachineClock final : Clock {
  const std::int64_t* now_ns = nullptr;
  std::int64_t skew_ns = 0;
  std::int64_t booted_ns = -1'000'000'000;
  bool stepped = false;  // ever
  WallTime wall() const override { return {1'790'000'000'000'000'000 + *now_ns + skew_ns}; }
  SteadyTime steady() const override { return {*now_ns - booted_ns}; }
};

// What goes wrong in this run, and how often; drawn once from the seed, so that runs differ.
struct Faults {
  double cut = 0;              // connections, per second
  double doubled = 0;          // per frame
  double head_crash = 0;       // per journal step
  double agent_crash = 0;      // per second and node
  double torn = 0;             // per effect of an agent
  double reboot = 0;           // per second and node
  double supervisor_kill = 0;  // per second and node
  double disk_full = 0;        // per second
  double clock_step = 0;       // per second and machine
  double takeover = 0;         // per second
  double reply_lost = 0;       // per reply
  double exec_fails = 0;       // per start
  double order_fails = 0;      // per suspend or resume
  std::int64_t latency_ns = 0;
  std::int64_t stall_ns = 0;  // added to some frames
};

// What happened in a run.
struct Counts {
  std::uint64_t faults = 0, heads = 0, jobs = 0, machines = 0;
  std::uint64_t history = 14695981039346656037u;  // a hash of all that became durable, and when
  void add(const Counts& o) {
    history = (history ^ o.history) * 1099511628211u;
    faults += o.faults;
    heads += o.heads;
    jobs += o.jobs;
    machines += o.machines;
  }
};

class World {
 public:
  // `lasts`: zero: one part with faults, and then quiet. Else a long run of that length: such
  // pairs, each with faults of its own, and between them hours with a few jobs and no faults. A
  // long run also has a pool, whose provider misbehaves while there are faults.
  World(std::uint64_t seed, Mutation mutation, Duration lasts, bool thoroughly);
  ~World();
  void run();  // throws Failure

  std::uint64_t seed() const { return seed_; }
  bool with_secrets() const { return seed_ >= first_seed_with_secrets; }
  std::int64_t steps() const { return steps_; }
  bool is_long() const { return lasts_.ns > 0; }
  // The state is checked after every change and what happens is written down. Else the state is
  // checked after some changes and when a part ends: what breaks is told again thoroughly.
  const bool thorough;
  Counts counts;
  const std::deque<std::string>& recent() const { return recent_; }

  // ---- for the parts
  Rng rng;
  Faults faults;
  Mutation mutation;
  SimDisk disk;
  std::int64_t now_ns = 0;
  bool calm = false;  // the faults are over
  MachineClock head_clock;
  std::vector<std::unique_ptr<SimNode>> nodes;
  std::vector<std::unique_ptr<SimHead>> heads;  // newest last; an older one may live on for a while
  std::unique_ptr<Audit> audit;
  std::unique_ptr<Clients> clients;
  std::unique_ptr<EndpointClients> endpoints;
  std::unique_ptr<SimProvider> provider;  // of long runs
  std::unique_ptr<Readings> readings;     // of long runs that are not thorough

  void after(Duration delay, std::function<void()> fn);
  Duration some(Duration least, Duration most) { return {rng.between(least.ns, most.ns)}; }
  bool fault(double p) {
    const bool happens = !calm && p > 0 && rng.chance(p);
    counts.faults += happens ? 1 : 0;
    return happens;
  }
  SimHead* head() const;  // the leader, or none
  void start_head();
  template <class... T>
  void trace(fmt::format_string<T...> text, T&&... values) {
    if (thorough)
      note(fmt::format(text, std::forward<T>(values)...));
  }

 private:
  struct Due {
    std::int64_t at_ns;
    std::uint64_t order;
    std::function<void()> fn;
    bool operator<(const Due& o) const {
      return at_ns != o.at_ns ? at_ns > o.at_ns : order > o.order;
    }
  };
  void note(std::string line);
  void every_second();
  void tick_after(Duration delay);
  void draw_character();
  void heal();
  void trouble();
  void pass_quietly(std::int64_t until_ns);
  void sleep_until(std::int64_t until_ns);
  void begin_again();
  void run_rented();
  void bury_gone();
  bool all_is_well() const;
  void hear_all();
  bool run_until(std::int64_t until_ns, const std::function<bool()>& done);

  const std::uint64_t seed_;
  const Duration lasts_;
  bool asleep_ = false;      // nothing happens: time passes in large steps
  std::uint64_t ticks_ = 0;  // of which the newest counts
  std::size_t own_nodes_ = 0, next_node_ = 0;
  std::vector<std::unique_ptr<SimNode>> buried_;  // what was meant for them may still come
  std::priority_queue<Due> due_;
  std::uint64_t order_ = 0;
  std::int64_t steps_ = 0;
  std::deque<std::string> recent_;
};

// One whole run.
struct Outcome {
  std::optional<std::string> failure;
  std::string story;  // if `verbose`
  std::int64_t steps = 0;
  double virtual_s = 0;
  Counts counts;
};
Outcome simulate(std::uint64_t seed,
                 Mutation mutation = Mutation::none,
                 bool verbose = false,
                 Duration lasts = {});

}  // namespace billow::sim
