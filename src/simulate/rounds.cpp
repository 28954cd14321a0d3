#include "simulate/rounds.h"

#include <algorithm>
#include <cmath>

namespace billow::sched {
namespace {

constexpr double no_round = 1e18;

// Four slots per round; a storage phase may extend over two. Two rounds, then the steady length.
double cycle(const std::vector<const std::vector<double>*>& order) {
  const std::size_t n = order.size();
  std::array<double, 9> at{};
  for (std::size_t i = 0; i < 8; ++i) {
    if ((i + 1) % 4 < n)
      at[i + 1] = std::max(at[i + 1], at[i] + (*order[(i + 1) % 4])[2]);
    if ((i + 2) % 4 < n)
      at[i + 1] = std::max(at[i + 1], at[i] + (*order[(i + 2) % 4])[1]);
    if (i > 0 && (i + 3) % 4 < n)
      at[i + 1] = std::max(at[i + 1], at[i - 1] + (*order[(i + 3) % 4])[0]);
    if (i >= 4) {
      const double now = at[i + 1] - at[i - 3], before = at[i] - at[i - 4];
      if (now > 0 && std::abs(now - before) <= 1e-3 * std::max(now, before))
        return now;
    }
  }
  return at[8] - at[4];
}
double compute(const Group& group) {
  static constexpr double slowdown[5] = {0, 1, 1.33 / 1.015, 1.5 / 1.015, 1.37 / 1.015};
  std::vector<const std::vector<double>*> order;
  double longest = 0;
  for (const Live* l : group) {
    if (l->job->phases.size() != 3)
      return no_round;  // its phases are unknown: it cannot share
    order.push_back(&l->job->phases);
    longest = std::max(longest, l->job->iteration_s);
  }
  std::ranges::sort(order);
  double best = no_round;
  do
    best = std::min(best, cycle(order));
  while (std::ranges::next_permutation(order).found);
  if (order.size() == 2) {
    const auto &a = *order[0], &b = *order[1];
    best = std::min(best, std::max(a[0], b[1] + b[2]) + std::max(b[0], a[1] + a[2]));
  }
  // Sharing never makes a job faster than running alone, whatever the sum of its phases.
  return std::max(best * slowdown[order.size()], longest);
}
std::vector<double> profile_key(const TraceJob& job) {
  std::vector<double> key = job.phases;
  key.push_back(job.iteration_s);
  return key;
}

}  // namespace

Rounds::Rounds(const std::vector<TraceJob>& jobs) {
  for (const TraceJob& job : jobs)
    profiles_.emplace(profile_key(job), static_cast<std::uint32_t>(profiles_.size()));
}

std::uint32_t Rounds::profile(const TraceJob& job) const {
  return profiles_.at(profile_key(job));
}

double Rounds::seconds(const Group& group) {
  if (group.size() == 1)
    return group[0]->job->iteration_s;
  std::array<std::uint32_t, 4> key{~0u, ~0u, ~0u, ~0u};
  for (std::size_t i = 0; i < group.size(); ++i)
    key[i] = group[i]->profile;
  std::sort(key.begin(), key.begin() + static_cast<std::ptrdiff_t>(group.size()));
  const auto [it, fresh] = memo_.try_emplace(key, 0.0);
  if (fresh)
    it->second = compute(group);
  return it->second;
}

}  // namespace billow::sched
