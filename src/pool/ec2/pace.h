// Keeps to the request limits of EC2: a bucket of tokens for each region and kind of request, as
// EC2 itself counts them. https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html
#pragma once

#include <map>
#include <string>

#include "base/clock.h"
#include "base/sync.h"
#include "pool/token_bucket.h"

namespace billow::pool::ec2 {

// The limit of an action, with a margin for other users of the account. RunInstances has one of
// its own.
TokenBucket::Limit limit_of(const std::string& action);

class Pace {
 public:
  explicit Pace(const Clock& clock) : clock_(clock) {}
  // How long the next request of this action has to wait. Its token is taken.
  Duration take(const std::string& region, const std::string& action);

 private:
  const Clock& clock_;
  Sync<std::map<std::string, TokenBucket>> buckets_;
};

}  // namespace billow::pool::ec2
