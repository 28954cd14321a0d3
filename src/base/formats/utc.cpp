#include "base/formats/utc.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>

#include "base/text.h"

namespace billow {
namespace {

constexpr std::int64_t nano = 1'000'000'000;

// Takes pieces off the front of a text. A piece that is not there makes the whole text bad.
class Pieces {
 public:
  explicit Pieces(std::string_view text) : left_(text) {}
  bool good() const { return good_; }
  bool at_end() const { return left_.empty(); }

  bool take(std::string_view wanted) {
    const bool found = left_.starts_with(wanted);
    if (found)
      left_.remove_prefix(wanted.size());
    return found;
  }
  void need(std::string_view wanted) { good_ = take(wanted) && good_; }
  // A number of exactly this many digits.
  int number(std::size_t digits, int max) {
    const std::string_view text = left_.substr(0, digits);
    const auto value = parse_int(text, 0, max);
    good_ = good_ && value && text.size() == digits && text[0] != '-';
    left_.remove_prefix(text.size());
    return good_ ? static_cast<int>(*value) : 0;
  }
  // Any number of digits behind a decimal point, as nanoseconds.
  std::int64_t fraction() {
    std::int64_t out = 0, unit = nano;
    const std::size_t digits = std::min(left_.find_first_not_of("0123456789"), left_.size());
    for (const char c : left_.substr(0, digits))
      out += (c - '0') * (unit /= 10);
    good_ = good_ && digits > 0;
    left_.remove_prefix(digits);
    return out;
  }

 private:
  std::string_view left_;
  bool good_ = true;
};

// Seconds since midnight, with the distance to UTC taken off.
Duration read_time_of_day(Pieces& pieces) {
  const int hour = pieces.number(2, 23);
  pieces.need(":");
  std::int64_t s = hour * 3600 + pieces.number(2, 59) * 60;
  std::int64_t ns = 0;
  if (pieces.take(":")) {
    s += pieces.number(2, 60);  // 60: a leap second
    if (pieces.take("."))
      ns = pieces.fraction();
  }
  pieces.take(" ");
  const bool ahead = pieces.take("+");
  if (ahead || pieces.take("-")) {
    const int hours_off = pieces.number(2, 23);
    pieces.take(":");
    const int off_s = hours_off * 3600 + pieces.number(2, 59) * 60;
    s += ahead ? -off_s : off_s;
  } else if (!pieces.at_end() && !pieces.take("Z") && !pieces.take("z") && !pieces.take("UTC")) {
    pieces.need("GMT");
  }
  return {s * nano + ns};
}

std::optional<WallTime> read_utc(std::string_view text) {
  Pieces pieces(text);
  const int year = pieces.number(4, 9999);
  pieces.need("-");
  const int month = pieces.number(2, 12);
  pieces.need("-");
  const int day = pieces.number(2, 31);
  const std::chrono::year_month_day date(std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day)));
  Duration of_day;
  if (!pieces.at_end()) {
    if (!pieces.take("T") && !pieces.take("t"))
      pieces.need(" ");
    of_day = read_time_of_day(pieces);
  }
  if (!pieces.good() || !pieces.at_end() || !date.ok() || year < 1970)
    return std::nullopt;
  const Duration days = hours(24 * std::chrono::sys_days(date).time_since_epoch().count());
  if (days.ns > INT64_MAX - hours(48).ns)
    return WallTime{INT64_MAX};
  return WallTime{} + days + of_day;
}

}  // namespace

Result<WallTime> parse_utc(std::string_view text) {
  if (const auto at = read_utc(trim(text)))
    return *at;
  return fail(Code::invalid, fmt::format("\"{}\" is not a time", text),
              "write it like 2026-11-15T01:29:00Z");
}

WallTime utc_or_zero(std::string_view text) {
  return read_utc(trim(text)).value_or(WallTime{});
}

}  // namespace billow
