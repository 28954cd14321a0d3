// A subscription to something that reports on the loop's thread.
#pragma once

namespace billow::net {

// Destroying it ends the subscription: its callback is not called again.
class Subscription {
 public:
  virtual ~Subscription() = default;
};

}  // namespace billow::net
