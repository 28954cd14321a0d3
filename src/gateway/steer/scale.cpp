// The actions of the gateway for an endpoint: it starts, wakes, suspends and stops replicas, and
// explains to callers why no replica can serve them.
#include <algorithm>

#include <fmt/format.h>

#include "base/log.h"
#include "gateway/endpoint.h"

namespace billow::gateway {
namespace {

constexpr Duration placeholder_life = seconds(10);  // after that a start counts as lost
constexpr Duration stuck_after = seconds(2);        // asked to wake, and still asleep
constexpr Duration look_patience = seconds(1);      // until an agent is asked about a port again

}  // namespace

bool LiveEndpoint::alive_or_coming() const {
  for (const auto& [key, r] : router.replicas())
    if (r.phase != Phase::leaving || r.in_flight > 0)
      return true;
  return false;
}

std::string LiveEndpoint::hopeless(SteadyTime now) const {
  if (!known_)
    return {};
  if (row_.serving == 0 && row_.rolling == 0)
    return row_.failed_reason.empty() ? "no revision has been healthy" : row_.failed_reason;
  if (!row_.held_back.empty()) {
    // Sleeping replicas cannot wake without money; the table reports when there is some.
    const auto& all = router.replicas();
    if (std::none_of(all.begin(), all.end(), [](const auto& each) {
          return each.second.phase == Phase::ready || each.second.in_flight > 0;
        }))
      return row_.held_back;
  }
  if (row_.awake_max == 0 && !awake())
    return row_.awake_max_why;
  if (alive_or_coming())
    return {};
  if (failures_ > 0 && now < start_again_at_)
    return failure_;
  return {};
}

int LiveEndpoint::retry_after_s(SteadyTime now) const {
  if (failures_ > 0 && now < start_again_at_)
    return std::max(1, static_cast<int>((start_again_at_ - now).seconds()) + 1);
  return router.retry_after_s(scaler.service_time());
}

void LiveEndpoint::failed_start(const std::string& reason, SteadyTime now) {
  ++failures_;
  failure_ = reason.empty() ? "its replica ended" : reason;
  const std::int64_t wait_s =
      std::min<std::int64_t>(60, std::int64_t{1} << std::min(failures_ - 1, 6u));
  start_again_at_ = now + seconds(wait_s);
}

bool LiveEndpoint::start(std::uint32_t revision, bool spot, SteadyTime now) {
  const auto port = free_port_();
  if (!port) {
    failed_start(port.error().message, now);
    if (revision == row_.rolling)
      rolling_failure_ = port.error().message;
    return false;
  }
  const ReplicaKey placeholder = next_placeholder_++;
  asked_.emplace_back(placeholder, revision);
  Replica& r = router.replica(placeholder, now);
  r.current = revision == row_.serving;
  r.spot = spot;
  say_(StartReplica{name_, revision, *port, spot});
  return true;
}

void LiveEndpoint::move(ReplicaKey key, const char* what, const char* reason, SteadyTime now) {
  const auto found = replicas_.find(key);
  if (found != replicas_.end())
    found->second.asked_at = now;
  say_(MoveReplica{name_, key, what, reason});
}

// Starts that were refused, or requested while the head was away, are discarded and requested again
// if still needed.
void LiveEndpoint::forget_lost_starts(SteadyTime now) {
  for (auto at = asked_.begin(); at != asked_.end();) {
    const Replica* r = router.find(at->first);
    if (r && now - r->since < placeholder_life) {
      ++at;
      continue;
    }
    router.remove(at->first);
    at = asked_.erase(at);
  }
}

// Orders without effect: a suspend that was not possible, a resume that got lost.
void LiveEndpoint::forget_lost_orders(SteadyTime now) {
  for (auto& [key, live] : replicas_) {
    const Replica* r = router.find(key);
    if (!r || live.row.stopping)
      continue;
    // Its memory is on GPUs that others use now. A fresh start elsewhere may be possible at once.
    router.find(key)->stuck = r->phase == Phase::resuming &&
                              live.row.job_state == JobState::suspended &&
                              now - live.asked_at > stuck_after;
    if (!believed(live) && live.row.port_holder == PortHolder::task &&
        now - live.look_asked > look_patience)
      ask_who_has_port(live, now);
    const bool runs = live.healthy && live.row.task_state == TaskState::running;
    // It was called back in time, or refused to sleep: it has been awake all the time.
    if (live.fell && r->phase == Phase::resuming && runs &&
        now - live.asked_at >= call_back_patience) {
      live.fell = false;
      live.waking = false;
      router.set_phase(key, Phase::ready, now);
    }
    if (now - r->since < move_patience)
      continue;
    if ((r->phase == Phase::leaving || r->phase == Phase::falling) && r->current && runs &&
        !live.told_to_stop && !recreates())
      router.set_phase(key, Phase::ready, now);
    if (r->phase == Phase::resuming && live.row.job_state == JobState::suspended &&
        !live.row.resume_wanted)
      router.set_phase(key, Phase::suspended, now);
  }
}

void LiveEndpoint::resume(ReplicaKey key, SteadyTime now) {
  const auto found = replicas_.find(key);
  if (found == replicas_.end())
    return;
  // Its order to sleep may be under way; this one follows on the same connection.
  found->second.fell = found->second.row.task_state == TaskState::running;
  found->second.waking = true;
  router.set_phase(key, Phase::resuming, now);
  move(key, "resume", "a request waits for it", now);
}

void LiveEndpoint::suspend(ReplicaKey key, SteadyTime now) {
  const auto found = replicas_.find(key);
  if (found == replicas_.end())
    return;
  const bool can = found->second.row.unsuspendable.empty();
  // A replica that cannot be suspended stays awake until the endpoint's idle time is over.
  if (!can && now - router.find(key)->idle_since < row_.policy.idle)
    return;
  router.set_phase(key, can ? Phase::falling : Phase::leaving, now);
  move(key, can ? "suspend" : "stop", "idle", now);
}

void LiveEndpoint::steer(SteadyTime now) {
  if (!known_)
    return;
  forget_lost_starts(now);
  forget_lost_orders(now);
  replace_sick(now);
  roll(now);
  keep_canary(now);
  retire(now);
  if (row_.serving == 0 || recreates())
    return;
  ScaleCaps caps{.awake_max = row_.awake_max, .awake_min = awake_min(now)};
  if (!row_.held_back.empty())
    caps.replicas_max = static_cast<std::uint32_t>(router.replicas().size());
  if (!row_.steered)
    caps.replicas_max = 0;  // other regions serve it
  const std::vector<ScaleAction> actions = scaler.decide(router, caps, now);
  router.spread_over(std::max(scaler.wanted(), 1u));
  for (const ScaleAction& action : actions) {
    switch (action.kind) {
      case ScaleAction::Kind::start:
        if (now >= start_again_at_)
          start(row_.serving, action.spot, now);
        break;
      case ScaleAction::Kind::resume:
        resume(action.replica, now);
        break;
      case ScaleAction::Kind::suspend:
        suspend(action.replica, now);
        break;
      case ScaleAction::Kind::stop:
        router.set_phase(action.replica, Phase::leaving, now);
        move(action.replica, "stop", "no longer needed", now);
        break;
    }
  }
}

bool LiveEndpoint::awake(ReplicaKey but) const {
  const auto& all = router.replicas();
  return std::any_of(all.begin(), all.end(), [&](const auto& each) {
    return each.second.phase == Phase::ready && each.second.current && each.first != but;
  });
}

bool LiveEndpoint::waits_for_capacity() const {
  for (const auto& [key, live] : replicas_) {
    if (live.row.job_state == JobState::queued)
      return true;
    const auto r = router.replicas().find(key);
    if (live.row.job_state == JobState::suspended && r != router.replicas().end() &&
        r->second.phase == Phase::resuming)
      return true;
  }
  return false;
}

SteadyTime LiveEndpoint::waits_since() const {
  SteadyTime since;
  for (const auto& [key, live] : replicas_)
    if (live.row.job_state == JobState::queued || live.row.job_state == JobState::suspended)
      since = std::max(since, live.asked_at);
  return since;
}

bool LiveEndpoint::yield_one(SteadyTime now) {
  std::uint32_t ready = 0;
  ReplicaKey idle = 0;
  for (const auto& [key, r] : router.replicas()) {
    if (r.phase != Phase::ready || !r.current)
      continue;
    ++ready;
    const auto live = replicas_.find(key);
    if (Router::releasable(r) && live != replicas_.end() && live->second.row.unsuspendable.empty())
      idle = key;
  }
  if (idle == 0 || router.held() > 0 ||
      ready <= std::max(row_.policy.min, row_.policy.base_on_demand) ||
      row_.policy.keep_suspended.ns == 0)
    return false;
  router.set_phase(idle, Phase::falling, now);
  move(idle, "suspend", "others wait for its capacity", now);
  return true;
}

}  // namespace billow::gateway
