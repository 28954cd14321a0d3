// Knative's pod autoscaler with its defaults, as documented: concurrency averaged over 60 s and
// over 6 s, a decision every 2 s, panic when the short average asks for twice what is ready, no
// scale-down while panicking, at most halving otherwise, and 30 s of grace before zero. Only for
// comparison.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

namespace billow::gateway {

class KnativeScaler {
 public:
  explicit KnativeScaler(double target) : target_(target) {}
  void sample(double now_s, double concurrency);  // once a second
  std::uint32_t decide(double now_s, std::uint32_t ready);

 private:
  double average(double now_s, double window_s) const;

  double target_;
  std::deque<std::pair<double, double>> samples_;
  std::optional<double> panic_since_;
  std::uint32_t panic_most_ = 0;
  std::optional<double> zero_since_;
};

}  // namespace billow::gateway
