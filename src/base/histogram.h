// Counts of durations in fixed buckets, for /metrics. One thread writes and reads it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace billow {

class Histogram {
 public:
  // Upper bounds in seconds, from 0.1 ms to a day: the same for commands and queues.
  static constexpr std::array<double, 16> bounds = {
      0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300, 1800, 7200, 86400};
  void add(Duration took) {
    const double s = took.seconds();
    std::size_t i = 0;
    while (i < bounds.size() && s > bounds[i])
      ++i;
    ++counts_[i];
    sum_ += s;
    ++count_;
  }
  // The number of durations of at most bounds[i].
  std::uint64_t up_to(std::size_t i) const {
    std::uint64_t n = 0;
    for (std::size_t k = 0; k <= i; ++k)
      n += counts_[k];
    return n;
  }
  double sum() const { return sum_; }
  std::uint64_t count() const { return count_; }

 private:
  std::array<std::uint64_t, bounds.size() + 1> counts_{};
  double sum_ = 0;
  std::uint64_t count_ = 0;
};

// Measurements of the head itself.
struct Telemetry {
  Histogram wait;                    // of jobs, from submission (or requeueing) to placement
  Histogram command;                 // deciding, applying and planning, on the loop
  Histogram durable;                 // from appending to the journal until it is on the disk
  std::uint64_t jobs_ended[8] = {};  // by JobState
};

}  // namespace billow
