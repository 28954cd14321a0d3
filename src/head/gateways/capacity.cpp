// What the head reports to gateways about capacity and money: whether a new revision has room
// beside the old one, and how many replicas the endpoint's limit of spending pays for.
#include <fmt/format.h>

#include <algorithm>

#include "base/limits.h"
#include "core/control/decide/decider.h"
#include "core/control/money.h"
#include "core/control/renting/quote.h"
#include "head/gateways/link.h"
#include "view/waiting.h"

namespace billow::head {
namespace {

constexpr Duration room_patience = seconds(2);  // machines and the scheduler get this time first
constexpr std::size_t looks_max = 4;            // at once: each plans on a copy of the queue

bool of_revision(const Job& replica, std::uint32_t revision) {
  return replica.spec->labels.at(label_revision) == std::to_string(revision);
}

// What a replica costs; nothing: none has a place yet. The dearest counts.
std::optional<Rate> replica_rate(const control::State& state, const std::set<JobId>& replicas) {
  std::optional<Rate> most;
  for (const JobId id : replicas)
    for (const TaskId task : state.jobs.at(id).tasks)
      if (const Rate rate = control::rate_of({state.tasks.at(task)}); !most || *most < rate)
        most = rate;
  return most;
}

}  // namespace

void Gateways::look_for_room() {
  const control::State& state = options_.engine().state();
  const WallTime now = system_clock().wall();
  std::erase_if(no_room_, [&](const auto& each) {
    const auto found = state.endpoints.find(each.first);
    return found == state.endpoints.end() || found->second.rolling != each.second.first;
  });
  std::size_t looks = 0;
  for (const auto& [name, replicas] : state.replicas) {
    const auto found = state.endpoints.find(name);
    if (found == state.endpoints.end() || no_room_.contains(name))
      continue;
    const Endpoint& e = found->second;
    const Revision* next = e.revision(e.rolling);
    if (!next || e.serving == 0 || next->release.any() ||
        next->policy.rollout.strategy != RolloutStrategy::automatic)
      continue;
    JobId waits;
    std::vector<JobId> old;
    for (const JobId id : replicas) {
      const Job& job = state.jobs.at(id);
      if (of_revision(job, e.serving))
        old.push_back(id);
      else if (of_revision(job, e.rolling) && job.state == JobState::queued && job.reason.empty() &&
               now - job.submitted_at >= room_patience)
        waits = id;
    }
    // Where a pool can bring a machine for it, it waits for that one.
    if (!waits || old.empty() || control::some_pool_could_run(state, state.jobs.at(waits)))
      continue;
    if (++looks > looks_max)
      return;
    if (control::starts_in_place_of(state, waits, old, now))
      no_room_[name] = {e.rolling, view::waiting_reason(state, state.jobs.at(waits), now)};
  }
}

void Gateways::add_limits(gateway::EndpointRow& row, const Endpoint& endpoint) const {
  const std::uint32_t next = endpoint.rolling != 0 ? endpoint.rolling : endpoint.canary;
  if (const Revision* revision = endpoint.revision(next); revision && endpoint.serving != 0)
    row.rolling_policy = revision->policy;
  if (const auto found = no_room_.find(endpoint.name);
      found != no_room_.end() && found->second.first == endpoint.rolling)
    row.no_room = found->second.second.empty() ? "no capacity is free" : found->second.second;

  const NanoUsd limit = row.policy.scaling.spend_per_hour;
  if (limit.value == 0)
    return;
  // Each region gets an equal part.
  const auto gateways = std::max<std::int64_t>(
      1, std::ranges::count_if(links_, [&](const auto& l) { return steers(*l, endpoint); }));
  const auto& all = options_.engine().state().replicas;
  const auto replicas = all.find(endpoint.name);
  const auto rate = replicas == all.end()
                        ? std::nullopt
                        : replica_rate(options_.engine().state(), replicas->second);
  if (!rate) {
    row.awake_max = 1;
    row.awake_max_why = fmt::format(
        "--max-spend {}/h: at most one replica until its price is known", format_usd(limit));
    return;
  }
  if (rate->nano_usd_per_s == 0)
    return;
  // Rates are rounded to a nano-dollar per second: that must not cost a replica.
  const std::int64_t part = limit.value / gateways, each = rate->nano_usd_per_s * 3600;
  const std::int64_t replicas_paid = (part + 1800 * (part / each + 1)) / each;
  row.awake_max = static_cast<std::uint32_t>(
      std::min<std::int64_t>(replicas_paid, limits::endpoint_replicas_max));
  row.awake_max_why =
      row.awake_max == 0
          ? fmt::format("--max-spend {}/h does not pay for a replica{}, which costs {}",
                        format_usd(limit), gateways > 1 ? " in each region" : "",
                        format_rate_per_hour(*rate))
          : fmt::format("--max-spend {}/h pays for {} replica{} at {} each{}; more are wanted",
                        format_usd(limit), row.awake_max, row.awake_max == 1 ? "" : "s",
                        format_rate_per_hour(*rate), gateways > 1 ? " in each region" : "");
}

}  // namespace billow::head
