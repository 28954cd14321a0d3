// Percentiles of a recommended option: its replicas at their load, replayed with queueing
// (queueing.h), and how the service level looks at them.
#pragma once

#include "advise/recommend.h"

namespace billow::advise {

// Sequences at once that a replica is tried with.
inline constexpr double replica_loads[] = {1,  2,  4,  8,   12,  16,  24,  32,
                                           48, 64, 96, 128, 192, 256, 384, 512};

// The row for predictions of a candidate, without load yet.
ServingRow serving_row_of(const Candidate& c,
                          const Request& request,
                          const std::shared_ptr<const ModelShape>& shape,
                          const GpuSpec& gpu);

// Replays the candidate's share of the load. `slow` is how much slower its part of a GPU is.
void add_tails(Candidate& c,
               const Request& request,
               const Calibration& calibration,
               const std::shared_ptr<const ModelShape>& shape,
               double slow);

// Milliseconds; above 10¹² there is no limit.
struct TailLimits {
  double tpot_ms, ttft_ms;
};
// The chance of staying below the limits: of the means, or of a percentile that was replayed.
double chance_of(const Candidate& c, const TailLimits& limits, Percentile p = Percentile::mean);
// By which factor a percentile exceeds the limits; at most 1 if it meets them.
double miss_of(const Candidate& c, Percentile p, const TailLimits& limits);
// Which service level more replicas are for, with its figure: what this many would give.
std::pair<std::string, std::string> binding_tail(const Candidate& c,
                                                 Percentile p,
                                                 const TailLimits& limits);
// Each replica has one sequence at a time or none: more replicas would change nothing.
bool alone(const Candidate& c, const Request& request);

// How latency and price move with the load of one replica of the best answer.
std::vector<CurvePoint> curve_of(const Candidate& c,
                                 const Request& request,
                                 const Calibration& calibration);

}  // namespace billow::advise
