#include "core/ledger/decimal.h"

#include <fmt/format.h>

#include <algorithm>

namespace billow::ledger {

std::string decimal_usd(NanoUsd amount) {
  const std::uint64_t v = amount.value < 0 ? 0 - static_cast<std::uint64_t>(amount.value)
                                           : static_cast<std::uint64_t>(amount.value);
  std::string out =
      fmt::format("{}{}.{:09}", amount.value < 0 ? "-" : "", v / 1'000'000'000, v % 1'000'000'000);
  while (out.back() == '0')
    out.pop_back();
  if (out.back() == '.')
    out.pop_back();
  return out;
}

Result<NanoUsd> parse_decimal_usd(std::string_view text) {
  const std::string shown(text);
  const auto bad = [&] {
    return fail(Code::invalid, "not an amount: \"" + shown + "\"");
  };
  bool negative = false;
  if (!text.empty() && (text.front() == '-' || text.front() == '+')) {
    negative = text.front() == '-';
    text.remove_prefix(1);
  }
  int exponent = 0;
  if (const auto e = text.find_first_of("eE"); e != std::string_view::npos) {
    std::string_view digits = text.substr(e + 1);
    bool below = false;
    if (!digits.empty() && (digits.front() == '-' || digits.front() == '+')) {
      below = digits.front() == '-';
      digits.remove_prefix(1);
    }
    if (digits.empty() || digits.size() > 2)
      return bad();
    for (const char c : digits) {
      if (c < '0' || c > '9')
        return bad();
      exponent = exponent * 10 + (c - '0');
    }
    if (below)
      exponent = -exponent;
    text = text.substr(0, e);
  }
  __int128 value = 0;
  int decimals = -1, digits = 0;
  for (const char c : text) {
    if (c == '.' && decimals < 0) {
      decimals = 0;
      continue;
    }
    if (c < '0' || c > '9')
      return bad();
    ++digits;
    // Far beyond any amount: further decimals do not matter, further digits do.
    if (value > static_cast<__int128>(1) << 100) {
      if (decimals < 0)
        return bad();
      continue;
    }
    value = value * 10 + (c - '0');
    if (decimals >= 0)
      ++decimals;
  }
  if (digits == 0)
    return bad();
  int shift = 9 + exponent - std::max(decimals, 0);  // value × 10^shift nano-dollars
  for (; shift > 0 && value != 0; --shift) {
    if (value > INT64_MAX)
      return bad();
    value *= 10;
  }
  for (; shift < -1 && value != 0; ++shift)
    value /= 10;
  if (shift == -1)
    value = (value + 5) / 10;
  if (value > INT64_MAX)
    return bad();
  return NanoUsd{static_cast<std::int64_t>(negative ? -value : value)};
}

}  // namespace billow::ledger
