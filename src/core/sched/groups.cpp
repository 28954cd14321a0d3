#include "core/sched/groups.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace billow::sched {
namespace {

// Empty groups always kept; beyond that, half as many as there are groups with nodes.
constexpr std::size_t asleep_min = 1024;

}  // namespace

std::size_t CoarseBriefs::find(const CoarseBrief& need,
                               std::size_t from,
                               std::size_t end,
                               std::array<std::uint32_t, chunk>& kept) const {
  using Words = std::uint32_t __attribute__((vector_size(16)));
  constexpr std::size_t lanes = sizeof(Words) / sizeof(std::uint32_t);
  constexpr std::size_t width = 2 * lanes;
  constexpr Words bits[] = {{1, 2, 4, 8}, {16, 32, 64, 128}};
  std::size_t count = 0;
  for (; from + width <= end; from += width) {
    Words cores[2], cards[2];
    std::memcpy(cores, &cores_[from], sizeof(cores));
    std::memcpy(cards, &cards_[from], sizeof(cards));
    const Words marked =
        (need.within(cores[0], cards[0]) & bits[0]) | (need.within(cores[1], cards[1]) & bits[1]);
    std::uint64_t halves[2];
    std::memcpy(halves, &marked, sizeof(halves));
    const std::uint64_t half = halves[0] | halves[1];
    auto covering = static_cast<std::uint32_t>(half | half >> 32);
    for (; covering != 0; covering &= covering - 1)
      kept[count++] =
          static_cast<std::uint32_t>(from) + static_cast<std::uint32_t>(std::countr_zero(covering));
  }
  for (; from < end; ++from) {
    if (need.within(cores_[from], cards_[from]))
      kept[count++] = static_cast<std::uint32_t>(from);
  }
  return count;
}

bool NodeGroups::before(GroupSlot a, GroupSlot b) const {
  const NodeGroup &x = groups_[a], &y = groups_[b];
  if (x.tie != y.tie)
    return x.tie < y.tie;
  return precedence_[x.members.back()] < precedence_[y.members.back()];
}

void NodeGroups::log(GroupSlot g) {
  since_[g] = log_end();
  const CoarseBrief brief(groups_[g].brief);
  briefs_.set(g, brief);
  log_briefs_.push_back(brief);
  log_.push_back(g);
  if (log_.size() <= 4 * groups_.size() + 4096)
    return;
  // Classes that fall behind this point look through all groups for those that got nodes since.
  const std::size_t half = log_.size() / 2;
  log_.erase(log_.begin(), log_.begin() + static_cast<std::ptrdiff_t>(half));
  log_briefs_.drop_first(half);
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
    briefs_.push_back({});
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
  if (since_[from] >= log_base_)
    log_briefs_.set(since_[from] - log_base_, {});
  since_[from] = 0;
  briefs_.set(from, {});
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
