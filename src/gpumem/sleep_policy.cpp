#include "gpumem/sleep_policy.h"

#include <algorithm>
#include <cmath>

namespace billow::gpumem {

namespace {
constexpr double packed_ratio_max = 0.9;  // saves at least a tenth
constexpr double worthwhile = 0.95;       // of the time without compression
constexpr double much_faster = 2;

double seconds_for(double bytes, double rate) {
  return rate > 0 ? bytes / rate : 0;
}
}  // namespace

double wake_seconds(const Rates& rates, const Asleep& asleep) {
  const double all = static_cast<double>(asleep.arena + asleep.memory + asleep.file);
  const auto unpacked = [&](std::uint64_t bytes, std::uint64_t stored) {
    return stored < bytes ? seconds_for(static_cast<double>(bytes), rates.unpack) : 0.0;
  };
  const double from_memory = std::max(seconds_for(static_cast<double>(asleep.memory), rates.memory),
                                      unpacked(asleep.memory, asleep.memory_stored));
  const double from_file =
      std::max(seconds_for(static_cast<double>(asleep.file_stored), rates.read),
               unpacked(asleep.file, asleep.file_stored));
  return std::max(seconds_for(all, rates.gpu), from_memory + from_file);
}

bool packs_for_disk(const Rates& rates, double ratio) {
  if (ratio > packed_ratio_max || rates.read <= 0 || rates.unpack <= 0)
    return false;
  const double packed = std::max(ratio / rates.read, 1 / rates.unpack);
  return packed < worthwhile / rates.read;
}

bool packs_for_memory(const Rates& rates, double ratio, bool has_disk) {
  if (ratio > packed_ratio_max || rates.unpack <= 0)
    return false;
  return !has_disk || rates.read <= 0 || rates.unpack > much_faster * rates.read;
}

std::vector<std::uint64_t> spill_order(std::vector<Sleeper> sleepers) {
  std::stable_sort(sleepers.begin(), sleepers.end(),
                   [](const Sleeper& a, const Sleeper& b) { return a.since_ns < b.since_ns; });
  std::vector<std::uint64_t> out;
  for (const Sleeper& s : sleepers)
    out.push_back(s.tenant);
  return out;
}

std::vector<std::uint64_t> wake_order(std::vector<Sleeper> sleepers) {
  std::erase_if(sleepers, [](const Sleeper& s) { return s.wakes < 0.5; });
  std::stable_sort(sleepers.begin(), sleepers.end(), [](const Sleeper& a, const Sleeper& b) {
    return a.wakes != b.wakes ? a.wakes > b.wakes : a.since_ns > b.since_ns;
  });
  std::vector<std::uint64_t> out;
  for (const Sleeper& s : sleepers)
    out.push_back(s.tenant);
  return out;
}

double faded(double wakes, std::int64_t elapsed_ns) {
  return wakes * std::exp2(-static_cast<double>(std::max<std::int64_t>(0, elapsed_ns)) / 3.6e12);
}

}  // namespace billow::gpumem
