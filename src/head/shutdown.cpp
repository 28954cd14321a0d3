// How a head stops: it stops the jobs if it was told to, and lets the agents go. It does not end
// machines of pools; the next head takes them back.
#include <algorithm>

#include "base/limits.h"
#include "base/log.h"
#include "head/head.h"
#include "view/endpoint_document.h"

namespace billow::head {

// The local agent ends with the head; supervisors and jobs do not, unless jobs are to be stopped.
// Gateways stay with the replicas that go on, and serve them until the next head comes.
void Head::shutdown(bool stop_jobs) {
  if (stopping_)
    return;
  stopping_ = true;
  stop_jobs_ = ending_jobs_ = stop_jobs;
  const auto running = state().count.find(JobState::running);
  const bool go_on = !stop_jobs && running != state().count.end() && running->second > 0;
  log_info("shutting down{}", stop_jobs ? "; all jobs are being stopped"
                              : go_on   ? "; running jobs continue"
                                        : "");
  const bool serving = !stop_jobs && view::endpoints_running(state()) > 0;
  if (!serving)
    gateways_->leave();  // first, or they would ask for new replicas in place of those that end
  every(milliseconds(20), [this, serving] {
    if (ending_jobs_ && stop_some_jobs())
      return;
    if (!left_ && jobs_have_ended() && !agent_on_its_way() && (serving || !gateway_on_its_way()))
      leave();
  });
}

// Stops a few of the jobs that have not been stopped yet. False: none is left.
bool Head::stop_some_jobs() {
  const auto next = [this] {
    return state().jobs.upper_bound(stopped_to_);
  };
  std::size_t stopped = 0;
  for (auto at = next(); at != state().jobs.end() && stopped < limits::jobs_stopped_per_turn;
       at = next()) {
    StopJob command{.job = at->first,
                    .reason = "the head was asked to stop all jobs",
                    .force = false,
                    .elements_max = limits::jobs_stopped_per_turn};
    // Waiting elements of an array end together, which plans once and not for each of them.
    const bool together = at->second.array && at->second.state != JobState::running;
    const std::size_t before = state().jobs.size();
    if (together)
      command.job = at->second.array;
    else
      stopped_to_ = at->first;
    const JobId looked_at = at->first;
    engine_->execute(command, {"head", ""}, {});
    stopped += together ? limits::jobs_stopped_per_turn : 1;
    if (together && state().jobs.size() == before)
      stopped_to_ = looked_at;
  }
  return stopped > 0;
}

// Waits for at most a minute, and not for jobs on nodes that do not answer: only they could say
// that a job has ended.
bool Head::jobs_have_ended() {
  constexpr int looks_max = 60 * 50;
  const auto is_out_of_reach = [this](const auto& entry) {
    return std::ranges::any_of(entry.second.tasks, [this](TaskId id) {
      const Task* const task = state().find_task(id);
      const auto node = task ? state().nodes.find(task->node) : state().nodes.end();
      return node != state().nodes.end() && !node->second.reachable;
    });
  };
  if (ending_jobs_ && !std::ranges::all_of(state().jobs, is_out_of_reach) &&
      ++ending_looks_ < looks_max)
    return false;
  if (ending_jobs_ && !state().jobs.empty())
    log_warn("{} jobs have not ended and keep running", state().jobs.size());
  ending_jobs_ = false;
  return true;
}

// An agent that was just started and has not connected yet could not be told to leave, and would
// wait for this head without end.
bool Head::agent_on_its_way() const {
  if (!local_ || !local_->agent_just_started())
    return false;
  return std::none_of(state().nodes.begin(), state().nodes.end(), [this](const auto& node) {
    return agents_->connected(node.first) && agents_->is_own(node.first);
  });
}

bool Head::gateway_on_its_way() const {
  return local_ && local_->gateway_just_started() && !gateways_->connected(local_->region());
}

void Head::leave() {
  left_ = true;
  // Agents elsewhere wait for the next head. They leave with the jobs, unless a standby takes over.
  for (const auto& [id, node] : state().nodes)
    if (agents_->is_own(id) || (stop_jobs_ && !store_->shared()))
      agents_->send(id, wire::agent_v1::Leave{}, {});
  timers_.push_back(loop_.after(milliseconds(30), [this] {
    (void)journal().flush(seconds(2));
    loop_.stop();
  }));
}

}  // namespace billow::head
