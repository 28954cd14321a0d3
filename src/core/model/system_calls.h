// System calls of Linux by name, for x86_64 and aarch64: people name those that their jobs must not
// use.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace billow {

inline constexpr std::size_t refused_calls_max = 256;

// An error names the first one that no machine has.
Status check_system_calls(const std::vector<std::string>& names);
// On this kind of machine; none: it does not have the call.
std::optional<int> system_call_number(std::string_view name);

}  // namespace billow
