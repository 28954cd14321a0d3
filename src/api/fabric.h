// The route of fabric checks, and what it needs of the head beside Host.
#pragma once

#include <functional>
#include <vector>

#include "api/call.h"

namespace billow::api {

class FabricHost {
 public:
  virtual ~FabricHost() = default;
  // Has these nodes measure; the result as the API tells it.
  virtual void check_fabric(const std::vector<NodeId>& nodes,
                            std::function<void(Result<Json>)> done) = 0;
};

namespace fabric {
void check(CallPtr call);
}  // namespace fabric

}  // namespace billow::api
