// The last order a task got, suspend or resume, stored in its directory for a restarted agent.
// Written before an order is carried out and again after. An order that is not done is carried out
// again, which is safe: freezing a frozen task, or saving saved memory, changes nothing.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "core/model/job.h"

namespace billow::agent {

struct OrderRecord {
  std::uint32_t order = 0;
  bool suspend = false;  // else resume
  SuspendMode mode = SuspendMode::warm;
  bool done = false;
  std::string error;  // why the order failed; empty: it did not
  std::int64_t ram_mib = 0;
  std::vector<GpuGrant> gpus;  // given by a resume
  bool moved = false;          // the GPU memory service holds its GPU memory
  std::vector<int> pids;       // or the driver holds that of these processes
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("order", s.order);
    v("suspend", s.suspend);
    v("mode", s.mode);
    v("done", s.done);
    v("error", s.error);
    v("ram_mib", s.ram_mib);
    v("gpus", s.gpus);
    v("moved", s.moved);
    v("pids", s.pids);
  }

  // The state of the task after it.
  TaskState state() const;
};

Status write_order(const std::string& task_dir, const OrderRecord& record);
std::optional<OrderRecord> read_order(const std::string& task_dir);

}  // namespace billow::agent
