#include "head.h"

#include "audit.h"
#include "node.h"
#include "provider.h"
#include "readings.h"

namespace billow::sim {

using namespace wire::agent_v1;

namespace {
// Of runs that are not thorough. The state is also checked when a head ends and when the faults do.
constexpr int changes_between_checks = 8;
}  // namespace

// ---- the wire

std::string Conn::peer() const {
  return agent->name;
}

std::int64_t Conn::arrival(std::int64_t& last) {
  std::int64_t at =
      world.now_ns + world.faults.latency_ns / 2 + world.rng.between(0, world.faults.latency_ns);
  if (!world.calm && world.faults.stall_ns > 0 && world.rng.chance(agent->slow ? 0.2 : 0.02))
    at += world.rng.between(0, world.faults.stall_ns);
  last = std::max(last, at);
  return last;
}

// As head::SecretKeeper does.
ToAgent Conn::with_secrets(ToAgent message) const {
  auto* start = get_if<Start>(&message);
  if (!start)
    return message;
  start->secrets.clear();
  for (const SecretWish& wish : start->surroundings.secrets) {
    const auto found = head->secrets.find(wish.name);
    const std::string value = found == head->secrets.end() ? "" : found->second;
    if (!head->deposed)
      world.audit->secret_sent(wish.name, value);
    if (value.empty()) {
      start->secrets = {{"", "", "the project has no secret " + wish.name + " any more"}};
      break;
    }
    start->secrets.push_back({wish.variable, wish.file, value});
  }
  return message;
}

bool Conn::send(const ToAgent& message, std::string_view blob) {
  if (!head_open || !head || head->dying)
    return false;
  const std::string frame = encode(with_secrets(message), blob);
  if (cut)
    return true;  // the kernel takes it; nobody gets it
  for (int i = world.fault(world.faults.doubled) ? 2 : 1; i > 0; --i)
    to_agent(frame);
  return true;
}

void Conn::to_agent(std::string frame) {
  const Duration in{arrival(to_agent_ns) - world.now_ns};
  world.after(in, [self = shared_from_this(), frame = std::move(frame)] {
    if (!self->agent_open || (self->cut && self->late_ns == 0))
      return;
    self->agent->on_frame(self.get(), frame);
  });
}

void Conn::send_to_head(const FromAgent& message) {
  if (!agent_open || cut)
    return;
  const std::string frame = encode(message);
  for (int i = world.fault(world.faults.doubled) ? 2 : 1; i > 0; --i)
    to_head(frame);
}

void Conn::to_head(std::string frame) {
  const Duration in{arrival(to_head_ns) - world.now_ns};
  world.after(in, [self = shared_from_this(), frame = std::move(frame)]() mutable {
    if (self->cut && self->late_ns == 0)
      return;
    if (self->cut && self->world.now_ns < self->late_ns) {  // held up; the order is kept because
                                                            // all of it is, until the same moment
      self->world.after({self->late_ns - self->world.now_ns}, [self, frame = std::move(frame)] {
        if (self->head && self->head_open)
          self->head->on_frame(self, frame);
      });
      return;
    }
    if (self->head && self->head_open)
      self->head->on_frame(self, frame);
  });
}

void Conn::close(std::string_view) {
  if (!head_open)
    return;
  head_open = false;
  world.after({arrival(to_agent_ns) - world.now_ns}, [self = shared_from_this()] {
    if (!self->agent_open)
      return;
    self->agent_open = false;
    self->agent->on_closed(self.get());
  });
  world.after({}, [self = shared_from_this()] {
    if (self->head)
      self->head->on_closed(self);
  });
}

void Conn::close_by_agent() {
  if (!agent_open)
    return;
  agent_open = false;
  if (cut)
    return;
  world.after({arrival(to_head_ns) - world.now_ns}, [self = shared_from_this()] {
    if (!self->head_open)
      return;
    self->head_open = false;
    if (self->head)
      self->head->on_closed(self);
  });
}

void Conn::cut_wire() {
  if (cut)
    return;
  cut = true;
  late_ns = world.rng.chance(0.4) ? world.now_ns + world.rng.between(0, 9'000'000'000) : 0;
  world.trace("the connection of {} is cut{}", agent->name,
              late_ns ? ", what was under way comes late" : "");
  // Without a reset each side finds out by its own pings.
  const bool reset = world.rng.chance(0.6);
  world.after(reset ? world.some({0}, milliseconds(50))
                    : world.some(seconds(1), limits::ws_ping_interval + limits::ws_pong_timeout),
              [self = shared_from_this()] {
                if (!self->agent_open)
                  return;
                self->agent_open = false;
                self->agent->on_closed(self.get());
              });
  world.after(
      world.some(seconds(late_ns ? 9 : 0), limits::ws_ping_interval + limits::ws_pong_timeout),
      [self = shared_from_this()] {
        if (!self->head_open)
          return;
        self->head_open = false;
        if (self->head)
          self->head->on_closed(self);
      });
}

void Conn::head_gone(Duration notice) {
  head = nullptr;
  head_open = false;
  world.after(notice, [self = shared_from_this()] {
    if (!self->agent_open)
      return;
    self->agent_open = false;
    self->agent->on_closed(self.get());
  });
}

bool Conn::sound() const {
  return agent_open && head_open && !cut && head && head->alive && !head->dying && !head->deposed &&
         node;
}

// ---- the head

SimHead::SimHead(World& w) : world(w), journal(w.disk, w.rng.next()) {}
SimHead::~SimHead() {
  *here_ = false;
  for (const auto& weak : conns)
    if (const auto conn = weak.lock())
      conn->head = nullptr;
}

bool SimHead::start() {
  // The report of a commit reaches the loop a little later; a crash may fall between.
  journal.set_hooks(
      {.post =
           [this, here = here_](std::function<void()> fn) {
             world.after(world.some({0}, milliseconds(2)), [this, here, fn = std::move(fn)] {
               if (!*here || !alive || dying)
                 return;
               maybe_crash("after the journal's report, before what it lets go");
               if (!dying)
                 fn();
             });
           },
       .on_durable = [this](Seq durable) { engine->on_durable(durable); },
       .on_health =
           [this](StoreHealth health, const Error&) {
             world.trace("head {}: the store is {}", journal.epoch(), store_health_name(health));
             if (health == StoreHealth::fatal) {
               dying = true;
               world.after({}, [this, here = here_] {
                 if (*here && alive)
                   crash();
               });
             }
           }});
  auto made = head::Engine::restore(
      {.journal = &journal,
       .clock = &world.head_clock,
       .deliver =
           [this](const control::Effect& e) {
             maybe_crash("between two orders");
             if (!dying)
               sessions->deliver(e);
           },
       .observe = [this](const control::State&, const Event& event) -> std::function<void()> {
         if (world.mutation == Mutation::secret_stale && !secrets.empty())
           return {};
         if (const auto* e = get_if<SecretSet>(&event.body))
           return [this, secret = e->secret] {
             secrets[secret.name] = secret.sealed;
           };
         if (const auto* e = get_if<SecretRemoved>(&event.body))
           return [this, name = e->name] {
             secrets.erase(name);
           };
         return {};
       },
       .read_snapshot = [this](const Snapshot& from) { return read_snapshot(from); },
       .read_record = [this](const Record& record) -> Result<std::shared_ptr<const Event>> {
         return read_record(record, world.readings.get());
       }},
      prices());
  if (!made) {
    world.trace("{}", made.error().message);
    return false;
  }
  engine = std::move(*made);
  sessions = std::make_unique<head::AgentLinks>(world.head_clock,
                                                [this]() -> head::Engine& { return *engine; });
  for (const auto& [key, secret] : engine->state().secrets)
    secrets[key.second] = secret.sealed;
  world.audit->head_restarted(engine->state());
  checked_ = engine->state().seq;
  execute(StartHead{"sim", journal.epoch(), "ana", "hash", "node-hash"}, {});
  if (world.provider)
    start_pools();
  return true;
}

void SimHead::start_pools() {
  head::Pools::Options options;
  options.head_url = [] {
    return std::string("http://10.0.0.1:7070");
  };
  options.fingerprint = options.authority = [] {
    return std::string();
  };
  options.owner = UserId(1);
  options.credential = [](const Pool&) -> Result<std::string> {
    return std::string();
  };
  options.needed = [](NodeId) {
    return false;
  };
  options.make = [this](const Pool&, const pool::Options&) -> Result<std::unique_ptr<pool::Pool>> {
    return world.provider->pool();
  };
  options.lane = [this] {
    return world.provider->lane();
  };
  loop = std::make_unique<net::Loop>();
  pools = std::make_unique<head::Pools>(
      *loop, world.head_clock, [this]() -> head::Engine& { return *engine; }, std::move(options));
  if (!engine->state().pools.empty())
    return;
  Pool pool;
  pool.name = "cloud";
  pool.kind = "ec2";
  pool.capabilities =
      PoolCapabilities{.sizes_to_demand = false,
                       .several_nodes_at_once = false,  // a machine of the provider is one node
                       .list_is_final = false,
                       .from_offers = true,
                       .bills_from_order = true,
                       .list_lag = minutes(5)};
  pool.machines_max = 3;
  pool.idle = seconds(20);
  pool.offers = {world.provider->offer()};
  execute(AddPool{pool}, {});
}

void SimHead::crash() {
  if (!alive)
    return;
  world.trace("head {} ends", journal.epoch());
  check_state();
  alive = false;
  dying = true;
  journal.crash();
  pools.reset();
  for (const auto& weak : conns)
    if (const auto conn = weak.lock())
      conn->head_gone(world.some({0}, world.rng.chance(0.8) ? milliseconds(50) : seconds(5)));
  conns.clear();
}

void SimHead::maybe_crash(const char* where) {
  if (dying || !world.fault(world.faults.head_crash / 4))
    return;
  world.trace("head {} crashes {}", journal.epoch(), where);
  dying = true;
  world.after({}, [this, here = here_] {
    if (*here && alive)
      crash();
  });
}

Status SimHead::accepting_work() const {
  if (journal.health() != StoreHealth::ok)
    return fail(Code::storage_full, "the disk is full");
  return {};
}

void SimHead::execute(const Command& command, head::Engine::Done done) {
  if (!alive || dying)
    return;
  engine->execute(command, {"sim", ""}, std::move(done));
  if (world.mutation == Mutation::deliver_before_durable)
    engine->on_durable(journal.next_seq() - 1);
  check();
  pump();
}

bool SimHead::idle() const {
  return journal.queued_bytes() == 0 && journal.durable_seq() + 1 == journal.next_seq() &&
         journal.health() == StoreHealth::ok;
}

// The journal's writer: commits and reports, each an act of its own.
void SimHead::pump() {
  if (pumping_ || (world.is_long() && world.calm && idle()))
    return;
  pumping_ = true;
  world.after(world.some(microseconds(50), milliseconds(world.rng.chance(0.05) ? 300 : 5)),
              [this, here = here_] {
                if (!*here || !alive)
                  return;
                pumping_ = false;
                if (dying)
                  return;
                if (world.fault(world.faults.head_crash)) {
                  world.trace("head {} crashes at a journal step", journal.epoch());
                  return crash();
                }
                if (journal.step()) {
                  if (world.fault(world.faults.head_crash)) {
                    world.trace("head {} crashes after a journal step", journal.epoch());
                    return crash();
                  }
                  pump();
                }
              });
}

void SimHead::on_frame(const std::shared_ptr<Conn>& conn, std::string_view data) {
  if (!alive || dying)
    return;
  conn->heard = world.head_clock.steady();
  auto frame = decode_from_agent(data);
  if (!frame)
    broken("the head cannot read a frame: " + frame.error().message);
  if (const auto* hello = get_if<Hello>(&frame->message))
    sessions->hello(conn, *hello);
  else if (!conn->node)
    sessions->refuse(conn, "an agent must say hello first", "");
  else if (const auto* report = get_if<Report>(&frame->message))
    sessions->report(conn, *report);
  else if (holds_alternative<Heartbeat>(frame->message))
    sessions->heartbeat(conn);
  else if (const auto* mark = get_if<MeterMark>(&frame->message))
    sessions->marks(conn, *mark);
  else if (const auto* note = get_if<IdleNote>(&frame->message))
    sessions->idle_note(conn, *note);
  else if (const auto* asked = get_if<KeepAliveAsked>(&frame->message))
    sessions->keep_alive(conn, *asked);
  if (world.mutation == Mutation::deliver_before_durable)
    engine->on_durable(journal.next_seq() - 1);
  check();
  pump();
}

void SimHead::on_closed(const std::shared_ptr<Conn>& conn) {
  if (alive && !dying)
    sessions->closed(conn);
}

void SimHead::every_second() {
  if (dying)
    return;
  execute(Tick{}, {});
  if (dying)
    return;
  execute(MoneyTick{}, {});
  if (dying)
    return;
  if (world.fault(0.02))
    execute(SetPrice{{.of = "gpu:H100",
                      .cost = Rate{world.rng.between(1, 2'000'000)},
                      .charge = Rate{world.rng.between(1, 2'000'000)}}},
            {});
  if (dying)
    return;
  sessions->watch_silence([this](const head::AgentLinkPtr& session) { sessions->closed(session); });
  if (pools)
    pools->look();
  check();
  pump();
  std::erase_if(conns, [](const auto& weak) { return weak.expired(); });
  if (journal.durable_seq() == engine->state().seq && !deposed)
    look_back();
}

// A long run does this less often, but also before a part with faults begins (World::begin_again),
// and replays its whole journal in the end.
void SimHead::look_back() {
  if (world.is_long() && world.calm)
    return;
  if (world.rng.chance(world.is_long() ? 0.003 : 0.1))
    check_replay(!world.is_long());
  if (world.rng.chance(0.05))
    save_snapshot();
  if (world.fault(0.01))
    world.disk.damage_newest_snapshot();
}

void SimHead::save_snapshot() {
  save({engine->state().seq, control::image(engine->state())});
}

void SimHead::save(Snapshot snapshot) {
  if (world.mutation == Mutation::snapshot_inexact)  // the number of the next schedule
    snapshot.bytes.insert(snapshot.bytes.find(']', snapshot.bytes.find("\"next\":[")), "0");
  (void)journal.save_snapshot(snapshot.seq, snapshot.bytes);
}

void SimHead::check_state() {
  unchecked_ = 0;
  const Status ok = control::check_invariants(engine->state());
  if (!ok)
    broken(ok.error().message);
}

void SimHead::check() {
  if (engine->state().seq == checked_)
    return;
  checked_ = engine->state().seq;
  if (world.thorough || ++unchecked_ >= changes_between_checks)
    check_state();
  if (world.rng.chance(0.95))
    return;
  // Whatever happened: what the nodes cost is what was used, idled or not leased.
  const auto& books = engine->state().money.books;
  const ledger::Totals sums = books.totals({engine->state().money.days_closed * 86'400'000'000'000},
                                           engine->state().billed);
  if (sums.active + sums.idle + sums.unallocated != sums.fleet)
    broken("the cost book does not add up");
  // A machine is booked by the head's clock and corrected by its bill. If the clock stepped past
  // midnight meanwhile, the day before has too much and this one gets the credit.
  NanoUsd credit;
  for (const MachineBill& bill : engine->state().machine_bills)
    credit += std::min(bill.correction, NanoUsd{});
  // Held and active time are rounded each by itself, so a lease that was held over midnight and is
  // always active may idle for less than nothing, by one nano-dollar.
  constexpr NanoUsd rounding{-100};
  if (sums.unallocated < credit + rounding || sums.active < rounding || sums.idle < rounding)
    broken(fmt::format("the cost book has a negative part: {} active, {} idle, {} unallocated",
                       sums.active.value, sums.idle.value, sums.unallocated.value));
}

namespace {

// What of an index rebuilt from an image is not as it was kept; empty: nothing. Usage is in the
// image as it is.
std::string index_differs(const sched::SchedIndex& kept, const sched::SchedIndex& rebuilt) {
  const sched::IndexContents a = kept.contents(), b = rebuilt.contents();
  if (a.nodes != b.nodes)
    return "nodes";
  if (a.projects != b.projects)
    return "projects";
  if (a.queued != b.queued)
    return "queued jobs";
  if (a.reservations != b.reservations)
    return "reservations";
  if (a.sleepers != b.sleepers)
    return "suspended jobs";
  if (a.running.size() != b.running.size())
    return "running jobs";
  for (std::size_t i = 0; i < a.running.size(); ++i)
    if (a.running[i] != b.running[i])
      return fmt::format("running job {}", a.running[i].request.id.value);
  return kept.equals(rebuilt) ? "" : "usage or settings";
}

}  // namespace

Result<control::State> SimHead::read_snapshot(const Snapshot& snapshot) const {
  return world.readings ? world.readings->state_of(snapshot) : control::restore(snapshot.bytes);
}

void SimHead::check_replayed(const control::State& state,
                             const std::string& live,
                             bool from_snapshot) const {
  const Status ok = control::check_invariants(state);
  if (!ok)
    broken("after replay: " + ok.error().message);
  const std::string again = control::image(state);
  if (again == live)
    return;
  std::size_t at = 0;
  while (at < again.size() && at < live.size() && again[at] == live[at])
    ++at;
  const std::size_t begin = at > 80 ? at - 80 : 0;
  broken(fmt::format("replay{} differs from the live state:\n   live   …{}\n   replay …{}",
                     from_snapshot ? " from the snapshot" : "", live.substr(begin, 200),
                     again.substr(begin, 200)));
}

// An image of the state also makes the index that plans here.
void SimHead::check_index(const control::State& imaged) const {
  if (const std::string what = index_differs(engine->state().index, imaged.index); !what.empty())
    broken("the index rebuilt from an image differs in " + what);
}

void SimHead::check_replay(bool whole) {
  const std::string live = control::image(engine->state());
  const auto imaged = control::restore(live);
  if (!imaged)
    broken("an image cannot be read: " + imaged.error().message);
  check_index(*imaged);
  check_replay_of(live, whole);
}

// The next heads need what is read of the snapshot here.
void SimHead::check_replay_and_save() {
  Snapshot snapshot{engine->state().seq, control::image(engine->state())};
  check_replay_of(snapshot.bytes, false);
  const auto imaged = read_snapshot(snapshot);
  if (!imaged)
    broken("an image cannot be read: " + imaged.error().message);
  check_index(*imaged);
  save(std::move(snapshot));
}

void SimHead::check_replay_of(const std::string& live, bool whole) const {
  for (const bool from_snapshot : {true, false}) {
    if (from_snapshot ? world.disk.snapshots.empty() : !whole)
      continue;
    if (from_snapshot && world.readings) {
      const auto state = world.readings->replayed(world.disk.snapshots.back());
      if (!state)
        broken("a snapshot cannot be read: " + state.error().message);
      check_replayed(**state, live, from_snapshot);
      continue;
    }
    control::State state;
    if (from_snapshot) {
      auto restored = control::restore(world.disk.snapshots.back().bytes);
      if (!restored)
        broken("a snapshot cannot be read: " + restored.error().message);
      state = std::move(*restored);
    }
    const Seq from = state.seq;
    control::Core core(std::move(state), prices());
    for (auto record = std::upper_bound(world.disk.records.begin(), world.disk.records.end(), from,
                                        [](Seq seq, const Record&r) { return seq < r.seq; });
         record != world.disk.records.end(); ++record)
      core.replay(*read_record(*record, nullptr));
    check_replayed(core.state(), live, from_snapshot);
  }
}

}  // namespace billow::sim
