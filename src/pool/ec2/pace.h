// Keeps to the request limits of EC2: a bucket of tokens for each region and kind of request, as
// EC2 itself counts them. https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html
#pragma once

#include <map>
#include <string>

#include "base/clock.h"
#include "base/sync.h"

namespace billow::pool::ec2 {

// One bucket: so many requests at once, then so many a second.
struct Bucket {
  double burst = 0, per_s = 0;
};
// The bucket of an action, with a margin for other users of the account. RunInstances has one of
// its own.
Bucket bucket_of(const std::string& action);

class Pace {
 public:
  explicit Pace(const Clock& clock) : clock_(clock) {}
  // How long the next request of this action has to wait. Its token is taken.
  Duration take(const std::string& region, const std::string& action);

 private:
  struct Level {
    double tokens = 0;  // negative: taken by requests that wait
    SteadyTime at;
    bool used = false;
  };
  const Clock& clock_;
  Sync<std::map<std::string, Level>> levels_;
};

}  // namespace billow::pool::ec2
