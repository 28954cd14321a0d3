// Internal to this module: jobs that still run when their reservation has ended.
#pragma once

#include <vector>

#include "core/control/decide/decide.h"

namespace billow::control {

// When the new price of a lease that outlives its reservation begins, on the billing clock.
WallTime outlives_from(const Task& task, WallTime reservation_end, const Context& context);
// The events for jobs running inside when it ends; without a reservation: for all jobs whose
// reservation ended long ago.
std::vector<EventBody> outlive(const State& state,
                               ReservationId reservation,
                               WallTime at,
                               const Context& context);
// The ends of all reservations that were due by then.
std::vector<EventBody> reservations_over(const State& state, WallTime then, const Context& context);

}  // namespace billow::control
