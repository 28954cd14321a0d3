#include "pool/ec2/pace.h"

namespace billow::pool::ec2 {
namespace {

std::string kind_of_request(const std::string& action) {
  if (action == "RunInstances")
    return action;
  return action.starts_with("Describe") || action.starts_with("Get") ? "read" : "change";
}

}  // namespace

TokenBucket::Limit limit_of(const std::string& action) {
  const std::string kind = kind_of_request(action);
  if (kind == "RunInstances")
    return {.burst = 5, .per_s = 1.9};
  if (kind == "read")
    return {.burst = 50, .per_s = 10};
  return {.burst = 40, .per_s = 4.5};
}

Duration Pace::take(const std::string& region, const std::string& action) {
  auto buckets = buckets_.lock();
  TokenBucket& bucket =
      buckets->try_emplace(region + " " + kind_of_request(action), limit_of(action)).first->second;
  return bucket.take(clock_.steady());
}

}  // namespace billow::pool::ec2
