// Money is integers: nano-dollars (1e-9 USD) in 64 bits hold ±9.2 billion dollars. Products of a
// rate and a time pass through 128 bits. A bill over a span is the difference of two cumulative
// amounts, so rounding never adds up.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/result.h"

namespace billow {

struct NanoUsd {
  std::int64_t value = 0;
  constexpr auto operator<=>(const NanoUsd&) const = default;
  constexpr NanoUsd operator+(NanoUsd o) const { return {value + o.value}; }
  constexpr NanoUsd operator-(NanoUsd o) const { return {value - o.value}; }
  constexpr NanoUsd& operator+=(NanoUsd o) {
    value += o.value;
    return *this;
  }
  constexpr NanoUsd& operator-=(NanoUsd o) {
    value -= o.value;
    return *this;
  }
};

// Nano-dollars per second of one whole GPU (or of one node, where stated).
struct Rate {
  std::int64_t nano_usd_per_s = 0;
  constexpr auto operator<=>(const Rate&) const = default;
};

// rate × elapsed × milli/1000, rounded down, for elapsed ≥ 0. Bill a span [a,b) as amount(b) −
// amount(a) from one origin.
NanoUsd amount(Rate rate, Duration elapsed, std::int64_t milli = 1000);

// "$1.23", "$0.0042", "-$3.10": two decimals from a cent up, else enough digits to show it.
std::string format_usd(NanoUsd amount);
// "$2.99/h"
std::string format_rate_per_hour(Rate rate);
// "2.99" or "$2.99" → nano-dollars; rejects more than nine decimals and amounts that overflow.
Result<NanoUsd> parse_usd(std::string_view text);

}  // namespace billow
