// The GPUs of this Billow as the advisor sees them: kinds of machines with their cards, what each
// card is or can be cut into.
#pragma once

#include "advise/recommend.h"

namespace billow::advise {

struct FleetCard {
  std::string type;              // as the node names it: "H100"
  std::vector<std::string> mig;  // profiles of the instances it is cut into now; empty: it is whole
  bool operator<(const FleetCard& o) const { return type != o.type ? type < o.type : mig < o.mig; }
};
using FleetNode = std::vector<FleetCard>;

// Machines with the same cards count as one kind. A card already cut into MIG instances offers
// those alone; a whole one that could be cut offers the shapes it could have, beside slices and
// itself.
std::vector<FleetGpu> fleet_of(const std::vector<FleetNode>& nodes, const Catalogue& catalogue);

}  // namespace billow::advise
