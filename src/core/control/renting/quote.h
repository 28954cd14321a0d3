// What a job would rent, and for how much, before anything is ordered.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/control/state.h"

namespace billow::control {

struct RentQuote {
  std::string pool;
  std::string text;        // "2 × p5.48xlarge in us-east-1a (spot, $12.30/h)"
  NanoUsd per_hour;        // of all machines together; zero: not known
  NanoUsd ask_above_h;     // up to this price no confirmation is needed; zero: always ask
  bool old_price = false;  // it was read more than 90 days ago
};

// None: a node with enough free capacity is here, or no cloud rents a machine for it. The machine
// that is ordered in the end may differ: prices and capacity change, and other jobs wait too.
std::optional<RentQuote> rent_quote(const State& state,
                                    const JobSpec& spec,
                                    ProjectId project,
                                    WallTime now);

// Whether the job could start if it were submitted now, with the reason if not. The queue, quotas,
// reservations and drained nodes count. Planned on a copy, so none is given for a large queue.
struct StartQuote {
  bool now = false;
  std::string reason;
};
std::optional<StartQuote> start_quote(
    const State& state, const JobSpec& spec, ProjectId project, UserId user, WallTime now);

// Whether a queued job that cannot start now could start as soon as the others have ended. Planned
// on a copy, so not for a large queue.
bool starts_in_place_of(const State& state,
                        JobId queued,
                        const std::vector<JobId>& others,
                        WallTime now);

}  // namespace billow::control
