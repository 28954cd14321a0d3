// Wall time is for people and bills; steady time is for timeouts. They are different types, and
// both come from a Clock, so that the simulator can move one without the other.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace billow {

// A span of time in nanoseconds.
struct Duration {
  std::int64_t ns = 0;
  constexpr auto operator<=>(const Duration&) const = default;
  constexpr Duration operator+(Duration o) const { return {ns + o.ns}; }
  constexpr Duration operator-(Duration o) const { return {ns - o.ns}; }
  constexpr Duration operator*(std::int64_t k) const { return {ns * k}; }
  constexpr Duration operator/(std::int64_t k) const { return {ns / k}; }
  constexpr std::int64_t ms() const { return ns / 1'000'000; }
  constexpr double seconds() const { return static_cast<double>(ns) / 1e9; }
};
// Saturates: a number that is too large becomes the longest duration, never a short or negative
// one.
constexpr Duration of_units(std::int64_t n, std::int64_t unit_ns) {
  const std::int64_t most = INT64_MAX / unit_ns;
  return {n > most ? INT64_MAX : n < -most ? -INT64_MAX : n * unit_ns};
}
constexpr Duration nanoseconds(std::int64_t n) {
  return {n};
}
constexpr Duration microseconds(std::int64_t n) {
  return of_units(n, 1'000);
}
constexpr Duration milliseconds(std::int64_t n) {
  return of_units(n, 1'000'000);
}
constexpr Duration seconds(std::int64_t n) {
  return of_units(n, 1'000'000'000);
}
constexpr Duration minutes(std::int64_t n) {
  return of_units(n, 60'000'000'000);
}
constexpr Duration hours(std::int64_t n) {
  return of_units(n, 3'600'000'000'000);
}

// Nanoseconds since 1970 UTC.
struct WallTime {
  std::int64_t ns = 0;
  constexpr auto operator<=>(const WallTime&) const = default;
  constexpr explicit operator bool() const { return ns != 0; }
  constexpr WallTime operator+(Duration d) const { return {ns + d.ns}; }
  constexpr WallTime operator-(Duration d) const { return {ns - d.ns}; }
  constexpr Duration operator-(WallTime o) const { return {ns - o.ns}; }
};
// Nanoseconds since boot (CLOCK_BOOTTIME counts sleep, so deadlines pass while the machine is
// suspended).
struct SteadyTime {
  std::int64_t ns = 0;
  constexpr auto operator<=>(const SteadyTime&) const = default;
  constexpr SteadyTime operator+(Duration d) const { return {ns + d.ns}; }
  constexpr SteadyTime operator-(Duration d) const { return {ns - d.ns}; }
  constexpr Duration operator-(SteadyTime o) const { return {ns - o.ns}; }
};

class Clock {
 public:
  virtual ~Clock() = default;
  virtual WallTime wall() const = 0;
  virtual SteadyTime steady() const = 0;
};

// The clocks of this machine.
const Clock& system_clock();

// "2026-11-15T01:29:00Z"; "-" for zero.
std::string format_utc(WallTime time);

}  // namespace billow
