// Counts of durations in fixed buckets, for /metrics. One thread writes and reads it. Gateways send
// theirs to the head as it is.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace billow {

// One of the durations in a bucket, by name: the trace, job or request that took so long.
struct Exemplar {
  std::string of;
  double seconds = 0;
  WallTime at;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("of", s.of);
    v("seconds", s.seconds);
    v("at_ns", s.at);
  }
};

struct Histogram {
  // Upper bounds in seconds, from 0.1 ms to a day: the same for commands and queues.
  static constexpr std::array<double, 16> bounds = {
      0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300, 1800, 7200, 86400};
  static constexpr std::size_t buckets = bounds.size() + 1;  // the last one has no bound

  // By bucket; empty, or shorter than `buckets` if a gateway sent it so.
  std::vector<std::uint64_t> counts;
  double sum = 0;
  std::vector<Exemplar> exemplars;  // the newest of each bucket, if it has one

  void add(Duration took) { (void)count(took); }
  void add(Duration took, std::string_view of, WallTime at) {
    const std::size_t bucket = count(took);
    if (of.empty())
      return;
    exemplars.resize(buckets);
    Exemplar& newest = exemplars[bucket];
    newest.of = of;
    newest.seconds = took.seconds();
    newest.at = at;
  }
  void add(const Histogram& other) {
    counts.resize(buckets);
    for (std::size_t i = 0; i < std::min(buckets, other.counts.size()); ++i)
      counts[i] += other.counts[i];
    sum += other.sum;
    if (!other.exemplars.empty())
      exemplars.resize(buckets);
    for (std::size_t i = 0; i < std::min(buckets, other.exemplars.size()); ++i)
      if (other.exemplars[i].at > exemplars[i].at)
        exemplars[i] = other.exemplars[i];
  }
  // The number of durations of at most bounds[i].
  std::uint64_t up_to(std::size_t i) const {
    std::uint64_t n = 0;
    for (std::size_t k = 0; k <= i && k < counts.size(); ++k)
      n += counts[k];
    return n;
  }
  std::uint64_t count() const { return up_to(buckets - 1); }
  // Null: no duration of this bucket has a name.
  const Exemplar* exemplar(std::size_t bucket) const {
    return bucket < exemplars.size() && !exemplars[bucket].of.empty() ? &exemplars[bucket]
                                                                      : nullptr;
  }
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("counts", s.counts);
    v("sum", s.sum);
    v("exemplars", s.exemplars);
  }

 private:
  std::size_t count(Duration took) {
    const double s = took.seconds();
    std::size_t i = 0;
    while (i < bounds.size() && s > bounds[i])
      ++i;
    counts.resize(buckets);
    ++counts[i];
    sum += s;
    return i;
  }
};

// Measurements of the head itself.
struct Telemetry {
  Histogram wait;                    // of jobs, from submission (or requeueing) to placement
  Histogram command;                 // deciding, applying and planning, on the loop
  Histogram durable;                 // from appending to the journal until it is on the disk
  std::uint64_t jobs_ended[8] = {};  // by JobState
};

}  // namespace billow
