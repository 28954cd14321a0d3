// Turns /proc of a task's processes and a GPU's sample into the input of the idle verdict. A figure
// that cannot be read stays unknown; the verdict then assumes work.
#pragma once

#include <string>
#include <vector>

#include "core/agent/idle.h"
#include "gpu/device.h"

namespace billow::agent {

// The host part of a sample: CPU, bytes, faults, memory and states of these processes. Children
// that they have waited for are included, so that a total does not drop when a worker ends.
// Processes that end meanwhile are skipped.
IdleSample host_signals(SteadyTime at,
                        const std::vector<int>& pids,
                        const std::string& proc = "/proc");

// One card's part. `shared`: other tasks hold slices of the card too, so only what the driver
// reports for `pids` counts.
GpuSignal gpu_signal(const GpuSample& sample,
                     std::int64_t power_limit_mw,
                     bool shared,
                     const std::vector<int>& pids);

}  // namespace billow::agent
