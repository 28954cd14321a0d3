#include "core/control/renting/caches.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/limits.h"
#include "base/text.h"
#include "core/control/renting/offers.h"
#include "core/control/renting/pool_limits.h"

namespace billow::control {
namespace {

const std::string& place_of(const MachineOffer& offer) {
  return offer.zone.empty() ? offer.region : offer.zone;
}

// Of one GiB: what the administrator has set for the pool's storage, else the provider's list
// price.
NanoUsd gib_month(const State& state, const Pool& pool) {
  const auto rule = state.money.prices.find("pool:" + pool.name);
  if (rule != state.money.prices.end() && rule->second.storage_gib_month.value > 0)
    return rule->second.storage_gib_month;
  return pool.capabilities.value_or(PoolCapabilities{}).cache_gib_month;
}

MachineOffer disk_offer(const State& state, const Pool& pool, const MachineOffer& machine) {
  constexpr __int128 month_s = 2'629'800;  // a twelfth of 365.25 days
  const __int128 month = static_cast<__int128>(gib_month(state, pool).value) * pool.cache_gib;
  MachineOffer out;
  out.instance = cache_instance;
  out.region = machine.region;
  out.zone = machine.zone;
  out.price = {static_cast<std::int64_t>(month / month_s)};
  out.price_h = {static_cast<std::int64_t>(month * 3600 / month_s)};
  out.bill_step = seconds(1);
  out.bill_minimum = seconds(60);
  return out;
}

// "aws-cache-us-east-1a-1": the disks of one place are numbered.
std::string cache_name(const Pool& pool, const MachineOffer& offer, std::uint32_t number) {
  return fmt::format("{}-cache-{}-{}", pool.name, place_of(offer), number);
}

bool wants_caches(const Pool& pool) {
  return pool.cache_gib > 0 && pool.state == PoolState::active;
}

// A large gang has many disks, so it has them only if the administrator says so. Kinds of pools
// that cannot attach a disk to a node of a gang do not have this option.
bool for_gangs(const Pool& pool) {
  const auto option = pool.options.find("gang_caches");
  return option != pool.options.end() && option->second == "true";
}

// Why nobody needs the disk any more; empty: somebody may.
std::string needless(const Pool& pool, const Machine& disk, WallTime now) {
  if (!wants_caches(pool) || disk.volume_gib != pool.cache_gib)
    return "its pool has no such caches any more";
  if (disk.state == MachineState::wanted)
    return disk.wanted_at + limits::machine_join_max < now ? "no machine waits for it any more"
                                                           : "";
  return disk.idle_since && disk.idle_since + limits::cache_kept < now
             ? fmt::format("no machine has used it for {}", format_duration(limits::cache_kept))
             : "";
}

void order_cache(const State& state,
                 const Machine& machine,
                 const std::string& name,
                 WallTime now,
                 std::uint64_t& next_account,
                 Events& events) {
  const Pool& pool = state.pools.at(machine.pool);
  Machine disk;
  disk.name = name;
  disk.pool = pool.id;
  disk.nodes = 0;
  disk.volume_gib = pool.cache_gib;
  disk.offer = disk_offer(state, pool, *machine.offer);
  disk.wanted_at = now;
  disk.used = true;
  if (refusal_of(pool, *disk.offer, now))
    return;
  disk.account = NodeId(next_account++);
  events.push_back(MachineWanted{std::move(disk), fmt::format("the cache of {}", machine.name)});
}

}  // namespace

std::vector<std::string> caches_of(const Machine& machine) {
  return machine.cache.empty() ? std::vector<std::string>{} : split(machine.cache, ',');
}

const Machine* holder_of(const State& state, const std::string& disk) {
  for (const auto& [name, machine] : state.machines)
    if (machine.cache.find(disk) != std::string::npos &&
        std::ranges::count(caches_of(machine), disk) > 0)
      return &machine;
  return nullptr;
}

std::string cache_for(const State& state,
                      const Pool& pool,
                      const Machine& machine,
                      const std::set<std::string>& taken) {
  if (!wants_caches(pool) || !machine.offer || (machine.nodes != 1 && !for_gangs(pool)))
    return {};
  std::vector<std::string> found;
  for (std::uint32_t number = 1; number <= pool.machines_max; ++number) {
    const std::string name = cache_name(pool, *machine.offer, number);
    const auto disk = state.machines.find(name);
    const bool usable =
        disk == state.machines.end() || (disk->second.state != MachineState::releasing &&
                                         disk->second.volume_gib == pool.cache_gib);
    if (usable && !taken.contains(name) && !holder_of(state, name))
      found.push_back(name);
    if (found.size() == machine.nodes)
      return join(found, ",");
  }
  return {};
}

void plan_caches(const State& state, WallTime now, std::uint64_t& next_account, Events& events) {
  for (const auto& [name, machine] : state.machines) {
    const Pool& pool = state.pools.at(machine.pool);
    if (machine.is_disk()) {
      if (machine.state == MachineState::releasing || holder_of(state, name))
        continue;
      if (std::string why = needless(pool, machine, now); !why.empty())
        events.push_back(MachineReleased{name, std::move(why), false});
      continue;
    }
    if (machine.external.empty() || !wants_caches(pool) || machine.state != MachineState::wanted)
      continue;
    for (const std::string& cache : caches_of(machine))
      if (!state.machines.contains(cache))
        order_cache(state, machine, cache, now, next_account, events);
  }
}

}  // namespace billow::control
