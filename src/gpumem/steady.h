// The monotonic clock in the units this folder uses.
#pragma once

#include <chrono>
#include <cstdint>

namespace billow::gpumem {

inline std::int64_t steady_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}
inline double seconds_since(std::int64_t start_ns) {
  return static_cast<double>(steady_ns() - start_ns) / 1e9;
}

}  // namespace billow::gpumem
