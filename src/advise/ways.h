// Ways to serve: plain tensor ranks, attention by data ranks with the experts spread over all of
// them, the same over several nodes, and separate prefill workers. A question may ask for one
// (`Way`). The others are tried on the answer's GPU and precision at the loads that meet the
// service level, and compared by what a GPU serves. They explain an answer; they never replace it,
// because less was measured about them.
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

// The ways to split a replica over the GPUs of one machine, and what no machine holds over stages
// of up to `nodes` machines.
std::vector<Parallelism> splits_of(Way way, int gpus_max, int nodes, bool mixture);

// An error if this model or question cannot be served in the way that was asked for.
Status check_way(const Request& request);

// Gives a row whose prompts are computed apart as many prefill workers as have time for them.
void give_prefill_workers(const Calibration::Prepared& prepared, ServingRow& row);

std::vector<OtherWay> other_ways(const Candidate& best,
                                 const Request& request,
                                 const Calibration& calibration,
                                 const WayLimits& limits);

}  // namespace billow::advise
