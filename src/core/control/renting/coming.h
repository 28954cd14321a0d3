// Machines on their way as the planner counts them: node by node, with what is still free there.
// Internal to this module.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/control/renting/offers.h"

namespace billow::control {

// A task without a GPU takes one of these slots on a machine whose cores are unknown until it
// joins.
inline constexpr std::int32_t gpuless_tasks_per_node = 64;

// Capacity that is on its way: one node of a machine that is not here yet, or that waits here for
// the rest of a gang.
struct Bin {
  std::string machine;
  std::string gpu_type;
  std::int64_t milli = 0, free_milli = 0;
  std::int64_t new_milli = 0;   // of it, what is not among the GPUs of today
  std::int64_t lent_milli = 0;  // of it, to jobs beyond the guarantees of their projects
  std::int32_t tasks_free = gpuless_tasks_per_node;
  std::int64_t free_cpu_milli = INT64_MAX, free_mem_mib = INT64_MAX, free_disk_mib = INT64_MAX;
  Source source;
  bool slow = false;
  bool used = false;
  bool for_gangs_only = false;
  // GPUs that it adds to those of today, without those it lends to others.
  std::int64_t more_milli() const { return new_milli - lent_milli; }
  void take(const Resources& r);
};

// A machine that is sized to the single jobs it will be ordered for.
struct SizedMachine {
  std::int64_t milli = 0;
  std::int64_t cpu_milli = 0, mem_mib = 0;
  std::int32_t tasks = 0;
  JobId first;
  std::int32_t gpus() const { return static_cast<std::int32_t>((milli + 999) / 1000); }
};
using SizedMachines = std::map<PoolId, std::vector<SizedMachine>>;

std::int64_t cpu_milli_of(const Resources& r);
// As many as the machine has nodes.
std::vector<Bin> bins_of(const State& state, const Machine& machine, const Source& source);

// Thousandths of GPUs that a group takes, and those that its machines bring.
struct GroupNeed {
  std::int64_t taken_milli = 0, more_milli = 0;
  GroupNeed operator+(const GroupNeed& other) const {
    return {taken_milli + other.taken_milli, more_milli + other.more_milli};
  }
};
GroupNeed group_need(const std::vector<Bin>& before, const std::vector<Bin>& after);
GroupNeed group_need(const SizedMachines& before, const SizedMachines& after);

// Notes which of the bins lend what a group borrows: at most what it takes there.
void lend(std::vector<Bin>& bins, const std::vector<Bin>& before, std::int64_t borrowed_milli);

}  // namespace billow::control
