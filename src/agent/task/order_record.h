// What a task was last ordered, suspend or resume, kept in its directory so that an agent that
// starts anew knows where it stands. Written before an order is carried out and again after: a
// record that is not done names an order to carry out once more, which is safe because freezing
// what is frozen, and saving what is saved, changes nothing.
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
  std::string error;  // done, and not carried out
  std::int64_t ram_mib = 0;
  std::vector<GpuGrant> gpus;  // of a resume
  bool moved = false;          // the vault has its GPU memory
  std::vector<int> pids;       // …or the driver has, of these processes
  template <class V>
  void fields(V& v) {
    v("order", order);
    v("suspend", suspend);
    v("mode", mode);
    v("done", done);
    v("error", error);
    v("ram_mib", ram_mib);
    v("gpus", gpus);
    v("moved", moved);
    v("pids", pids);
  }

  // Where the task stands by it.
  TaskState state() const;
};

Status write_order(const std::string& task_dir, const OrderRecord& record);
std::optional<OrderRecord> read_order(const std::string& task_dir);

}  // namespace billow::agent
