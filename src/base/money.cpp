#include "base/money.h"

#include <fmt/format.h>
#include <algorithm>

#include "base/check.h"

namespace billow {

NanoUsd amount(Rate rate, Duration elapsed, std::int64_t milli) {
  BILLOW_CHECK(elapsed.ns >= 0, "money for a negative time");
  __int128 product = 0;
  if (__builtin_mul_overflow(static_cast<__int128>(rate.nano_usd_per_s) * elapsed.ns,
                             static_cast<__int128>(milli), &product))
    return {(rate.nano_usd_per_s < 0) == (milli < 0) ? INT64_MAX : INT64_MIN};
  const __int128 nano = product / (static_cast<__int128>(1'000'000'000) * 1000);
  return {static_cast<std::int64_t>(std::clamp<__int128>(nano, INT64_MIN, INT64_MAX))};
}

std::string format_usd(NanoUsd a) {
  const char* sign = a.value < 0 ? "-" : "";
  const std::uint64_t v =
      a.value < 0 ? 0 - static_cast<std::uint64_t>(a.value) : static_cast<std::uint64_t>(a.value);
  if (v == 0)
    return "$0.00";
  if (v >= 10'000'000) {  // from a cent up: rounded to cents
    const std::uint64_t cents = (v + 5'000'000) / 10'000'000;
    return fmt::format("{}${}.{:02}", sign, cents / 100, cents % 100);
  }
  int decimals = 3;  // below a cent: two significant digits
  std::uint64_t unit = 1'000'000;
  while (decimals < 9 && v / unit < 10) {
    unit /= 10;
    ++decimals;
  }
  const std::uint64_t scaled = (v + unit / 2) / unit;
  return fmt::format("{}$0.{:0{}}", sign, scaled, decimals);
}

std::string format_rate_per_hour(Rate rate) {
  return format_usd(
             {static_cast<std::int64_t>(static_cast<__int128>(rate.nano_usd_per_s) * 3600)}) +
         "/h";
}

Result<NanoUsd> parse_usd(std::string_view text) {
  const std::string shown(text);
  auto bad = [&] {
    return fail(Code::invalid, "not an amount of dollars: \"" + shown + "\"", "use the form 12.50");
  };
  bool negative = false;
  if (!text.empty() && text.front() == '-') {
    negative = true;
    text.remove_prefix(1);
  }
  if (!text.empty() && text.front() == '$')
    text.remove_prefix(1);
  if (text.empty())
    return bad();
  __int128 value = 0;
  int decimals = -1;  // -1: no point seen
  bool digit = false;
  for (char c : text) {
    if (c == '.' && decimals < 0) {
      decimals = 0;
      continue;
    }
    if (c < '0' || c > '9' || decimals == 9)
      return bad();
    digit = true;
    if (decimals >= 0)
      ++decimals;
    value = value * 10 + (c - '0');
    if (value > static_cast<__int128>(INT64_MAX))
      return bad();
  }
  if (!digit)
    return bad();
  for (int i = decimals < 0 ? 0 : decimals; i < 9; ++i)
    value *= 10;
  if (value > static_cast<__int128>(INT64_MAX))
    return bad();
  return NanoUsd{static_cast<std::int64_t>(negative ? -value : value)};
}

}  // namespace billow
