#include "gateway/endpoint.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/log.h"

namespace billow::gateway {
namespace {
constexpr Duration placeholder_life = seconds(10);
constexpr Duration move_patience = seconds(5);  // until an order nobody followed is given again
constexpr Duration call_back_patience =
    seconds(1);  // until one that was called back and still runs is taken for awake
constexpr Duration check_delay_max = seconds(1);
constexpr Duration crash_habit = seconds(10);
constexpr Duration look_patience =
    seconds(1);  // until a question about a port that nobody answered is asked again
constexpr std::uint32_t ports_lost_max =
    5;  // until replicas that find their port taken count as failed starts

ScalePolicy scale_policy(const EndpointPolicy& p) {
  return {.min = std::max(p.min, p.base_on_demand),
          .max = p.max,
          .concurrency = p.concurrency,
          .wait_target = p.wait_target,
          .idle = p.idle,
          .keep_suspended = p.keep_suspended,
          .base_on_demand = p.base_on_demand,
          .spot_burst = p.spot};
}
}  // namespace

void Histogram::add(Duration d) {
  const double us = std::max(static_cast<double>(d.ns) / 1000, 1.0);
  const auto at = static_cast<std::size_t>(std::log(us) / std::log(1.2));
  ++buckets_[std::min(at, buckets_.size() - 1)];
  ++count_;
  sum_s_ += d.seconds();
}

Duration Histogram::quantile(double q) const {
  if (count_ == 0)
    return {};
  const auto want = static_cast<std::uint64_t>(std::ceil(q * static_cast<double>(count_)));
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i)
    if ((seen += buckets_[i]) >= want)
      return nanoseconds(
          static_cast<std::int64_t>(std::pow(1.2, static_cast<double>(i) + 0.5) * 1000));
  return {};
}

bool LiveEndpoint::key_fits(std::string_view key) const {
  if (key.empty())
    return false;
  const std::string hash = sha256_hex(key);
  bool fits = false;
  for (const auto& one : row_.keys)
    fits = equal_constant_time(one, hash) || fits;
  return fits;
}

void LiveEndpoint::update(EndpointRow row, SteadyTime now) {
  const bool failed_anew = known_ && row.failed_job != 0 && row.failed_job != row_.failed_job;
  // A head that has just come back does not know where its nodes are before they dial in. A replica
  // does not move meanwhile.
  for (ReplicaRow& each : row.replicas)
    if (const auto before = replicas_.find(each.job);
        each.address.empty() && before != replicas_.end()) {
      each.address = before->second.row.address;
      each.port_holder = before->second.row.port_holder;
      each.port_look = before->second.row.port_look;
    }
  // Of a replica that came and went between two tables nothing is known; where there are other
  // gateways it may have been another's.
  const bool ours = row.elsewhere.empty() || replicas_.contains(row.failed_job);
  row_ = std::move(row);
  known_ = true;
  if (row_.rolling != rolled_) {
    rolled_ = row_.rolling;
    failed_before_ = row_.failed_job;
    rolling_failure_.clear();
    rolling_failed_job_ = 0;
  }
  if (failed_anew && ours)
    replica_failed(now);
  router.configure({.concurrency = row_.policy.concurrency, .queue_max = row_.policy.queue_max});
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

// One ended by its own doing. Had it been healthy, its successor starts at once and requests are
// held for it; only where that becomes a habit, or where it never was healthy, is there a pause, in
// which callers are told why.
void LiveEndpoint::replica_failed(SteadyTime now) {
  const auto found = replicas_.find(row_.failed_job);
  const bool known = found != replicas_.end();
  if (row_.failed_port_taken && ++ports_lost_ < ports_lost_max) {
    // No fault of its own, and its successor gets another port.
    log_warn("endpoint {}: {}; another port is tried", name_, row_.failed_reason);
    failed_before_ = row_.failed_job;
    return;
  }
  if (row_.rolling != 0 && known && found->second.row.revision == row_.rolling) {
    rolling_failed_job_ = row_.failed_job;
    rolling_failure_ =
        row_.failed_reason;  // which is judged, and tells nothing about the one that serves
    return;
  }
  const bool was_healthy = known && found->second.was_healthy;
  const bool habit = crashed_at_.ns != 0 && now - crashed_at_ < crash_habit;
  if (was_healthy)
    crashed_at_ = now;
  if (!was_healthy || habit)
    failed_start(row_.failed_reason, now);
}

void LiveEndpoint::take_row(const ReplicaRow& row, SteadyTime now) {
  auto found = replicas_.find(row.job);
  if (found == replicas_.end()) {
    // The oldest start asked for of this revision has become a job.
    const auto asked = std::find_if(asked_.begin(), asked_.end(),
                                    [&](const auto& a) { return a.second == row.revision; });
    SteadyTime since = now;
    if (asked != asked_.end()) {
      if (const Replica* placeholder = router.find(asked->first))
        since = placeholder->since;
      router.remove(asked->first);
      asked_.erase(asked);
    }
    found = replicas_.emplace(row.job, LiveReplica{}).first;
    found->second.first_seen = found->second.asked_at = since;
    Replica& r = router.replica(row.job, now);
    r.since = since;
  }
  LiveReplica& live = found->second;
  if (live.row.address != row.address || (!live.upstream && !row.address.empty())) {
    leave(live);
    live.healthy = false;
    if (!row.address.empty()) {
      auto made = Upstream::create(row.job, row.address);
      if (made)
        live.upstream = std::move(*made);
      else
        log_warn("endpoint {}: replica {}: {}", name_, row.job, made.error().message);
    }
  }
  const bool was_believed = believed(live);
  live.row = row;
  if (!believed(live))
    out_of_service(live, now);
  else if (!was_believed)
    live.check_at = now, live.check_delay = milliseconds(20);
  Replica& r = router.replica(row.job, now);
  r.current = row.revision == row_.serving;
  r.spot = row.spot;
  if (row.stopping || row.task_state == TaskState::stopping)
    return router.set_phase(row.job, Phase::leaving, now);
  switch (row.task_state) {
    case TaskState::suspended:
      live.fell = false;
      if (row.job_state == JobState::suspended) {
        // Asked to wake and waiting for its place, it is still on its way.
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
      // Called back before the order to sleep was followed: this may be from before that order, so
      // it is not believed yet.
      if (live.fell && now - live.asked_at < call_back_patience)
        return;
      if (!believed(live)) {
        // It woke, and somebody else may have its port: it begins anew, from its agent's word on.
        if (r.phase == Phase::resuming || r.phase == Phase::suspended)
          router.set_phase(row.job, Phase::starting, now);
      } else if (r.phase == Phase::resuming || (r.phase == Phase::suspended && live.healthy)) {
        ready(live, now);
      }
      return;
    case TaskState::unreachable:
      return;  // its node does not answer the head, which says nothing about it and us
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

void LiveEndpoint::out_of_service(LiveReplica& live, SteadyTime now) {
  live.healthy = false;
  const Replica* r = router.find(live.row.job);
  if (r && r->phase == Phase::ready)
    router.set_phase(live.row.job, Phase::starting, now);
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
  live.healthy = live.was_healthy = true;
  router.set_phase(live.row.job, Phase::ready, now);
}

std::vector<ReplicaKey> LiveEndpoint::due_checks(SteadyTime now) {
  std::vector<ReplicaKey> due;
  for (auto& [key, live] : replicas_) {
    if (live.healthy || live.checking || !live.upstream ||
        live.row.task_state != TaskState::running || live.row.stopping)
      continue;
    if (now < live.check_at || !believed(live))
      continue;
    live.checking = true;
    due.push_back(key);
  }
  return due;
}

void LiveEndpoint::checked(ReplicaKey key, bool healthy, SteadyTime now) {
  const auto found = replicas_.find(key);
  if (found == replicas_.end())
    return;
  LiveReplica& live = found->second;
  live.checking = false;
  // Whoever answered, it counts only while the port is known to be the replica's.
  if (!healthy || !believed(live)) {
    live.check_at = now + live.check_delay;
    live.check_delay = std::min(live.check_delay * 3 / 2, check_delay_max);
    return;
  }
  live.check_delay = milliseconds(20);
  // An answer from before it fell asleep: it is healthy, and gets nothing before it is awake again.
  if (live.row.task_state == TaskState::suspending || live.row.task_state == TaskState::suspended ||
      live.row.task_state == TaskState::resuming) {
    live.healthy = live.was_healthy = true;
    return;
  }
  const Replica* r = router.find(key);
  if (r && r->phase == Phase::starting) {
    const Duration took = now - live.first_seen;
    scaler.came_up(took);
    start_time.add(took);
    ++totals.cold_starts;
  }
  ready(live, now);
}

void LiveEndpoint::unreachable(ReplicaKey key, SteadyTime now) {
  const auto found = replicas_.find(key);
  if (found == replicas_.end())
    return;
  found->second.check_at = now;
  found->second.check_delay = milliseconds(20);
  out_of_service(found->second, now);
  ask_who_has_port(found->second, now);
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

// ---- deciding

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
    return row_.failed_reason.empty() ? "no revision of it has been healthy" : row_.failed_reason;
  if (!row_.held_back.empty()) {
    // Those that sleep or wait for money are no help. Once there is some, the table says so.
    const auto& all = router.replicas();
    if (std::none_of(all.begin(), all.end(), [](const auto& each) {
          return each.second.phase == Phase::ready || each.second.in_flight > 0;
        }))
      return row_.held_back;
  }
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

void LiveEndpoint::steer(SteadyTime now) {
  if (!known_)
    return;
  for (auto at = asked_.begin(); at != asked_.end();) {
    const Replica* r = router.find(at->first);
    if (r && now - r->since < placeholder_life) {
      ++at;
      continue;
    }
    router.remove(at->first);  // it was refused, or the head is away: asked again when still wanted
    at = asked_.erase(at);
  }
  // An order nobody followed: a sleep that could not be, a wake that was lost on the way.
  for (auto& [key, live] : replicas_) {
    const Replica* r = router.find(key);
    if (!r || live.row.stopping)
      continue;
    if (!believed(live) && live.row.port_holder == PortHolder::task &&
        now - live.look_asked > look_patience)
      ask_who_has_port(live, now);
    // It was called back in time, or the order to sleep was refused: it never slept.
    if (live.fell && r->phase == Phase::resuming && live.healthy &&
        live.row.task_state == TaskState::running && now - live.asked_at >= call_back_patience) {
      live.fell = live.waking = false;
      router.set_phase(key, Phase::ready, now);
    }
    if (now - r->since < move_patience)
      continue;
    if ((r->phase == Phase::leaving || r->phase == Phase::falling) && r->current && live.healthy &&
        live.row.task_state == TaskState::running && !live.told_to_stop)
      router.set_phase(key, Phase::ready, now);
    if (r->phase == Phase::resuming && live.row.job_state == JobState::suspended &&
        !live.row.resume_wanted)
      router.set_phase(key, Phase::suspended, now);
  }
  roll(now);
  retire(now);
  if (row_.serving == 0)
    return;
  ScaleCaps caps;
  if (!row_.held_back.empty())
    caps = {static_cast<std::uint32_t>(router.replicas().size()), row_.held_back};
  if (!row_.steered)
    caps = {0, "other regions serve it"};
  for (const ScaleAction& action : scaler.decide(router, caps, now)) {
    const auto found = replicas_.find(action.replica);
    switch (action.kind) {
      case ScaleAction::Kind::start:
        if (now >= start_again_at_)
          start(row_.serving, action.spot, now);
        break;
      case ScaleAction::Kind::resume:
        if (found == replicas_.end())
          break;
        // Its order to sleep is on its way, and this one follows on the same line.
        found->second.fell = found->second.row.task_state == TaskState::running;
        router.set_phase(action.replica, Phase::resuming, now);
        found->second.waking = true;
        move(action.replica, "resume", "a request waits for it", now);
        break;
      case ScaleAction::Kind::suspend: {
        if (found == replicas_.end())
          break;
        const bool can = found->second.row.unsuspendable.empty();
        const Replica* r = router.find(action.replica);
        // One that cannot sleep is worth more awake until the endpoint's idle time is over.
        if (!can && now - r->idle_since < row_.policy.idle)
          break;
        router.set_phase(action.replica, can ? Phase::falling : Phase::leaving, now);
        move(action.replica, can ? "suspend" : "stop", "idle", now);
        break;
      }
      case ScaleAction::Kind::stop:
        router.set_phase(action.replica, Phase::leaving, now);
        move(action.replica, "stop", "not needed any more", now);
        break;
    }
  }
}

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
    if (live.healthy)
      ++healthy;
    else if (now - live.first_seen > row_.policy.start_timeout)
      late = "it was not healthy in time", late_job = key;
  }
  for (const auto& [placeholder, revision] : asked_)
    if (revision == row_.rolling)
      ++have;
  std::string why = !rolling_failure_.empty() ? rolling_failure_ : late;
  std::uint64_t failed_job = !rolling_failure_.empty() ? rolling_failed_job_ : late_job;
  if (why.empty() && have == 0 && row_.elsewhere.empty() && row_.failed_job != failed_before_)
    why = row_.failed_reason, failed_job = row_.failed_job;  // it came and went between two tables
  if (!why.empty()) {
    judged_ = row_.rolling;
    judged_at_ = now;
    say_(RevisionJudged{name_, row_.rolling, false, why, JobId(failed_job)});
    return;
  }
  const std::uint32_t want =
      std::clamp(std::max(awake, row_.policy.min), 1u, std::max(row_.policy.max, 1u));
  for (; have < want; ++have)
    if (!start(row_.rolling, row_.policy.spot && have >= row_.policy.base_on_demand, now))
      break;
  if (healthy < want)
    return;
  judged_ = row_.rolling;
  judged_at_ = now;
  say_(RevisionJudged{name_, row_.rolling, true, ""});
}

void LiveEndpoint::retire(SteadyTime now) {
  for (auto& [key, live] : replicas_) {
    if (live.row.revision == row_.serving || live.row.revision == row_.rolling)
      continue;
    router.set_phase(key, Phase::leaving, now);
    const Replica* r = router.find(key);
    if (live.row.stopping || !Router::releasable(*r))
      continue;
    if (live.told_to_stop && now - live.asked_at < move_patience)
      continue;
    live.told_to_stop = true;
    move(key, "stop", "another revision serves", now);
  }
}

bool LiveEndpoint::awake(ReplicaKey but) const {
  const auto& all = router.replicas();
  return std::any_of(all.begin(), all.end(), [&](const auto& each) {
    return each.second.phase == Phase::ready && each.second.current && each.first != but;
  });
}

bool LiveEndpoint::waits_for_room() const {
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
  move(idle, "suspend", "others wait for its place", now);
  return true;
}

EndpointFigures LiveEndpoint::counts() const {
  EndpointFigures f = totals;
  for (const auto& [key, r] : router.replicas()) {
    if (r.phase == Phase::ready || r.phase == Phase::falling)
      ++f.ready;  // who is on its way to sleep holds its GPU yet
    if (r.phase == Phase::suspended)
      ++f.sleeping;
    if (r.phase == Phase::starting || r.phase == Phase::resuming)
      ++f.coming;
  }
  return f;
}

EndpointFigures LiveEndpoint::figures() const {
  EndpointFigures f = counts();
  f.name = name_;
  f.held = router.held();
  f.in_flight = router.in_flight();
  f.wanted = scaler.wanted();
  f.first_byte_p50_us = first_byte.quantile(0.5).ns / 1000;
  f.first_byte_p99_us = first_byte.quantile(0.99).ns / 1000;
  f.held_p99_us = held_time.quantile(0.99).ns / 1000;
  f.wake_us = wake_time.quantile(0.5).ns / 1000;
  return f;
}

}  // namespace billow::gateway
