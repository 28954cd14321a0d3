// Amounts per GPU-hour as options give them.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "client/frame/command.h"

namespace billow::client {

// The amount of `--name`, in USD per hour, as nano-USD per second; nothing where it was not given.
Result<std::optional<std::int64_t>> per_second(const Parsed& parsed, const char* name);

}  // namespace billow::client
