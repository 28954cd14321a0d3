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
#include <array>
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
  friend class CoarseBrief;
  static constexpr std::uint64_t guards = std::uint64_t{1} << 63 | std::uint64_t{1} << 31;
  static std::uint64_t cut(std::int64_t value, int bits) {
    const std::int64_t most = (std::int64_t{1} << bits) - 1;
    return static_cast<std::uint64_t>(std::clamp(value, std::int64_t{0}, most));
  }
  std::uint64_t type_marks_ = 0, cores_ = guards, cards_ = guards;
};

// The same in two words, each number rounded down: it covers whatever the exact one covers, and
// now and then a little more. Thousands are read for a decision, several in one instruction.
class CoarseBrief {
 public:
  CoarseBrief() = default;  // of a group without nodes: covers nothing
  explicit CoarseBrief(const FreeBrief& exact)
      : cores_(cores_guards | part(exact.cores_ >> 32, 31, 4, 15) << 16 |
               part(exact.cores_, 31, 6, 15)),
        cards_(cards_guards | part(exact.cards_ >> 32, 15, 0, 10) << 21 |
               part(exact.cards_, 15, 0, 5) << 15) {
    const std::uint64_t types = exact.type_marks_ & ~mark_of_any;
    for (int from = 0; from < 64; from += type_bits)
      cards_ |= static_cast<std::uint32_t>(types >> from) & types_mask;
    cards_ |= exact.type_marks_ & mark_of_any ? any_type : 0;
  }

  std::uint32_t cores() const { return cores_; }
  std::uint32_t cards() const { return cards_; }
  // Whether groups with these two words may cover the need: all bits are set, or none. T: a word,
  // or several side by side.
  template <class T>
  auto within(const T& cores, const T& cards) const {
    constexpr std::uint32_t marks = types_mask | any_type;
    const std::uint32_t cores_needed = cores_ ^ cores_guards,
                        cards_needed = (cards_ ^ cards_guards) & ~marks;
    const T short_of =
        (~(cores - cores_needed) & cores_guards) | (~(cards - cards_needed) & cards_guards);
    return (short_of == 0) & ((cards & (cards_ & marks)) != 0);
  }

 private:
  static constexpr std::uint32_t cores_guards = 1u << 31 | 1u << 15;
  static constexpr std::uint32_t cards_guards = 1u << 31 | 1u << 20;
  static constexpr int type_bits = 14;
  static constexpr std::uint32_t types_mask = (1u << type_bits) - 1, any_type = 1u << type_bits;
  // The lowest `bits` of a word in units of 2^unit, cut off at `width` bits.
  static std::uint32_t part(std::uint64_t word, int bits, int unit, int width) {
    const std::uint64_t value = (word & ((std::uint64_t{1} << bits) - 1)) >> unit;
    return static_cast<std::uint32_t>(std::min(value, (std::uint64_t{1} << width) - 1));
  }
  std::uint32_t cores_ = 0, cards_ = 0;
};

// A list of them, kept so that a compiler can compare several at a time.
class CoarseBriefs {
 public:
  std::size_t size() const { return cores_.size(); }
  void push_back(const CoarseBrief& brief) {
    cores_.push_back(brief.cores());
    cards_.push_back(brief.cards());
  }
  void set(std::size_t at, const CoarseBrief& brief) {
    cores_[at] = brief.cores();
    cards_[at] = brief.cards();
  }
  void drop_first(std::size_t count) {
    cores_.erase(cores_.begin(), cores_.begin() + static_cast<std::ptrdiff_t>(count));
    cards_.erase(cards_.begin(), cards_.begin() + static_cast<std::ptrdiff_t>(count));
  }
  // Calls f(position) for those from a position on that may cover the need, in order.
  template <class F>
  void each_covering(const CoarseBrief& need, std::size_t from, F f) const {
    std::array<std::uint32_t, chunk> kept;  // first found, then called: the comparison stays tight
    while (from < size()) {
      const std::size_t end = std::min(size(), from + chunk);
      for (const std::uint32_t at : std::span(kept).first(find(need, from, end, kept)))
        f(at);
      from = end;
    }
  }

 private:
  static constexpr std::size_t chunk = 256;
  std::size_t find(const CoarseBrief& need,
                   std::size_t from,
                   std::size_t end,
                   std::array<std::uint32_t, chunk>& kept) const;

  std::vector<std::uint32_t> cores_, cards_;
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
  const Precedence& precedence(Slot node) const { return precedence_[node]; }
  // Whether the first choice of `a` comes before that of `b` at equal scores. Both have members.
  bool before(GroupSlot a, GroupSlot b) const;

  // The log: slots whose group got nodes (for the first time or again), in order.
  std::uint64_t log_end() const { return log_base_ + log_.size(); }
  // Calls f(group, position) for the groups that got nodes from a log position on, still have them,
  // and may have capacity for the need; in the order of the log, or of the groups if they are
  // fewer.
  template <class F>
  void each_since(std::uint64_t position, const FreeBrief& need, F f) const {
    const CoarseBrief coarse(need);
    const auto look = [&](GroupSlot g) {
      if (groups_[g].brief.covers(need))
        f(g);
    };
    if (position < log_base_ || log_end() - position > groups_.size()) {
      briefs_.each_covering(coarse, 0, [&](std::size_t at) {
        if (since_[at] >= position)
          look(static_cast<GroupSlot>(at));
      });
      return;
    }
    log_briefs_.each_covering(coarse, position - log_base_,
                              [&](std::size_t at) { look(log_[at]); });
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
  CoarseBriefs briefs_;                 // of each group; empty if it has no nodes
  std::vector<GroupSlot> log_;
  // Of each entry of the log; empty once the group has lost the nodes that it got then.
  CoarseBriefs log_briefs_;
  std::uint64_t log_base_ = 1;
  std::uint32_t next_tenant_ = 1;
};

}  // namespace billow::sched
