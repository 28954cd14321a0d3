// The typical workload, learned from the jobs that are queued. Placement keeps capacity free for
// it, so it must follow a workload that changes before the fleet is full of the old one's gaps.
//
// Jobs count when they are queued, not when they start: a kind of task that no longer finds
// capacity would otherwise be forgotten just when capacity should be kept for it.
//
// Tasks are counted in windows. A window that looks like the past is added to it: the more is
// known, the less a window changes. A window that could hardly have come from the past reduces the
// past to as many tasks as it has itself, so each further window of the new workload halves what
// is left of the old one. The assumed workload (typical_prior) is a past of a few tasks.
//
// A function of the queued jobs alone, in their order: a replayed journal gives the same values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/sched/plan.h"

namespace billow::sched {

// Counts `tasks` tasks. `hint`: where their kind probably is in `recent`; updated. True: `typical`
// has changed.
bool learn(Learned& learned, const Resources& resources, std::int64_t tasks, std::size_t& hint);

}  // namespace billow::sched
