// What a provider knows of a node better than the node itself.
#pragma once

#include <map>
#include <string>

namespace billow::pool {

struct NodeFacts {
  std::string address;                        // for the other nodes of a gang; empty: not known
  std::map<std::string, std::string> labels;  // region, zone, rack, switch
  std::string leaving;                        // why the provider takes it away; empty: it does not
};

// A pool that has such knowledge is also one of these.
class KnowsNodes {
 public:
  virtual ~KnowsNodes() = default;
  // Called on the head's loop when a node says hello, or that it is taken away: must not wait for
  // the provider.
  virtual NodeFacts facts_of(const std::string& node) = 0;
};

}  // namespace billow::pool
