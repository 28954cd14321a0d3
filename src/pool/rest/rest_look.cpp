// What a provider's lists say: which machines are ours, in which state, and what must be ended.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "pool/rest/rest_pool.h"

namespace billow::pool::rest {
namespace {

constexpr Duration sweep_every = seconds(60);
constexpr Duration gone_kept = minutes(5);
constexpr Duration ended_kept = minutes(30);
constexpr Duration tries_kept = hours(2);  // longer than any list takes to show a machine
constexpr std::size_t note_bytes_max = 200;

}  // namespace

RestPool::Found RestPool::found_in(const Json& item) const {
  const MachineFields& fields = provider_.machine;
  Found out;
  out.machine = names_.machine_name(scalar_text(fields.name.first(item)));
  out.id = scalar_text(fields.id.first(item));
  out.state = scalar_text(fields.state.first(item));
  if (fields.region)
    out.region = scalar_text(fields.region->first(item));
  const auto known = fields.phases.find(lower(out.state));
  if (known != fields.phases.end())
    out.phase = known->second;
  if (out.phase == MachinePhase::dead)
    out.why = fields.dead_why.at(known->first);
  for (const DeadRule& rule : fields.dead)
    if (out.phase != MachinePhase::gone && out.phase != MachinePhase::going &&
        rule.when.holds(item)) {
      out.phase = MachinePhase::dead;
      out.why = rule.reason;
    }
  if (out.phase == MachinePhase::dead && fields.reason) {
    const std::string told = scalar_text(fields.reason->first(item));
    if (!told.empty())
      out.why += ": " + told;
  }
  return out;
}

// Every machine of this pool, or an error.
Result<std::vector<RestPool::Found>> RestPool::look() {
  Values values = pool_values();
  std::vector<Found> out;
  for (const ListCall& list : provider_.lists) {
    BILLOW_TRY_VOID(look_up(list.call, values));
    for (const Json& item : BILLOW_TRY(api_->list(list, values))) {
      Found found = found_in(item);
      if (found.machine.empty())
        continue;
      if (found.id.empty())
        return fail(Code::unavailable,
                    fmt::format("{} lists {} without an id", provider_.title, found.machine));
      out.push_back(std::move(found));
    }
  }
  return out;
}

void RestPool::remember(const std::vector<Found>& found) {
  auto memory = memory_.lock();
  memory->look = found;
  memory->looked = true;
  memory->looked_at = clock_.steady();
  std::map<std::string, std::string> listed;
  for (const Found& f : found)
    if (f.phase != MachinePhase::gone) {
      listed[f.id] = f.machine;
      memory->tries.erase(f.machine);
    }
  for (auto& [machine, earlier] : memory->tries)
    ++earlier.absent_looks;
  // What belonged to a machine that is gone is ended now: the pool may be removed after this look.
  for (const auto& [id, machine] : memory->listed) {
    if (listed.contains(id))
      continue;
    memory->swept = false;
    if (memory->ended.contains(id))
      memory->gone[id] = {machine, clock_.steady()};
  }
  memory->listed = std::move(listed);
  std::erase_if(memory->gone, [&](const auto& left) {
    return memory->listed.contains(left.first) || clock_.steady() - left.second.at > gone_kept;
  });
  std::erase_if(memory->tries,
                [&](const auto& tried) { return clock_.steady() - tried.second.at > tries_kept; });
  std::erase_if(memory->ended,
                [&](const auto& asked) { return clock_.steady() - asked.second > ended_kept; });
}

// Dead machines are billed until they are ended.
void RestPool::end_dead(const std::vector<Found>& found) {
  for (const Found& one : found) {
    if (one.phase != MachinePhase::dead)
      continue;
    if (const Status ended = end_machine(one.id, one.machine); !ended)
      log_warn("pool {}: {} ({}): {}", settings_.name, one.machine, one.id, ended.error().message);
    else
      log_info("pool {}: ended {} ({}): {}", settings_.name, one.machine, one.id, one.why);
  }
}

// Two machines of one name are both listed: the head tells them apart by their ids.
Result<std::vector<MachineSighting>> RestPool::nodes() {
  const auto found = BILLOW_TRY(look());
  remember(found);
  end_dead(found);
  sweep_objects(found);
  std::vector<MachineSighting> out;
  for (const Found& one : found) {
    if (one.phase == MachinePhase::gone)
      continue;
    MachineSighting seen;
    seen.name = one.machine;
    seen.external = one.id;
    seen.note = one.phase == MachinePhase::dead ? one.why : one.state;
    if (!one.region.empty())
      seen.note += fmt::format(" ({})", one.region);
    seen.note = std::string(utf8_prefix(seen.note, note_bytes_max));
    if (one.phase == MachinePhase::dead)
      seen.failed = RefusalKind::capacity;
    seen.starting = one.phase == MachinePhase::waiting;
    out.push_back(std::move(seen));
  }
  // A machine that was listed, was ended, and is listed no more has ended, however young it is.
  for (const auto& [id, left] : memory_.lock()->gone) {
    MachineSighting seen;
    seen.name = left.machine;
    seen.external = id;
    seen.ended = true;
    out.push_back(std::move(seen));
  }
  return out;
}

// Ends the scripts and keys of machines that are gone. Those of orders that are being carried out
// stay.
void RestPool::sweep_objects(const std::vector<Found>& found) {
  if (provider_.objects.empty())
    return;
  std::set<std::string> needed;
  {
    auto memory = memory_.lock();
    if (memory->swept && clock_.steady() - memory->swept_at < sweep_every)
      return;
    memory->swept = true;
    memory->swept_at = clock_.steady();
    needed = memory->ordering;
    for (const auto& [machine, tried] : memory->tries)
      needed.insert(machine);
  }
  for (const Found& one : found)
    if (one.phase != MachinePhase::gone)
      needed.insert(one.machine);
  for (const ExtraObject& object : provider_.objects) {
    Values values = pool_values();
    const auto listed = api_->list(object.list, values);
    if (!listed) {
      log_warn("pool {}: {}", settings_.name, listed.error().message);
      continue;
    }
    // Orders that began in the meantime may have made some of these.
    const std::set<std::string> ordering = memory_.lock()->ordering;
    needed.insert(ordering.begin(), ordering.end());
    for (const Json& item : *listed) {
      const std::string machine = names_.machine_name(scalar_text(object.list_name.first(item)));
      if (machine.empty() || needed.contains(machine))
        continue;
      values["id"] = scalar_text(object.list_id.first(item));
      const auto answer = api_->send(object.remove, values, Api::Use::change);
      if (!answer || !api_->succeeded(*answer))
        log_warn("pool {}: the {} of {} is still there: {}", settings_.name, object.name, machine,
                 answer ? api_->refusal_of(*answer).message : answer.error().error.message);
    }
  }
}

}  // namespace billow::pool::rest
