#include "client/top/list.h"

#include "base/text.h"

namespace billow::client::top {

bool matches(const ListState& list, std::initializer_list<std::string_view> words) {
  if (list.filter.empty())
    return true;
  const std::string needle = lower(list.filter);
  for (const std::string_view word : words)
    if (lower(word).find(needle) != std::string::npos)
      return true;
  return false;
}

List list_of(const State& state) {
  switch (state.tab) {
    case Tab::gpus:
      return gpu_list(state);
    case Tab::jobs:
      return job_list(state);
    case Tab::queue:
      return queue_list(state);
    case Tab::endpoints:
      return endpoint_list(state);
    case Tab::money:
      return money_list(state);
  }
  return {};
}

}  // namespace billow::client::top
