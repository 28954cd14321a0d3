// The part of an endpoint's latency objective that a request may wait: one rule, used by
// deployments and by the replays that validated it.
#pragma once

#include "base/clock.h"

namespace billow {

// The last third is left for the replica to read the request and begin its answer.
constexpr Duration wait_target_of(Duration first_byte_objective) {
  return {first_byte_objective.ns / 3 * 2};
}
constexpr Duration objective_of(Duration wait_target) {
  return {wait_target.ns / 2 * 3};
}

}  // namespace billow
