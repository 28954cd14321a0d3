// A gateway and people who use endpoints: deploy, judge, start replicas, scale, roll back, delete;
// and asynchronous calls, asked for again when no answer came. What must hold: a call that a client
// was told of is in the journal, ends once, and is not forgotten before it has; one key is one
// call.
#pragma once

#include <map>
#include <set>
#include <string>

#include "base/rng.h"
#include "core/control/core.h"
#include "world.h"

namespace billow::sim {

class EndpointClients {
 public:
  explicit EndpointClients(World& world);
  void every_second();
  void saw(const Event& event);  // durable
  bool all_done() const;
  void begin_again() { taking_part_ = rng_.chance(0.3); }
  void finish() const;

 private:
  void command(const Command& command);
  void call(const std::string& endpoint, const control::State& state);

  World& world_;
  Rng rng_;  // of its own, so that what others draw stays as it was
  bool taking_part_;
  std::uint64_t last_call_ = 0;
  std::set<std::string> told_, accepted_, ended_;  // by the call's id
  std::map<std::pair<std::string, std::string>, std::string> by_key_;
};

}  // namespace billow::sim
