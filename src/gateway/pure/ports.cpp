#include "gateway/pure/ports.h"

#include <fmt/format.h>

#include <numeric>

namespace billow::gateway {
namespace {
constexpr Duration remembered = seconds(60);  // longer than a start takes to appear in the table
constexpr std::uint32_t kernel_asked_max = 4096;
// Step between candidates: other programs take consecutive ports.
constexpr std::uint32_t step = 7919;
}  // namespace

Result<std::uint16_t> Ports::propose(const std::set<std::uint16_t>& taken,
                                     const std::function<bool(std::uint16_t)>& bindable,
                                     std::uint64_t random,
                                     SteadyTime now) {
  std::erase_if(proposed_, [&](const auto& each) { return now - each.second > remembered; });
  const auto count = static_cast<std::uint32_t>(range_.to - range_.from);
  const std::uint32_t by = std::gcd(step, count) == 1 ? step : 1;
  const auto first = static_cast<std::uint32_t>(random % count);
  for (std::uint32_t i = 0, asked = 0; i < count && asked < kernel_asked_max; ++i) {
    const auto port =
        static_cast<std::uint16_t>(range_.from + (first + std::uint64_t{i} * by) % count);
    if (taken.contains(port) || proposed_.contains(port))
      continue;
    if (bindable(port)) {
      proposed_[port] = now;
      return port;
    }
    ++asked;
  }
  return fail(
      Code::exhausted,
      fmt::format("no port between {} and {} is free for a replica", range_.from, range_.to - 1),
      "other processes on the gateway's machine use them: see `ss -ltnp`");
}

}  // namespace billow::gateway
