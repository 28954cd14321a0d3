#include "gateway/ports.h"

namespace billow::gateway {
namespace {
constexpr Duration remembered = seconds(60);  // longer than a wish takes to become a replica of the table
constexpr int kernel_asked_max = 64;
}  // namespace

std::uint16_t Ports::propose(const std::set<std::uint16_t>& taken, const std::function<bool(std::uint16_t)>& bindable, std::uint64_t random, SteadyTime now) {
  std::erase_if(proposed_, [&](const auto& each) { return now - each.second > remembered; });
  const std::uint32_t count = static_cast<std::uint32_t>(range_.to - range_.from);
  std::uint16_t port = range_.from;
  for (std::uint32_t i = 0, asked = 0; i < count && asked < kernel_asked_max; ++i) {
    port = static_cast<std::uint16_t>(range_.from + (random + i) % count);
    if (taken.contains(port) || proposed_.contains(port)) continue;
    if (bindable(port)) break;
    ++asked;
  }
  // When nothing is left the last one looked at is as good as any: a replica that finds it taken ends, and its successor gets another.
  proposed_[port] = now;
  return port;
}

}  // namespace billow::gateway
