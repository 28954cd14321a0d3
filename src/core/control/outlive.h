// Internal to this module: what becomes of work that runs when its reservation is over.
#pragma once

#include <vector>

#include "core/control/decide/decide.h"

namespace billow::control {

// From when on a lease that outlives its reservation is at another price, by the clock of bills.
WallTime outlives_from(const Task& task, WallTime reservation_end, const Context& context);
// What its end brings for those that run inside; no reservation: for all whose reservation has been
// over for long.
std::vector<EventBody> outlive(const State& state,
                               ReservationId reservation,
                               WallTime at,
                               const Context& context);
// The ends of the reservations whose time was over then.
std::vector<EventBody> reservations_over(const State& state, WallTime then, const Context& context);

}  // namespace billow::control
