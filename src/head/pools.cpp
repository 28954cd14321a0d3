#include "head/pools.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/crypto.h"
#include "base/limits.h"
#include "base/log.h"
#include "pool/kinds.h"

namespace billow::head {
namespace {

constexpr Duration plan_every = milliseconds(250);
constexpr Duration gather = milliseconds(15);  // so that a burst of submissions causes one look
constexpr std::int64_t plan_share = 10;     // planning may take at most one part in ten of the time
constexpr Duration look_soon = seconds(1);  // while something is on its way
constexpr Duration look_seldom = seconds(10);
constexpr Duration look_after_order = milliseconds(300);
constexpr std::size_t asked_at_once = 8;
constexpr Duration ask_again = seconds(30);  // a machine that was asked for and is in no list

// "fast-7", or "fast-7.0" of a machine of several nodes.
bool is_node_of(const std::string& node, const std::string& machine) {
  return node == machine || node.starts_with(machine + ".");
}

}  // namespace

// One visit to an engine: filled on the loop, carried out on the pool's thread, read on the loop.
struct Pools::Round {
  std::vector<pool::Order> wanted;
  std::set<std::string> released, known;
  WallTime began;
  std::size_t tokens_left = 0;
  bool lists =
      true;  // false: none of the wanted machines can exist yet, so they are ordered at once

  std::optional<std::vector<MachineSighting>> listed;
  std::string error;
  std::vector<std::string> made, strays;
  std::vector<OrderFailed> refused;
};

Pools::Pools(net::Loop& loop, const Clock& clock, std::function<Engine&()> engine, Options options)
    : loop_(loop),
      clock_(clock),
      engine_(std::move(engine)),
      options_(std::move(options)),
      began_(clock.wall()) {}
Pools::~Pools() = default;

void Pools::look() {
  Engine& engine = engine_();
  if (engine.state().pools.empty() && running_.empty())
    return;
  const SteadyTime now = clock_.steady();
  if (now - planned_at_ >= plan_every) {
    planned_at_ = now;
    engine.execute(PlanPools{}, {"head", ""}, {});
    plan_took_ = clock_.steady() - now;
  }
  for (auto at = running_.begin(); at != running_.end();) {
    if (!engine.state().pools.contains(at->first) && !at->second->busy)
      at = running_.erase(at);
    else
      ++at;
  }
  for (const auto& [id, settings] : std::map(engine.state().pools))
    begin(id, settings);
}

void Pools::heard(const Event& event) {
  if (engine_().state().pools.empty())
    return;
  const bool wanted = holds_alternative<JobsSubmitted>(event.body) ||
                      holds_alternative<JobReady>(event.body) ||
                      holds_alternative<JobRequeued>(event.body);
  // The machine of a node that fell silent may be gone: its engine knows.
  if (const auto* silent = get_if<NodeUnreachable>(&event.body)) {
    const auto node = engine_().state().nodes.find(silent->node);
    const auto running =
        node == engine_().state().nodes.end() ? running_.end() : running_.find(node->second.pool);
    if (running != running_.end())
      running->second->next_look = {};
  }
  if (wanted)
    look_again_soon();
}

Pools::Running* Pools::running(PoolId id, const Pool& settings) {
  auto& slot = running_[id];
  if (slot)
    return slot.get();
  const auto failed = [&](const Error& error) -> Running* {
    log_error("pool {}: {}", settings.name, error.message);
    return nullptr;
  };
  pool::Options engine = options_.engine;
  auto credential = options_.credential(settings);
  if (!credential)
    return failed(credential.error());
  engine.credential = std::move(*credential);
  auto made = pool::make_pool(settings, engine);
  if (!made)
    return failed(made.error());
  slot = std::make_unique<Running>();
  slot->pool = std::move(*made);
  slot->worker =
      std::make_unique<net::Workers>(loop_, net::Workers::Options{.threads = 1, .queue_max = 4});
  return slot.get();
}

// Whether a node of the machine answers, or may still do so: a head that has just started has not
// heard from all nodes yet.
bool Pools::may_answer(const Node& node, PoolId pool, const std::string& machine) const {
  const bool just_started = clock_.wall() - began_ < limits::agent_unreachable_after;
  return node.pool == pool && (node.reachable || just_started) &&
         is_node_of(node.offer.name, machine);
}

// Whether tasks still run on a machine that is being released, or their logs are still to be taken;
// the engine would cut them short.
bool Pools::still_busy(PoolId pool, const std::string& machine) const {
  const control::State& state = engine_().state();
  return std::ranges::any_of(state.nodes, [&](const auto& node) {
    return (state.tasks_on.contains(node.first) || options_.needed(node.first)) &&
           may_answer(node.second, pool, machine);
  });
}

bool Pools::answers(PoolId pool, const std::string& machine) const {
  const control::State& state = engine_().state();
  return std::ranges::any_of(
      state.nodes, [&](const auto& node) { return may_answer(node.second, pool, machine); });
}

// What the pool's engine is to be asked for: which machines are wanted, and which are released.
Pools::Demand Pools::demand_of(PoolId id, const Pool& settings, const Running& r, Round& round) {
  Demand demand;
  const SteadyTime now = clock_.steady();
  for (const auto& [name, machine] : engine_().state().machines) {
    if (machine.pool != id)
      continue;
    round.known.insert(name);
    demand.moving = demand.moving || machine.state != MachineState::here;
    if (machine.state == MachineState::wanted && machine.external.empty()) {
      const auto asked = r.asked.find(name);
      if (asked != r.asked.end() && now - asked->second < ask_again)
        continue;
      demand.fresh = demand.fresh && machine.wanted_at >= began_ && !r.tried.contains(name);
      round.wanted.push_back(
          {.machine = machine,
           .head_url = settings.head_url.empty() ? options_.head_url() : settings.head_url,
           .token = {},
           .authority = options_.authority,
           .program_sha256 = {}});
    } else if (machine.state == MachineState::releasing) {
      if (!still_busy(id, name))
        round.released.insert(name);
    } else if (machine.state == MachineState::here) {
      demand.moving = demand.moving || !answers(id, name);  // the machine may be gone
    }
  }
  return demand;
}

void Pools::begin(PoolId id, const Pool& settings) {
  Running* const slot = running(id, settings);
  if (!slot || slot->busy)
    return;
  Running& r = *slot;
  const SteadyTime now = clock_.steady();
  if (settings.capabilities && settings.capabilities->from_offers && now >= r.next_offers)
    return refresh_offers(id, r);
  auto round = std::make_shared<Round>();
  const Demand demand = demand_of(id, settings, r, *round);
  // A machine that nobody uses is billed until its engine is asked to end it: do not wait.
  const bool gives_back = std::ranges::any_of(
      round->released, [&](const std::string& name) { return !r.given_back.contains(name); });
  const bool due = now >= r.next_look || (gives_back && r.last_error.empty());
  // An engine that fails is not asked more often because more is wanted of it.
  if (!due && (round->wanted.empty() || !r.last_error.empty()))
    return;
  r.busy = true;
  r.given_back.insert(round->released.begin(), round->released.end());
  round->lists = due || !demand.fresh;
  if (round->lists)
    r.next_look = now + (demand.moving ? look_soon : look_seldom);
  for (const pool::Order& order : round->wanted)
    r.tried.insert(order.machine.name);
  round->began = clock_.wall();
  if (round->wanted.empty())
    return run(id, round);
  issue_tokens(id, pool::token_life(settings.kind), round);
}

// Each machine gets a join token for one use, which is durable before the machine can use it. What
// a job on the machine can read of its user data is worthless once the machine has joined.
void Pools::issue_tokens(PoolId id, Duration life, const std::shared_ptr<Round>& round) {
  round->tokens_left = round->wanted.size();
  for (pool::Order& order : round->wanted) {
    if (order.machine.offer)
      if (const auto packed = program())
        order.program_sha256 = packed->sha256;
    const std::string secret = join_secret(order.machine);
    order.token = options_.fingerprint.empty() ? secret : secret + "." + options_.fingerprint;
    engine_().execute(
        OrderToken{.machine = order.machine.name,
                   .hash = sha256_hex(secret),
                   .user = options_.owner,
                   .pool = id,
                   .life = life},
        {"head", ""},
        [this, id, round, name = order.machine.name](Result<std::vector<Event>> events) {
          if (!events) {
            log_error("machine {}: {}", name, events.error().message);
            std::erase_if(round->wanted,
                          [&](const pool::Order& o) { return o.machine.name == name; });
          }
          if (--round->tokens_left == 0)
            run(id, round);
        });
  }
}

// A machine that is asked for again gets the same secret: providers compare the user data of a
// repeated order, and only the first machine's would be used.
std::string Pools::join_secret(const Machine& machine) {
  auto& secret = secrets_[machine.name];
  if (secret.empty())
    secret = "bwj_" + random_token(30);
  return secret;
}

// Several at a time: an engine's tool spends most of its time waiting.
void Pools::ask(pool::Pool& engine, const std::vector<pool::Order>& orders, Round& round) {
  for (std::size_t from = 0; from < orders.size(); from += asked_at_once) {
    const std::size_t to = std::min(orders.size(), from + asked_at_once);
    std::vector<pool::Ordered> made(to - from);
    std::vector<std::thread> threads;
    for (std::size_t i = from + 1; i < to; ++i)
      threads.emplace_back([&, i] { made[i - from] = engine.want(orders[i]); });
    made[0] = engine.want(orders[from]);
    for (std::thread& thread : threads)
      thread.join();
    for (std::size_t i = from; i < to; ++i) {
      const pool::Ordered& one = made[i - from];
      if (one)
        round.made.push_back(orders[i].machine.name);
      else if (one.error().kind == RefusalKind::no_answer)
        round.error = one.error().message;
      else
        round.refused.push_back({orders[i].machine.name, one.error().message, one.error().kind});
    }
  }
}

void Pools::run(PoolId id, std::shared_ptr<Round> round) {
  const auto found = running_.find(id);
  if (found == running_.end())
    return;
  pool::Pool* engine = found->second->pool.get();
  const Status queued =
      found->second->worker->submit([this, id, engine, round]() -> std::function<void()> {
        const auto done = [this, id, round] {
          finished(id, *round);
        };
        if (!round->lists) {
          ask(*engine, round->wanted, *round);
          return done;
        }
        auto listed = engine->nodes();
        if (!listed) {
          round->error = listed.error().message;
          return done;
        }
        std::set<std::string> there;
        for (const MachineSighting& machine : *listed) {
          there.insert(machine.name);
          const bool unwanted = round->released.contains(machine.name) || machine.failed;
          if (!unwanted || machine.ended)
            continue;
          if (const Status released = engine->release(machine); !released)
            round->error = released.error().message;
        }
        std::erase_if(round->wanted, [&](const pool::Order& order) {
          return there.contains(order.machine.name);
        });  // made by an earlier life of this head, or in the moment before it died
        ask(*engine, round->wanted, *round);
        round->strays = engine->reconcile(*listed, round->known);
        // What was just made is in the next look; this one is older.
        round->listed = std::move(*listed);
        return done;
      });
  if (!queued)
    found->second->busy = false;
}

// Where a cloud's list may lag, a machine that was listed before is gone only if two looks in a row
// lack it.
std::vector<MachineSighting> Pools::confirmed(Running& r,
                                              const Pool& settings,
                                              std::vector<MachineSighting> listed) {
  if (!settings.capabilities || !settings.capabilities->from_offers)
    return listed;
  std::map<std::string, MachineSighting> now;
  for (const MachineSighting& machine : listed)
    now[machine.name] = machine;
  for (const auto& [name, before] : r.last_listed)
    if (!now.contains(name))
      listed.push_back(before);
  if (listed.size() > now.size())
    r.next_look = std::min(r.next_look, clock_.steady() + look_soon);
  r.last_listed = std::move(now);
  return listed;
}

// The next offer is ordered at once: a job waits, and the refusal is already in the state.
void Pools::report_refusals(const std::string& pool, const Round& round) {
  for (const OrderFailed& refused : round.refused) {
    if (refused.kind == RefusalKind::settings)
      log_error("pool {} orders nothing until its settings or credentials are mended: {}", pool,
                refused.reason);
    else
      log_warn("pool {}: {} refused ({}): {}", pool, refused.machine, enum_name(refused.kind),
               refused.reason);
    engine_().execute(refused, {"head", ""}, {});
  }
  if (!round.refused.empty())
    look_again_soon();
}

void Pools::look_again_soon() {
  if (nudged_)
    return;
  nudged_ = true;
  nudge_ = loop_.after(std::max(gather, plan_took_ * plan_share), [this] {
    nudged_ = false;
    planned_at_ = {};
    look();
  });
}

void Pools::refresh_offers(PoolId id, Running& r) {
  r.busy = true;
  r.next_offers = clock_.steady() + limits::pool_offers_every;
  const Status queued =
      r.worker->submit([this, id, engine = r.pool.get()]() -> std::function<void()> {
        return [this, id, found = engine->offers()] {
          const auto running = running_.find(id);
          if (running == running_.end())
            return;
          running->second->busy = false;
          if (found) {
            engine_().execute(SetOffers{id, *found}, {"head", ""}, {});
          } else {
            log_warn("pool {}: its offers are not known: {}", id.value, found.error().message);
            running->second->next_offers = clock_.steady() + limits::pool_offers_retry;
            engine_().execute(OffersFailed{id, found.error().message}, {"head", ""}, {});
          }
          look_again_soon();
        };
      });
  if (!queued)
    r.busy = false;
}

std::shared_ptr<const pool::Program> Pools::program() {
  if (!program_) {
    auto packed = pool::pack_program(options_.program_dir);
    if (!packed) {
      log_error("rented machines cannot fetch this program: {}", packed.error().message);
      return nullptr;
    }
    program_ = std::make_shared<const pool::Program>(std::move(*packed));
  }
  return program_;
}

void Pools::finished(PoolId id, const Round& round) {
  const auto found = running_.find(id);
  if (found == running_.end())
    return;
  Running& r = *found->second;
  r.busy = false;
  Engine& engine = engine_();
  const auto settings = engine.state().pools.find(id);
  const std::string name = settings == engine.state().pools.end() ? "?" : settings->second.name;
  if (round.error != r.last_error) {
    if (!round.error.empty())
      log_warn("pool {}: {}", name, round.error);
    else
      log_info("pool {} answers again", name);
    r.last_error = round.error;
  }
  const SteadyTime now = clock_.steady();
  for (const std::string& machine : round.made) {
    r.asked[machine] = now;
    r.next_look = std::min(
        r.next_look,
        now + look_after_order);  // it is listed now, and whoever waits for it wants to know
    log_info("pool {}: ordered {}", name, machine);
  }
  for (const std::string& machine : round.strays)
    log_warn("pool {}: {} was never ordered and is being ended", name, machine);
  report_refusals(name, round);
  if (round.listed && settings != engine.state().pools.end())
    engine.execute(PoolSeen{id, confirmed(r, settings->second, *round.listed), round.began},
                   {"head", ""}, {});
  std::erase_if(r.given_back, [&](const std::string& machine) {
    return !engine.state().machines.contains(machine);
  });
  std::erase_if(r.tried, [&](const std::string& machine) {
    return !engine.state().machines.contains(machine);
  });
  std::erase_if(secrets_,
                [&](const auto& entry) { return !engine.state().machines.contains(entry.first); });
  std::erase_if(r.asked,
                [&](const auto& entry) { return !engine.state().machines.contains(entry.first); });
}

}  // namespace billow::head
