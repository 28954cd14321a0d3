#include "gateway/pure/router.h"

#include <algorithm>
#include <cmath>

namespace billow::gateway {
namespace {

constexpr double latency_weight = 0.2;   // of the newest answer
constexpr double latency_memory_s = 30;  // without requests, a slow replica is tried again
// A replica may have this much more to do than the mean, and one request more in any case.
constexpr double load_factor = 1.25;

// Whether a replica may get a request because of its sender, although others have less to do.
bool bearable_load(std::uint32_t load,
                   std::uint32_t least,
                   std::uint64_t sum,
                   std::size_t replicas) {
  const double limit = load_factor * static_cast<double>(sum + 1) / static_cast<double>(replicas);
  return load <= limit || load <= least + 1;
}

std::uint64_t rank_of(std::uint64_t sender, ReplicaKey key) {
  std::uint64_t hash = sender ^ (key * 0x9e3779b97f4a7c15u);
  for (int i = 0; i < 2; ++i) {
    hash ^= hash >> 33;
    hash *= 0xff51afd7ed558ccdu;
  }
  return hash ^ (hash >> 33);
}

}  // namespace

ReplicaKey Router::choose(ReplicaKey avoid, const Wish& wish, SteadyTime now) {
  if (wish.canary && avoid == 0) {
    if (const ReplicaKey to = pick_sticky(0, true, wish))
      return to;
    if (const ReplicaKey to = pick(0, true))
      return to;
  }
  if (const ReplicaKey to = pick_sticky(avoid, false, wish))
    return to;
  if (options_.balance == EndpointBalance::prefix && wish.prompt.bytes != 0)
    if (const ReplicaKey to = pick_by_prompt(avoid, wish.prompt, now))
      return to;
  if (options_.balance == EndpointBalance::least_latency)
    if (const ReplicaKey to = pick_fastest(avoid, now))
      return to;
  return pick(avoid, false);
}

// The latency that a request would meet grows with the requests that are there already. Replicas
// without a measurement count as the fastest one, so that they get one.
ReplicaKey Router::pick_fastest(ReplicaKey avoid, SteadyTime now) const {
  double sum = 0, least = 0;
  std::uint32_t known = 0;
  for (const auto& [key, r] : replicas_)
    if (r.phase == Phase::ready && r.current && r.latency_s > 0) {
      sum += r.latency_s;
      least = known == 0 ? r.latency_s : std::min(least, r.latency_s);
      ++known;
    }
  const double mean = known == 0 ? 1 : sum / known;
  const Replica* best = nullptr;
  double best_cost = 0;
  for (const auto& [key, r] : replicas_) {
    if (r.phase != Phase::ready || !r.current || key == avoid ||
        (options_.concurrency != 0 && r.in_flight >= options_.concurrency))
      continue;
    const double age_s = (now - r.latency_at).seconds();
    const double latency = r.latency_s <= 0
                               ? (known == 0 ? 1 : least)
                               : mean + (r.latency_s - mean) * std::exp(-age_s / latency_memory_s);
    const double cost = latency * (r.in_flight + 1);
    if (!best || cost < best_cost) {
      best = &r;
      best_cost = cost;
    }
  }
  return best ? best->key : 0;
}

void Router::took(ReplicaKey key, Duration latency, SteadyTime now) {
  const auto found = replicas_.find(key);
  if (found == replicas_.end())
    return;
  Replica& r = found->second;
  const double s = std::max(latency.seconds(), 1e-6);
  r.latency_s = r.latency_s <= 0 ? s : r.latency_s + (s - r.latency_s) * latency_weight;
  r.latency_at = now;
}

// All ready replicas take part, not only those that the load needs: the more caches, the more
// prefixes they hold.
ReplicaKey Router::pick_by_prompt(ReplicaKey avoid, const Prompt& prompt, SteadyTime now) const {
  std::vector<PromptWork::Candidate> free;
  for (const auto& [key, r] : replicas_)
    if (r.phase == Phase::ready && r.current && key != avoid &&
        (options_.concurrency == 0 || r.in_flight < options_.concurrency))
      free.push_back({key, r.in_flight});
  return prompts_.choose(prompt, free, now);
}

void Router::take(ReplicaKey to, RequestId request, const Wish& wish, SteadyTime now) {
  ++replicas_.at(to).in_flight;
  if (wish.prompt.bytes != 0)
    prompts_.given(request, wish.prompt, to, now);
}

// Each sender ranks the replicas in an order of its own (rendezvous hashing), so that a replica
// that comes or goes moves only the senders that it gets or had. Only the replicas that the load
// needs take part: the others can sleep. A replica that was named is kept, whatever the load needs.
ReplicaKey Router::pick_sticky(ReplicaKey avoid, bool canary, const Wish& wish) const {
  if (wish.replica == 0 && wish.sender == 0)
    return 0;
  std::vector<const Replica*> ready;
  std::uint64_t sum = 0;
  const Replica* least = nullptr;
  for (const auto& [key, r] : replicas_) {
    if (r.phase != Phase::ready || (canary ? !r.canary : !r.current) || key == avoid)
      continue;
    if (wish.replica == 0 && !canary && spread_ > 0 && ready.size() >= spread_)
      break;
    ready.push_back(&r);
    sum += r.in_flight;
    if (!least || r.in_flight < least->in_flight)
      least = &r;
  }
  const Replica* best = nullptr;
  std::uint64_t best_rank = 0;
  for (const Replica* r : ready) {
    if (options_.concurrency != 0 && r->in_flight >= options_.concurrency)
      continue;
    if (!bearable_load(r->in_flight, least->in_flight, sum, ready.size()))
      continue;
    if (wish.replica != 0) {
      if (r->key == wish.replica)
        return r->key;
      continue;
    }
    const std::uint64_t rank = rank_of(wish.sender, r->key);
    if (!best || rank > best_rank) {
      best = r;
      best_rank = rank;
    }
  }
  return best ? best->key : 0;
}

ReplicaKey Router::take_canary() {
  const ReplicaKey to = pick(0, true);
  if (to != 0)
    ++replicas_.at(to).in_flight;
  return to;
}

ReplicaKey Router::pick(ReplicaKey avoid, bool canary) const {
  const Replica* best = nullptr;
  std::uint32_t seen = 0;
  const bool packs = options_.balance == EndpointBalance::pack && !canary;
  const bool shares =
      options_.balance == EndpointBalance::automatic || options_.balance == EndpointBalance::prefix;
  const std::uint32_t spread = shares ? spread_ : 0;
  for (const auto& [key, r] : replicas_) {
    if (r.phase != Phase::ready || (canary ? !r.canary : !r.current))
      continue;
    // Beyond those that share the load, only if none of these is free.
    if (++seen > spread && spread > 0 && options_.concurrency != 0 && best && best->key != avoid)
      break;
    if (options_.concurrency != 0 && r.in_flight >= options_.concurrency)
      continue;
    if (!best) {
      best = &r;
      continue;
    }
    if ((key == avoid) != (best->key == avoid)) {
      if (best->key == avoid)
        best = &r;
      continue;
    }
    // Without a limit, packing would put everything on one replica, so the least busy is taken.
    const bool even = options_.concurrency == 0 || spread > 0 || canary || (!shares && !packs);
    if (even ? r.in_flight < best->in_flight : r.in_flight > best->in_flight)
      best = &r;
  }
  return best ? best->key : 0;
}

Router::Answer Router::arrive(
    RequestId request, SteadyTime now, SteadyTime deadline, ReplicaKey avoid, Wish wish) {
  const bool overtakes = !held_.empty() && held_.begin()->first < request;
  if (!overtakes)
    if (const ReplicaKey to = choose(avoid, wish, now)) {
      take(to, request, wish, now);
      return {Verdict::go, to};
    }
  // A request that was assigned before and failed is never refused: it already had its slot.
  if (held_.size() >= options_.queue_max && avoid == 0)
    return {Verdict::full, 0};
  held_.emplace(request, Held{now, deadline, avoid, std::move(wish)});
  return {Verdict::held, 0};
}

void Router::finished(ReplicaKey key, SteadyTime now, RequestId request) {
  if (request != 0)
    prompts_.ended(request, now);
  const auto found = replicas_.find(key);
  if (found == replicas_.end() || found->second.in_flight == 0)
    return;
  if (--found->second.in_flight == 0)
    found->second.idle_since = now;
}

void Router::predecessor_has(const std::map<ReplicaKey, std::uint32_t>& busy, SteadyTime now) {
  for (auto& [key, r] : replicas_) {
    const auto found = busy.find(key);
    const std::uint32_t has = found == busy.end() ? 0 : found->second;
    if (has == r.of_predecessor)
      continue;
    r.in_flight = r.in_flight - std::min(r.in_flight, r.of_predecessor) + has;
    r.of_predecessor = has;
    if (r.in_flight == 0)
      r.idle_since = now;
  }
}

std::vector<Router::Assigned> Router::dispatch(SteadyTime now) {
  std::vector<Assigned> out;
  while (!held_.empty()) {
    const auto first = held_.begin();
    const ReplicaKey to = choose(first->second.avoid, first->second.wish, now);
    if (!to)
      break;
    take(to, first->first, first->second.wish, now);
    out.push_back({first->first, to, now - first->second.since});
    held_.erase(first);
  }
  return out;
}

std::vector<RequestId> Router::expire(SteadyTime now) {
  std::vector<RequestId> out;
  for (auto at = held_.begin(); at != held_.end();) {
    if (at->second.deadline > now) {
      ++at;
      continue;
    }
    out.push_back(at->first);
    at = held_.erase(at);
  }
  return out;
}

Replica& Router::replica(ReplicaKey key, SteadyTime now) {
  const auto [at, fresh] = replicas_.try_emplace(key);
  if (fresh)
    at->second = {.key = key, .since = now, .idle_since = now};
  return at->second;
}

Replica* Router::find(ReplicaKey key) {
  const auto found = replicas_.find(key);
  return found == replicas_.end() ? nullptr : &found->second;
}

void Router::set_phase(ReplicaKey key, Phase phase, SteadyTime now) {
  Replica& r = replica(key, now);
  if (r.phase == phase)
    return;
  r.phase = phase;
  r.since = now;
  if (phase == Phase::ready)
    r.idle_since = now;
}

std::uint32_t Router::in_flight() const {
  std::uint32_t n = 0;
  for (const auto& [key, r] : replicas_)
    n += r.in_flight;
  return n;
}

Duration Router::oldest_wait(SteadyTime now) const {
  return held_.empty() ? Duration{} : now - held_.begin()->second.since;
}

int Router::retry_after_s(Duration service_time) const {
  std::uint64_t slots = 0;
  for (const auto& [key, r] : replicas_)
    if (r.phase == Phase::ready && r.current)
      slots += options_.concurrency == 0 ? 64 : options_.concurrency;
  const double wait = service_time.seconds() * static_cast<double>(held_.size()) /
                      static_cast<double>(std::max<std::uint64_t>(slots, 1));
  return std::clamp(static_cast<int>(wait) + 1, 1, 60);
}

bool may_retry(const Failure& f) {
  if (f.answer_began || !f.body_kept || f.tries >= limits::gateway_tries_max)
    return false;
  if (!f.sent_anything)
    return true;
  return f.lost <= 1 && (f.repeatable_method || f.has_idempotency_key);
}

}  // namespace billow::gateway
