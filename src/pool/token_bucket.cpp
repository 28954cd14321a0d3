#include "pool/token_bucket.h"

#include <algorithm>

namespace billow::pool {

Duration TokenBucket::take(SteadyTime now) {
  const double refilled = static_cast<double>((now - at_).ns) * 1e-9 * limit_.per_s;
  tokens_ = std::min(limit_.burst, tokens_ + std::max(refilled, 0.0)) - 1;
  at_ = std::max(at_, now);
  if (tokens_ >= 0)
    return {};
  return {static_cast<std::int64_t>(-tokens_ / limit_.per_s * 1e9)};
}

}  // namespace billow::pool
