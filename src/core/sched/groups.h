// Nodes that look the same to every placement form one group: a decision scores groups, never
// nodes. Nodes are alike if they have the same cards with the same free capacity (in any slot
// order), the same free cores and memory, the same location as far as constraints name it, and the
// same values of labels that some job has asked for.
//
// A node that changes moves to another group. A group that loses its last node is kept for a while,
// because planning takes capacity and gives it back, and because full nodes empty again; what the
// scores need of it is then known already. Every time a group gets nodes after having had none, it
// enters a log, and the position there tells the classes which of their scores are still valid.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/sched/order.h"
#include "core/sched/pack.h"

namespace billow::sched {

// One bit for a type of GPU: types with different marks are different.
inline std::uint64_t mark_of(std::uint64_t type_hash) {
  return std::uint64_t{1} << (type_hash % 63);
}
inline constexpr std::uint64_t mark_of_any = std::uint64_t{1} << 63;  // every node has it

// What most tasks that do not fit need more of: read before anything else of a group, because most
// groups have no capacity for most classes. Many are read in a row, so the numbers stand side by
// side, each below a bit that is set: one subtraction compares two of them, and a number that is
// too small borrows the bit above it. Larger numbers than there are bits for are cut off.
class FreeBrief {
 public:
  FreeBrief() = default;
  // Of a group: marks of the types of its cards and mark_of_any (none: its nodes accept no jobs);
  // the most that is free on one card; cards of which all compute is free. Of a task: what it
  // needs, with the marks of the types that it accepts.
  FreeBrief(std::uint64_t type_marks,
            std::int64_t cpu_milli,
            std::int64_t mem_mib,
            std::int32_t most_milli,
            std::int32_t idle_cards)
      : type_marks_(type_marks),
        cores_(guards | cut(cpu_milli, 31) << 32 | cut(mem_mib, 31)),
        cards_(guards | cut(most_milli, 15) << 32 | cut(idle_cards, 15)) {}
  // Without branches: what the answer depends on differs from group to group.
  bool covers(const FreeBrief& need) const {
    const std::uint64_t left =
        (cores_ - (need.cores_ ^ guards)) & (cards_ - (need.cards_ ^ guards)) & guards;
    const bool typed = (type_marks_ & need.type_marks_) != 0;
    return static_cast<int>(left == guards) & static_cast<int>(typed);
  }

 private:
  static constexpr std::uint64_t guards = std::uint64_t{1} << 63 | std::uint64_t{1} << 31;
  static std::uint64_t cut(std::int64_t value, int bits) {
    const std::int64_t most = (std::int64_t{1} << bits) - 1;
    return static_cast<std::uint64_t>(std::clamp(value, std::int64_t{0}, most));
  }
  std::uint64_t type_marks_ = 0, cores_ = guards, cards_ = guards;
};

// Cards of a node that are alike in every respect, as far as a share of one of them is concerned.
struct AlikeCards {
  std::int32_t rank = 0;  // of the first of them
  std::int32_t count = 1;
  std::int32_t free_milli = 0;
  std::int32_t usable_milli = 0;  // the smaller of free compute and free memory
  bool shared = true;             // healthy, and given out in shares, not in MIG instances
  std::int64_t free_mem_mib = 0;
  std::int64_t memory_mib = 0;
  std::uint64_t type_hash = 0;
};

struct NodeGroup {
  std::uint64_t key = 0;
  std::uint64_t tie = 0;      // breaks ties between equal scores by content, not by name
  std::uint32_t tenant = 0;   // number of the group; 0: the slot is empty
  std::uint32_t sleeps = 0;   // how often it lost its last node
  std::vector<Slot> members;  // last: the first choice
  FreeBrief brief;
  // The input of the score, for the model of `seen_by`.
  PackNode pack;
  PackView view;
  std::vector<AlikeCards> cards;
  std::int64_t nano_usd_per_s = 0;
  std::uint64_t seen_by = 0;
};

class NodeGroups {
 public:
  // The key that finds a node's group and orders its members: content first, the id only between
  // nodes alike in every respect.
  struct Precedence {
    // Suspended jobs that must resume on it: other jobs prefer other nodes.
    std::uint64_t awaited = 0;
    std::uint64_t shape_hash = 0, node = 0;
    auto operator<=>(const Precedence&) const = default;
  };

  GroupSlot move(Slot node,
                 GroupSlot from,
                 std::uint64_t key,
                 std::uint64_t tie,
                 Precedence precedence,
                 const FreeBrief& brief);
  void leave(Slot node, GroupSlot from);

  std::size_t size() const { return groups_.size(); }
  NodeGroup& at(GroupSlot g) { return groups_[g]; }
  const NodeGroup& at(GroupSlot g) const { return groups_[g]; }
  // The log position at which the group got its nodes; 0: it has none.
  std::uint64_t since(GroupSlot g) const { return since_[g]; }
  bool alive(const CandidateOrder::Open& entry) const { return since_[entry.group] == entry.since; }
  const FreeBrief& brief(GroupSlot g) const { return groups_[g].brief; }
  const Precedence& precedence(Slot node) const { return precedence_[node]; }
  // Whether the first choice of `a` comes before that of `b` at equal scores. Both have members.
  bool before(GroupSlot a, GroupSlot b) const;

  // Slots whose group got nodes (for the first time or again), in order; position = log_base() +
  // index.
  std::uint64_t log_base() const { return log_base_; }
  std::uint64_t log_end() const { return log_base_ + log_.size(); }
  // The brief stands beside it: most entries are passed over for that alone.
  struct Logged {
    FreeBrief brief;
    GroupSlot group = no_slot;
  };
  // …from a position on.
  std::span<const Logged> logged_since(std::uint64_t position) const {
    return std::span(log_).subspan(position - log_base_);
  }

 private:
  GroupSlot slot_for(std::uint64_t key, std::uint64_t tie, const FreeBrief& brief);
  void log(GroupSlot g);
  void evict();

  std::vector<NodeGroup> groups_;
  std::vector<std::uint64_t> since_;  // of each group
  std::unordered_map<std::uint64_t, GroupSlot> by_key_;
  std::vector<GroupSlot> free_;
  // Slot and its value of `sleeps`, oldest first.
  std::deque<std::pair<GroupSlot, std::uint32_t>> asleep_;
  std::size_t awake_ = 0;
  std::vector<Precedence> precedence_;  // by node slot
  std::vector<Logged> log_;
  std::uint64_t log_base_ = 1;
  std::uint32_t next_tenant_ = 1;
};

}  // namespace billow::sched
