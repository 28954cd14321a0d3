#include "sched/order.h"

#include <bit>

namespace billow::sched {

void CandidateOrder::reset(std::size_t slots) {
  leaves_.assign(slots, {});
  width_ = std::bit_ceil(std::max<std::size_t>(slots, 1));
  winners_.assign(2 * width_, no_slot);
}

bool CandidateOrder::better(Slot a, Slot b) const {
  if (a == no_slot) return false;
  if (b == no_slot) return true;
  const Leaf &x = leaves_[a], &y = leaves_[b];
  if (x.score != y.score) return x.score < y.score;
  if (x.hash != y.hash) return x.hash < y.hash;
  return x.node < y.node;
}

void CandidateOrder::rebuild() {
  for (std::size_t i = 0; i < width_; ++i)
    winners_[width_ + i] = i < leaves_.size() && leaves_[i].open() ? static_cast<Slot>(i) : no_slot;
  for (std::size_t i = width_ - 1; i > 0; --i)
    winners_[i] = better(winners_[2 * i + 1], winners_[2 * i]) ? winners_[2 * i + 1] : winners_[2 * i];
}

void CandidateOrder::update(Slot slot, const Leaf& leaf) {
  leaves_[slot] = leaf;
  std::size_t i = width_ + slot;
  winners_[i] = leaf.open() ? slot : no_slot;
  for (i /= 2; i > 0; i /= 2)
    winners_[i] = better(winners_[2 * i + 1], winners_[2 * i]) ? winners_[2 * i + 1] : winners_[2 * i];
}

}  // namespace billow::sched
