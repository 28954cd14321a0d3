// Where a job's time goes, according to its series: does the GPU wait for its input? Pure; the
// rules and their reasons are in the source. A finding needs enough known points, and names its
// figures.
#pragma once

#include <string>
#include <vector>

#include "store/series.h"

namespace billow::view {

struct Finding {
  std::string kind;  // "input_bound", "idle", "memory_headroom"
  std::string text;
  std::string hint;  // what to do
};

// `cores` is what the job may use: its own limit, or the node's. `gpu_mem_mib` is the memory of the
// cards it holds, 0: unknown.
std::vector<Finding> findings(const JobSeries& series,
                              double cores,
                              double gpu_mem_mib,
                              int cards = 1);

}  // namespace billow::view
