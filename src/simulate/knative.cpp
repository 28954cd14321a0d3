#include "simulate/knative.h"

#include <algorithm>
#include <cmath>

namespace billow::gateway {
namespace {
constexpr double stable_window_s = 60, panic_window_s = 6, panic_threshold = 2, scale_up_max = 1000,
                 scale_down_max = 2, zero_grace_s = 30;
}

void KnativeScaler::sample(double now_s, double concurrency) {
  samples_.emplace_back(now_s, concurrency);
  while (!samples_.empty() && samples_.front().first <= now_s - stable_window_s)
    samples_.pop_front();
}

double KnativeScaler::average(double now_s, double window_s) const {
  double sum = 0;
  std::size_t n = 0;
  for (auto at = samples_.rbegin(); at != samples_.rend() && at->first > now_s - window_s;
       ++at, ++n)
    sum += at->second;
  return n == 0 ? 0 : sum / static_cast<double>(n);
}

std::uint32_t KnativeScaler::decide(double now_s, std::uint32_t ready) {
  const double pods = std::max<double>(ready, 1);
  const double up = std::ceil(scale_up_max * pods),
               down = std::floor(static_cast<double>(ready) / scale_down_max);
  const auto bounded = [&](double want) {
    return static_cast<std::uint32_t>(std::clamp(want, down, up));
  };
  const double stable_raw = std::ceil(average(now_s, stable_window_s) / target_),
               panic_raw = std::ceil(average(now_s, panic_window_s) / target_);
  const std::uint32_t stable = bounded(stable_raw), panic = bounded(panic_raw);
  const bool over = panic_raw / pods >= panic_threshold;
  if (over) {
    panic_since_ = now_s;
  } else if (panic_since_ && now_s - *panic_since_ >= stable_window_s) {
    panic_since_.reset();
    panic_most_ = 0;
  }
  std::uint32_t want = stable;
  if (panic_since_) {
    panic_most_ = std::max({panic_most_, panic, ready});
    want = panic_most_;
  }
  if (want > 0) {
    zero_since_.reset();
    return want;
  }
  if (!zero_since_)
    zero_since_ = now_s;
  return now_s - *zero_since_ >= zero_grace_s ? 0 : 1;
}

}  // namespace billow::gateway
