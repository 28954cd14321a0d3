// A trace replayed on a described fleet in virtual time, with the head's own core: jobs are
// submitted at the times of the trace, then planned, placed, billed and ended by the same decisions
// and events as on a live head; only the agents and the time are simulated.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "core/model/node.h"

namespace billow::control {

struct ReplayJob {
  double submit_s = 0;
  double run_s = 0;     // its run time once placed
  Resources resources;  // per node
  std::uint32_t nodes = 1;
  std::int32_t priority = 0;
  bool spot = false;
  std::string what;           // the key for learned durations: the command or model
  std::string project, user;  // empty: the default ones
};
// openb (task list with creation and deletion times), muri, philly: CSV files. history: the JSON of
// `billow ps -a --json`.
Result<std::vector<ReplayJob>> read_replay(const std::string& path,
                                           const std::string& format,
                                           std::int32_t gpus_per_node_max);
// "8x8xH100,2x4xA100-40": nodes × GPUs × type; or a CSV of nodes in openb's format.
Result<std::vector<NodeOffer>> read_fleet(const std::string& text);

struct ReplayOptions {
  OrderPolicy policy = OrderPolicy::fair;
  // Each job's length is given as its time limit; otherwise it is learned.
  bool durations_known = false;
};
struct ReplayResult {
  std::int64_t jobs = 0, refused = 0, preemptions = 0;
  double jct_avg_s = 0, jct_p50_s = 0, jct_p99_s = 0;
  double wait_avg_s = 0, wait_p50_s = 0, wait_p99_s = 0, wait_max_s = 0, slowdown_max = 0;
  double makespan_s = 0;
  double gpu_use_pct = 0;        // of GPU time from the first submission to the last end
  double fragmentation_pct = 0;  // GPUs idle while something waited, of all GPUs, over that time
  double cost_usd = 0;           // of the leases
  double fleet_usd = 0;          // of the fleet over the makespan
  std::vector<std::pair<double, double>> use;      // time, allocated GPUs
  std::vector<std::pair<double, double>> waiting;  // time, GPUs requested by waiting jobs
};
Result<ReplayResult> replay(const std::vector<NodeOffer>& fleet,
                            const std::vector<ReplayJob>& jobs,
                            const ReplayOptions& options);
Json replay_document(const ReplayResult& result);
std::string replay_svg(const ReplayResult& result, double gpus, const std::string& title);

}  // namespace billow::control
