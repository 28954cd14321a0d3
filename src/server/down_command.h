// `billow down`.
#pragma once

#include <functional>

#include "base/clock.h"
#include "client/frame/command.h"

namespace billow::client {

// Looks until `condition` holds; false when the patience is over.
bool within(const std::function<bool()>& condition, Duration patience);

int cmd_down(const Parsed& parsed);

}  // namespace billow::client
