// A new revision takes the place of the old one: beside it, or, if both do not fit, after it.
//
// Recreate. The old replicas get no more requests, finish those they have, and are stopped;
// requests wait for the new revision. It is used if the owner chose it, or, by default, if the head
// reports that the new revision has no room beside the old one but would have room in its place.
// One healthy replica is then enough to take over. If the new revision fails, the autoscaler starts
// the old one again.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "gateway/endpoint.h"

namespace billow::gateway {

void LiveEndpoint::roll(SteadyTime now) {
  if (row_.rolling == 0 || !row_.steered ||
      (judged_ == row_.rolling && now - judged_at_ < move_patience))
    return;
  std::uint32_t have = 0, healthy = 0, awake = 0;
  std::string late;
  std::uint64_t late_job = 0;
  for (const auto& [key, live] : replicas_) {
    const Replica* r = router.find(key);
    if (live.row.revision == row_.serving && r && r->phase == Phase::ready)
      ++awake;
    if (live.row.revision != row_.rolling || live.row.stopping)
      continue;
    ++have;
    if (live.healthy) {
      ++healthy;
    } else if (now - live.first_seen > rolling_policy().start_timeout) {
      // The head adds what it waits for.
      late = live.row.job_state == JobState::queued
                 ? fmt::format("it got no capacity within {}",
                               format_duration(rolling_policy().start_timeout))
                 : "it was not healthy in time";
      late_job = key;
    }
  }
  for (const auto& [placeholder, revision] : asked_)
    if (revision == row_.rolling)
      ++have;
  std::string why = !rolling_failure_.empty() ? rolling_failure_ : late;
  std::uint64_t failed_job = !rolling_failure_.empty() ? rolling_failed_job_ : late_job;
  // A replica that came and went between two tables.
  if (why.empty() && have == 0 && row_.elsewhere.empty() && row_.failed_job != failed_before_) {
    why = row_.failed_reason;
    failed_job = row_.failed_job;
  }
  if (!why.empty())
    return judge(row_.rolling, false, why, failed_job, now);
  const EndpointPolicy& policy = rolling_policy();
  const bool canary = row_.release.any() && row_.rolling != row_.canary;
  // Replicas that have made room already still count.
  const std::uint32_t like_now = std::clamp(std::max(awake, policy.min), 1u,
                                            std::max(std::min(policy.max, row_.awake_max), 1u));
  roll_want_ = recreates() ? std::max(roll_want_, like_now) : like_now;
  const std::uint32_t want = canary ? canary_replicas() : roll_want_;
  if (policy.rollout.strategy == RolloutStrategy::automatic && !row_.no_room.empty() &&
      row_.canary == 0 && !canary && recreating_ != row_.rolling) {
    recreating_ = row_.rolling;
    recreate_why_ = row_.no_room;
    log_info("endpoint {}: revision {} does not fit beside revision {}: {}", name_, row_.rolling,
             row_.serving, row_.no_room);
  }
  const bool recreate = recreates();
  // Without room for all, one is enough to take over: the others follow.
  if (recreate && healthy > 0)
    return judge(row_.rolling, true, "", 0, now);
  if (recreate && !make_room(now) && policy.rollout.strategy == RolloutStrategy::recreate)
    return;
  for (; have < want; ++have)
    if (!start(row_.rolling, policy.spot && have >= policy.base_on_demand, now))
      break;
  if (healthy < want)
    return;
  judge(row_.rolling, true, "", 0, now);
}

void LiveEndpoint::judge(
    std::uint32_t revision, bool healthy, std::string reason, std::uint64_t job, SteadyTime now) {
  judged_ = revision;
  judged_at_ = now;
  if (!healthy)
    rejected_ = revision;
  say_(RevisionJudged{name_, revision, healthy, std::move(reason), JobId(job)});
}

bool LiveEndpoint::recreates() const {
  // A canary, or one that is promoted, runs beside the serving revision by its nature.
  if (row_.rolling == 0 || row_.serving == 0 || row_.canary != 0 || row_.release.any())
    return false;
  switch (rolling_policy().rollout.strategy) {
    case RolloutStrategy::automatic:
      return recreating_ == row_.rolling;
    case RolloutStrategy::rolling:
      return false;
    case RolloutStrategy::recreate:
      return true;
  }
  return false;
}

// True: no replica of the old revision holds a machine any more. Sleeping ones stay until the new
// revision serves, so that a rollout that fails can wake them.
bool LiveEndpoint::make_room(SteadyTime now) {
  bool gone = true;
  for (auto& [key, live] : replicas_) {
    const Replica* r = router.find(key);
    if (live.row.revision != row_.serving || !r || r->phase == Phase::suspended)
      continue;
    gone = false;
    drain(live, "a new revision needs its capacity", now);
  }
  return gone;
}

// Stops a replica when its requests have ended, or its time for that is over.
void LiveEndpoint::drain(LiveReplica& live, const char* reason, SteadyTime now) {
  const ReplicaKey key = live.row.job;
  router.set_phase(key, Phase::leaving, now);
  const Replica& r = *router.find(key);
  const Duration limit = row_.policy.rollout.drain;
  const bool late = limit.ns > 0 && now - r.since >= limit;
  if (live.row.stopping || (!Router::releasable(r) && !late))
    return;
  if (live.told_to_stop && now - live.asked_at < move_patience)
    return;
  if (!live.told_to_stop && !Router::releasable(r))
    log_warn("endpoint {}: stopping replica {}: it still has {} requests after {} (--drain)", name_,
             key, r.in_flight, format_duration(limit));
  live.told_to_stop = true;
  move(key, "stop", reason, now);
}

void LiveEndpoint::retire(SteadyTime now) {
  for (auto& [key, live] : replicas_)
    if (live.row.revision != row_.serving && live.row.revision != row_.rolling &&
        (row_.canary == 0 || live.row.revision != row_.canary))
      drain(live, "another revision serves", now);
}

}  // namespace billow::gateway
