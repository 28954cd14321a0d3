// What a rented machine costs by its provider's rules, from its order to its end.
#pragma once

#include <optional>

#include "core/control/state.h"

namespace billow::control {

// How a machine ended.
struct MachineEnd {
  WallTime at;          // on the wall clock
  WallTime billed;      // now, on the billing clock
  bool existed = true;  // false: the provider never created it, so it costs nothing
  std::string reason = {};
  WallTime from = {};  // zero: as the machine has it
  bool told = false;   // `at` is the provider's word
  Duration ago = {};   // else: `at` was so long ago
};

// The part of an hourly price for this long: at least the minimum, and whole steps.
NanoUsd provider_amount(NanoUsd per_hour, Duration lasted, Duration minimum, Duration step);

// None: the machine has no account in the books, or an administrator has set its price.
std::optional<MachineBill> machine_bill(const State& state,
                                        const Machine& machine,
                                        const MachineEnd& end);

}  // namespace billow::control
