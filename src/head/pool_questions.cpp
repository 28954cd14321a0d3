// What a pool's list means for machines that it lacks, and questions of administrators to a pool's
// provider, which run on the pool's thread for lists.
#include <fmt/format.h>

#include <algorithm>

#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"
#include "head/pools.h"
#include "pool/extends.h"

namespace billow::head {
namespace {

// A machine that was listed before has ended if so many lists lack it for so long.
constexpr int missed_lists = 8;
constexpr Duration missed_for = seconds(20);

std::set<std::string> names_in(const std::vector<MachineSighting>& listed) {
  std::set<std::string> out;
  for (const MachineSighting& machine : listed)
    out.insert(machine.name);
  return out;
}

Json account_document(const pool::Account& account) {
  Json problems = Json::array(), warnings = Json::array();
  for (const std::string& problem : account.problems)
    problems.push(problem);
  for (const std::string& warning : account.warnings)
    warnings.push(warning);
  return Json::object({{"account", account.id},
                       {"identity", account.identity},
                       {"source", account.source},
                       {"problems", std::move(problems)},
                       {"remedy", account.remedy},
                       {"warnings", std::move(warnings)}});
}

// Ends the machines only if asked to: a list of what would be ended comes first.
Result<Json> strays_document(pool::Pool& engine, const std::set<std::string>& known, bool end) {
  const std::vector<MachineSighting> listed = BILLOW_TRY(engine.nodes());
  Json machines = Json::array();
  for (const MachineSighting& machine : pool::strays_in(listed, known)) {
    Json document = Json::object(
        {{"name", machine.name}, {"external", machine.external}, {"note", machine.note}});
    if (end) {
      const Status released = engine.release(machine);
      document.set("ended", released.has_value());
      if (!released)
        document.set("error", released.error().message);
    }
    machines.push(std::move(document));
  }
  return Json::object({{"machines", std::move(machines)}, {"listed", listed.size()}});
}

Result<Json> answer_of(pool::Pool& engine,
                       pool::Question question,
                       const std::set<std::string>& known) {
  switch (question) {
    case pool::Question::account:
      return account_document(BILLOW_TRY(engine.account()));
    case pool::Question::strays:
    case pool::Question::end_strays:
      return strays_document(engine, known, question == pool::Question::end_strays);
    case pool::Question::offers:
      return Json::object();
  }
  return Json::object();
}

}  // namespace

void Pools::ask_provider(const std::string& name, pool::Question question, Answer answer) {
  const control::State& state = engine_().state();
  const auto pool = std::ranges::find_if(
      state.pools, [&](const auto& entry) { return entry.second.name == name; });
  if (pool == state.pools.end())
    return answer(fail(Code::not_found, fmt::format("no pool is named \"{}\"", name),
                       "see `billow pool list`"));
  Running* const r = running(pool->first, pool->second);
  if (!r)
    return answer(
        fail(Code::unavailable, fmt::format("pool {} cannot be used; see the head's log", name)));
  if (question == pool::Question::offers) {
    r->next_offers = {};
    look_again_soon();
    return answer(Json::object({{"ok", true}}));
  }
  if (question == pool::Question::account && pool->second.offers.empty())
    r->next_offers = {};  // what kept the provider from answering may be mended
  std::set<std::string> known;
  for (const auto& [machine, of] : state.machines)
    known.insert(machine);
  const Status queued = r->lists->submit(
      [engine = r->pool.get(), question, known, answer]() -> std::function<void()> {
        return [answer, said = answer_of(*engine, question, known)] {
          answer(said);
        };
      });
  if (!queued)
    answer(pass(queued.error()));
}

std::string Pools::trouble(PoolId id) const {
  const auto found = running_.find(id);
  return found == running_.end() || !found->second ? std::string() : found->second->list_error;
}

std::string Pools::place(PoolId id) const {
  const auto found = running_.find(id);
  return found == running_.end() || !found->second ? std::string() : found->second->pool->place();
}

// Machines that nobody can see are billed all the same: that is said every minute.
void Pools::note_unlisted(PoolId id, Running& r) {
  const SteadyTime now = clock_.steady();
  if (r.list_error.empty()) {
    r.unlisted_since = r.unlisted_said = {};
    return;
  }
  if (r.unlisted_since.ns == 0)
    r.unlisted_since = r.unlisted_said = now;
  const auto machines = std::ranges::count_if(
      engine_().state().machines, [&](const auto& entry) { return entry.second.pool == id; });
  if (machines == 0 || now - r.unlisted_said < minutes(1))
    return;
  r.unlisted_said = now;
  log_error(
      "pool {}: its provider has not listed its machines for {}; {} may run and be billed: {}",
      name_of(id), format_duration(now - r.unlisted_since), machines, r.list_error);
}

// Rented machines: lists may lag, and a missing machine may still cost money.
bool Pools::rents(const Pool& settings) {
  return settings.capabilities && settings.capabilities->from_offers;
}

// A machine that was listed, that its provider agreed to end, and that two lists in a row lack, has
// ended, however young it is. If it shows up later all the same, it is a stray and is ended again.
void Pools::add_ended(PoolId id,
                      const Running& r,
                      SteadyTime asked,
                      std::vector<MachineSighting>& listed) const {
  const auto settings = engine_().state().pools.find(id);
  if (settings == engine_().state().pools.end() || !rents(settings->second))
    return;
  std::vector<std::string> ended;
  const std::set<std::string> there = names_in(listed);
  for (const auto& [name, machine] : engine_().state().machines) {
    const Ended* const ending = ending_of(r, name, machine.external);
    if (machine.pool == id && machine.state == MachineState::releasing && ending &&
        ending->second.agreed.ns != 0 && ending->second.agreed < asked && !there.contains(name) &&
        r.lacking.contains(name))
      ended.push_back(name);
  }
  for (const std::string& name : ended) {
    const Machine& machine = engine_().state().machines.at(name);
    listed.emplace_back();
    listed.back().name = name;
    listed.back().external = machine.external;
    listed.back().note = machine.reason;
    listed.back().ended = true;
    listed.back().twin_of = machine.twin_of;
  }
}

// Gives machines that have started their cache disks. A machine whose agent has joined does
// without: it no longer waits for the disk.
void Pools::attach_caches(PoolId id, Running& r, const std::vector<MachineSighting>& listed) {
  struct Pair {
    MachineSighting machine, disk;
  };
  const auto find = [&](const std::string& name) {
    return std::ranges::find_if(
        listed, [&](const MachineSighting& seen) { return seen.name == name && !seen.ended; });
  };
  auto pairs = std::make_shared<std::vector<Pair>>();
  for (const auto& [name, machine] : engine_().state().machines) {
    if (machine.pool != id || machine.cache.empty() || machine.state != MachineState::wanted)
      continue;
    const auto one = find(name);
    if (one == listed.end() || one->failed)
      continue;
    std::size_t member = 0;
    for (const std::string& cache : split(machine.cache, ',')) {
      const auto disk = find(cache);
      if (disk != listed.end() && !disk->attached)
        pairs->push_back({pool::member_of(*one, member), *disk});
      ++member;
    }
  }
  if (pairs->empty() || r.attaching)
    return;
  r.attaching = true;
  const Status queued =
      r.releases->submit([this, id, engine = r.pool.get(), pairs]() -> std::function<void()> {
        std::string error;
        for (const Pair& pair : *pairs)
          if (const Status done = engine->attach(pair.machine, pair.disk); !done)
            error = fmt::format("the cache {} cannot be attached to {}: {}", pair.disk.name,
                                pair.machine.name, done.error().message);
        return [this, id, error] {
          const auto running = running_.find(id);
          if (running == running_.end())
            return;
          running->second->attaching = false;
          note_error(name_of(id), running->second->attach_error, error);
        };
      });
  if (!queued)
    r.attaching = false;
}

// Machines with work that end soon are asked to end later, before nothing new would start there.
void Pools::extend(PoolId id, Running& r, const std::vector<MachineSighting>& listed) {
  constexpr Duration soon = limits::pool_end_margin * 2;
  auto* const provider = dynamic_cast<pool::Extends*>(r.pool.get());
  if (r.extending || !provider || !provider->extends())
    return;
  const auto ends_soon = [&](const MachineSighting& seen) {
    const auto of = engine_().state().machines.find(seen.name);
    return of != engine_().state().machines.end() && of->second.state == MachineState::here &&
           seen.ends_at && seen.ends_at - soon < engine_().now() && still_busy(id, seen.name) &&
           !r.extended.contains(seen.name);
  };
  const auto found = std::ranges::find_if(listed, ends_soon);
  if (found == listed.end())
    return;
  r.extended.insert(found->name);
  r.extending = true;
  const Status queued =
      r.releases->submit([this, id, provider, machine = *found]() -> std::function<void()> {
        return [this, id, machine, done = provider->extend(machine)] {
          if (const auto running = running_.find(id); running != running_.end())
            running->second->extending = false;
          if (done)
            log_info("pool {}: {} was extended, because jobs run there", name_of(id), machine.name);
          else
            log_warn("pool {}: {} ends at {}: {}", name_of(id), machine.name,
                     format_utc(machine.ends_at), done.error().message);
        };
      });
  if (!queued)
    r.extending = false;
}

// A machine that was listed, is missing and is silent has ended, if that does not change: the books
// end with the first list that lacks it, although it is kept until its jobs cannot run twice.
void Pools::note_missing(PoolId id,
                         Running& r,
                         const std::set<std::string>& there,
                         SteadyTime began) {
  std::map<std::string, SteadyTime> missing;
  for (const auto& [name, machine] : engine_().state().machines)
    if (machine.pool == id && !machine.external.empty() && !there.contains(name) &&
        !answers(id, name)) {
      const auto before = r.missing_since.find(name);
      missing[name] = before == r.missing_since.end() ? began : before->second;
    }
  r.missing_since = std::move(missing);
}

// Adds the machines that this list lacks and that may exist all the same, as they were seen last. A
// list may be late or wrong, so a machine that was listed before is missed only after a while and
// several lists; one that was never listed may appear as long after its last order as a list may
// lag, and is missed like the others from then on. Steady time decides: a wall clock that is set
// forward makes no machine older.
void Pools::add_undecided(PoolId id, Running& r, std::vector<MachineSighting>& listed) {
  const auto settings = engine_().state().pools.find(id);
  if (settings == engine_().state().pools.end() || !rents(settings->second))
    return;
  const SteadyTime now = clock_.steady();
  const std::set<std::string> there = names_in(listed);
  std::erase_if(r.lacking, [&](const auto& entry) { return there.contains(entry.first); });
  for (const auto& [name, machine] : engine_().state().machines) {
    if (machine.pool != id || there.contains(name))
      continue;
    Lacking& lacking = r.lacking.try_emplace(name, Lacking{now}).first->second;
    ++lacking.lists;
    if (machine.external.empty() && may_exist(r, machine))
      lacking = {now};
    if (lacking.lists >= missed_lists && now - lacking.since >= missed_for)
      continue;
    listed.emplace_back();
    listed.back().name = name;
    listed.back().external = machine.external;
    listed.back().note = machine.note;
    listed.back().ends_at = machine.ends_at;
    listed.back().twin_of = machine.twin_of;
    r.next_look = std::min(r.next_look, now + seconds(1));
  }
}

// The machine of an order without an answer may exist: until a list shows it, its note says so. A
// machine that no list has shown has no other note.
void Pools::add_unanswered(PoolId id, Running& r, std::vector<MachineSighting>& listed) const {
  // A disk that is listed, a machine that has joined: their orders need no answer any more.
  std::erase_if(r.unanswered, [&](const auto& order) {
    const auto of = engine_().state().machines.find(order.first);
    return of == engine_().state().machines.end() || of->second.state != MachineState::wanted ||
           !of->second.external.empty();
  });
  for (const auto& [name, machine] : engine_().state().machines) {
    if (machine.pool != id || machine.is_disk() || machine.state != MachineState::wanted ||
        !machine.external.empty())
      continue;
    const auto order = r.unanswered.find(name);
    const std::string note =
        order == r.unanswered.end()
            ? std::string()
            : fmt::format("the provider did not answer its order ({}); the machine may exist",
                          order->second);
    const auto seen = std::ranges::find(listed, name, &MachineSighting::name);
    if (seen == listed.end() && note != machine.note)
      listed.push_back({.name = name, .external = {}, .note = note});
    else if (seen != listed.end() && seen->external.empty())
      seen->note = note;
    else if (seen != listed.end())
      r.unanswered.erase(name);
  }
  note_unanswered(name_of(id), r);
}

// Whether an order of the machine may still bring it.
bool Pools::may_exist(const Running& r, const Machine& machine) const {
  if (r.in_flight.contains(machine.name))
    return true;
  const Pool& pool = engine_().state().pools.at(machine.pool);
  const Duration lag = pool.capabilities.value_or(PoolCapabilities{}).list_lag;
  const SteadyTime now = clock_.steady();
  const auto attempted = r.attempted.find(machine.name);
  return (attempted != r.attempted.end() && now - attempted->second < lag) ||
         (inherited_.contains(machine.name) && now - began_ < lag);
}

}  // namespace billow::head
