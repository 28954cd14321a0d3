#include "client/top/words.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/money.h"

namespace billow::client::top {

std::string gpus_text(std::int64_t milli) {
  if (milli <= 0)
    return "-";
  return milli % 1000 == 0 ? fmt::format("{}", milli / 1000)
                           : fmt::format("{:.2f}", static_cast<double>(milli) / 1000);
}

std::string lasting(std::int64_t ms) {
  const std::int64_t s = std::max<std::int64_t>(0, ms / 1000);
  if (s < 60)
    return fmt::format("{}s", s);
  if (s < 3600)
    return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 86400)
    return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  return fmt::format("{}d{:02}h", s / 86400, s / 3600 % 24);
}

std::string usd(std::int64_t nano) {
  return format_usd({nano});
}
std::string per_hour(std::int64_t nano_per_s) {
  return format_rate_per_hour({nano_per_s});
}

std::string percent(double value) {
  return std::isnan(value) || value < 0 ? "-" : fmt::format("{:.0f}%", value);
}

std::string gibibytes(std::int64_t mib) {
  if (mib < 0)
    return "-";
  const double gib = static_cast<double>(mib) / 1024;
  return gib < 10 ? fmt::format("{:.1f}G", gib) : fmt::format("{:.0f}G", gib);
}

std::string plural(std::int64_t n, const char* one, const char* many) {
  return n == 1 ? fmt::format("1 {}", one)
         : many ? fmt::format("{} {}", n, many)
                : fmt::format("{} {}s", n, one);
}

}  // namespace billow::client::top
