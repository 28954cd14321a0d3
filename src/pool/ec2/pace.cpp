#include "pool/ec2/pace.h"

#include <algorithm>

namespace billow::pool::ec2 {
namespace {

std::string kind_of_request(const std::string& action) {
  if (action == "RunInstances")
    return action;
  return action.starts_with("Describe") || action.starts_with("Get") ? "read" : "change";
}

}  // namespace

Bucket bucket_of(const std::string& action) {
  const std::string kind = kind_of_request(action);
  if (kind == "RunInstances")
    return {.burst = 5, .per_s = 1.9};
  if (kind == "read")
    return {.burst = 50, .per_s = 10};
  return {.burst = 40, .per_s = 4.5};
}

Duration Pace::take(const std::string& region, const std::string& action) {
  const Bucket bucket = bucket_of(action);
  const SteadyTime now = clock_.steady();
  auto levels = levels_.lock();
  Level& level = (*levels)[region + " " + kind_of_request(action)];
  if (!level.used)
    level = {bucket.burst, now, true};
  const double refilled = static_cast<double>((now - level.at).ns) * 1e-9 * bucket.per_s;
  level.tokens = std::min(bucket.burst, level.tokens + refilled) - 1;
  level.at = now;
  if (level.tokens >= 0)
    return {};
  return {static_cast<std::int64_t>(-level.tokens / bucket.per_s * 1e9)};
}

}  // namespace billow::pool::ec2
