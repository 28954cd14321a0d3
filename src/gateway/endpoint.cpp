// What the gateway knows of an endpoint: the head's table of replicas, and their health. What it
// does with that is in steer/.
#include "gateway/endpoint.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/log.h"

namespace billow::gateway {
namespace {
constexpr Duration crash_habit = seconds(10);  // two crashes within this time are a pattern
// After this, replicas without a port are failed starts.
constexpr std::uint32_t ports_lost_max = 5;

ScalePolicy scale_policy(const EndpointPolicy& p) {
  return {.min = std::max(p.min, p.base_on_demand),
          .max = p.max,
          .concurrency = p.concurrency,
          .wait_target = p.wait_target,
          .idle = p.idle,
          .keep_suspended = p.keep_suspended,
          .base_on_demand = p.base_on_demand,
          .spot_burst = p.spot,
          .target_tokens = p.scaling.target_tokens};
}
}  // namespace

const KeyRow* LiveEndpoint::key_for(std::string_view hash) const {
  if (hash.empty())
    return nullptr;
  const KeyRow* fits = nullptr;
  for (const KeyRow& one : row_.key_rows)
    if (equal_constant_time(one.hash, hash))
      fits = &one;
  return fits;
}

const KeyRow* LiveEndpoint::key_named(std::string_view name) const {
  for (const KeyRow& one : row_.key_rows)
    if (one.name == name && !name.empty())
      return &one;
  return nullptr;
}

void LiveEndpoint::update(EndpointRow row, SteadyTime now) {
  const bool failed_anew = known_ && row.failed_job != 0 && row.failed_job != row_.failed_job;
  // A head that has just restarted does not know the addresses of nodes that have not connected
  // yet. Replicas do not move meanwhile.
  for (ReplicaRow& each : row.replicas)
    if (const auto before = replicas_.find(each.job);
        each.address.empty() && before != replicas_.end()) {
      each.address = before->second.row.address;
      each.port_holder = before->second.row.port_holder;
      each.port_look = before->second.row.port_look;
    }
  // Nothing is known about a replica that came and went between two tables; if there are other
  // gateways, it may have been theirs.
  const bool ours = row.elsewhere.empty() || replicas_.contains(row.failed_job);
  if (row.policy.scaling.min_at != row_.policy.scaling.min_at) {
    periods_.clear();
    for (const std::string& text : row.policy.scaling.min_at)
      if (const auto period = parse_timed_min(text))
        periods_.push_back(*period);
  }
  if (row.policy.scaling.query != row_.policy.scaling.query)
    query_ = {};
  row_ = std::move(row);
  if (row_.key_rows.empty())  // of a head or a saved table that knows only hashes
    for (const std::string& hash : row_.keys)
      row_.key_rows.push_back({.name = "", .hash = hash});
  known_ = true;
  if (row_.rolling != rolled_) {
    rolled_ = row_.rolling;
    failed_before_ = row_.failed_job;
    rolling_failure_.clear();
    rolling_failed_job_ = 0;
    recreating_ = roll_want_ = 0;
  }
  if (failed_anew && ours)
    replica_failed(now);
  router.configure({.concurrency = row_.policy.concurrency,
                    .queue_max = row_.policy.queue_max,
                    .balance = row_.policy.balance});
  if (row_.canary == 0)
    watch_.reset();
  else if (!watch_)
    watch_ = std::make_unique<ReleaseWatch>();
  if (watch_)
    watch_->begin(row_.canary);
  scaler.configure(scale_policy(row_.policy));
  std::set<ReplicaKey> here;
  for (const ReplicaRow& each : row_.replicas) {
    here.insert(each.job);
    take_row(each, now);
  }
  for (auto at = replicas_.begin(); at != replicas_.end();) {
    if (here.contains(at->first)) {
      ++at;
      continue;
    }
    leave(at->second);
    router.remove(at->first);
    at = replicas_.erase(at);
  }
}

void LiveEndpoint::leave(LiveReplica& live) {
  if (!live.upstream)
    return;
  live.upstream->close();
  ended_.push_back(std::exchange(live.upstream, nullptr));
}

// A replica ended by itself. If it had been healthy, its successor starts at once and requests are
// held for it. If that happens repeatedly, or it never was healthy, there is a pause in which
// callers get the reason.
void LiveEndpoint::replica_failed(SteadyTime now) {
  const auto found = replicas_.find(row_.failed_job);
  const bool known = found != replicas_.end();
  if (row_.failed_port_taken && ++ports_lost_ < ports_lost_max) {
    // Not its fault; its successor gets another port.
    log_warn("endpoint {}: {}; trying another port", name_, row_.failed_reason);
    failed_before_ = row_.failed_job;
    return;
  }
  if (row_.rolling != 0 && known && found->second.row.revision == row_.rolling) {
    rolling_failed_job_ = row_.failed_job;
    rolling_failure_ = row_.failed_reason;  // belongs to the new revision, not to the serving one
    return;
  }
  if (row_.canary != 0 && known && found->second.row.revision == row_.canary)
    return judge(row_.canary, false, row_.failed_reason, row_.failed_job, now);
  const bool was_healthy = known && found->second.was_healthy;
  const bool habit = crashed_at_.ns != 0 && now - crashed_at_ < crash_habit;
  if (was_healthy)
    crashed_at_ = now;
  if (!was_healthy || habit)
    failed_start(row_.failed_reason, now);
}

// A replica that was not in the table before. It takes the place of the oldest start that was asked
// for its revision.
LiveReplica& LiveEndpoint::add_replica(const ReplicaRow& row, SteadyTime now) {
  const auto asked = std::find_if(asked_.begin(), asked_.end(),
                                  [&](const auto& a) { return a.second == row.revision; });
  SteadyTime since = now;
  if (asked != asked_.end()) {
    if (const Replica* placeholder = router.find(asked->first))
      since = placeholder->since;
    router.remove(asked->first);
    asked_.erase(asked);
  }
  LiveReplica& live = replicas_[row.job];
  live.adopted = since == now && !row.address.empty();
  live.first_seen = since;
  live.asked_at = since;
  router.replica(row.job, now).since = since;
  return live;
}

void LiveEndpoint::connect(LiveReplica& live, const ReplicaRow& row) {
  if (live.row.address == row.address && (live.upstream || row.address.empty()))
    return;
  leave(live);
  live.healthy = false;
  if (row.address.empty())
    return;
  if (auto made = Upstream::create(row.job, row.address))
    live.upstream = std::move(*made);
  else
    log_warn("endpoint {}: replica {}: {}", name_, row.job, made.error().message);
}

void LiveEndpoint::take_row(const ReplicaRow& row, SteadyTime now) {
  const auto found = replicas_.find(row.job);
  LiveReplica& live = found == replicas_.end() ? add_replica(row, now) : found->second;
  connect(live, row);
  const bool was_believed = believed(live);
  if (row.task_state == TaskState::running &&
      (live.row.task_state != TaskState::running || live.running_since.ns == 0))
    live.running_since = now;
  live.row = row;
  if (!believed(live)) {
    out_of_service(live, now);
  } else if (!was_believed) {
    live.check_at = now;
    live.check_delay = check_delay_min;
  }
  Replica& r = router.replica(row.job, now);
  r.current = row.revision == row_.serving;
  r.canary = row_.canary != 0 && row.revision == row_.canary;
  r.spot = row.spot;
  if (row.stopping || row.task_state == TaskState::stopping)
    router.set_phase(row.job, Phase::leaving, now);
  else
    follow_task(live, r, now);
}

// Brings the phase of a replica in line with what the head says of its task.
void LiveEndpoint::follow_task(LiveReplica& live, const Replica& r, SteadyTime now) {
  const ReplicaRow& row = live.row;
  switch (row.task_state) {
    case TaskState::suspended:
      live.fell = false;
      if (row.job_state == JobState::suspended) {
        // A replica that was asked to wake and waits for capacity is still on its way.
        const bool asked = r.phase == Phase::resuming && now - r.since < move_patience;
        router.set_phase(row.job, row.resume_wanted || asked ? Phase::resuming : Phase::suspended,
                         now);
      }
      return;
    case TaskState::suspending:
      live.fell = false;
      router.set_phase(
          row.job,
          row.resume_wanted || r.phase == Phase::resuming ? Phase::resuming : Phase::falling, now);
      return;
    case TaskState::resuming:
      router.set_phase(row.job, Phase::resuming, now);
      return;
    case TaskState::running:
      // It was called back before it followed the order to sleep. This table may be older than that
      // order, so it is not trusted yet.
      if (live.fell && now - live.asked_at < call_back_patience)
        return;
      if (!believed(live)) {
        // It woke, and another process may have its port: it starts over with its agent's report.
        if (r.phase == Phase::resuming || r.phase == Phase::suspended)
          router.set_phase(row.job, Phase::starting, now);
      } else if (r.phase == Phase::resuming || (r.phase == Phase::suspended && live.healthy)) {
        ready(live, now);
      }
      return;
    case TaskState::unreachable:  // the head cannot reach its node, but we may
    case TaskState::starting:
    case TaskState::stopping:
    case TaskState::ended:
      return;
  }
}

bool LiveEndpoint::believed(const LiveReplica& live) const {
  switch (live.row.port_holder) {
    case PortHolder::unsaid:
      return true;
    case PortHolder::nobody:
    case PortHolder::other:
      return false;
    case PortHolder::task:
      return live.look == 0 || live.look == live.row.port_look ||
             (head_is_here_ && !head_is_here_());
  }
  return false;
}

void LiveEndpoint::ask_who_has_port(LiveReplica& live, SteadyTime now) {
  if (live.row.port_holder == PortHolder::unsaid)
    return;
  live.look = std::max(live.look + 1, static_cast<std::uint64_t>(now.ns));
  live.look_asked = now;
  say_(LookAtReplica{name_, live.row.job, live.look});
}

void LiveEndpoint::ready(LiveReplica& live, SteadyTime now) {
  if (live.waking) {
    live.waking = false;
    const Duration took = now - live.asked_at;
    scaler.woke(took);
    wake_time.add(took);
    ++totals.wakes;
  }
  failures_ = 0;
  failure_.clear();
  ports_lost_ = 0;
  totals.recovered_from = row_.failed_job;
  live.healthy = live.was_healthy = live.started = true;
  live.failed_checks = live.timeouts = live.errors = 0;
  live.sick_since = {};
  live.said_sick = false;
  live.sick_why.clear();
  live.check_at = live.live_check_at = now + policy_of(live).probes.period;
  live.live_failed = 0;
  router.set_phase(live.row.job, Phase::ready, now);
}

std::shared_ptr<Upstream> LiveEndpoint::upstream(ReplicaKey key) {
  const auto found = replicas_.find(key);
  return found == replicas_.end() ? nullptr : found->second.upstream;
}

void LiveEndpoint::close() {
  for (auto& [key, live] : replicas_)
    if (live.upstream)
      live.upstream->close();
}

EndpointFigures LiveEndpoint::counts() const {
  EndpointFigures f = totals;
  f.serving = row_.serving;
  f.canary = row_.canary;
  for (const auto& [key, r] : router.replicas()) {
    const auto live = replicas_.find(key);
    if (live != replicas_.end() && sick(live->second)) {
      ++f.sick;
      if (r.phase == Phase::starting)
        continue;  // it is left out
    }
    if (r.phase == Phase::ready || r.phase == Phase::falling)
      ++f.ready;  // a replica that is falling asleep still holds its GPU
    if (r.phase == Phase::suspended)
      ++f.sleeping;
    if (r.phase == Phase::starting || r.phase == Phase::resuming)
      ++f.coming;
  }
  return f;
}

EndpointFigures LiveEndpoint::figures() const {
  EndpointFigures f = counts();
  f.daily_peaks.clear();
  f.notes = notes();
  f.name = name_;
  f.held = router.held();
  f.in_flight = router.in_flight();
  f.wanted = scaler.wanted();
  f.first_byte_p50_us = first_byte.quantile(0.5).ns / 1000;
  f.first_byte_p95_us = first_byte.quantile(0.95).ns / 1000;
  f.first_byte_p99_us = first_byte.quantile(0.99).ns / 1000;
  f.first_byte = answers;
  f.first_byte_native = native_answers;
  f.held_p99_us = held_time.quantile(0.99).ns / 1000;
  f.wake_us = wake_time.quantile(0.5).ns / 1000;
  if (watch_)
    for (const auto who : {ReleaseWatch::Who::old, ReleaseWatch::Who::canary}) {
      const RevisionSample& sample = watch_->total(who);
      f.revisions.push_back({.revision = who == ReleaseWatch::Who::old ? row_.serving : row_.canary,
                             .requests = sample.requests,
                             .errors = sample.errors,
                             .first_byte_p95_us = sample.latency.quantile(0.95).ns / 1000});
    }
  return f;
}

}  // namespace billow::gateway
