// What each GPU did over time, for charts: which jobs held it, when nothing did, and since when it
// takes no work. Made of leases, so it says what was paid for; blocks of one card are in order.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "core/control/state.h"
#include "store/rows.h"
#include "view/idle_jobs.h"

namespace billow::view {

inline constexpr std::size_t timeline_blocks_max = 5'000;

struct TimelineQuestion {
  WallTime from, to, now;
  std::string node;  // only this one; empty: all
  std::function<bool(ProjectId)> visible;
  Readings readings;
};

// `closed`: leases that have ended, within the window; `names`: of their jobs. `truncated`: there
// were more.
Json timeline(const control::State& state,
              const TimelineQuestion& question,
              const std::vector<LeaseRow>& closed,
              const std::map<JobId, std::string>& names,
              bool truncated);

}  // namespace billow::view
