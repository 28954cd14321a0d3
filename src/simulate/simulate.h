// `billow simulate`: published traces and your own history replayed in virtual time, with the
// head's scheduler.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace billow::sched {

// ---- Packing (openb traces): tasks arrive and never leave; one that does not fit is dropped.

struct OpenbNode {
  std::string name;
  std::int64_t cpu_milli = 0, mem_mib = 0;
  std::int32_t gpus = 0;
  std::string type;
};
struct OpenbTask {
  std::int64_t cpu_milli = 0, mem_mib = 0;
  std::int32_t gpus = 0, milli = 0;
  std::vector<std::string> types;  // any of these; empty: any
};
struct OpenbStream {
  std::string seed;
  std::vector<std::uint32_t> tasks;  // rows of the task list, in order of arrival
};
Result<std::vector<OpenbNode>> read_openb_nodes(const std::string& path);
Result<std::vector<OpenbTask>> read_openb_tasks(const std::string& path);
Result<std::vector<OpenbStream>> read_openb_streams(const std::string& path,
                                                    std::size_t task_count);

enum class OpenbPolicy { best, bestfit, fgd, random };
struct OpenbResult {
  std::vector<double> allocation_pct;  // mean over the events whose arrived demand rounds to the
                                       // index, in percent; -1: none
  std::int64_t placed = 0, dropped = 0;
  double decisions_per_s = 0;
  double unallocated_pct(std::size_t arrived_pct) const {
    return arrived_pct < allocation_pct.size() && allocation_pct[arrived_pct] >= 0
               ? 100.0 - allocation_pct[arrived_pct]
               : -1.0;
  }
};
struct OpenbOptions {
  OpenbPolicy policy = OpenbPolicy::best;
  // `best` knows the task list as the typical workload, like the published policies. If not, it
  // learns the workload from the tasks that arrive, as a head does…
  bool workload_known = true;
  std::vector<OpenbTask> before;  // …and from these, which have come and gone
};
OpenbResult run_openb(const std::vector<OpenbNode>& nodes,
                      const std::vector<OpenbTask>& tasks,
                      const OpenbStream& stream,
                      const OpenbOptions& options);

// ---- Queueing (Muri, Philly)

struct TraceJob {
  std::int64_t id = 0;
  std::int32_t gpus = 1;
  double submit_s = 0;
  double service_s = 0;  // alone, without overhead
  std::string model;     // the key for learning: jobs of one model are alike
  std::vector<double>
      phases;  // seconds per iteration on storage, CPU and GPU, network; empty: not known
  double iteration_s = 0;
};
Result<std::vector<TraceJob>> read_muri(const std::string& path);
Result<std::vector<TraceJob>> read_philly(const std::string& path);

enum class QueuePolicy { srsf, best, las, fifo, fair };
struct QueueOptions {
  QueuePolicy policy = QueuePolicy::best;
  std::int32_t nodes = 8, gpus_per_node = 8;
  bool durations_known = true;
  bool interleave = false;
};
struct QueueResult {
  double jct_avg_s = 0, jct_p50_s = 0, jct_p99_s = 0, makespan_s = 0, slowdown_max = 0,
         wait_avg_s = 0, gpu_use_pct = 0;
  double first_run_max_s = 0;  // the longest wait of any job before its first run
  std::int64_t jobs = 0, preemptions = 0;
  std::vector<std::pair<double, double>> use;  // time, GPUs in use: for the plot
};
QueueResult run_queue(const std::vector<TraceJob>& jobs, const QueueOptions& options);

// An SVG of a step curve: allocation over time. If x_label is "time", x is in seconds and the plot
// chooses a unit. `waiting` is an optional second curve of unmet demand.
std::string plot_svg(const std::vector<std::pair<double, double>>& steps,
                     double y_max,
                     const std::string& title,
                     const std::string& x_label,
                     const std::string& y_label,
                     const std::vector<std::pair<double, double>>& waiting = {});

}  // namespace billow::sched
