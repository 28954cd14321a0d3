#include "core/control/renting/coming.h"

#include <algorithm>

#include "base/limits.h"
#include "core/control/decide/node_gone.h"

namespace billow::control {

void Bin::take(const Resources& r) {
  free_milli -= wanted_milli(r, source.gpus());
  free_cpu_milli -= cpu_milli_of(r);
  free_mem_mib -= r.mem_mib;
  free_disk_mib -= r.disk_mib;
  --tasks_free;
  used = true;
}

std::int64_t cpu_milli_of(const Resources& r) {
  return r.cpu_milli > 0 ? r.cpu_milli : limits::task_cpu_milli_assumed;
}

std::vector<Bin> bins_of(const State& state, const Machine& machine, const Source& source) {
  const bool sized = machine.cpu_milli > 0;
  const auto& can = source.pool->capabilities;
  const std::int64_t milli = std::int64_t{1000} * machine.gpus;
  const Bin bin{.machine = machine.name,
                .gpu_type = machine.gpus > 0 ? source.gpu_type() : "",
                .milli = milli,
                .free_milli = milli,
                .new_milli = milli,
                .free_cpu_milli = sized ? machine.cpu_milli : INT64_MAX,
                .free_mem_mib = sized ? machine.mem_mib : INT64_MAX,
                .free_disk_mib = can && can->disk_mib_max > 0 ? machine.disk_mib : INT64_MAX,
                .source = source};
  std::vector<Bin> bins(machine.nodes, bin);
  const std::size_t joined = std::min(nodes_of(state, machine).size(), bins.size());
  for (std::size_t i = 0; i < joined; ++i)
    bins[i].new_milli = 0;
  return bins;
}

// New bins are at the end.
GroupNeed group_need(const std::vector<Bin>& before, const std::vector<Bin>& after) {
  GroupNeed need;
  for (std::size_t i = 0; i < after.size(); ++i) {
    const bool is_new = i >= before.size();
    const std::int64_t was = is_new ? after[i].milli : before[i].free_milli;
    need.taken_milli += was - after[i].free_milli;
    if (is_new || was != after[i].free_milli)
      need.more_milli += after[i].more_milli();
  }
  return need;
}

GroupNeed group_need(const SizedMachines& before, const SizedMachines& after) {
  GroupNeed need;
  for (const auto& [sign, machines] : {std::pair(-1, &before), std::pair(1, &after)})
    for (const auto& [pool, sized] : *machines)
      for (const SizedMachine& machine : sized) {
        need.taken_milli += sign * machine.milli;
        need.more_milli += std::int64_t{sign} * 1000 * machine.gpus();
      }
  return need;
}

void lend(std::vector<Bin>& bins, const std::vector<Bin>& before, std::int64_t borrowed_milli) {
  for (std::size_t i = 0; i < bins.size() && borrowed_milli > 0; ++i) {
    const std::int64_t was = i < before.size() ? before[i].free_milli : bins[i].milli;
    const std::int64_t lent = std::min(borrowed_milli, was - bins[i].free_milli);
    bins[i].lent_milli += lent;
    borrowed_milli -= lent;
  }
}

}  // namespace billow::control
