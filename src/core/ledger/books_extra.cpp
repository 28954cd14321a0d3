// One-off purchases while a lease runs, such as traffic: they add to the node's cost, are assigned
// to this lease, and its project pays them. Each belongs to the moment it was reported, within the
// lease's life, so windows and days add up as they do for time.
#include <fmt/format.h>

#include <algorithm>

#include "core/ledger/books.h"

namespace billow::ledger {

Status Books::add(const LeaseExtra& fact) {
  const auto lease = leases_.find(fact.lease);
  if (lease == leases_.end() || !nodes_.contains(fact.node))
    return fail(Code::not_found,
                fmt::format("lease {} or its node is not known", fact.lease.value));
  if (fact.amount.value < 0 || fact.bytes < 0)
    return fail(Code::invalid, fmt::format("lease {}: an extra below zero", fact.lease.value));
  put_extra(lease->second, fact.at, {fact.node, fact.amount, fact.bytes});
  return {};
}

Status Books::add(const NodeExtra& fact) {
  const auto node = nodes_.find(fact.node);
  if (node == nodes_.end())
    return fail(Code::not_found, fmt::format("node {} has no price", fact.node.value));
  node->second.extras[fact.at.ns] += fact.amount;
  return {};
}

// A purchase reported after the lease's end counts at its last moment.
void Books::put_extra(LeaseBook& lease, WallTime when, const Extra& extra) {
  if (lease.closed)
    when = std::min(when, WallTime{lease.closed->ns - 1});
  std::int64_t at = std::max(when, lease.opened.at).ns;
  while (lease.extras.contains(at) && lease.extras.at(at).node != extra.node)
    ++at;
  Extra& sum = lease.extras[at];
  sum.node = extra.node;
  sum.amount += extra.amount;
  sum.bytes += extra.bytes;
  if (extra.amount.value != 0)
    nodes_.at(extra.node).extras[at] += extra.amount;
}

// The end of a lease was reported late: purchases after it are moved before it. A lease with a
// purchase always has at least one moment.
void Books::close_extras(LeaseBook& lease) {
  if (lease.extras.empty())
    return;
  lease.closed = std::max(*lease.closed, WallTime{lease.opened.at.ns + 1});
  const std::map<std::int64_t, Extra> late(lease.extras.lower_bound(lease.closed->ns),
                                           lease.extras.end());
  for (const auto& [at, extra] : late) {
    lease.extras.erase(at);
    if (extra.amount.value != 0)
      nodes_.at(extra.node).extras[at] -= extra.amount;
    put_extra(lease, {at}, extra);
  }
}

Books::Extra Books::bought_until(const LeaseBook& lease,
                                 WallTime until,
                                 std::map<NodeId, NanoUsd>* on) {
  Extra sum;
  for (auto extra = lease.extras.begin(); extra != lease.extras.end() && extra->first < until.ns;
       ++extra) {
    sum.amount += extra->second.amount;
    sum.bytes += extra->second.bytes;
    if (on && extra->second.amount.value != 0)
      (*on)[extra->second.node] += extra->second.amount;
  }
  return sum;
}

// Windows before `before` are no longer queried: of earlier purchases only the sums are kept, each
// at its latest moment.
void Books::thin_extras(WallTime before) {
  for (auto& [id, node] : nodes_) {
    const auto end = node.extras.lower_bound(before.ns);
    if (end == node.extras.begin())
      continue;
    NanoUsd sum;
    for (auto extra = node.extras.begin(); extra != end; ++extra)
      sum += extra->second;
    const std::int64_t latest = std::prev(end)->first;
    node.extras.erase(node.extras.begin(), end);
    node.extras[latest] = sum;
  }
  for (auto& [id, lease] : leases_) {
    std::map<NodeId, std::pair<std::int64_t, Extra>> sums;
    const auto end = lease.extras.lower_bound(before.ns);
    for (auto extra = lease.extras.begin(); extra != end; ++extra) {
      auto& [latest, sum] = sums[extra->second.node];
      latest = extra->first;
      sum.amount += extra->second.amount;
      sum.bytes += extra->second.bytes;
    }
    lease.extras.erase(lease.extras.begin(), end);
    for (const auto& [node, sum] : sums)
      lease.extras[sum.first] = {node, sum.second.amount, sum.second.bytes};
  }
}

}  // namespace billow::ledger
