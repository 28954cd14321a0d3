// Ending machines: those that were released, that their provider could not keep, and that nobody
// ordered.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/log.h"
#include "base/text.h"
#include "head/pools.h"

namespace billow::head {
namespace {

constexpr Duration stray_after = seconds(5);
constexpr Duration end_again = seconds(1);
constexpr Duration look_after_end = milliseconds(300);
// A list that takes longer says no machine's id soon.
constexpr Duration list_slow = seconds(30);
// A machine that its provider does not end is reported from then on, every minute: it answers with
// an error or not at all, or it has agreed and no list shows that the machine has ended.
constexpr Duration refused_loud_after = minutes(1), agreed_loud_after = minutes(10);
constexpr Duration loud_every = minutes(1);
// A machine that is given back is deleted with the tasks that have not ended this long after their
// grace periods: a process that hangs in a driver cannot be killed, and the machine is billed.
constexpr Duration stuck_after = minutes(5);

}  // namespace

// A machine that failed before a list told the state its id was ended by the id in that list. There
// may be several of its name: all of them must have ended, so the one that has not counts.
const Pools::Ended* Pools::ending_of(const Running& r,
                                     const std::string& name,
                                     const std::string& external) {
  if (!external.empty()) {
    const auto found = r.endings.find({name, external});
    return found == r.endings.end() ? nullptr : &*found;
  }
  const auto settled = [](const Ending& ending) {
    return std::tuple(ending.agreed.ns != 0, ending.under_way, -ending.agreed.ns);
  };
  const Ended* out = nullptr;
  for (auto at = r.endings.lower_bound({name, ""});
       at != r.endings.end() && at->first.first == name; ++at)
    if (!out || settled(at->second) < settled(out->second))
      out = &*at;
  return out;
}

// Ends what was released, without a list: lists hang and fail, and the machine is billed meanwhile.
// A machine that an earlier head may already have ended is asked for once more.
//
// A head that has been replaced and does not know it yet must end nothing that its successor uses.
// Its own decisions never become durable, and they are carried out only then.
void Pools::release_known(PoolId id, Running& r) {
  std::vector<MachineSighting> known;
  for (const auto& [name, machine] : engine_().state().machines) {
    if (machine.pool != id || machine.state != MachineState::releasing)
      continue;
    const Ended* const ending = ending_of(r, name, machine.external);
    if ((ending && (ending->second.under_way || ending->second.agreed.ns != 0)) ||
        must_wait(id, r, name))
      continue;
    const std::string external = ending ? ending->first.second : machine.external;
    if (external.empty() && !can_end_unlisted(r, machine)) {
      if (r.given_back.insert(name).second && r.list_error.empty())
        r.next_look = std::min(r.next_look, clock_.steady());
      continue;
    }
    known.emplace_back();
    known.back().name = name;
    known.back().external = external;
    known.back().twin_of = machine.twin_of;
  }
  end_machines(id, r, std::move(known));
}

// A released machine waits until its tasks have ended, but not for those that cannot be killed. The
// machine is deleted with them, and its node falls silent: then its jobs are queued again, or lost.
bool Pools::must_wait(PoolId id, Running& r, const std::string& machine) {
  if (!still_busy(id, machine)) {
    r.emptying.erase(machine);
    return false;
  }
  const SteadyTime now = clock_.steady();
  const auto [since, is_new] = r.emptying.try_emplace(machine, now);
  if (is_held(machine) || now - since->second < time_to_empty(id, machine))
    return true;
  if (!ending_of(r, machine, engine_().state().machines.at(machine).external))
    log_error("pool {}: {} is being deleted although its tasks have not ended for {}", name_of(id),
              machine, format_duration(now - since->second));
  return false;
}

// As long as its tasks may take for a last checkpoint and for their end, and some time more.
Duration Pools::time_to_empty(PoolId pool, const std::string& machine) const {
  const control::State& state = engine_().state();
  Duration grace;
  for (const auto& [node, tasks] : state.tasks_on)
    if (const auto of = state.nodes.find(node);
        of != state.nodes.end() && may_answer(of->second, pool, machine))
      for (const TaskId task : tasks)
        grace = std::max(grace, state.jobs.at(state.tasks.at(task).job).spec->stop_grace);
  return grace * 2 + stuck_after;
}

// A machine without an id is ended by its name only if no list may be expected to say the id.
bool Pools::can_end_unlisted(const Running& r, const Machine& machine) const {
  const bool slow = r.listing && clock_.steady() - r.list_asked > list_slow;
  return r.pool->ends_by_name() && !r.in_flight.contains(machine.name) &&
         (slow || !r.list_error.empty());
}

// Ends what is listed and was released, what the provider could not keep, and what was never
// ordered. The state is newer than the list, and machines are in the state before they are ordered,
// so whatever is listed and not in the state is a stray. Strays are looked at again after a while:
// by then a head that has been replaced has ended.
void Pools::release_listed(PoolId id,
                           Running& r,
                           const std::vector<MachineSighting>& listed,
                           SteadyTime asked) {
  const std::map<std::string, Machine>& machines = engine_().state().machines;
  std::set<std::string> known;
  for (const auto& [name, machine] : machines)
    known.insert(name);
  std::vector<MachineSighting> unwanted = strays(r, pool::strays_in(listed, known));
  for (const MachineSighting& stray : unwanted)
    if (!ending_of(r, stray.name, stray.external))
      log_warn("pool {}: {} was never ordered; ending it", name_of(id), stray.name);
  for (const MachineSighting& machine : listed) {
    const auto of = machines.find(machine.name);
    const bool released = of != machines.end() &&
                          (of->second.state == MachineState::releasing || machine.failed) &&
                          !must_wait(id, r, machine.name);
    if (released && !machine.ended)
      unwanted.push_back(machine);
  }
  // The list may be older than the last answer.
  std::erase_if(unwanted, [&](const MachineSighting& machine) {
    const Ended* const ending = ending_of(r, machine.name, machine.external);
    return ending && ending->second.answered >= asked;
  });
  end_machines(id, r, std::move(unwanted));
}

std::vector<MachineSighting> Pools::strays(Running& r, std::vector<MachineSighting> found) const {
  const SteadyTime now = clock_.steady();
  std::map<std::string, SteadyTime> seen;
  for (const MachineSighting& stray : found) {
    const auto before = r.strays.find(stray.external);
    seen[stray.external] = before == r.strays.end() ? now : before->second;
  }
  r.strays = std::move(seen);
  std::erase_if(found, [&](const MachineSighting& stray) {
    return now - r.strays.at(stray.external) < stray_after;
  });
  if (found.size() < r.strays.size())
    r.next_look = std::min(r.next_look, now + seconds(1));
  return found;
}

// Those that have waited longest come first: machines that never end do not keep others from their
// turn.
void Pools::end_machines(PoolId id, Running& r, std::vector<MachineSighting> machines) {
  const SteadyTime now = clock_.steady();
  const auto answered = [&](const MachineSighting& machine) {
    const Ended* const ending = ending_of(r, machine.name, machine.external);
    return ending ? ending->second.answered : SteadyTime{};
  };
  std::ranges::stable_sort(machines, {}, answered);
  std::vector<MachineSighting> begun;
  for (MachineSighting& machine : machines) {
    if (r.ending >= ask_at_once_max)
      break;
    Ending& ending = r.endings[{machine.name, machine.external}];
    if (ending.under_way || (ending.answered.ns != 0 && now - ending.answered < end_again))
      continue;
    ending.under_way = true;
    if (ending.since.ns == 0)
      ending.since = now;
    ++r.ending;
    begun.push_back(std::move(machine));
  }
  if (begun.empty())
    return;
  engine_().when_durable([this, id, begun = std::move(begun)] {
    for (const MachineSighting& machine : begun)
      end_machine(id, machine);
  });
}

void Pools::end_machine(PoolId id, const MachineSighting& machine) {
  const auto found = running_.find(id);
  if (found == running_.end())
    return;
  const Status queued = found->second->releases->submit(
      [this, id, engine = found->second->pool.get(), machine]() -> std::function<void()> {
        if (ending_)
          return {};
        MachineSighting asked = machine;
        if (!machine.twin_of.empty())
          asked.name = machine.twin_of;  // as its provider knows it
        return [this, id, machine, done = engine->release(asked)] {
          ended(id, machine, done);
        };
      });
  if (!queued)
    ended(id, machine, queued);
}

void Pools::ended(PoolId id, const MachineSighting& machine, const Status& done) {
  const auto running = running_.find(id);
  if (running == running_.end())
    return;
  Running& r = *running->second;
  const SteadyTime now = clock_.steady();
  --r.ending;
  Ending& ending = r.endings[{machine.name, machine.external}];
  ending.under_way = false;
  ending.answered = now;
  ending.error = done ? std::string() : done.error().message;
  if (done) {
    ending.since = {};
    if (ending.agreed.ns == 0)
      ending.agreed = now;
    r.next_look = std::min(r.next_look, now + look_after_end);
  }
  const auto failing = std::ranges::find_if(
      r.endings, [](const auto& entry) { return !entry.second.error.empty(); });
  note_error(name_of(id), r.release_error,
             failing == r.endings.end() ? std::string() : failing->second.error);
}

std::string Pools::why_not_ended(const Ending& ending) const {
  const SteadyTime now = clock_.steady();
  if (ending.since.ns != 0 && now - ending.since >= refused_loud_after)
    return ending.error.empty()
               ? fmt::format("no answer for {}", format_duration(now - ending.since))
               : ending.error;
  if (ending.agreed.ns != 0 && now - ending.agreed >= agreed_loud_after)
    return fmt::format("accepted {} ago, but no list shows that it has ended",
                       format_duration(now - ending.agreed));
  return {};
}

// Lists may fail for long after a provider has accepted an end. If it does not say when the machine
// ended, that was when it accepted, or when a list showed the machine last. Until a list shows the
// end, the books go on: nobody knows that the machine has ended.
std::map<std::string, Duration> Pools::ended_for(PoolId id, const Running& r) const {
  const SteadyTime now = clock_.steady();
  std::map<std::string, Duration> out;
  for (const auto& [name, since] : r.missing_since)
    out[name] = now - since;
  for (const auto& [name, machine] : engine_().state().machines) {
    const Ended* const ending = machine.pool == id ? ending_of(r, name, machine.external) : nullptr;
    if (!ending || ending->second.agreed.ns == 0)
      continue;
    const auto shown = r.shown.find(name);
    const SteadyTime last = shown == r.shown.end() ? SteadyTime{} : shown->second;
    out[name] = std::max(out[name], now - std::max(ending->second.agreed, last));
  }
  return out;
}

std::string Pools::ending(const Machine& machine) const {
  const auto found = running_.find(machine.pool);
  if (machine.state != MachineState::releasing || found == running_.end() || !found->second)
    return {};
  const Ended* const ending = ending_of(*found->second, machine.name, machine.external);
  if (const auto since = found->second->emptying.find(machine.name);
      !ending && since != found->second->emptying.end() && !is_held(machine.name))
    return fmt::format("it waits for its jobs to end, until it is deleted with them in {}",
                       format_duration(since->second + time_to_empty(machine.pool, machine.name) -
                                       clock_.steady()));
  if (!ending || ending->second.agreed.ns == 0 || found->second->list_error.empty())
    return {};
  return fmt::format("its provider accepted the deletion {} ago; billed until a list shows its end",
                     format_duration(clock_.steady() - ending->second.agreed));
}

// A machine that is not ended is billed.
void Pools::note_not_ended(PoolId id, Running& r) {
  const SteadyTime now = clock_.steady();
  for (auto& [machine, ending] : r.endings) {
    const std::string why = why_not_ended(ending);
    if (why.empty() || (ending.said.ns != 0 && now - ending.said < loud_every))
      continue;
    ending.said = now;
    log_error("pool {}: {} ({}) cannot be ended and may be billed: {}; end it at the provider",
              name_of(id), machine.first, machine.second, why);
  }
}

}  // namespace billow::head
