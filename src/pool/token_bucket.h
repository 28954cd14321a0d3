// Limits how often a provider is asked: so many requests at once, then so many a second. In any
// span of T seconds, ends included, these are at most burst + per_s * T.
#pragma once

#include "base/clock.h"

namespace billow::pool {

class TokenBucket {
 public:
  struct Limit {
    double burst = 0, per_s = 0;
  };
  explicit TokenBucket(Limit limit) : limit_(limit), tokens_(limit.burst) {}
  // How long the next request has to wait. Its token is taken.
  Duration take(SteadyTime now);

 private:
  Limit limit_;
  double tokens_;  // negative: taken by requests that wait
  SteadyTime at_;
};

}  // namespace billow::pool
