// fmt::format_to for the end of a string. fmt's own compiles its whole formatter into each file
// that calls it: 60 kB and two seconds.
#pragma once

#include <fmt/format.h>

#include <string>

namespace billow {

void append_formatted(std::string& out, fmt::string_view format, fmt::format_args args);

template <class... Args>
void append_format(std::string& out, fmt::format_string<Args...> format, Args&&... args) {
  append_formatted(out, format, fmt::make_format_args(args...));
}

}  // namespace billow
