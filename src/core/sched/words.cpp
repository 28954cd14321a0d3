#include "core/sched/words.h"

#include <fmt/format.h>

#include <cctype>

namespace billow::sched {

std::string plural(std::int64_t n, std::string_view what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

std::string gpus_text(std::int64_t milli) {
  return fmt::format("{:g}", static_cast<double>(milli) / 1000);
}

// Rounded down, so that the largest size named is really available.
std::string size_text(std::int64_t mib) {
  if (mib < 1024)
    return fmt::format("{} MiB", mib);
  return fmt::format("{:g} GiB", static_cast<double>(mib * 10 / 1024) / 10);
}

std::string about(Duration d) {
  const std::int64_t s = std::max<std::int64_t>(d.ns / 1'000'000'000, 1);
  if (s < 100)
    return fmt::format("{} s", s);
  const std::int64_t min = (s + 30) / 60;
  if (min < 100)
    return fmt::format("{} min", min);
  if (min < 48 * 60)
    return min % 60 == 0 ? fmt::format("{} h", min / 60)
                         : fmt::format("{} h {} min", min / 60, min % 60);
  return fmt::format("{} d", (min + 12 * 60) / (24 * 60));
}

std::string from_now(WallTime at, WallTime now) {
  const std::string utc = format_utc(at);  // 2026-01-31T14:02:00Z
  if (utc.size() < 16)
    return about(at - now);
  const std::string clock = utc.substr(11, 5);
  return at - now < hours(24)
             ? fmt::format("{} ({} UTC)", about(at - now), clock)
             : fmt::format("{} ({} {} UTC)", about(at - now), utc.substr(0, 10), clock);
}

std::string sentence(std::string text) {
  if (text.empty())
    return text;
  text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  if (text.back() != '.')
    text += '.';
  return text;
}

}  // namespace billow::sched
