// Proposes ports for replicas. A replica binds its port long after it was chosen (it may be queued
// for minutes), so a port that is free now may not be later: two endpoints with the same port would
// fight over it, and the first to bind would answer the other's health check. The ports of all
// replicas in the table, whatever their state, and recently proposed ones count as taken. If none
// is left, none is proposed, because another process would answer on a taken port.
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
    std::uint16_t from = 20000, to = 32000;  // below the kernel's ephemeral ports
  };
  Ports() = default;
  explicit Ports(Range range) : range_(range) {}
  // `taken`: ports of existing replicas. `bindable`: whether the port is free on this machine now.
  Result<std::uint16_t> propose(const std::set<std::uint16_t>& taken,
                                const std::function<bool(std::uint16_t)>& bindable,
                                std::uint64_t random,
                                SteadyTime now);

 private:
  Range range_;
  std::map<std::uint16_t, SteadyTime> proposed_;
};

}  // namespace billow::gateway
