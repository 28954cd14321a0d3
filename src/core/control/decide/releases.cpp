// Canaries of endpoints: a new revision that gets a part of the requests beside the old one, until
// it takes over or ends. Keys: what callers may use, and what they have used. And what gateways
// have counted.
//
// A canary starts like any revision (`Endpoint::rolling`); when it is healthy it becomes
// `Endpoint::canary`, and the old one keeps serving. Promoted, it rolls out like any revision while
// it keeps its part of the requests.
#include <fmt/format.h>
#include <algorithm>

#include "base/limits.h"
#include "core/control/applier.h"
#include "core/control/decide/decider.h"
#include "core/control/decide/releases.h"

namespace billow::control {
namespace {

constexpr std::uint32_t traffic_max = 990;  // beyond it there is nothing to compare with
constexpr std::int64_t key_use_days = 92;   // kept for reports
constexpr std::size_t key_uses_max = 1000;  // in one report
constexpr std::size_t key_limits_max = 9;   // one of each kind and period
constexpr std::size_t counts_max = 1000;    // of endpoints in one report
constexpr std::size_t gateways_max = 32;    // whose counts of an endpoint are kept apart

}  // namespace

Status check_release(const ReleasePlan& plan) {
  if (plan.traffic > traffic_max)
    return fail(Code::invalid, "--traffic must be at most 99%",
                "`billow promote NAME` lets the new revision take over");
  if (plan.mirror > 1000)
    return fail(Code::invalid, "--mirror must be at most 100%");
  return {};
}

const Revision* canary_of(const Endpoint& e) {
  if (e.canary != 0)
    return e.revision(e.canary);
  const Revision* rolling = e.rolling == 0 ? nullptr : e.revision(e.rolling);
  return rolling && rolling->release.any() ? rolling : nullptr;
}

Decision Decider::operator()(const ChangeRelease& c) {
  const Endpoint* e = BILLOW_TRY(endpoint_named(c.endpoint));
  const Revision* canary = canary_of(*e);
  if (!canary)
    return fail(Code::conflict, fmt::format("endpoint {} has no canary", c.endpoint),
                fmt::format("start one: billow deploy {} --traffic 10% -- COMMAND", c.endpoint));
  if (c.promote) {
    if (e->canary == 0)
      return fail(Code::conflict,
                  fmt::format("revision {} of {} is not healthy yet", canary->number, c.endpoint),
                  "try again when `billow endpoints` shows it as canary");
    if (e->rolling == e->canary)
      return Events{};  // it is taking over already
    return Events{ReleaseChanged{c.endpoint, canary->number, canary->release, true}};
  }
  ReleasePlan plan = canary->release;
  if (c.traffic)
    plan.traffic = *c.traffic;
  BILLOW_TRY_VOID(check_release(plan));
  if (plan == canary->release)
    return Events{};
  return Events{ReleaseChanged{c.endpoint, canary->number, plan, false}};
}

Status check_key_limits(const std::vector<KeyLimit>& limits, const Endpoint& e) {
  if (limits.size() > key_limits_max)
    return fail(Code::invalid, fmt::format("a key can have {} limits at most", key_limits_max));
  for (std::size_t i = 0; i < limits.size(); ++i) {
    if (limits[i].amount <= 0)
      return fail(Code::invalid, "--limit must be more than 0",
                  "`billow endpoint-key NAME --name KEY --remove` stops a key");
    for (std::size_t j = 0; j < i; ++j)
      if (limits[i].of == limits[j].of && limits[i].per == limits[j].per)
        return fail(Code::invalid, fmt::format("two limits of {} per {} are given",
                                               enum_name(limits[i].of), enum_name(limits[i].per)));
    const Revision* current = e.current();
    if (limits[i].of == LimitOf::usd && current && !current->policy.prices.any())
      return fail(
          Code::conflict,
          fmt::format("endpoint {} has no prices, so a limit in dollars has no effect", e.name),
          fmt::format("deploy it with --price, for example: billow deploy {} --price "
                      "0.01/request --price in=0.50/Mtoken -- COMMAND",
                      e.name));
  }
  return {};
}

// Reports repeat themselves; only what has changed becomes an event. The key's project is the one
// of today: earlier days keep theirs.
Decision Decider::operator()(const RecordKeyUses& c) {
  if (c.uses.size() > key_uses_max)
    return fail(Code::invalid, fmt::format("a report names more than {} keys", key_uses_max));
  KeysUsed used;
  for (KeyUse use : c.uses) {
    const auto found = state.endpoints.find(use.endpoint);
    if (found == state.endpoints.end())
      continue;
    const auto& keys = found->second.keys;
    const auto key = std::find_if(keys.begin(), keys.end(),
                                  [&](const EndpointKey& k) { return k.name == use.key; });
    use.project = key != keys.end() && key->project ? key->project : found->second.project;
    const auto known = state.key_uses.find(use);
    if (known != state.key_uses.end()) {
      use.project = known->project;
      if (*known == use || use.requests + use.refused < known->requests + known->refused)
        continue;
    }
    used.uses.push_back(std::move(use));
  }
  if (used.uses.empty())
    return Events{};
  return Events{std::move(used)};
}

// A report never lowers a count: people add and compare these sums.
Decision Decider::operator()(const RecordEndpointCounts& c) {
  if (c.counts.size() > counts_max)
    return fail(Code::invalid, fmt::format("a report counts more than {} endpoints", counts_max));
  EndpointsCounted counted;
  for (EndpointCount count : c.counts) {
    const auto found = state.endpoints.find(count.endpoint);
    if (found == state.endpoints.end() || count.gateway.empty())
      continue;
    bool more = false;
    const auto known =
        std::ranges::find(found->second.counts, count.gateway, &EndpointCount::gateway);
    for (const auto counter : endpoint_counters) {
      const std::uint64_t before = known == found->second.counts.end() ? 0 : *known.*counter;
      more = more || count.*counter > before;
      count.*counter = std::max(count.*counter, before);
    }
    if (!more)
      continue;
    count.at = context.now;
    counted.counts.push_back(std::move(count));
  }
  if (counted.counts.empty())
    return Events{};
  return Events{std::move(counted)};
}

// ---- folding

void Applier::operator()(const ReleaseChanged& c) {
  Endpoint& e = endpoint(c.endpoint);
  for (Revision& r : e.revisions)
    if (r.number == c.revision)
      r.release = c.release;
  if (c.promoted)
    e.rolling = c.revision;
}

void Applier::operator()(const ReleaseEnded& d) {
  Endpoint& e = endpoint(d.endpoint);
  for (Revision& r : e.revisions) {
    if (r.number != d.revision)
      continue;
    r.state = RevisionState::rolled_back;
    r.reason = d.reason;
    r.failed_job = d.job;
  }
  if (e.canary == d.revision)
    e.canary = 0;
  if (e.rolling == d.revision)
    e.rolling = 0;
}

void Applier::operator()(const KeysUsed& u) {
  for (const KeyUse& use : u.uses) {
    state.key_uses.erase(use);
    state.key_uses.insert(use);
  }
  if (state.key_uses.empty())
    return;
  const std::int64_t oldest = state.key_uses.rbegin()->day - key_use_days;
  while (state.key_uses.begin()->day < oldest)
    state.key_uses.erase(state.key_uses.begin());
}

// Gateways come and go; those that have not counted for longest are added up under no name.
void Applier::operator()(const EndpointsCounted& u) {
  for (const EndpointCount& count : u.counts) {
    auto& counts = endpoint(count.endpoint).counts;
    const auto known = std::ranges::find(counts, count.gateway, &EndpointCount::gateway);
    if (known != counts.end())
      *known = count;
    else
      counts.push_back(count);
    if (counts.size() <= gateways_max)
      continue;
    auto earlier = std::ranges::find(counts, "", &EndpointCount::gateway);
    if (earlier == counts.end())
      earlier = counts.insert(counts.end(), {.endpoint = count.endpoint, .at = count.at});
    auto oldest = counts.end();
    for (auto at = counts.begin(); at != counts.end(); ++at)
      if (!at->gateway.empty() && (oldest == counts.end() || at->at < oldest->at))
        oldest = at;
    for (const auto counter : endpoint_counters)
      *earlier.*counter += *oldest.*counter;
    counts.erase(oldest);
  }
}

}  // namespace billow::control
