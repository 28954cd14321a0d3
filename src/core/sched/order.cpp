#include "core/sched/order.h"

#include <algorithm>

namespace billow::sched {

void CandidateOrder::grow(std::size_t groups) {
  if (groups <= marks_.size())
    return;
  const std::size_t blocks = (groups + block - 1) / block;
  marks_.resize(groups);
  known_.resize(groups);
  scores_.resize(blocks * block, closed);
  least_.resize(blocks, closed);
  stale_.resize(blocks, false);
}

void CandidateOrder::forget() {
  std::ranges::fill(marks_, 0);
  std::ranges::fill(scores_, closed);
  std::ranges::fill(least_, closed);
  std::fill(stale_.begin(), stale_.end(), false);
  stale_list_.clear();
}

void CandidateOrder::set(GroupSlot g, std::uint32_t tenant, double score, std::int32_t gpu) {
  if (score == closed) {
    close(g);
    marks_[g] = tenant << 2;
    return;
  }
  marks_[g] = tenant << 2 | fits | shown;
  known_[g] = {score, gpu};
  show(g, score);
}

void CandidateOrder::show(GroupSlot g, double score) {
  if (scores_[g] == score)
    return;
  scores_[g] = score;
  const std::size_t b = g / block;
  if (stale_[b])
    return;
  stale_[b] = true;
  stale_list_.push_back(static_cast<std::uint32_t>(b));
}

const std::vector<GroupSlot>& CandidateOrder::best() {
  for (std::uint32_t b : stale_list_) {
    const double* at = scores_.data() + std::size_t{b} * block;
    double least = closed;
    for (std::size_t i = 0; i < block; ++i)
      least = at[i] < least ? at[i] : least;
    least_[b] = least;
    stale_[b] = false;
  }
  stale_list_.clear();
  best_.clear();
  double least = closed;
  for (double l : least_)
    least = l < least ? l : least;
  if (least == closed)
    return best_;
  for (std::size_t b = 0; b < least_.size(); ++b) {
    if (least_[b] != least)
      continue;
    for (std::size_t i = 0; i < block; ++i) {
      if (scores_[b * block + i] == least)
        best_.push_back(static_cast<GroupSlot>(b * block + i));
    }
  }
  return best_;
}

}  // namespace billow::sched
