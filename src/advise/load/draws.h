// Random numbers that are the same on every machine, for arrivals and lengths (SplitMix64).
#pragma once

#include <cmath>
#include <cstdint>

namespace billow::advise {

struct Draws {
  std::uint64_t state;
  std::uint64_t next() {
    state += 0x9e3779b97f4a7c15ull;
    std::uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  // Between 0 and 1, never either.
  double unit() { return (static_cast<double>(next() >> 11) + 0.5) / 9007199254740992.0; }
  double normal() {
    const double radius = std::sqrt(-2 * std::log(unit()));
    return radius * std::cos(6.283185307179586 * unit());
  }
};

}  // namespace billow::advise
