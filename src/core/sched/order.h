// The groups of nodes (groups.h) ranked by one placement class. A score stays valid as long as the
// group's slot has the same tenant, even while the group is empty. Reading the best group therefore
// costs only the groups that got nodes since the last read (most of them already scored, which is
// nearly free) and a walk over the minima of blocks.
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
  static constexpr double closed =
      std::numeric_limits<double>::infinity();  // no free capacity; lower scores are better

  std::uint64_t cursor = 0;  // log position read so far; 0: never filled
  std::uint64_t model_version = 0;

  std::size_t size() const { return marks_.size(); }
  void grow(std::size_t groups);
  void forget();  // every score is unknown again
  double score(GroupSlot g) const { return scores_[g]; }
  std::int32_t gpu(GroupSlot g) const { return known_[g].gpu; }
  // Returns whether the slot's tenant was scored before; if so, its score is valid again.
  bool reopen(GroupSlot g, std::uint32_t tenant) {
    const std::uint32_t mark = marks_[g];
    if (mark >> 2 != tenant)
      return false;
    if ((mark & (fits | shown)) == fits) {
      marks_[g] = mark | shown;
      show(g, known_[g].score);
    }
    return true;
  }
  void set(GroupSlot g, std::uint32_t tenant, double score, std::int32_t gpu);
  // The group is empty now; its score is remembered.
  void close(GroupSlot g) {
    if ((marks_[g] & shown) == 0)
      return;
    marks_[g] &= ~shown;
    show(g, closed);
  }

  // The open groups with the lowest score; empty if none is open.
  const std::vector<GroupSlot>& best();

 private:
  static constexpr std::size_t block = 64;
  static constexpr std::uint32_t shown = 1;  // in scores_
  static constexpr std::uint32_t fits = 2;   // the group has capacity for the class
  struct Known {
    double score = closed;
    std::int32_t gpu = -1;  // the card a single share goes to, by its rank among the node's cards
  };
  void show(GroupSlot g, double score);

  std::vector<double> scores_;  // of groups shown, else closed; padded to whole blocks
  // The slot's tenant when it was scored (0: not scored), and two flags. There are many orders,
  // each read rarely; a group without capacity, as most are, costs no more than this word.
  std::vector<std::uint32_t> marks_;
  std::vector<Known> known_;   // of groups that fit
  std::vector<double> least_;  // of each block
  std::vector<bool> stale_;    // blocks whose minimum must be found again
  std::vector<std::uint32_t> stale_list_;
  std::vector<GroupSlot> best_;
};

}  // namespace billow::sched
