#include "core/control/renting/lending.h"

#include <algorithm>

#include "core/control/decide/decider.h"
#include "core/control/decide/node_gone.h"

namespace billow::control {

namespace {

std::int64_t healthy_milli(const sched::NodeShape& node) {
  return 1000 * std::ranges::count_if(node.gpus, &sched::GpuShape::healthy);
}

}  // namespace

std::int64_t joined_milli(const State& state, const Machine& machine) {
  std::int64_t milli = 0;
  for (const NodeId id : nodes_of(state, machine))
    if (const sched::NodeShape* node = state.index.node(id))
      milli += healthy_milli(*node);
  return milli;
}

Lending::Lending(const State& state) : state_(state) {
  any_ = std::ranges::any_of(
      state.projects, [](const auto& entry) { return entry.second.quota.guaranteed_milli > 0; });
  if (!any_)
    return;
  // The scheduler counts them until they have gone.
  for (const auto& [id, node] : state.nodes)
    if (const sched::NodeShape* shape = state.index.node(id); shape && shape->leaves)
      leaving_milli_ += healthy_milli(*shape);
}

// A planner asks many times about one job.
const sched::JobRequest& Lending::request(const Job& job) const {
  if (request_.id != job.id)
    request_ = request_of(state_, job);
  return request_;
}

std::int64_t Lending::planned(const Job& job) const {
  const auto firm = firm_milli_.find(job.project);
  return firm == firm_milli_.end() ? 0 : firm->second;
}

bool Lending::lets(const Job& job, std::int64_t asked_milli, std::int64_t more_milli) const {
  return !any_ || sched::beside_guarantees(state_.index, request(job),
                                           {.asked_milli = asked_milli,
                                            .more_milli = more_milli - leaving_milli_,
                                            .firm_milli = planned(job)});
}

std::int64_t Lending::borrowed(const Job& job, std::int64_t asked_milli) const {
  if (!any_)
    return 0;
  return sched::borrowed_milli(state_.index, request(job),
                               {.asked_milli = asked_milli, .firm_milli = planned(job)});
}

void Lending::will_start(const Job& job, std::int64_t asked_milli) {
  if (any_ && !request(job).spot && request(job).yields == sched::Yields::never)
    firm_milli_[job.project] += asked_milli;
}

}  // namespace billow::control
