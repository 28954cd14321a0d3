// The pause before the next try of something that failed: it doubles up to a limit and is shortened
// at random, so that many clients of one server do not return at the same moment. Pure: the caller
// brings the random numbers and waits.
#pragma once

#include <algorithm>

#include "base/clock.h"
#include "base/rng.h"

namespace billow {

class Backoff {
 public:
  // The first pause is at most `first`; no pause is longer than `max`.
  Backoff(Duration first, Duration max) : first_(first), max_(max), next_(std::min(first, max)) {}

  // Between half of the current pause and all of it. The next one is twice as long.
  Duration next(Rng& rng) {
    const Duration longest = next_;
    next_ = next_ > max_ / 2 ? max_ : next_ * 2;
    return {rng.between(longest.ns / 2, longest.ns)};
  }
  // After a success: the next pause is the first one again.
  void reset() { next_ = std::min(first_, max_); }

 private:
  Duration first_, max_, next_;
};

}  // namespace billow
