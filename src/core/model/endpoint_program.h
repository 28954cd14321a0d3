// Which settings of an endpoint belong to the program of a revision, and which ones `billow scale`
// changes: those need no new revision.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "core/model/endpoint.h"

namespace billow {

// Takes over the settings of the program: how it is started, asked and placed. A rollback restores
// them. Everything else belongs to the endpoint: who may call it, how many replicas it has, and
// what they may cost.
inline void take_program_settings(EndpointPolicy& policy, const EndpointPolicy& from) {
  policy.start_timeout = from.start_timeout;
  policy.health = from.health;
  policy.probes = from.probes;
  policy.protocol = from.protocol;
  policy.regions = from.regions;
  policy.spot = from.spot;
  policy.base_on_demand = std::min(from.base_on_demand, policy.max);
}

// What decides about the number of replicas, and how requests are divided among them.
// What is not said stays as it is. The members are those of EndpointPolicy and EndpointScaling.
struct ScaleChange {
  std::optional<std::uint32_t> min = {}, max = {}, concurrency = {}, queue_max = {};
  std::optional<Duration> idle = {}, keep_suspended = {}, wait_target = {};
  std::optional<EndpointBalance> balance = {};
  std::optional<std::vector<std::string>> min_at = {};
  std::optional<NanoUsd> spend_per_hour = {};
  std::optional<std::uint64_t> target_tokens = {};
  std::optional<EndpointQuery> query = {};
  std::optional<bool> predict = {};

  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("min", s.min);
    v("max", s.max);
    v("concurrency", s.concurrency);
    v("queue_max", s.queue_max);
    v("idle_ns", s.idle);
    v("keep_suspended_ns", s.keep_suspended);
    v("wait_target_ns", s.wait_target);
    v("balance", s.balance);
    v("min_at", s.min_at);
    v("spend_per_hour", s.spend_per_hour);
    v("target_tokens", s.target_tokens);
    v("query", s.query);
    v("predict", s.predict);
  }

  void apply(EndpointPolicy& policy) const {
    const auto set = [](const auto& from, auto& to) {
      if (from)
        to = *from;
    };
    set(min, policy.min);
    set(max, policy.max);
    set(concurrency, policy.concurrency);
    set(queue_max, policy.queue_max);
    set(idle, policy.idle);
    set(keep_suspended, policy.keep_suspended);
    set(wait_target, policy.wait_target);
    set(balance, policy.balance);
    set(min_at, policy.scaling.min_at);
    set(spend_per_hour, policy.scaling.spend_per_hour);
    set(target_tokens, policy.scaling.target_tokens);
    set(query, policy.scaling.query);
    set(predict, policy.scaling.predict);
  }
};

}  // namespace billow
