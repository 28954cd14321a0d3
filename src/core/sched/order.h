// The groups of nodes (groups.h) that have free capacity for one placement class, with their
// scores. A class reads the log of groups that got nodes since its last read, scores those that may
// have capacity for it, and appends them here. An entry dies when its group loses its nodes: the
// class is not told, the entry is found dead when it is read. So a decision costs the groups that
// got nodes since the class was last asked, in the order of the log, and a walk over the least
// scores of blocks of entries; memory of the class is touched only for groups that fit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace billow::sched {

using Slot = std::uint32_t;       // of a node in the dense array
using GroupSlot = std::uint32_t;  // of a group of nodes
inline constexpr Slot no_slot = ~Slot{0};

class NodeGroups;

class CandidateOrder {
 public:
  static constexpr double closed =
      std::numeric_limits<double>::infinity();  // no free capacity; lower scores are better
  struct Open {
    double score = closed;
    // The log position at which the group got its nodes. An entry is alive while the group still
    // has nodes since then.
    std::uint64_t since = 0;
    GroupSlot group = no_slot;
    std::int32_t gpu = -1;  // the card a single share goes to, by its rank among the node's cards
  };

  std::uint64_t cursor = 0;  // log position read so far; 0: never filled
  std::uint64_t model_version = 0;

  void clear();
  void add(const Open& entry) {
    if (open_.size() % block == 0)
      least_.push_back(closed);
    open_.push_back(entry);
    least_.back() = std::min(least_.back(), entry.score);
  }
  // Drops dead entries, if many may have gathered.
  void tidy(const NodeGroups& groups);
  // The live entries with the lowest score; empty if none is alive.
  const std::vector<Open>& best(const NodeGroups& groups);
  // All entries, dead ones among them.
  const std::vector<Open>& entries() const { return open_; }

 private:
  static constexpr std::size_t block = 64;
  void look_through(std::size_t at, double least, const NodeGroups& groups);

  std::vector<Open> open_;     // an entry found dead has the score `closed`
  std::vector<double> least_;  // of each block; no live entry of the block has a lower score
  std::vector<Open> best_;
  std::size_t kept_ = 0;  // entries after the last tidying
};

}  // namespace billow::sched
