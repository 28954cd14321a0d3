// Which endpoints serve a model: by weights, and which come next if the first cannot.
//
// Weights are kept by smooth weighted round robin: of any ten requests to "a=9, b=1", one goes to
// b, and requests to the same endpoint do not come in bursts. An endpoint that the caller may not
// use, or that does not exist, takes no part.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/front_door.h"

namespace billow::gateway {

class ModelRoutes {
 public:
  // Routes that stay keep their turns.
  void take(const std::vector<ModelRoute>& routes);
  const ModelRoute* find(std::string_view name) const;  // null: no route has this name
  // The endpoints that may serve the next request, the chosen one first: then the other targets by
  // weight, then the fallbacks in their order.
  std::vector<std::string> order(std::string_view name,
                                 const std::function<bool(const std::string&)>& usable);
  template <class Fn>
  void each(Fn fn) const {
    for (const auto& [name, entry] : entries_)
      fn(entry.route);
  }

 private:
  struct Entry {
    ModelRoute route;
    std::map<std::string, std::int64_t> turns;  // by endpoint
  };
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace billow::gateway
