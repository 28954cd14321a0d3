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
  std::int32_t gpu(GroupSlot g) const { return marks_[g].gpu; }
  // Returns whether the slot's tenant was scored before; if so, its score is valid again.
  bool reopen(GroupSlot g, std::uint32_t tenant) {
    Mark& m = marks_[g];
    if (m.tenant != tenant)
      return false;
    if (!m.shown) {
      m.shown = true;
      show(g, m.score);
    }
    return true;
  }
  void set(GroupSlot g, std::uint32_t tenant, double score, std::int32_t gpu);
  // The group is empty now; its score is remembered.
  void close(GroupSlot g) {
    if (!marks_[g].shown)
      return;
    marks_[g].shown = false;
    show(g, closed);
  }

  // The open groups with the lowest score; empty if none is open.
  const std::vector<GroupSlot>& best();

 private:
  static constexpr std::size_t block = 64;
  struct Mark {
    double score = closed;
    std::uint32_t tenant = 0;  // of the slot when it was scored; 0: not scored
    std::int16_t gpu = -1;  // the card a single share goes to, by its rank among the node's cards
    bool shown = false;     // in scores_
  };
  void show(GroupSlot g, double score);

  std::vector<double> scores_;  // of groups shown, else closed; padded to whole blocks
  std::vector<Mark> marks_;
  std::vector<double> least_;  // of each block
  std::vector<bool> stale_;    // blocks whose minimum must be found again
  std::vector<std::uint32_t> stale_list_;
  std::vector<GroupSlot> best_;
};

}  // namespace billow::sched
