// Keeps to a provider's request limits. They apply to a key, so all pools of this process that use
// the same key share one pace.
#pragma once

#include <string>

#include "base/clock.h"
#include "pool/rest/provider.h"

namespace billow::pool::rest {

class Pacer {
 public:
  // `account` stands for the key, for example its hash.
  Pacer(std::string account, Pace pace) : account_(std::move(account)), pace_(pace) {}

  // Waits for the turn of one request. False, at once: the turn is further away than `at_most`.
  bool wait(bool creates, Duration at_most) const;
  // The provider answered 429: no request is sent for this long.
  void pause(Duration pause) const;

 private:
  std::string account_;
  Pace pace_;
};

}  // namespace billow::pool::rest
