#include "advise/fleet.h"

#include <cstdio>
#include <set>

#include "advise/rightsize.h"

namespace billow::advise {

std::vector<FleetGpu> fleet_of(const std::vector<FleetNode>& nodes, const Catalogue& catalogue) {
  std::map<std::pair<FleetCard, int>, int>
      kinds;  // a kind of card, how many a machine has, how many machines
  for (auto& node : nodes) {
    std::map<FleetCard, int> cards;
    for (auto& card : node)
      ++cards[card];
    for (auto& [card, count] : cards)
      ++kinds[{card, count}];
  }
  std::vector<FleetGpu> fleet;
  for (auto& [kind, machines] : kinds) {
    auto& [card, count] = kind;
    FleetGpu f{.gpu = card.type, .per_node = count, .nodes = machines};
    for (auto& profile : std::set<std::string>(card.mig.begin(), card.mig.end())) {
      int sevenths = 0, gb = 0;
      if (std::sscanf(profile.c_str(), "%dg.%dgb", &sevenths, &gb) == 2 && sevenths > 0 && gb > 0)
        f.mig.push_back({profile, gb * 1.0737 * 0.97, sevenths});
    }
    f.whole = f.slices = card.mig.empty();
    if (card.mig.empty())
      if (auto spec = catalogue.gpu(card.type))
        f.mig = mig_shapes(**spec);
    fleet.push_back(std::move(f));
  }
  return fleet;
}

}  // namespace billow::advise
