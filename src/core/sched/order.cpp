#include "core/sched/order.h"

#include <algorithm>

#include "core/sched/groups.h"

namespace billow::sched {

void CandidateOrder::clear() {
  open_.clear();
  least_.clear();
  kept_ = 0;
}

void CandidateOrder::tidy(const NodeGroups& groups) {
  if (open_.size() <= 2 * kept_ + 4 * block)
    return;
  std::erase_if(open_, [&](const Open& entry) { return !groups.alive(entry); });
  kept_ = open_.size();
  least_.assign((kept_ + block - 1) / block, closed);
  for (std::size_t i = 0; i < kept_; ++i)
    least_[i / block] = std::min(least_[i / block], open_[i].score);
}

// Finds the block's least score again and collects the entries that have the score `least`.
void CandidateOrder::look_through(std::size_t at, double least, const NodeGroups& groups) {
  double found = closed;
  const std::size_t end = std::min(open_.size(), (at + 1) * block);
  for (std::size_t i = at * block; i < end; ++i) {
    Open& entry = open_[i];
    if (entry.score == closed)
      continue;
    if (!groups.alive(entry)) {
      entry.score = closed;
      continue;
    }
    found = std::min(found, entry.score);
    if (entry.score == least)
      best_.push_back(entry);
  }
  least_[at] = found;
}

const std::vector<CandidateOrder::Open>& CandidateOrder::best(const NodeGroups& groups) {
  best_.clear();
  while (best_.empty()) {
    const auto lowest = std::ranges::min_element(least_);
    if (lowest == least_.end() || *lowest == closed)
      break;
    const double least = *lowest;
    for (auto at = static_cast<std::size_t>(lowest - least_.begin()); at < least_.size(); ++at) {
      if (least_[at] == least)
        look_through(at, least, groups);
    }
  }
  return best_;
}

}  // namespace billow::sched
