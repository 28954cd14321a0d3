// Nodes that look the same to every placement form one group: a decision scores groups, never
// nodes. Nodes are alike if they have the same cards with the same free capacity (in any slot
// order), the same free cores and memory, the same location as far as constraints name it, and the
// same values of labels that some job has asked for.
//
// A node that changes moves to another group. A group that loses its last node is kept for a while,
// because planning takes capacity and gives it back, and because full nodes empty again; so most
// moves end in a group that every class has already scored. When a group's slot is reused, the new
// group gets a new tenant number, which invalidates the scores of the old one.
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/sched/order.h"
#include "core/sched/pack.h"

namespace billow::sched {

// What most tasks that do not fit need more of: read before anything else of a group, because most
// groups have no capacity for most classes.
struct FreeBrief {
  std::int64_t cpu_milli = 0;
  std::int64_t mem_mib = 0;
  std::int32_t most_milli = 0;  // on one card
  std::int32_t idle_cards = 0;  // all their compute is free
};

struct NodeGroup {
  std::uint64_t key = 0;
  std::uint64_t tie = 0;      // breaks ties between equal scores by content, not by name
  std::uint32_t tenant = 0;   // number of the group, of 30 bits; 0: the slot is empty
  std::uint32_t sleeps = 0;   // how often it lost its last node
  std::vector<Slot> members;  // last: the first choice
  PackNode pack;              // the input of the score, for the model of `seen_by`
  PackView view;
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
  std::uint32_t tenant_with_nodes(GroupSlot g) const { return inhabited_[g]; }  // 0: it has none
  const FreeBrief& brief(GroupSlot g) const { return briefs_[g]; }
  const Precedence& precedence(Slot node) const { return precedence_[node]; }
  // Whether the first choice of `a` comes before that of `b` at equal scores. Both have members.
  bool before(GroupSlot a, GroupSlot b) const;

  // Slots whose group got nodes (for the first time or again), in order; position = log_base() +
  // index.
  std::uint64_t log_base() const { return log_base_; }
  std::uint64_t log_end() const { return log_base_ + log_.size(); }
  GroupSlot logged(std::uint64_t position) const { return log_[position - log_base_]; }
  bool logged_again(GroupSlot g, std::uint64_t position) const { return logged_at_[g] != position; }

 private:
  GroupSlot slot_for(std::uint64_t key, std::uint64_t tie, const FreeBrief& brief);
  void log(GroupSlot g);
  void evict();

  std::vector<NodeGroup> groups_;
  // Each group's tenant number while it has nodes: read for every entry of the log.
  std::vector<std::uint32_t> inhabited_;
  std::vector<FreeBrief> briefs_;
  std::unordered_map<std::uint64_t, GroupSlot> by_key_;
  std::vector<GroupSlot> free_;
  // Slot and its value of `sleeps`, oldest first.
  std::deque<std::pair<GroupSlot, std::uint32_t>> asleep_;
  std::size_t awake_ = 0;
  std::vector<Precedence> precedence_;  // by node slot
  std::vector<GroupSlot> log_;
  std::vector<std::uint64_t> logged_at_;  // last position of each group
  std::uint64_t log_base_ = 1;
  std::uint32_t next_tenant_ = 1;
};

}  // namespace billow::sched
