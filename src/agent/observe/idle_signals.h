// From what the machine shows to what the idle verdict reads: /proc of a task's processes, and a
// GPU's sample. A figure that cannot be read stays unknown; the verdict then leans towards work.
#pragma once

#include <string>
#include <vector>

#include "core/agent/idle.h"
#include "gpu/device.h"

namespace billow::agent {

// The host part of a sample: CPU, bytes, faults, memory and states of these processes, their
// waited-for children included, so that a total does not drop when a worker ends. Processes that
// end meanwhile are left out.
IdleSample host_signals(SteadyTime at,
                        const std::vector<int>& pids,
                        const std::string& proc = "/proc");

// One card's part. `shared`: other tasks hold some of it too; then only what the driver tells of
// `pids` is the task's own.
GpuSignal gpu_signal(const GpuSample& sample,
                     std::int64_t power_limit_mw,
                     bool shared,
                     const std::vector<int>& pids);

}  // namespace billow::agent
