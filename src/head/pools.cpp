#include "head/pools.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/crypto.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"
#include "core/control/renting/twins.h"
#include "core/control/renting/unused.h"
#include "net/workers.h"
#include "pool/kinds.h"
#include "pool/node_facts.h"

namespace billow::head {
namespace {

constexpr Duration plan_every = milliseconds(250);
constexpr Duration gather = milliseconds(15);  // so that a burst of submissions causes one look
constexpr std::int64_t plan_share = 10;     // planning may take at most one part in ten of the time
constexpr Duration look_soon = seconds(1);  // while something is on its way
constexpr Duration look_seldom = seconds(10);
constexpr Duration look_after_order = milliseconds(300);
constexpr Duration ask_again = seconds(30);  // a machine that was asked for and is in no list
// A pool that was removed is listed for so long after its last order: a request that was doubled or
// delayed on its way may still bring a machine. In steady time: clocks may be set. A provider that
// does not list its machines any more is left alone after `watch_max`.
constexpr Duration watched_for = minutes(10), watch_max = hours(1);

class ThreadLane final : public Pools::Lane {
 public:
  ThreadLane(net::Loop& loop, std::size_t threads)
      : workers_(loop, {.threads = threads, .queue_max = 4 * threads}) {}
  Status submit(std::function<std::function<void()>()> work) override {
    return workers_.submit(std::move(work));
  }

 private:
  net::Workers workers_;
};

// "fast-7", or "fast-7.0" of a machine of several nodes.
bool is_node_of(const std::string& node, const std::string& machine) {
  return node == machine || node.starts_with(machine + ".");
}

}  // namespace

// Creating, listing and ending machines run on threads of their own: a provider that hangs in one
// of them holds up none of the others, and a machine that it does not end no other machine.

// An order: filled on the loop, carried out on a thread of the pool.
struct Pools::Asked {
  pool::Order order;
  bool again = false;  // asked for before, by an order of which the answer was lost
};

Pools::Pools(net::Loop& loop, const Clock& clock, std::function<Engine&()> engine, Options options)
    : loop_(loop),
      clock_(clock),
      engine_(std::move(engine)),
      options_(std::move(options)),
      began_(clock.steady()) {}

Pools::~Pools() {
  ending_ = true;
  for (const auto& [id, running] : running_)
    if (running)
      running->pool->stop();
}

// Machines whose time to join has passed while no head ran are released, but are no sign that
// others would not join: five of them would stop their pool.
void Pools::inherit() {
  Engine& engine = engine_();
  std::vector<std::string> late;
  for (const auto& [name, machine] : engine.state().machines) {
    inherited_.insert(name);
    if (!machine.is_disk() &&
        control::failed_to_join(engine.state(), machine,
                                {.now = engine.now(), .billed = engine.billed()}))
      late.push_back(name);
  }
  for (const std::string& name : late)
    engine.execute(ReleaseMachine{name, "its agent could not connect, because no head was running"},
                   {"head", ""}, {});
}

void Pools::look() {
  Engine& engine = engine_();
  if (!std::exchange(looked_, true))
    inherit();
  if (engine.state().pools.empty() && running_.empty())
    return;
  const SteadyTime now = clock_.steady();
  if (now - planned_at_ >= plan_every) {
    planned_at_ = now;
    engine.execute(PlanPools{}, {"head", ""}, {});
    plan_took_ = clock_.steady() - now;
  }
  for (auto at = running_.begin(); at != running_.end();) {
    if (!engine.state().pools.contains(at->first) && !at->second->busy())
      at = running_.erase(at);
    else
      ++at;
  }
  // What begins here may change the pools.
  std::vector<PoolId> pools;
  for (const auto& [id, settings] : engine.state().pools)
    pools.push_back(id);
  for (const PoolId id : pools)
    begin(id);
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
  if (const auto* stopped = get_if<PoolStopped>(&event.body))
    log_error("pool {} orders no more machines: {}", name_of(stopped->pool), stopped->reason);
}

void Pools::note_refused(const std::string& machine, const std::string& why) {
  const auto of = engine_().state().machines.find(machine);
  const auto running =
      of == engine_().state().machines.end() ? running_.end() : running_.find(of->second.pool);
  if (running != running_.end() && running->second && of->second.state == MachineState::wanted)
    running->second->refused[machine] = "its agent was refused: " + why;
}

pool::NodeFacts Pools::facts_of(const std::string& node) {
  const auto machine = engine_().state().machines.find(node.substr(0, node.find('.')));
  if (machine == engine_().state().machines.end())
    return {};
  const auto running = running_.find(machine->second.pool);
  if (running == running_.end() || !running->second)
    return {};
  auto* const knows = dynamic_cast<pool::KnowsNodes*>(running->second->pool.get());
  return knows ? knows->facts_of(node) : pool::NodeFacts{};
}

std::string Pools::why_leaving(const std::string& node) {
  return facts_of(node).leaving;
}

void Pools::complete(NodeOffer& offer) {
  const pool::NodeFacts facts = facts_of(offer.name);
  if (!facts.address.empty())
    offer.address = facts.address;
  for (const auto& [key, value] : facts.labels)
    offer.labels.try_emplace(key, value);
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
  auto made = options_.make ? options_.make(settings, engine) : pool::make_pool(settings, engine);
  if (!made)
    return failed(made.error());
  slot = std::make_unique<Running>();
  slot->ordered_at = began_;
  slot->pool = std::move(*made);
  const auto lane = [&](std::size_t threads) {
    return options_.lane ? options_.lane() : std::make_unique<ThreadLane>(loop_, threads);
  };
  slot->lists = lane(1);
  slot->orders = lane(ask_at_once_max);
  slot->releases = lane(ask_at_once_max + 2);  // two for attach() and extend()
  return slot.get();
}

// Whether a node of the machine answers, or may still do so: a head that has just started has not
// heard from all nodes yet.
bool Pools::may_answer(const Node& node, PoolId pool, const std::string& machine) const {
  const bool just_started = clock_.steady() - began_ < limits::agent_unreachable_after;
  return node.pool == pool && (node.reachable || just_started) &&
         is_node_of(node.offer.name, machine);
}

bool Pools::is_held(const std::string& disk) const {
  return std::ranges::any_of(engine_().state().machines, [&](const auto& entry) {
    return std::ranges::count(split(entry.second.cache, ','), disk) > 0;
  });
}

// Whether tasks still run on a machine that is being released, or their logs are still to be taken;
// the engine would cut them short. A disk is busy while a machine has it.
bool Pools::still_busy(PoolId pool, const std::string& machine) const {
  const control::State& state = engine_().state();
  if (is_held(machine))
    return true;
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

// What the pool's engine is to be asked for.
Pools::Demand Pools::demand_of(PoolId id, const Pool& settings, const Running& r) {
  Demand demand;
  const SteadyTime now = clock_.steady();
  for (const auto& [name, machine] : engine_().state().machines) {
    if (machine.pool != id)
      continue;
    demand.moving = demand.moving || (machine.state != MachineState::here && !is_held(name));
    if (machine.state == MachineState::wanted && machine.external.empty()) {
      const auto asked = r.asked.find(name);
      if (r.in_flight.contains(name) || (asked != r.asked.end() && now - asked->second < ask_again))
        continue;
      // A machine that may have been made by an earlier life of this head, or by an order without
      // an answer, is ordered again only after a list without it.
      const bool fresh = !inherited_.contains(name) && !r.tried.contains(name);
      if (!fresh && !r.absent.contains(name)) {
        demand.needs_list = true;
        continue;
      }
      demand.wanted.push_back(
          {.machine = machine,
           .head_url = settings.head_url.empty() ? options_.head_url() : settings.head_url,
           .token = {},
           .authority = options_.authority(),
           .program_sha256 = {}});
    } else if (machine.state == MachineState::here && !machine.is_disk()) {
      demand.moving = demand.moving || !answers(id, name);  // the machine may be gone
    }
  }
  return demand;
}

void Pools::begin(PoolId id) {
  const std::map<PoolId, Pool>& pools = engine_().state().pools;
  const auto pool = pools.find(id);
  if (pool == pools.end())
    return;
  Running* const slot = running(id, pool->second);
  const SteadyTime now = clock_.steady();
  if (now - (slot ? slot->ordered_at : began_) > watch_max)
    stop_watching(id);
  if (!slot)
    return;
  Running& r = *slot;
  const bool offers_due = rents(pool->second) && now >= r.next_offers && !r.listing;
  if (offers_due)
    refresh_offers(id, r);
  release_known(id, r);
  note_not_ended(id, r);
  Demand demand = demand_of(id, pool->second, r);
  // An engine that fails is not asked more often because more is wanted of it.
  const bool due = now >= r.next_look || (demand.needs_list && r.list_error.empty());
  if (due && !r.listing) {
    r.next_look = now + (demand.moving ? look_soon : look_seldom);
    list(id, r);
  }
  // A few at a time: refusals are recorded before the rest is ordered, and with a provider's limits
  // on requests a hundred orders take a minute. Each order is under way by itself: one that hangs
  // holds up no other machine.
  for (pool::Order& order : demand.wanted) {
    const auto still = pools.find(id);  // the order before may have changed the pools
    if (still == pools.end() || now < r.next_order || r.in_flight.size() >= ask_at_once_max)
      return;
    begin_order(id, still->second, r, std::move(order));
  }
}

void Pools::begin_order(PoolId id, const Pool& settings, Running& r, pool::Order order) {
  const std::string& name = order.machine.name;
  auto asked = std::make_shared<Asked>();
  asked->again = !r.tried.insert(name).second || inherited_.contains(name);
  r.absent.erase(name);
  r.in_flight.insert(name);
  asked->order = std::move(order);
  if (asked->order.machine.is_disk())
    create(id, asked);
  else
    issue_token(id, settings, asked);
}

// Each machine gets a join token for one use, which is durable before the machine can use it. What
// a job on the machine can read of its user data is worthless once the machine has joined.
void Pools::issue_token(PoolId id, const Pool& settings, const std::shared_ptr<Asked>& asked) {
  pool::Order& order = asked->order;
  if (order.machine.offer || pool::fetches_program(settings.kind))
    if (const auto packed = program())
      order.program_sha256 = packed->sha256;
  const std::string secret = join_secret(order.machine);
  const std::string fingerprint = options_.fingerprint();
  order.token = fingerprint.empty() ? secret : secret + "." + fingerprint;
  engine_().execute(OrderToken{.machine = order.machine.name,
                               .hash = sha256_hex(secret),
                               .user = options_.owner,
                               .pool = id,
                               .life = pool::token_life(settings.kind)},
                    {"head", ""}, [this, id, asked](Result<std::vector<Event>> events) {
                      if (events)
                        return create(id, asked);
                      const std::string& machine = asked->order.machine.name;
                      log_error("machine {}: {}", machine, events.error().message);
                      if (const auto running = running_.find(id); running != running_.end()) {
                        running->second->in_flight.erase(machine);
                        running->second->next_order = clock_.steady() + look_soon;
                      }
                    });
}

// A machine that is asked for again gets the same secret: providers compare the user data of a
// repeated order, and only the first machine's would be used.
std::string Pools::join_secret(const Machine& machine) {
  auto& secret = secrets_[machine.name];
  if (secret.empty())
    secret = "bwj_" + random_token(30);
  return secret;
}

void Pools::create(PoolId id, const std::shared_ptr<Asked>& asked) {
  const auto found = running_.find(id);
  if (found == running_.end())
    return;
  const Status queued = found->second->orders->submit(
      [this, id, engine = found->second->pool.get(), asked]() -> std::function<void()> {
        if (ending_)
          return {};
        return [this, id, asked, made = engine->want(asked->order)] {
          created(id, *asked, made);
        };
      });
  if (!queued)
    created(id, *asked,
            std::unexpected(pool::Refusal{RefusalKind::no_answer, queued.error().message}));
}

void Pools::note_error(const std::string& pool, std::string& last, const std::string& error) {
  if (error == last)
    return;
  if (!error.empty())
    log_warn("pool {}: {}", pool, error);
  else
    log_info("pool {} answers again", pool);
  last = error;
}

void Pools::created(PoolId id, const Asked& asked, const pool::Ordered& made) {
  const auto found = running_.find(id);
  if (found == running_.end())
    return;
  Running& r = *found->second;
  const std::string pool = name_of(id);
  const std::string& machine = asked.order.machine.name;
  const SteadyTime now = clock_.steady();
  r.ordered_at = r.attempted[machine] = now;
  r.in_flight.erase(machine);
  if (!made && made.error().kind == RefusalKind::no_answer) {
    r.unanswered[machine] = made.error().message;
    r.next_order = now + look_soon;
    return note_unanswered(pool, r);
  }
  r.unanswered.erase(machine);
  note_unanswered(pool, r);
  if (!made)
    return report_refusal(pool, asked, made.error());
  r.asked[machine] = now;
  // Look soon: the machine should be listed now, and jobs wait for it.
  r.next_look = std::min(r.next_look, now + look_after_order);
  log_info("pool {}: ordered {}", pool, machine);
}

void Pools::note_unanswered(const std::string& pool, Running& r) {
  note_error(pool, r.order_error,
             r.unanswered.empty() ? std::string() : r.unanswered.begin()->second);
}

void Pools::list(PoolId id, Running& r) {
  r.listing = true;
  r.list_asked = clock_.steady();
  const Status queued = r.lists->submit([this, id, engine = r.pool.get(), began = engine_().now(),
                                         steady = clock_.steady()]() -> std::function<void()> {
    return [this, id, began, steady, listed = engine->nodes()] {
      this->listed(id, listed, began, steady);
    };
  });
  if (!queued)
    r.listing = false;
}

void Pools::listed(PoolId id,
                   const Result<std::vector<MachineSighting>>& found,
                   WallTime began,
                   SteadyTime steady) {
  const auto running = running_.find(id);
  if (running == running_.end())
    return;
  Running& r = *running->second;
  r.listing = false;
  note_error(name_of(id), r.list_error, found ? std::string() : found.error().message);
  note_unlisted(id, r);
  const auto settings = engine_().state().pools.find(id);
  if (!found || settings == engine_().state().pools.end())
    return forget_ended(r);
  std::set<std::string> there;
  std::vector<MachineSighting> seen =
      control::tell_apart(engine_().state(), settings->second, *found);
  const std::vector<MachineSighting> named = seen;
  for (MachineSighting& machine : seen) {
    there.insert(machine.name);
    if (!machine.ended && !machine.failed)
      r.shown[machine.name] = steady;
    if (const auto refused = r.refused.find(machine.name); refused != r.refused.end())
      machine.note = refused->second;
    const Ended* const ending = ending_of(r, machine.name, machine.external);
    if (const std::string why = ending ? why_not_ended(ending->second) : ""; !why.empty())
      machine.note = std::string(machine_not_ended) + why;
  }
  add_ended(id, r, steady, seen);
  add_undecided(id, r, seen);
  add_unanswered(id, r, seen);
  for (const auto& [name, machine] : engine_().state().machines) {
    const auto tried = r.attempted.find(name);
    const bool older = tried != r.attempted.end() && tried->second >= steady;
    if (machine.pool == id && !there.contains(name) && !r.in_flight.contains(name) && !older)
      r.absent.insert(name);
  }
  if (!rents(settings->second))
    note_missing(id, r, there, steady);
  engine_().execute(PoolSeen{id, std::move(seen), began, ended_for(id, r)}, {"head", ""}, {});
  release_listed(id, r, named, steady);
  attach_caches(id, r, named);
  extend(id, r, named);
  forget_ended(r);
  if (r.in_flight.empty() && steady - r.ordered_at >= watched_for)
    stop_watching(id);
}

void Pools::stop_watching(PoolId id) {
  const auto pool = engine_().state().pools.find(id);
  if (pool != engine_().state().pools.end() &&
      control::is_only_watched(engine_().state(), pool->second))
    engine_().execute(RemovePool{pool->second.name}, {"head", ""}, {});
}

std::string Pools::name_of(PoolId id) const {
  const auto settings = engine_().state().pools.find(id);
  return settings == engine_().state().pools.end() ? "?" : settings->second.name;
}

void Pools::forget_ended(Running& r) {
  const auto ended = [&](const std::string& machine) {
    return !engine_().state().machines.contains(machine);
  };
  for (std::set<std::string>* names :
       {&r.given_back, &r.tried, &r.absent, &r.extended, &inherited_})
    std::erase_if(*names, ended);
  std::erase_if(r.lacking, [&](const auto& entry) { return ended(entry.first); });
  std::erase_if(r.refused, [&](const auto& entry) {
    const auto of = engine_().state().machines.find(entry.first);
    return of == engine_().state().machines.end() || of->second.state != MachineState::wanted;
  });
  for (auto* times : {&r.asked, &r.attempted, &r.shown, &r.emptying})
    std::erase_if(*times, [&](const auto& entry) { return ended(entry.first); });
  std::erase_if(r.unanswered, [&](const auto& entry) { return ended(entry.first); });
  std::erase_if(r.endings, [&](const auto& entry) {
    return ended(entry.first.first) && !entry.second.under_way &&
           !r.strays.contains(entry.first.second);
  });
  std::erase_if(secrets_, [&](const auto& entry) { return ended(entry.first); });
}

// The next offer is ordered at once: a job waits, and the refusal is already in the state.
void Pools::report_refusal(const std::string& pool,
                           const Asked& asked,
                           const pool::Refusal& refusal) {
  const Machine& machine = asked.order.machine;
  // A disk that cannot be had says nothing of machines.
  const RefusalKind kind = machine.is_disk() ? RefusalKind::capacity : refusal.kind;
  if (kind == RefusalKind::settings)
    log_error("pool {} orders nothing until its settings or credentials are fixed: {}", pool,
              refusal.message);
  else
    log_warn("pool {}: {} refused ({}): {}", pool, machine.name, enum_name(kind), refusal.message);
  // The earlier order may have brought the machine: it is released, and remains in the books
  // until lists show that it does not exist.
  if (asked.again)
    engine_().execute(ReleaseMachine{machine.name, refusal.message}, {"head", ""}, {});
  else
    engine_().execute(OrderFailed{machine.name, refusal.message, kind}, {"head", ""}, {});
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
  r.listing = true;
  r.next_offers = clock_.steady() + limits::pool_offers_every;
  const Status queued =
      r.lists->submit([this, id, engine = r.pool.get()]() -> std::function<void()> {
        return [this, id, found = engine->offers()] {
          const auto running = running_.find(id);
          if (running == running_.end())
            return;
          running->second->listing = false;
          if (found) {
            engine_().execute(SetOffers{id, *found}, {"head", ""}, {});
          } else {
            log_warn("pool {}: cannot read its offers: {}", id.value, found.error().message);
            running->second->next_offers = clock_.steady() + limits::pool_offers_retry;
            engine_().execute(OffersFailed{id, found.error().message}, {"head", ""}, {});
          }
          look_again_soon();
        };
      });
  if (!queued)
    r.listing = false;
}

std::shared_ptr<const pool::Program> Pools::program() {
  if (!program_) {
    auto packed = pool::pack_program(options_.program_dir);
    if (!packed) {
      log_error("rented machines cannot fetch this program from the head: {}",
                packed.error().message);
      return nullptr;
    }
    program_ = std::make_shared<const pool::Program>(std::move(*packed));
  }
  return program_;
}

}  // namespace billow::head
