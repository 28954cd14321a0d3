#include "gateway/pure/autoscaler.h"

#include <algorithm>
#include <cmath>

namespace billow::gateway {
namespace {
constexpr Duration panic_hold = seconds(6);
constexpr Duration rest_min = milliseconds(500);  // no replica sleeps sooner after a request
// For an endpoint without much history. Chosen on the conversation trace from a single cold replica
// (see docs/endpoints.md).
constexpr double stream_min = 3;  // arrivals, decaying: fewer are single calls
constexpr double growth_max = 8, growth_per_lead = 2;
constexpr double service_guess_s = 5;  // of a request, until this many have ended
constexpr std::uint64_t service_known = 20;
constexpr Duration forgotten = minutes(10);  // after such a silence the history is discarded
}  // namespace

void Mean::add(double value) {
  ++count_;
  const double w = std::max(weight_, 1.0 / static_cast<double>(count_));
  mean_ += (value - mean_) * w;
}

void Rate::add(SteadyTime now) {
  if (!any_) {
    any_ = true;
    first_ = now;
  } else {
    weight_ *= std::exp(-(now - at_).seconds() / constant_s_);
  }
  weight_ += 1;
  at_ = now;
}

double Rate::weight(SteadyTime now) const {
  return any_ ? weight_ * std::exp(-(now - at_).seconds() / constant_s_) : 0;
}

double Rate::per_second(SteadyTime now) const {
  if (!any_)
    return 0;
  const double faded = weight(now);
  // A window that has only begun to fill is shorter than its constant; within the first seconds
  // nothing is known.
  const double seen_s = std::max((now - first_).seconds(), 1.0);
  return faded / (constant_s_ * (1 - std::exp(-seen_s / constant_s_)));
}

void Autoscaler::served(Duration service_time, SteadyTime now) {
  service_.add(service_time);
  short_done_.add(now);
}

void Autoscaler::arrived(SteadyTime now) {
  if (last_arrival_.ns == 0 || now - last_arrival_ > forgotten)
    first_arrival_ = now;
  last_arrival_ = now;
  short_rate_.add(now);
  long_rate_.add(now);
}

std::uint32_t Autoscaler::replicas_for(double load) const {
  if (load <= 0)
    return 0;
  // Without a concurrency limit a replica is assumed to serve 64 requests.
  double each = policy_.concurrency == 0 ? 64 : policy_.concurrency;
  if (policy_.target_tokens > 0 && tokens_.value() > 0)
    each = std::clamp(static_cast<double>(policy_.target_tokens) / tokens_.value(), 1.0, each);
  return static_cast<std::uint32_t>(std::ceil(load / each - 1e-9));
}

// The load (concurrent requests) after `horizon`: present requests finish, new ones arrive.
double Autoscaler::load_ahead(const Router& router, Duration horizon, SteadyTime now) const {
  const double here =
      static_cast<double>(router.in_flight()) + static_cast<double>(router.held()) + router.lent();
  const double service_s = std::max(service_.seconds(), 1e-3);
  const double faded = std::exp(-horizon.seconds() / service_s);
  const double rate = std::max(short_rate_.per_second(now), long_rate_.per_second(now));
  const double settled = here * faded + rate * service_s * (1 - faded);
  if (router.held() == 0)
    return settled;
  // Requests wait, so every slot is taken, and arrivals beyond departures pile up until help comes.
  // A few simultaneous requests are not a rate yet, so their number is reduced by its standard
  // deviation.
  const double certain =
      rate * std::max(0.0, 1 - 1 / std::sqrt(std::max(short_rate_.weight(now), 1.0)));
  return std::max(settled,
                  here + std::max(0.0, certain - short_done_.per_second(now)) * horizon.seconds());
}

// No requests are expected beyond the endpoint's idle time, which its owner chose. A rate that only
// decays would keep the last replica awake, and start others, for minutes more.
bool Autoscaler::silent(const Router& router, SteadyTime now) const {
  return router.in_flight() == 0 && router.held() == 0 && router.lent() == 0 &&
         now - last_arrival_ >= policy_.idle;
}

// The load when a replica started now would be ready. An endpoint observed for a shorter time than
// a start takes may grow by a multiple: the shorter the observation, the larger. A replica that
// turns out to be unnecessary sleeps and has cost one start.
double Autoscaler::may_become(const Router& router, SteadyTime now) const {
  if (long_rate_.weight(now) < stream_min)
    return 0;
  const double seen_s = std::max((now - first_arrival_).seconds(), 1.0);
  const double growth = std::min(growth_max, 1 + growth_per_lead * start_lead().seconds() / seen_s);
  const double service_s = service_.count() < service_known
                               ? std::max(service_.seconds(), service_guess_s)
                               : service_.seconds();
  return growth * std::max<double>(router.in_flight(), std::max(short_rate_.per_second(now),
                                                                long_rate_.per_second(now)) *
                                                           service_s);
}

std::uint32_t Autoscaler::awake_needed(const Router& router, bool sleepers, SteadyTime now) const {
  const double serving = router.in_flight() + router.lent();
  const double held = static_cast<double>(router.held());
  const Duration lead = sleepers ? resume_lead() : start_lead();
  double load = serving;
  if (held > 0) {
    // Slots that become free before a replica called now would be ready, or before the oldest
    // request has waited its target, whichever is later.
    const double spare_s =
        std::max(0.0, (policy_.wait_target - router.oldest_wait(now) - lead).seconds());
    const double freed = serving / std::max(service_.seconds(), 1e-3) * spare_s;
    load += std::max(0.0, held - freed);
  }
  std::uint32_t need = replicas_for(load);
  if (held > 0 && need == 0)
    need = 1;
  // If a replica takes longer to come than a request may wait, capacity must be ready before the
  // load arrives.
  if (lead > policy_.wait_target && !silent(router, now)) {
    const double ahead = load_ahead(router, lead, now);
    if (ahead > 0.5)
      need = std::max(need, replicas_for(ahead + std::sqrt(ahead)));
  }
  return need;
}

void Autoscaler::put_to_sleep(const Router& router,
                              std::uint32_t keep,
                              SteadyTime now,
                              std::vector<ScaleAction>& actions) const {
  const bool suspends = policy_.keep_suspended.ns > 0;
  std::uint32_t awake = 0;
  std::vector<const Replica*> idle;
  for (const auto& [key, r] : router.replicas()) {
    if (!r.current || r.stuck)
      continue;
    // A starting replica is not ready yet: no other goes to sleep in its favour.
    if (r.phase == Phase::ready || r.phase == Phase::resuming)
      ++awake;
    if (r.phase == Phase::ready && Router::releasable(r))
      idle.push_back(&r);
  }
  // Spot replicas first (they serve bursts), then the longest idle.
  std::sort(idle.begin(), idle.end(), [](const Replica* a, const Replica* b) {
    if (a->spot != b->spot)
      return a->spot;
    return a->idle_since < b->idle_since;
  });
  const Duration rest = std::max(rest_min, suspends ? resume_lead() * 2 : start_lead());
  for (const Replica* r : idle) {
    if (awake <= keep)
      break;
    const Duration patience = awake == 1 ? policy_.idle : std::min(policy_.idle, rest);
    if (now - std::max(r->idle_since, r->since) < patience)
      continue;
    actions.push_back({suspends ? ScaleAction::Kind::suspend : ScaleAction::Kind::stop, r->key});
    --awake;
  }
}

std::vector<ScaleAction> Autoscaler::decide(const Router& router,
                                            const ScaleCaps& caps,
                                            SteadyTime now) {
  std::vector<ScaleAction> actions;
  std::uint32_t awake = 0, starting = 0, on_demand = 0, all = 0;
  std::vector<const Replica*> sleepers;
  for (const auto& [key, r] : router.replicas()) {
    if (!r.current || r.stuck || r.phase == Phase::leaving)
      continue;
    ++all;
    if (!r.spot)
      ++on_demand;
    if (r.phase == Phase::ready || r.phase == Phase::resuming)
      ++awake;
    if (r.phase == Phase::starting)
      ++starting;
    if (r.phase == Phase::suspended || r.phase == Phase::falling)
      sleepers.push_back(&r);
  }
  if (router.held() > 0 && router.oldest_wait(now) > policy_.wait_target)
    panic_until_ = now + panic_hold;

  const std::uint32_t max = std::min(policy_.max, caps.replicas_max);
  const std::uint32_t need = std::max(
      {awake_needed(router, !sleepers.empty(), now), policy_.min, std::min(caps.awake_min, max)});
  wanted_ = std::min({need, max, caps.awake_max});
  limited_ = std::min(need, max) > caps.awake_max;

  // 1. Awake. The replica that fell asleep last is woken first: its memory is most likely still
  // warm. One that is still falling asleep is called back if no other can come: a request for it
  // must not cause a cold start.
  std::sort(sleepers.begin(), sleepers.end(), [](const Replica* a, const Replica* b) {
    if (a->phase != b->phase)
      return a->phase == Phase::suspended;
    return a->since > b->since;
  });
  std::size_t next = 0;
  for (; awake < wanted_ && next < sleepers.size(); ++next, ++awake)
    actions.push_back({ScaleAction::Kind::resume, sleepers[next]->key});
  const auto start = [&] {
    const bool spot = policy_.spot_burst && on_demand >= policy_.base_on_demand;
    actions.push_back({ScaleAction::Kind::start, 0, spot});
    if (!spot)
      ++on_demand;
    ++all;
  };
  // A starting replica counts as capacity from a start, not as one that a sleeper would bring
  // sooner.
  for (awake += starting; awake < wanted_ && all < max; ++awake)
    start();

  // 2. Existing: enough for the load that may come during a cold start. Replicas sleep as soon as
  // they are not needed.
  const double ahead = load_ahead(router, start_lead(), now);
  if (policy_.keep_suspended.ns > 0 && ahead > 0.5 && !silent(router, now)) {
    const std::uint32_t pool =
        std::min(max, replicas_for(std::max(ahead + std::sqrt(ahead), may_become(router, now))));
    for (; all < pool && awake < caps.awake_max; ++awake)
      start();
  }

  if (!actions.empty() || panicking(now))
    return actions;
  put_to_sleep(router, std::min(need, caps.awake_max), now, actions);
  // 3. Sleeping replicas that were not needed for their keep time.
  for (const Replica* r : sleepers)
    if (r->phase == Phase::suspended && now - r->since >= policy_.keep_suspended)
      actions.push_back({ScaleAction::Kind::stop, r->key});
  return actions;
}

}  // namespace billow::gateway
