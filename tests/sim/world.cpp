#include "world.h"

#include "audit.h"
#include "endpoints.h"
#include "head.h"
#include "node.h"
#include "provider.h"
#include "readings.h"

namespace billow::sim {

void broken(std::string what) {
  throw Failure{std::move(what)};
}

World::World(std::uint64_t seed, Mutation planted, Duration lasts, bool thoroughly)
    : thorough(thoroughly),
      rng(seed * 2 + 1),
      mutation(planted),
      readings(thoroughly ? nullptr : std::make_unique<Readings>(disk.records)),
      seed_(seed),
      lasts_(lasts) {
  head_clock.now_ns = &now_ns;
  draw_character();
  audit = std::make_unique<Audit>(*this);
  own_nodes_ = static_cast<std::size_t>(is_long() ? rng.between(3, 6) : rng.between(1, 4));
  while (next_node_ < own_nodes_)
    nodes.push_back(
        std::make_unique<SimNode>(*this, next_node_++, static_cast<int>(rng.between(1, 4))));
  if (is_long())
    provider = std::make_unique<SimProvider>(
        rng.next(), &now_ns,
        [this](Duration in, std::function<void()> fn) { after(in, std::move(fn)); });
  clients = std::make_unique<Clients>(*this);
  endpoints = std::make_unique<EndpointClients>(*this);
}
// Clients watch heads, heads talk to nodes: taken down in that order.
World::~World() {
  clients.reset();
  heads.clear();
}

// Most runs have a few kinds of faults, so that each kind also meets a system that is otherwise
// well; some have all of them.
void World::draw_character() {
  const bool everything = rng.chance(0.15);
  const auto pick = [&](double chance, double most) {
    return everything || rng.chance(chance) ? most * (0.2 + 0.8 * rng.unit()) : 0.0;
  };
  faults.cut = pick(0.5, 0.15);
  faults.doubled = pick(0.4, 0.05);
  faults.head_crash = pick(0.5, 0.05);
  faults.agent_crash = pick(0.4, 0.08);
  faults.torn = pick(0.4, 0.05);
  faults.reboot = pick(0.3, 0.02);
  faults.supervisor_kill = pick(0.25, 0.03);
  faults.disk_full = pick(0.25, 0.03);
  faults.clock_step = pick(0.25, 0.05);
  faults.takeover = pick(0.25, 0.03);
  faults.reply_lost = pick(0.4, 0.3);
  faults.exec_fails = pick(0.2, 0.2);
  faults.order_fails = pick(0.3, 0.3);
  faults.latency_ns = rng.between(100'000, 5'000'000);
  faults.stall_ns = rng.chance(0.3) ? rng.between(100'000'000, 12'000'000'000) : 0;
}

void World::after(Duration delay, std::function<void()> fn) {
  due_.push({now_ns + std::max<std::int64_t>(delay.ns, 0), order_++, std::move(fn)});
}

void World::note(std::string line) {
  recent_.push_back(
      fmt::format("{:>8.3f} #{} {}", static_cast<double>(now_ns) / 1e9, steps_, std::move(line)));
  if (recent_.size() > 4000)
    recent_.pop_front();
}

SimHead* World::head() const {
  return heads.empty() || !heads.back()->alive || heads.back()->dying ? nullptr
                                                                      : heads.back().get();
}

void World::start_head() {
  for (const auto& h : heads)
    if (h->alive)
      h->deposed = true;
  heads.push_back(std::make_unique<SimHead>(*this));
  ++counts.heads;
  trace("head {} starts", disk.epoch);
  if (!heads.back()->start())
    broken("the head cannot read its own journal");
}

// Asleep, a tick every ten minutes: those between would change nothing.
void World::tick_after(Duration delay) {
  after(delay, [this, tick = ++ticks_] {
    if (tick == ticks_)
      every_second();
  });
}

void World::every_second() {
  tick_after(asleep_ ? minutes(10) : seconds(1));
  if (asleep_)
    hear_all();
  if (provider)
    run_rented();
  // A head that took a heavy blow is started again by its service manager; so is an agent.
  if (!head() && (calm || rng.chance(0.4)))
    start_head();
  if (fault(faults.takeover) && head()) {
    // The old one does not know yet. It ends when the journal refuses it, or when its lease on the
    // leadership is over.
    const Epoch old =
        heads.back()->journal.epoch();  // not its address, which a later head may have
    start_head();
    after(some(seconds(0), seconds(20)), [this, old] {
      for (const auto& h : heads)
        if (h->journal.epoch() == old && h->alive)
          h->crash();
    });
  }
  if (fault(faults.disk_full)) {
    trace("the disk is full");
    disk.full = true;
    after(some(seconds(1), seconds(25)), [this] {
      disk.full = false;
      trace("the disk has room again");
    });
  }
  if (fault(faults.clock_step)) {
    const std::size_t which = rng.below(nodes.size() + 1);
    MachineClock& clock = which < nodes.size() ? nodes[which]->clock : head_clock;
    const std::int64_t by = rng.between(-6 * 3600, 6 * 3600);
    // Not further than a day apart: after that an idempotency key may rightly be forgotten.
    clock.skew_ns = std::clamp(clock.skew_ns + by * 1'000'000'000, hours(-10).ns, hours(10).ns);
    clock.stepped = true;
    trace("the wall clock of {} steps by {} s",
          which < nodes.size() ? nodes[which]->name : "the head", by);
  }
  for (const auto& h : heads)
    if (h->alive)
      h->every_second();
  for (const auto& n : nodes)
    n->every_second();
  clients->every_second();
  endpoints->every_second();
  std::erase_if(heads, [&](const auto& h) { return !h->alive && h != heads.back(); });
}

bool World::run_until(std::int64_t until_ns, const std::function<bool()>& done) {
  while (!due_.empty() && due_.top().at_ns <= until_ns) {
    auto fn = std::move(const_cast<Due&>(due_.top()).fn);
    now_ns = due_.top().at_ns;
    due_.pop();
    ++steps_;
    fn();
    audit->read_journal();
    if (done && done())
      return true;
  }
  return false;
}

void World::heal() {
  trace("quiet: the faults are over");
  calm = true;
  disk.full = false;
  if (provider)
    provider->calm_down();
  for (const auto& n : nodes) {
    if (n->gone)
      continue;
    if (!n->up)
      n->boot();
    else if (!n->agent_runs())
      n->start_agent();
  }
  clients->settle_down();
}

void World::run() {
  start_head();
  for (const auto& n : nodes)
    n->boot();
  tick_after(seconds(1));
  trouble();
  while (now_ns < lasts_.ns) {
    pass_quietly(now_ns + some(minutes(30), hours(8)).ns);
    begin_again();
    trouble();
  }
  if (!head())
    broken("no head is up after the quiet");
  audit->finish(head()->engine->state());
  if (is_long())
    head()->check_replay(true);
  endpoints->finish();
}

// A part with faults, and the quiet after it, in which every job ends.
void World::trouble() {
  run_until(now_ns + some(seconds(20), seconds(rng.chance(0.3) ? 240 : 70)).ns, {});
  heal();
  const auto done = [this] {
    return endpoints->all_done() && clients->all_done() && (!is_long() || all_is_well());
  };
  bool ended = run_until(now_ns + minutes(30).ns, done);
  // One ends, and another that waited for it finds the same hardware missing.
  for (int minute = 0; !ended && minute < 20; ++minute) {
    clients->stop_infeasible();
    ended = run_until(now_ns + minutes(1).ns, done);
  }
  if (is_long() && head())
    head()->check_state();
  if (!is_long() || ended)
    return;
  if (head())
    audit->finish(head()->engine->state());
  broken("the nodes or the pool do not recover");
}

namespace {

Outcome simulate_once(
    std::uint64_t seed, Mutation mutation, bool thorough, bool verbose, Duration lasts) {
  Outcome outcome;
  World world(seed, mutation, lasts, thorough);
  try {
    world.run();
  } catch (const Failure& failure) {
    std::string story =
        fmt::format("seed {} broke at step {} ({:.3f} s): {}\n", seed, world.steps(),
                    static_cast<double>(world.now_ns) / 1e9, failure.what);
    const auto& lines = world.recent();
    const std::size_t shown = verbose ? 0 : std::min<std::size_t>(lines.size(), 40);
    for (std::size_t i = lines.size() - shown; i < lines.size(); ++i)
      story += "  " + lines[i] + "\n";
    story += fmt::format("again: ./dev sim --seed {}", seed);
    story += lasts.ns > 0 ? fmt::format(" --hours {}\n", lasts.ns / hours(1).ns) : "\n";
    outcome.failure = std::move(story);
  }
  if (verbose)
    for (const std::string& line : world.recent())
      outcome.story += "  " + line + "\n";
  outcome.steps = world.steps();
  outcome.counts = world.counts;
  outcome.virtual_s = static_cast<double>(world.now_ns) / 1e9;
  return outcome;
}

}  // namespace

Outcome simulate(std::uint64_t seed, Mutation mutation, bool verbose, Duration lasts) {
  const bool thorough = verbose || lasts.ns == 0;
  Outcome outcome = simulate_once(seed, mutation, thorough, verbose, lasts);
  if (!outcome.failure || thorough)
    return outcome;
  // The same run again, with every check and every line.
  Outcome again = simulate_once(seed, mutation, true, false, lasts);
  return again.failure ? again : outcome;
}

}  // namespace billow::sim
