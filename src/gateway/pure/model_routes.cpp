#include "gateway/pure/model_routes.h"

#include <algorithm>

namespace billow::gateway {

void ModelRoutes::take(const std::vector<ModelRoute>& routes) {
  std::map<std::string, Entry, std::less<>> fresh;
  for (const ModelRoute& route : routes) {
    Entry& entry = fresh[route.name];
    if (const auto before = entries_.find(route.name);
        before != entries_.end() && before->second.route == route)
      entry = std::move(before->second);
    else
      entry.route = route;
  }
  entries_ = std::move(fresh);
}

const ModelRoute* ModelRoutes::find(std::string_view name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second.route;
}

std::vector<std::string> ModelRoutes::order(std::string_view name,
                                            const std::function<bool(const std::string&)>& usable) {
  const auto found = entries_.find(name);
  if (found == entries_.end())
    return {};
  Entry& entry = found->second;
  std::vector<const ModelTarget*> targets;
  std::int64_t sum = 0;
  for (const ModelTarget& target : entry.route.to)
    if (usable(target.endpoint)) {
      targets.push_back(&target);
      sum += target.weight;
    }
  const ModelTarget* chosen = nullptr;
  for (const ModelTarget* target : targets) {
    std::int64_t& turn = entry.turns[target->endpoint];
    turn += target->weight;
    if (!chosen || turn > entry.turns[chosen->endpoint])
      chosen = target;
  }
  std::stable_sort(targets.begin(), targets.end(), [&](const auto* a, const auto* b) {
    return (a == chosen) != (b == chosen) ? a == chosen : a->weight > b->weight;
  });
  std::vector<std::string> out;
  for (const ModelTarget* target : targets)
    out.push_back(target->endpoint);
  if (chosen)
    entry.turns[chosen->endpoint] -= sum;
  for (const std::string& fallback : entry.route.fallbacks)
    if (usable(fallback))
      out.push_back(fallback);
  return out;
}

}  // namespace billow::gateway
