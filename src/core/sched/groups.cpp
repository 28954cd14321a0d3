#include "core/sched/groups.h"

#include <algorithm>

#include "base/check.h"

namespace billow::sched {
namespace {

// Empty groups always kept; beyond that, half as many as there are groups with nodes.
constexpr std::size_t asleep_min = 1024;

}  // namespace

bool NodeGroups::before(GroupSlot a, GroupSlot b) const {
  const NodeGroup &x = groups_[a], &y = groups_[b];
  if (x.tie != y.tie)
    return x.tie < y.tie;
  return precedence_[x.members.back()] < precedence_[y.members.back()];
}

void NodeGroups::log(GroupSlot g) {
  since_[g] = log_end();
  log_.push_back({groups_[g].brief, g});
  if (log_.size() <= 4 * groups_.size() + 4096)
    return;
  // Classes that fall behind this point look through all groups for those that got nodes since.
  const std::size_t half = log_.size() / 2;
  log_.erase(log_.begin(), log_.begin() + static_cast<std::ptrdiff_t>(half));
  log_base_ += half;
}

GroupSlot NodeGroups::slot_for(std::uint64_t key, std::uint64_t tie, const FreeBrief& brief) {
  auto [it, fresh] = by_key_.try_emplace(key, 0);
  if (!fresh)
    return it->second;
  if (free_.empty()) {
    it->second = static_cast<GroupSlot>(groups_.size());
    groups_.emplace_back();
    since_.push_back(0);
  } else {
    it->second = free_.back();
    free_.pop_back();
  }
  NodeGroup& g = groups_[it->second];
  g.key = key;
  g.tie = tie;
  g.tenant = next_tenant_;
  next_tenant_ = std::max(next_tenant_ + 1, 1u);
  g.seen_by = 0;
  g.brief = brief;
  return it->second;
}

GroupSlot NodeGroups::move(Slot node,
                           GroupSlot from,
                           std::uint64_t key,
                           std::uint64_t tie,
                           Precedence precedence,
                           const FreeBrief& brief) {
  if (precedence_.size() <= node)
    precedence_.resize(node + 1);
  if (from != no_slot && groups_[from].key == key && precedence_[node] == precedence)
    return from;
  if (from != no_slot)
    leave(node, from);
  precedence_[node] = precedence;
  const GroupSlot to = slot_for(key, tie, brief);
  NodeGroup& g = groups_[to];
  if (g.members.empty()) {
    ++awake_;
    log(to);
  }
  const auto later = [&](Slot a, Slot b) {
    return precedence_[b] < precedence_[a];
  };
  g.members.insert(std::lower_bound(g.members.begin(), g.members.end(), node, later), node);
  return to;
}

void NodeGroups::leave(Slot node, GroupSlot from) {
  NodeGroup& g = groups_[from];
  const auto later = [&](Slot a, Slot b) {
    return precedence_[b] < precedence_[a];
  };
  auto at = std::lower_bound(g.members.begin(), g.members.end(), node, later);
  BILLOW_CHECK(at != g.members.end() && *at == node, "a node is a member of its group");
  g.members.erase(at);
  if (!g.members.empty())
    return;
  --awake_;
  since_[from] = 0;
  asleep_.emplace_back(from, ++g.sleeps);
  evict();
}

void NodeGroups::evict() {
  while (asleep_.size() > asleep_min + awake_ / 2) {
    const auto [slot, sleeps] = asleep_.front();
    asleep_.pop_front();
    NodeGroup& g = groups_[slot];
    if (!g.members.empty() || g.sleeps != sleeps)
      continue;  // it has got nodes again since
    by_key_.erase(g.key);
    g.tenant = 0;
    free_.push_back(slot);
  }
}

}  // namespace billow::sched
