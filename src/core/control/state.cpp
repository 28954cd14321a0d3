// Look-ups in the state, and how the scheduler sees its jobs and nodes.
#include "core/control/state.h"

#include "base/check.h"
#include "base/limits.h"
#include "core/control/decide/decider.h"
#include "core/sched/key.h"
#include "core/sched/mig.h"

namespace billow::control {

const Job* State::find_job(JobId id) const {
  const auto found = jobs.find(id);
  return found == jobs.end() ? nullptr : &found->second;
}
const Task* State::find_task(TaskId id) const {
  const auto found = tasks.find(id);
  return found == tasks.end() ? nullptr : &found->second;
}
const User* State::user_by_name(std::string_view name) const {
  for (const auto& [id, user] : users)
    if (user.name == name && user.state != UserState::removed)
      return &user;
  return nullptr;
}
const Project* State::project_by_name(std::string_view name) const {
  for (const auto& [id, project] : projects)
    if (project.name == name)
      return &project;
  return nullptr;
}
const Node* State::node_by_name(std::string_view name) const {
  for (const auto& [id, node] : nodes)
    if (node.offer.name == name)
      return &node;
  return nullptr;
}
const Environment& State::environment(const std::string& digest) const {
  static const Environment none;
  const auto found = environments.find(digest);
  return found == environments.end() || !found->second.env ? none : *found->second.env;
}

sched::Constraints constraints_of(const PlaceWish& wish) {
  sched::Constraints c;
  c.regions = wish.regions;
  c.zones = wish.zones;
  c.pools = wish.pools;
  c.fabrics = wish.fabrics;
  c.placement_group = wish.placement_group;
  c.close = wish.close;
  c.close_required = wish.close_required;
  c.nvlink_required = wish.nvlink_required;
  c.spread = wish.spread;
  return c;
}

sched::ProjectSettings settings_of(const Project& project) {
  const Quota& q = project.quota;
  sched::ProjectSettings s;
  s.id = project.id;
  s.name = project.name;
  s.weight = project.weight;
  s.guaranteed_milli = q.guaranteed_milli;
  s.limit_milli = q.limit_milli;
  s.user_limit_milli = q.user_limit_milli;
  s.user_running_max = q.user_running_max;
  s.may_borrow = q.may_borrow;
  s.policy = q.policy;
  s.regions = q.regions;
  s.pools = q.pools;
  return s;
}

sched::Sleeper sleeper_of(const State& state, const Job& job) {
  const Task& task = state.tasks.at(job.tasks.front());
  sched::Sleeper sleeper{.job = job.id, .node = task.node, .gpus = {}};
  for (const GpuGrant& g : task.gpus)
    sleeper.gpus.push_back(g.gpu);
  return sleeper;
}

const Reservation* reservation_of(const State& state, const Job& job) {
  const auto found = state.reservations.find(job.spec->reservation);
  return job.left_reservation || found == state.reservations.end() ? nullptr : &found->second;
}

sched::Reservation reserved_of(const Reservation& reservation) {
  sched::Reservation r{.id = reservation.id,
                       .project = reservation.project,
                       .from = reservation.from,
                       .until = reservation.until,
                       .placements = {}};
  for (const ReservedPlace& p : reservation.places) {
    sched::Placement placement{
        .node = p.node, .gpus = {}, .cpu_milli = p.cpu_milli, .mem_mib = p.mem_mib};
    for (const GpuGrant& g : p.gpus)
      placement.gpus.push_back({g.gpu, g.share, g.mig_start});
    r.placements.push_back(std::move(placement));
  }
  return r;
}

constexpr Duration move_after_min = minutes(10);  // a job is not moved more often than this

sched::JobRequest request_of(const State& state, const Job& job) {
  const JobSpec& spec = *job.spec;
  sched::JobRequest request;
  request.id = job.id;
  request.project = job.project;
  request.user = job.user;
  request.priority = spec.priority;
  request.submitted = job.submitted_at;
  request.order = job.id.value;
  request.resources = spec.resources;
  if (request.resources.cpu_milli == 0 && !request.resources.takes_node())
    request.resources.cpu_milli = limits::task_cpu_milli_assumed;
  request.tasks = static_cast<std::int32_t>(spec.nodes);
  for (const RoleSpec& role : spec.roles) {
    sched::RolePart part{role.name, role.resources, static_cast<std::int32_t>(role.count)};
    if (part.resources.cpu_milli == 0)
      part.resources.cpu_milli = limits::task_cpu_milli_assumed;
    request.parts.push_back(std::move(part));
  }
  request.constraints = constraints_of(spec.place);
  request.constraints.labels = spec.node_labels;
  // Elements of an array with spread placement are kept apart.
  if (job.array && spec.place.spread == Spread::spread)
    request.constraints.spread_key = job.array.value;
  // Replicas of an endpoint too: losing one node must not take them all.
  if (const auto of = spec.labels.find(label_endpoint); of != spec.labels.end()) {
    request.constraints.spread = Spread::spread;
    // Distinct from the keys of arrays.
    request.constraints.spread_key = sched::hash_text(of->second) | (std::uint64_t{1} << 63);
  }
  request.time_limit = spec.time_limit;
  request.expected = job.expected.likely;
  request.expected_max = job.expected.at_most;
  request.spot = spec.spot;
  if (job.spec->spot) {
    request.yields =
        could_be_suspended(*job.spec) ? sched::Yields::by_suspend : sched::Yields::by_requeue;
  }
  // A suspended image stays on its node, but every node can read a checkpoint. So a job with
  // checkpoints can be moved if it is preemptible anyway or tolerates an interruption, and if it
  // has run long enough to have a checkpoint and not to be moved all the time.
  if (spec.checkpoint_every.ns > 0 && spec.nodes == 1 &&
      (spec.spot || spec.suspendable == Suspendable::yes))
    request.moves_after = std::max(move_after_min, spec.checkpoint_every * 2);
  if (job.state == JobState::suspended) {
    const Task& task = state.tasks.at(job.tasks.front());
    request.constraints.only_nodes = {task.node};
    for (const GpuGrant& grant : task.gpus)
      request.constraints.only_gpus.push_back(grant.gpu);
    request.resources.mem_mib = 0;  // it holds these already
    request.resources.disk_mib = 0;
  }
  request.moves =
      job.stopping == StopCause::moved || (job.gives_way_to && job.state != JobState::running);
  request.array = job.array;
  request.array_running_max = job.array ? static_cast<std::int32_t>(spec.array->running_max) : 0;
  request.elastic = spec.elastic || !spec.roles.empty();
  // Even one that has ended: the job does not become another kind.
  if (!job.left_reservation)
    request.reservation = spec.reservation;
  // of job by itself
  return request;
}

TaskState state_by_orders(const Job& job, const Task& task) {
  if (job.stopping != StopCause::none || task.restarting)
    return TaskState::stopping;
  switch (job.suspension.phase) {
    case SuspendPhase::none:
      return task.started_at ? TaskState::running : TaskState::starting;
    case SuspendPhase::suspending:
      return TaskState::suspending;
    case SuspendPhase::suspended:
      return TaskState::suspended;
    case SuspendPhase::resuming:
      return TaskState::resuming;
  }
  return TaskState::running;
}

std::string pool_name(const State& state, const Node& node) {
  if (const auto pool = state.pools.find(node.pool); pool != state.pools.end())
    return pool->second.name;
  const auto label = node.offer.labels.find("pool");
  return label == node.offer.labels.end() ? std::string() : label->second;
}

sched::Place place_of(const sched::LabelMap& labels) {
  const auto label = [&](const char* name) {
    const auto found = labels.find(name);
    return found == labels.end() ? std::string() : found->second;
  };
  return {.region = label("region"),
          .zone = label("zone"),
          .rack = label("rack"),
          .switch_name = label("switch"),
          .placement_group = label("placement-group"),
          .fabric = label("fabric")};
}

sched::NodeShape shape_of(const State& state, const Node& node) {
  sched::NodeShape shape;
  shape.id = node.id;
  shape.name = node.offer.name;
  for (const NodeGpu& gpu : node.offer.gpus) {
    sched::MigOffer mig = sched::parse_mig_offer(gpu.mig);
    shape.gpus.push_back({.type = gpu.type,
                          .memory_mib = gpu.mem_mib,
                          .nvlink_domain = gpu.nvlink_domain,
                          .healthy = node.gpu_trouble(gpu).empty(),
                          .mig_enabled = !gpu.mig.empty(),
                          .mig_any = mig.any,
                          .mig_places = std::move(mig.places)});
  }
  shape.cpu_milli = node.offer.cpu_milli;
  shape.mem_mib = node.offer.mem_mib;
  shape.disk_mib = node.offer.disk_mib;
  if (const auto on = state.tasks_on.find(node.id); on != state.tasks_on.end()) {
    std::int64_t disk_in_use_mib = 0;
    for (TaskId id : on->second) {
      const Task& task = state.tasks.at(id);
      if (task.holds_gpus()) {
        disk_in_use_mib += task.disk_mib;
        continue;
      }
      shape.mem_mib -= state.jobs.at(task.job).spec->resources.mem_mib;
      shape.disk_mib -= task.disk_mib;
    }
    shape.mem_mib = std::max<std::int64_t>(shape.mem_mib, 0);
    // An agent that started beside running tasks found less free than they were promised.
    shape.disk_mib = std::max(shape.disk_mib, disk_in_use_mib);
  }
  shape.labels = node.offer.labels;
  shape.place = place_of(shape.labels);
  shape.pool = pool_name(state, node);
  if (!node.reachable)
    shape.use = sched::NodeUse::unreachable;
  else if (!node.drained.empty())
    shape.use = sched::NodeUse::draining;
  const Machine* machine = node.drained.empty() ? nullptr : machine_of(state, node.offer.name);
  const bool released =
      machine && machine->pool == node.pool && machine->state == MachineState::releasing;
  shape.leaves =
      released || node.drained.starts_with(taken_away) || node.drained.starts_with(allocation_ends);
  return shape;
}

}  // namespace billow::control
