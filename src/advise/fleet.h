// The GPUs of this installation as the advisor sees them: kinds of machines with their cards, and
// how each card is or can be partitioned.
#pragma once

#include "advise/recommend.h"

namespace billow::advise {

struct FleetCard {
  std::string type;              // as the node names it: "H100"
  std::vector<std::string> mig;  // profiles of its current instances; empty: not partitioned
  bool operator<(const FleetCard& o) const { return type != o.type ? type < o.type : mig < o.mig; }
};
using FleetNode = std::vector<FleetCard>;

// Machines with the same cards count as one kind. A partitioned card offers only its MIG instances;
// a whole card that supports MIG offers its possible shapes, slices, and itself.
std::vector<FleetGpu> fleet_of(const std::vector<FleetNode>& nodes, const Catalogue& catalogue);

}  // namespace billow::advise
