// The health of replicas. A replica is asked for its health as long as it lives, and its answers to
// requests count too. One that is sick gets no requests while others can serve, returns when it is
// well again, and is replaced if it stays sick.
//
// - Its health check (readiness) fails `threshold` times in a row. A check without any answer
// counts
//   only if the replica has nothing to do or has let requests time out: a server that handles one
//   request at a time is busy, not sick.
// - Its liveness is a question of its own, asked once it has been healthy: a replica that fails it
//   is replaced. Without one, a replica is replaced whose readiness fails for long.
// - Until a replica has passed its start-up probe, nothing else is asked. One that is not healthy
//   within the time to start is replaced.
// - Its requests time out, or answer 5xx, several times in a row. It is then left out for a time
//   that grows with each time that this happens.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "gateway/endpoint.h"

namespace billow::gateway {
namespace {
constexpr Duration check_delay_max = seconds(1);
constexpr std::uint32_t timeouts_max = 3;
constexpr std::uint32_t errors_max = 5;
constexpr Duration left_out = seconds(10);  // times how often it was left out
constexpr std::uint32_t left_out_factor_max = 30;
constexpr Duration sick_patience = seconds(30);  // then it is replaced
}  // namespace

std::string not_listening(const ReplicaRow& replica) {
  return replica.task_state == TaskState::running && replica.port_holder == PortHolder::nobody
             ? fmt::format(
                   "nothing listens on $PORT ({}): the command must listen on the port "
                   "that its variable PORT names",
                   replica.port)
             : std::string();
}

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

const EndpointPolicy& LiveEndpoint::rolling_policy() const {
  static const EndpointPolicy unsaid;  // by a head that does not know it
  return row_.serving == 0 || row_.rolling_policy == unsaid ? row_.policy : row_.rolling_policy;
}

const EndpointPolicy& LiveEndpoint::policy_of(const LiveReplica& live) const {
  return live.row.revision == row_.serving ? row_.policy : rolling_policy();
}

std::pair<std::string, Duration> LiveEndpoint::question(ReplicaKey key, Probe probe) const {
  const auto found = replicas_.find(key);
  if (found == replicas_.end())
    return {row_.policy.health, row_.policy.probes.timeout};
  const EndpointPolicy& policy = policy_of(found->second);
  if (probe == Probe::live)
    return {policy.probes.live, policy.probes.timeout};
  const bool starts = !found->second.started && !policy.probes.start.empty();
  return {starts ? policy.probes.start : policy.health, policy.probes.timeout};
}

std::vector<ReplicaKey> LiveEndpoint::due_live_checks(SteadyTime now) {
  std::vector<ReplicaKey> due;
  for (auto& [key, live] : replicas_) {
    if (policy_of(live).probes.live.empty() || !live.was_healthy || live.live_checking ||
        !live.upstream || live.row.task_state != TaskState::running || live.row.stopping ||
        live.told_to_stop || now < live.live_check_at || !believed(live))
      continue;
    const Replica* r = router.find(key);
    if (!r || (r->phase != Phase::ready && r->phase != Phase::starting))
      continue;  // it is falling asleep, or leaves
    live.live_checking = true;
    due.push_back(key);
  }
  return due;
}

void LiveEndpoint::live_checked(ReplicaKey key, Check result, SteadyTime now) {
  const auto found = replicas_.find(key);
  if (found == replicas_.end())
    return;
  LiveReplica& live = found->second;
  const EndpointProbes& probes = policy_of(live).probes;
  live.live_checking = false;
  live.live_check_at = now + probes.period;
  // It may have been put to sleep meanwhile.
  if (result == Check::good || live.row.task_state != TaskState::running) {
    live.live_failed = 0;
    return;
  }
  if (++live.live_failed < probes.threshold || live.told_to_stop || live.row.stopping)
    return;
  log_warn("endpoint {}: replacing replica {}: it has failed its liveness check {} times", name_,
           key, live.live_failed);
  stop_sick(live, "it failed its liveness checks", now);
}

void LiveEndpoint::stop_sick(LiveReplica& live, const char* reason, SteadyTime now) {
  live.told_to_stop = true;
  live.healthy = false;
  router.set_phase(live.row.job, Phase::leaving, now);
  move(live.row.job, "stop", reason, now);
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
  if (!live.started) {
    live.started = true;
    if (!policy_of(live).probes.start.empty() && !live.was_healthy) {
      live.check_at = now;  // it has started; is it ready?
      return;
    }
  }
  if (live.healthy) {
    if (live.timeouts + live.errors == 0)
      live.sick_why.clear();
    live.check_at = now + policy_of(live).probes.period;
    return;
  }
  if (now < live.out_until) {
    live.check_at = live.out_until;
    return;
  }
  if (!live.was_healthy && !live.adopted) {
    const Duration took = now - live.first_seen;
    scaler.came_up(took);
    start_time.add(took);
    ++totals.cold_starts;
  } else if (live.was_healthy) {
    log_info("endpoint {}: replica {} is healthy again", name_, key);
  }
  ready(live, now);
}

void LiveEndpoint::check_failed(LiveReplica& live, Check result, SteadyTime now) {
  const EndpointProbes& probes = policy_of(live).probes;
  // A replica that serves gets time to recover; one that starts is asked often.
  live.check_at =
      now + (live.healthy ? std::min(probes.period, check_delay_max) : live.check_delay);
  live.check_delay = std::min(live.check_delay * 3 / 2, check_delay_max);
  const Replica* r = router.find(live.row.job);
  if (!live.was_healthy || !r || live.row.task_state != TaskState::running || !believed(live))
    return;
  if (result == Check::no_answer && r->in_flight > 0 && live.timeouts == 0)
    return;
  if (live.sick_since.ns == 0)
    live.sick_since = now;
  if (++live.failed_checks < probes.threshold)
    return;
  if (live.healthy)
    leave_out(live, "fails its health check", 1, now);
  else if (live.sick_why.empty())
    live.sick_why = "fails its health check";
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
    if (live.healthy && live.failed_checks == 0)
      live.sick_why.clear();
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

bool LiveEndpoint::sick(const LiveReplica& live) const {
  return !live.sick_why.empty() && live.row.task_state == TaskState::running &&
         !live.row.stopping && !live.told_to_stop;
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
  live.sick_why = why;
  // Some must stay: a fault of all of them must not close the endpoint.
  if (r->current && serving() < stay_min + 1) {
    if (!std::exchange(live.said_sick, true))
      log_warn("endpoint {}: replica {} {}, and no other replica can take its place", name_,
               live.row.job, why);
    return;
  }
  live.times_out = std::min(live.times_out + 1, left_out_factor_max);
  live.out_until = now + left_out * live.times_out;
  live.check_at = now;
  ++totals.left_out;
  log_warn("endpoint {}: replica {} {}: it gets no requests until it has recovered", name_,
           live.row.job, why);
  out_of_service(live, now);
}

// A replica whose checks have failed for long, or that never became healthy, is stopped, and the
// autoscaler starts another. (A revision that starts is judged as a whole instead.)
void LiveEndpoint::replace_sick(SteadyTime now) {
  for (auto& [key, live] : replicas_) {
    if (live.told_to_stop || live.row.stopping || live.row.task_state != TaskState::running)
      continue;
    const EndpointPolicy& policy = policy_of(live);
    if (!live.was_healthy) {
      if (live.row.revision != row_.serving || now - live.running_since < policy.start_timeout)
        continue;
      std::string why =
          fmt::format("was not healthy within {}", format_duration(policy.start_timeout));
      if (const std::string silent = not_listening(live.row); !silent.empty())
        why += "; " + silent;
      log_warn("endpoint {}: replica {} {}: replacing it", name_, key, why);
      failed_start(fmt::format("its replica (job {}) {}", key, why), now);
      stop_sick(live, ("it " + why).c_str(), now);
      continue;
    }
    if (!policy.probes.live.empty() || live.sick_since.ns == 0 ||
        live.failed_checks < policy.probes.threshold || now - live.sick_since < sick_patience)
      continue;
    log_warn("endpoint {}: replacing replica {}: it has failed its health checks for {}", name_,
             key, format_duration(now - live.sick_since));
    stop_sick(live, "it failed its health checks", now);
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
