// Ports proposed to replicas. A replica binds its port long after it was asked for (it may be
// queued for minutes), so that a port is free now says little: two endpoints that are given one
// port would fight over it, and the first to bind would answer the other's health check. Known as
// taken are those of every replica in the table, whatever its state, and those proposed lately.
// Where nothing is left nothing is proposed: a port that is taken is somebody else's to answer on.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>

#include "base/clock.h"
#include "base/result.h"

namespace billow::gateway {

class Ports {
 public:
  struct Range {
    std::uint16_t from = 20000, to = 32000;  // below those that the kernel hands out by itself
  };
  Ports() = default;
  explicit Ports(Range range) : range_(range) {}
  // `taken`: of replicas that exist. `bindable`: whether this machine's kernel would give it just
  // now.
  Result<std::uint16_t> propose(const std::set<std::uint16_t>& taken,
                                const std::function<bool(std::uint16_t)>& bindable,
                                std::uint64_t random,
                                SteadyTime now);

 private:
  Range range_;
  std::map<std::uint16_t, SteadyTime> proposed_;
};

}  // namespace billow::gateway
