// Disks that keep the caches of a pool's machines: images, models, files of jobs. A machine of a
// pool with `cache_gib` gets one in its zone; when the machine has ended, the next machine there
// gets the same disk. A disk has one machine at a time. It is a `Machine` without nodes
// (model/pool.h), so whatever keeps machines from being forgotten keeps disks from it, too.
// Internal to this module.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "core/control/decide/decider.h"

namespace billow::control {

// What disks are called where machines have an instance type.
inline constexpr const char* cache_instance = "cache disk";

// The disks of a machine. `Machine::cache` names one, or one for each node of a gang, separated by
// commas.
std::vector<std::string> caches_of(const Machine& machine);

// The name of the disk that a machine ordered now will have (`Machine::cache`): one that no machine
// has, and that `taken` does not contain. It may not exist yet. Empty: the pool has none, or not
// enough for each node.
std::string cache_for(const State& state,
                      const Pool& pool,
                      const Machine& machine,
                      const std::set<std::string>& taken);

// The machine that has this disk, or will have it; null: none.
const Machine* holder_of(const State& state, const std::string& disk);

// Orders the disks of machines that exist, and releases those that are no longer needed. A disk is
// not ordered before its machine exists: an order that is refused leaves none behind.
void plan_caches(const State& state, WallTime now, std::uint64_t& next_account, Events& events);

}  // namespace billow::control
