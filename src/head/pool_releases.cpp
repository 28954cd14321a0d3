// Ending machines: those that were released, that their provider could not keep, and that nobody
// ordered.
#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/log.h"
#include "base/text.h"
#include "head/pools.h"

namespace billow::head {
namespace {

constexpr Duration stray_after = seconds(5);

}  // namespace

struct Pools::Releases {
  std::vector<MachineSighting> machines;
  std::vector<Status> results;
};

// Several at a time: an engine's tool spends most of its time waiting. A lane that is no thread
// makes none.
void Pools::in_parallel(std::size_t count, const std::function<void(std::size_t)>& one) const {
  const std::size_t at_once = options_.lane ? 1 : ask_at_once_max;
  for (std::size_t from = 0; from < count && !ending_; from += at_once) {
    std::vector<std::thread> threads;
    for (std::size_t i = from + 1; i < std::min(count, from + at_once); ++i)
      threads.emplace_back([&, i] { one(i); });
    one(from);
    for (std::thread& thread : threads)
      thread.join();
  }
}

// Ends what was released, what the provider could not keep, and what was never ordered. The state
// is newer than the list, and machines are in the state before they are ordered, so whatever is
// listed and not in the state is a stray.
//
// A head that has been replaced and does not know it yet must end nothing that its successor uses.
// Its own decisions never become durable, and they are carried out only then. Strays are looked at
// again after a while: by then such a head has ended.
void Pools::release(PoolId id, Running& r, const std::vector<MachineSighting>& listed) {
  if (r.releasing)
    return;
  const std::map<std::string, Machine>& machines = engine_().state().machines;
  std::set<std::string> known;
  for (const auto& [name, machine] : machines)
    known.insert(name);
  auto releases = std::make_shared<Releases>();
  releases->machines = strays(r, pool::strays_in(listed, known));
  for (const MachineSighting& stray : releases->machines)
    log_warn("pool {}: {} was never ordered and is being ended", name_of(id), stray.name);
  for (const MachineSighting& machine : listed) {
    const auto of = machines.find(machine.name);
    const bool unwanted = of != machines.end() &&
                          (of->second.state == MachineState::releasing || machine.failed) &&
                          !still_busy(id, machine.name);
    if (unwanted && !machine.ended)
      releases->machines.push_back(machine);
  }
  std::ranges::move(unlisted(id, r, listed), std::back_inserter(releases->machines));
  for (const MachineSighting& machine : releases->machines)
    r.given_back.insert(machine.name);
  if (releases->machines.empty())
    return;
  r.releasing = true;
  engine_().when_durable([this, id, releases] { end_machines(id, releases); });
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

void Pools::end_machines(PoolId id, const std::shared_ptr<Releases>& releases) {
  const auto found = running_.find(id);
  if (found == running_.end())
    return;
  const Status queued = found->second->releases->submit(
      [this, id, engine = found->second->pool.get(), releases]() -> std::function<void()> {
        releases->results.resize(releases->machines.size());
        in_parallel(releases->machines.size(), [&](std::size_t i) {
          MachineSighting machine = releases->machines[i];
          if (!machine.twin_of.empty())
            machine.name = machine.twin_of;  // as its provider knows it
          releases->results[i] = engine->release(machine);
        });
        return [this, id, releases] {
          released(id, *releases);
        };
      });
  if (!queued)
    found->second->releasing = false;
}

// A machine that cannot be ended is billed: that is said every minute, from the first one on.
void Pools::released(PoolId id, const Releases& releases) {
  const auto running = running_.find(id);
  if (running == running_.end())
    return;
  Running& r = *running->second;
  r.releasing = false;
  const SteadyTime now = clock_.steady();
  std::string error;
  for (std::size_t i = 0; i < releases.machines.size(); ++i) {
    const MachineSighting& machine = releases.machines[i];
    if (releases.results[i]) {
      r.failing.erase(machine.name);
      r.let_go.try_emplace(machine.name, now);
      continue;
    }
    error = releases.results[i].error().message;
    Failing& failing = r.failing.try_emplace(machine.name, Failing{now, now, error}).first->second;
    failing.error = error;
    if (now - failing.said >= cannot_end_loud_after) {
      failing.said = now;
      log_error("pool {}: {} ({}) cannot be ended for {} and is billed: {}; end it at the provider",
                name_of(id), machine.name, machine.external, format_duration(now - failing.since),
                error);
    }
  }
  note_error(name_of(id), r.release_error, error);
}

}  // namespace billow::head
