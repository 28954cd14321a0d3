// Other ways to serve than the answer's plain tensor split: attention by data ranks with the
// experts spread over all of them, the same over several nodes, and separate prefill workers. Each
// is tried on the answer's GPU and precision at the loads that meet the service level, and compared
// by what a GPU serves. They explain an answer; they never replace it, because less was measured
// about them.
//
// Invariants: a way that does not fit or misses the service level at every load is not listed; a
// way over several nodes exchanges at the network's speed, not at NVLink's.
#pragma once

#include "advise/recommend.h"

namespace billow::advise {

struct WayLimits {
  double context, tpot_ms, ttft_ms;
};

// How many GPUs of this kind one fast fabric connects.
int fabric_gpus(const GpuSpec& gpu);

std::vector<OtherWay> other_ways(const Candidate& best,
                                 const Request& request,
                                 const Calibration& calibration,
                                 const WayLimits& limits);

}  // namespace billow::advise
