// The canary of an endpoint: which requests it gets, how many replicas it needs, and whether it may
// go on.
#include <algorithm>

#include "base/log.h"
#include "gateway/endpoint.h"

namespace billow::gateway {
namespace {
constexpr Duration spare_patience =
    seconds(10);  // until a replica that the canary does not need ends
}  // namespace

bool LiveEndpoint::for_canary(std::string_view client) {
  if (!watch_ || row_.release.traffic == 0)
    return false;
  return client.empty() ? watch_->next(row_.release.traffic)
                        : ReleaseWatch::chosen(client, row_.release.traffic);
}

bool LiveEndpoint::to_be_mirrored(std::string_view method) {
  if (!watch_ || row_.release.mirror == 0)
    return false;
  if (!repeatable_method(method) && !(method == "POST" && row_.release.mirror_post))
    return false;
  return watch_->next_mirrored(row_.release.mirror);
}

void LiveEndpoint::served(ReplicaKey key, bool error, Duration latency, SteadyTime now) {
  if (!error)
    router.took(key, latency, now);
  if (!watch_)
    return;
  const auto found = replicas_.find(key);
  if (found == replicas_.end())
    return;
  const std::uint32_t revision = found->second.row.revision;
  if (revision != row_.serving && revision != row_.canary)
    return;
  watch_->served(revision == row_.canary ? ReleaseWatch::Who::canary : ReleaseWatch::Who::old,
                 error, latency, now);
  if (rejected_ == row_.canary && now - judged_at_ < move_patience)
    return;  // the head has been told
  if (const std::string why = watch_->verdict(row_.release.guard, now); !why.empty()) {
    log_warn("endpoint {}: revision {} is rolled back: {}", name_, row_.canary, why);
    judge(row_.canary, false, why, 0, now);
  }
}

// In proportion to the replicas that serve the other requests.
std::uint32_t LiveEndpoint::canary_replicas() const {
  const std::uint32_t part = std::max(row_.release.traffic, row_.release.mirror);
  const std::uint32_t others = std::max({serving(), row_.policy.min, 1u});
  return std::clamp((others * part + 999) / 1000, 1u, std::max(row_.policy.max, 1u));
}

void LiveEndpoint::keep_canary(SteadyTime now) {
  if (row_.canary == 0 || row_.rolling == row_.canary || !row_.steered)
    return;
  std::uint32_t have = 0;
  for (const auto& [placeholder, revision] : asked_)
    have += revision == row_.canary ? 1 : 0;
  ReplicaKey spare = 0;
  for (const auto& [key, live] : replicas_) {
    if (live.row.revision != row_.canary || live.row.stopping || live.told_to_stop)
      continue;
    ++have;
    const Replica* r = router.find(key);
    if (r && Router::releasable(*r) && now - std::max(r->idle_since, r->since) > spare_patience)
      spare = key;
  }
  const std::uint32_t want = canary_replicas();
  for (; have < want && row_.held_back.empty() && now >= start_again_at_; ++have)
    if (!start(row_.canary, row_.policy.spot, now))
      return;
  if (have <= want || spare == 0)
    return;
  router.set_phase(spare, Phase::leaving, now);
  replicas_.at(spare).told_to_stop = true;
  move(spare, "stop", "the canary does not need it", now);
}

}  // namespace billow::gateway
