// What the node and each of its tasks use, for the heartbeat: CPU, memory, disk and network as
// rates since the last reading. A figure that cannot be read is -1 ("unknown"), never 0.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "core/wire/agent_v1.h"

namespace billow::agent {

class UsageReader {
 public:
  explicit UsageReader(std::string proc = "/proc") : proc_(std::move(proc)) {}
  // Takes the tasks with their supervisors' pids. Fills cpu, network, disk and tasks of the
  // heartbeat.
  void read(SteadyTime now,
            const std::vector<std::pair<TaskId, int>>& supervisors,
            wire::agent_v1::Heartbeat& beat);

 private:
  struct Totals {
    std::int64_t cpu_ns = 0, read_bytes = 0, write_bytes = 0;
    SteadyTime at;
  };
  std::string proc_;
  std::map<TaskId, Totals> tasks_;
  std::int64_t cpu_busy_ticks_ = -1, net_rx_ = -1, net_tx_ = -1, disk_read_ = -1, disk_write_ = -1;
  SteadyTime at_;
};

}  // namespace billow::agent
