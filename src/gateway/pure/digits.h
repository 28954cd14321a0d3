// Numbers as text, for what is written with every request: a format string would cost more than the
// rest of the line.
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <string>

namespace billow::gateway {

inline void append_number(std::string& out, std::integral auto number, int base = 10) {
  char text[24];
  const auto end = std::to_chars(text, text + sizeof text, number, base).ptr;
  out.append(text, static_cast<std::size_t>(end - text));
}

// Sixteen hexadecimal digits.
inline void append_hex(std::string& out, std::uint64_t number) {
  for (int shift = 60; shift >= 0; shift -= 4)
    out += "0123456789abcdef"[number >> shift & 15];
}

}  // namespace billow::gateway
