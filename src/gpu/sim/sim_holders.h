// Which tasks hold the simulated GPUs: the agent's side of the state directory. The simulated
// library derives load, memory and power from the processes named here, so a busy loop looks busy
// and a `sleep` idle.
//
// Format: one file per task, `<state>/hold/<task>`, replaced as a whole and removed when the task
// releases its GPUs:
//     gpu milli mem_mib target [gi=ID]        one line per GPU held; '#' begins a comment
// where mem_mib 0 means "in proportion to milli" and target is the pid at the root of the task's
// processes (all its descendants count) or cgroup:PATH (all processes in that cgroup v2 directory
// and below count, also orphans). A line whose processes have ended counts for nothing.
//
// Faults, for tests: one file, `<state>/faults`, read again when it changes:
//     xid GPU CODE | lost GPU | hung GPU | ecc GPU COUNT | hot GPU | link GPU COUNT
// `lost` also reports XID 79, and XID 79 loses the card. Removing a line repairs the card.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace billow {

struct SimHoldEntry {
  std::uint32_t gpu = 0;
  std::int32_t milli = 1000;
  std::int64_t mem_mib = 0;
  std::int64_t pid = 0;            // either this …
  std::string cgroup;              // … or this
  std::int64_t gpu_instance = -1;  // of a card with MIG instances
  bool operator==(const SimHoldEntry&) const = default;
};

// Records that the task holds these GPUs and replaces its earlier record. Creates the state
// directory if necessary.
Status write_sim_hold(const std::string& state_dir,
                      std::string_view task,
                      const std::vector<SimHoldEntry>& entries);
// Succeeds if the task holds nothing.
Status remove_sim_hold(const std::string& state_dir, std::string_view task);
// Skips invalid lines.
std::vector<SimHoldEntry> parse_sim_hold(std::string_view text);

enum class SimFaultKind { xid, lost, hung, ecc, hot, link };
struct SimFault {
  SimFaultKind kind = SimFaultKind::xid;
  std::uint32_t gpu = 0;
  std::int64_t value = 0;  // the XID, or the number of memory or link errors
  auto operator<=>(const SimFault&) const = default;
};
Result<SimFault> parse_sim_fault(std::string_view line);

}  // namespace billow
