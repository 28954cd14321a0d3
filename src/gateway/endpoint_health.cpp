// The health of replicas. A replica is asked for its health as long as it lives, and its answers to
// requests count too. One that is sick gets no requests while others can serve, returns when it is
// well again, and is replaced if it stays sick.
//
// - Its health check fails `failed_checks_max` times in a row. A check without any answer counts
//   only if the replica has nothing to do or has let requests time out: a server that handles one
//   request at a time is busy, not sick.
// - Its requests time out, or answer 5xx, several times in a row. It is then left out for a time
//   that grows with each time that this happens.
#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "gateway/endpoint.h"

namespace billow::gateway {
namespace {
constexpr Duration check_delay_max = seconds(1);
constexpr std::uint32_t failed_checks_max = 3;
constexpr std::uint32_t timeouts_max = 3;
constexpr std::uint32_t errors_max = 5;
constexpr Duration left_out = seconds(10);  // times how often it was left out
constexpr std::uint32_t left_out_factor_max = 30;
constexpr Duration sick_patience = seconds(30);  // then it is replaced
}  // namespace

void LiveEndpoint::out_of_service(LiveReplica& live, SteadyTime now) {
  live.healthy = false;
  const Replica* r = router.find(live.row.job);
  if (r && r->phase == Phase::ready)
    router.set_phase(live.row.job, Phase::starting, now);
}

std::vector<ReplicaKey> LiveEndpoint::due_checks(SteadyTime now) {
  std::vector<ReplicaKey> due;
  for (auto& [key, live] : replicas_) {
    if (live.checking || !live.upstream || live.row.task_state != TaskState::running ||
        live.row.stopping || live.told_to_stop)
      continue;
    if (now < live.check_at || !believed(live))
      continue;
    const Replica* r = router.find(key);
    if (live.healthy && (!r || r->phase != Phase::ready))
      continue;  // it is falling asleep, or leaves
    live.checking = true;
    due.push_back(key);
  }
  return due;
}

void LiveEndpoint::checked(ReplicaKey key, Check result, SteadyTime now) {
  const auto found = replicas_.find(key);
  if (found == replicas_.end())
    return;
  LiveReplica& live = found->second;
  live.checking = false;
  // An answer counts only while the port is confirmed to be the replica's.
  if (result != Check::good || !believed(live))
    return check_failed(live, result, now);
  live.check_delay = check_delay_min;
  // The answer is from before it fell asleep: it is healthy, but gets no requests until it wakes.
  if (live.row.task_state == TaskState::suspending || live.row.task_state == TaskState::suspended ||
      live.row.task_state == TaskState::resuming) {
    live.healthy = live.was_healthy = true;
    return;
  }
  live.failed_checks = 0;
  live.sick_since = {};
  if (live.healthy) {
    live.check_at = now + check_every;
    return;
  }
  if (now < live.out_until) {
    live.check_at = live.out_until;
    return;
  }
  if (!live.was_healthy) {
    const Duration took = now - live.first_seen;
    scaler.came_up(took);
    start_time.add(took);
    ++totals.cold_starts;
  } else {
    log_info("endpoint {}: replica {} is healthy again", name_, key);
  }
  ready(live, now);
}

void LiveEndpoint::check_failed(LiveReplica& live, Check result, SteadyTime now) {
  live.check_at = now + live.check_delay;
  live.check_delay = std::min(live.check_delay * 3 / 2, check_delay_max);
  const Replica* r = router.find(live.row.job);
  if (!live.was_healthy || !r || live.row.task_state != TaskState::running || !believed(live))
    return;
  if (result == Check::no_answer && r->in_flight > 0 && live.timeouts == 0)
    return;
  if (live.sick_since.ns == 0)
    live.sick_since = now;
  if (++live.failed_checks == failed_checks_max && live.healthy)
    leave_out(live, "fails its health check", 1, now);
}

void LiveEndpoint::answered(ReplicaKey key, Answered how, SteadyTime now) {
  const auto found = replicas_.find(key);
  if (found == replicas_.end())
    return;
  LiveReplica& live = found->second;
  // Errors of a canary are compared with those of the serving revision instead.
  if (row_.canary != 0 && live.row.revision == row_.canary &&
      row_.release.guard != ReleaseGuard::off)
    return;
  if (how == Answered::well) {
    live.timeouts = live.errors = 0;
    return;
  }
  if (how == Answered::error) {
    live.timeouts = 0;  // it does answer
    if (++live.errors % errors_max != 0 || !live.healthy)
      return;
    return leave_out(live, "answers with errors", (living() + 1) / 2, now);
  }
  ++live.timeouts;
  live.check_at = std::min(live.check_at, now);
  live.check_delay = check_delay_min;
  if (live.timeouts % timeouts_max == 0 && live.healthy)
    leave_out(live, "lets requests time out", (living() + 1) / 2, now);
}

std::uint32_t LiveEndpoint::serving() const {
  std::uint32_t n = 0;
  for (const auto& [key, r] : router.replicas())
    n += r.phase == Phase::ready && r.current ? 1 : 0;
  return n;
}

std::uint32_t LiveEndpoint::living() const {
  std::uint32_t n = 0;
  for (const auto& [key, live] : replicas_)
    n += live.row.revision == row_.serving && live.was_healthy && !live.row.stopping &&
                 !live.told_to_stop && live.row.task_state == TaskState::running
             ? 1
             : 0;
  return n;
}

void LiveEndpoint::leave_out(LiveReplica& live,
                             const char* why,
                             std::uint32_t stay_min,
                             SteadyTime now) {
  const Replica* r = router.find(live.row.job);
  if (!r || r->phase != Phase::ready)
    return;
  // Some must stay: a fault of all of them must not close the endpoint.
  if (r->current && serving() < stay_min + 1) {
    if (!std::exchange(live.said_sick, true))
      log_warn("endpoint {}: replica {} {}, and no other can take its place", name_, live.row.job,
               why);
    return;
  }
  live.times_out = std::min(live.times_out + 1, left_out_factor_max);
  live.out_until = now + left_out * live.times_out;
  live.check_at = now;
  ++totals.left_out;
  log_warn("endpoint {}: replica {} {}: it gets no requests until it is well", name_, live.row.job,
           why);
  out_of_service(live, now);
}

// A replica whose checks have failed for long is stopped, and the autoscaler starts another.
void LiveEndpoint::replace_sick(SteadyTime now) {
  for (auto& [key, live] : replicas_) {
    if (live.sick_since.ns == 0 || live.failed_checks < failed_checks_max || live.told_to_stop ||
        live.row.stopping || live.row.task_state != TaskState::running ||
        now - live.sick_since < sick_patience)
      continue;
    log_warn("endpoint {}: replica {} has failed its health checks for {}: it is replaced", name_,
             key, format_duration(now - live.sick_since));
    live.told_to_stop = true;
    live.healthy = false;
    router.set_phase(key, Phase::leaving, now);
    move(key, "stop", "it failed its health checks", now);
  }
}

void LiveEndpoint::unreachable(ReplicaKey key, SteadyTime now) {
  const auto found = replicas_.find(key);
  if (found == replicas_.end())
    return;
  found->second.check_at = now;
  found->second.check_delay = check_delay_min;
  out_of_service(found->second, now);
  ask_who_has_port(found->second, now);
}

}  // namespace billow::gateway
