// The groups of nodes (groups.h) as one placement class ranks them. A score is kept as long as the group's slot has the same
// tenant, so reading the best costs the groups that came up since it was last read, and a walk over the minima of blocks.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace billow::sched {

using Slot = std::uint32_t;       // of a node in the dense array
using GroupSlot = std::uint32_t;  // of a group of nodes
inline constexpr Slot no_slot = ~Slot{0};

class CandidateOrder {
 public:
  static constexpr double closed = std::numeric_limits<double>::infinity();   // no room; lower scores are better

  std::uint64_t cursor = 0;         // log position read up to; 0: never filled
  std::uint64_t model_version = 0;

  std::size_t size() const { return marks_.size(); }
  void grow(std::size_t groups);
  void forget();                    // every score is unknown again
  double score(GroupSlot g) const { return scores_[g]; }
  std::int32_t gpu(GroupSlot g) const { return marks_[g].gpu; }
  bool knows(GroupSlot g, std::uint32_t tenant) const { return marks_[g].tenant == tenant; }
  void set(GroupSlot g, std::uint32_t tenant, double score, std::int32_t gpu);
  void drop(GroupSlot g) { if (marks_[g].tenant != 0) set(g, 0, closed, -1); }

  // The open groups of the lowest score; empty where none is open.
  const std::vector<GroupSlot>& best();

 private:
  static constexpr std::size_t block = 64;
  struct Mark {
    std::uint32_t tenant = 0;       // of the slot when it was scored; 0: not scored
    std::int32_t gpu = -1;          // the card a single share goes to, by its rank among the node's cards
  };
  std::vector<double> scores_;      // padded to whole blocks
  std::vector<Mark> marks_;
  std::vector<double> least_;       // of each block
  std::vector<bool> stale_;         // blocks whose least is to be found anew
  std::vector<std::uint32_t> stale_list_;
  std::vector<GroupSlot> best_;
};

}  // namespace billow::sched
