// The nodes of one placement class, best first, kept as a tournament: the best is at the root, and a node that changed climbs
// one path. Reading the best costs nothing; a change costs one score and log2(nodes) comparisons.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace billow::sched {

using Slot = std::uint32_t;  // of a node in the dense array
inline constexpr Slot no_slot = ~Slot{0};

class CandidateOrder {
 public:
  struct Leaf {
    double score = std::numeric_limits<double>::infinity();  // lower is better; infinite: no room
    std::uint64_t hash = 0;      // state of the node when scored: decides ties, and whether the score still holds
    std::uint64_t node = 0;      // id, since a slot may be given to another node
    std::int32_t gpu = -1;       // the card a single share goes to
    bool open() const { return score < std::numeric_limits<double>::infinity(); }
  };

  std::uint64_t cursor = 0;         // log position read up to; 0: never filled
  std::uint64_t model_version = 0;

  void reset(std::size_t slots);
  std::size_t size() const { return leaves_.size(); }
  const Leaf& leaf(Slot slot) const { return leaves_[slot]; }
  std::vector<Leaf>& leaves() { return leaves_; }   // to be followed by rebuild()
  void rebuild();
  void update(Slot slot, const Leaf& leaf);
  Slot best() const { return winners_.empty() ? no_slot : winners_[1]; }   // no_slot where none is open
  bool better(Slot a, Slot b) const;

 private:
  std::vector<Leaf> leaves_;
  std::vector<Slot> winners_;       // a complete binary tree; winners_[1] is the root, the lower half are the leaves' slots
  std::size_t width_ = 0;
};

}  // namespace billow::sched
