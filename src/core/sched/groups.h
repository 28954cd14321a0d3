// Nodes that are alike in everything a placement can see are one group: a decision scores groups,
// never nodes. Alike means the same cards with the same capacity on them (in whatever order they
// are plugged in), the same cores and memory free, the same place as far as constraints name it,
// and the same values of labels that some job asked for.
//
// A node that changes moves to another group. A group that loses its last node stays for a while,
// because planning takes capacity and gives it back, and because full nodes empty again; so most
// moves end in a group that everybody has scored before. When its slot is given away, the new
// tenant has another number, and scores of the old one no longer count.
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

struct NodeGroup {
  std::uint64_t key = 0;
  std::uint64_t tie = 0;      // decides between groups of one score: what they are, without names
  std::uint32_t tenant = 0;   // number of the group; 0: the slot is empty
  std::uint32_t sleeps = 0;   // how often it lost its last node
  std::vector<Slot> members;  // last: the first choice
  PackNode pack;              // what the score sees, of the model of `seen_by`
  PackView view;
  std::uint64_t seen_by = 0;
};

class NodeGroups {
 public:
  // What a node's group is found by, and what orders members: content first, the id only between
  // nodes alike in every respect.
  struct Precedence {
    std::uint64_t awaited =
        0;  // suspended jobs that must come back to it: others go elsewhere first
    std::uint64_t shape_hash = 0, node = 0;
    auto operator<=>(const Precedence&) const = default;
  };

  GroupSlot move(
      Slot node, GroupSlot from, std::uint64_t key, std::uint64_t tie, Precedence precedence);
  void leave(Slot node, GroupSlot from);

  std::size_t size() const { return groups_.size(); }
  NodeGroup& at(GroupSlot g) { return groups_[g]; }
  const NodeGroup& at(GroupSlot g) const { return groups_[g]; }
  std::uint32_t tenant_with_nodes(GroupSlot g) const { return inhabited_[g]; }  // 0: it has none
  const Precedence& precedence(Slot node) const { return precedence_[node]; }
  // Whether the first choice of `a` comes before that of `b` at equal scores. Both have members.
  bool before(GroupSlot a, GroupSlot b) const;

  // Slots whose group came up (anew or again), in order; position = log_base() + index.
  std::uint64_t log_base() const { return log_base_; }
  std::uint64_t log_end() const { return log_base_ + log_.size(); }
  GroupSlot logged(std::uint64_t position) const { return log_[position - log_base_]; }

 private:
  GroupSlot slot_for(std::uint64_t key, std::uint64_t tie);
  void log(GroupSlot g);
  void evict();

  std::vector<NodeGroup> groups_;
  std::vector<std::uint32_t>
      inhabited_;  // the groups' tenants where they have nodes: read for every entry of the log
  std::unordered_map<std::uint64_t, GroupSlot> by_key_;
  std::vector<GroupSlot> free_;
  std::deque<std::pair<GroupSlot, std::uint32_t>>
      asleep_;  // slot and its `sleeps` then, oldest first
  std::size_t awake_ = 0;
  std::vector<Precedence> precedence_;  // by node slot
  std::vector<GroupSlot> log_;
  std::uint64_t log_base_ = 1;
  std::uint32_t next_tenant_ = 1;
};

}  // namespace billow::sched
