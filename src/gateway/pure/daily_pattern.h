// The load of an endpoint by the time of day, learned from earlier days, so that replicas can be
// woken before the load returns. Pure.
//
// A day has slots of five minutes. A slot holds the mean of its peaks (concurrent requests) on
// earlier days, in which the newest day counts a half: a pattern that has ended is forgotten within
// days.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "gateway/pure/autoscaler.h"

namespace billow::gateway {

class DailyPattern {
 public:
  static constexpr Duration slot_length = minutes(5);
  static constexpr std::size_t slots = 288;

  // The load now. Call it often: a slot keeps the largest.
  void observe(double load, WallTime now);
  // The largest load that earlier days had between now and then; zero: none, or nothing is known.
  double expected(WallTime now, Duration ahead) const;
  bool empty() const { return peaks_.empty(); }

  // For the disk.
  std::vector<double> peaks_by_slot() const { return peaks_; }
  void restore(std::vector<double> peaks);

 private:
  std::vector<double> peaks_;  // empty: nothing has been seen yet
  std::int64_t slot_ = -1;     // the one that runs, counted from 1970
  double peak_ = 0;            // of it so far
};

// Notes the present load, and returns how many replicas should be awake for the load that earlier
// days had at the time when a replica that is called now is ready.
std::uint32_t awake_by_pattern(DailyPattern& pattern,
                               const Router& router,
                               const Autoscaler& scaler,
                               WallTime now);

}  // namespace billow::gateway
