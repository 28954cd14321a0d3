// The GPUs' part of a heartbeat, and the check after a job that had the whole node. Runs on a
// worker, because a driver may take its time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "agent/observe/readings.h"
#include "agent/observe/sampler.h"
#include "core/agent/health.h"
#include "core/wire/agent_v1.h"
#include "gpu/backend.h"

namespace billow::agent {

// One sample of the node: the heartbeat for the head, and the tasks' samples for the core.
struct NodeSample {
  wire::agent_v1::Heartbeat beat;
  std::vector<std::pair<TaskId, TaskSample>> tasks;
};

class GpuReadings {
 public:
  // `backend` may be null: the node has no GPUs.
  GpuReadings(GpuBackend* backend, std::vector<GpuInfo> gpus)
      : backend_(backend), gpus_(gpus), sampler_(backend, std::move(gpus)) {}

  NodeSample read(const std::vector<WatchedTask>& watched,
                  const std::vector<std::pair<TaskId, int>>& supervisors);

 private:
  wire::agent_v1::GpuReading reading_of(const GpuInfo& gpu, const GpuSample& sample, WallTime now);

  GpuBackend* backend_;
  std::vector<GpuInfo> gpus_;
  Sampler sampler_;
  std::map<std::uint32_t, GpuHealthWatch> health_;  // by GPU index
  std::map<std::uint32_t, std::int32_t> last_xid_;
  UsageReader usage_;
};

// What still occupies the GPUs after a job that had the node to itself; empty: nothing.
// `idle_mem_mib` is the least memory that each GPU was seen to use, which is the driver's own. The
// driver takes a moment to free memory, so this checks for up to five seconds.
std::string find_left_behind(GpuBackend& backend,
                             const std::vector<GpuInfo>& gpus,
                             const std::map<std::uint32_t, std::int64_t>& idle_mem_mib);

}  // namespace billow::agent
