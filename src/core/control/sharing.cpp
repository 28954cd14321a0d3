// How the installation is shared: the guarantees and limits of projects, and advance reservations
// of GPUs.
#include <algorithm>

#include <fmt/format.h>

#include "base/limits.h"
#include "base/spoken_name.h"
#include "base/text.h"
#include "core/control/applier.h"
#include "core/control/decide/decider.h"
#include "core/control/money.h"
#include "core/control/outlive.h"
#include "core/control/quotas.h"
#include "core/control/residency.h"
#include "core/model/address_block.h"

namespace billow::control {

// ---- projects

namespace {

Status check_places(const Quota& quota) {
  for (const auto* names : {&quota.regions, &quota.pools}) {
    if (names->size() > limits::labels_max)
      return fail(Code::invalid, fmt::format("more than {} names are given", limits::labels_max));
    for (const std::string& name : *names)
      BILLOW_TRY_VOID(check_name("region or pool", name));
  }
  return {};
}

Status check_reach(const ProjectChanged& changed) {
  if (changed.network == ContainerNetwork::host)
    return fail(Code::invalid, "jobs with strict isolation cannot have the network of their node",
                "use none, project or internet");
  BILLOW_TRY(parse_allowed(changed.allow));
  return {};
}

}  // namespace

Decision Decider::operator()(const SetProject& c) {
  const Project* project = state.project_by_name(c.name);
  if (!project)
    return fail(
        Code::not_found, fmt::format("there is no project \"{}\"", c.name),
        fmt::format("see `billow project list`, or create it: billow project create {}", c.name));
  ProjectChanged changed{.project = project->id,
                         .weight = c.weight.value_or(project->weight),
                         .quota = project->quota,
                         .admins_enter = c.admins_enter.value_or(project->admins_enter),
                         .isolation = c.isolation.value_or(project->isolation),
                         .network = c.network.value_or(project->network),
                         .allow = c.allow.value_or(project->allow)};
  Quota& q = changed.quota;
  if (c.guaranteed_milli)
    q.guaranteed_milli = *c.guaranteed_milli;
  if (c.limit_milli)
    q.limit_milli = *c.limit_milli;
  if (c.user_limit_milli)
    q.user_limit_milli = *c.user_limit_milli;
  if (c.user_running_max)
    q.user_running_max = *c.user_running_max;
  if (c.may_borrow)
    q.may_borrow = *c.may_borrow;
  if (c.policy)
    q.policy = *c.policy;
  if (c.regions)
    q.regions = *c.regions;
  if (c.pools)
    q.pools = *c.pools;
  if (changed.weight == 0 || changed.weight > 1'000'000)
    return fail(Code::invalid, "a project's weight must be between 1 and 1000000");
  constexpr std::int64_t milli_max = 1'000'000'000;
  if (q.guaranteed_milli < 0 || q.guaranteed_milli > milli_max)
    return fail(Code::invalid, "a guarantee must be between 0 and 1000000 GPUs");
  if (q.limit_milli < -1 || q.user_limit_milli < -1 || q.user_running_max < -1)
    return fail(Code::invalid, "a limit must not be negative", "use none for no limit");
  if (q.limit_milli >= 0 && q.limit_milli < q.guaranteed_milli)
    return fail(Code::invalid, fmt::format("the limit of {:g} GPUs is below the guarantee of {:g}",
                                           static_cast<double>(q.limit_milli) / 1000,
                                           static_cast<double>(q.guaranteed_milli) / 1000));
  if (!q.may_borrow && q.guaranteed_milli == 0)
    return fail(Code::invalid,
                "a project without a guarantee and without borrowing could never run a job",
                "add a guarantee: --guarantee 8");
  BILLOW_TRY_VOID(check_places(q));
  BILLOW_TRY_VOID(check_reach(changed));
  // Guarantees must not exceed the installation. Before the first node has joined there is nothing
  // to compare with.
  std::int64_t promised = q.guaranteed_milli, there = 0;
  for (const auto& [id, other] : state.projects)
    promised += id == project->id ? 0 : other.quota.guaranteed_milli;
  for (const auto& [id, node] : state.nodes)
    there += static_cast<std::int64_t>(node.offer.gpus.size()) * whole_gpu_milli;
  if (q.guaranteed_milli > project->quota.guaranteed_milli && there > 0 && promised > there)
    return fail(
        Code::conflict,
        fmt::format("the guarantees of all projects would be {:g} GPUs, but only {:g} exist",
                    static_cast<double>(promised) / 1000, static_cast<double>(there) / 1000),
        "lower the guarantee of another project first: billow project list");
  if (changed.weight == project->weight && q == project->quota &&
      changed.admins_enter == project->admins_enter && changed.isolation == project->isolation &&
      changed.network == project->network && changed.allow == project->allow)
    return Events{};
  BILLOW_TRY_VOID(nothing_outside(state, project->id, q));
  return Events{std::move(changed)};
}

void Applier::operator()(const ProjectChanged& e) {
  Project& project = state.projects.at(e.project);
  project.weight = e.weight;
  project.quota = e.quota;
  project.admins_enter = e.admins_enter;
  project.isolation = e.isolation;
  project.network = e.network;
  project.allow = e.allow;
  state.index.upsert_project(settings_of(project));
}

// ---- reservations

namespace {

std::vector<ReservedPlace> places_of(const std::vector<sched::Placement>& placements) {
  std::vector<ReservedPlace> places;
  for (const sched::Placement& p : placements) {
    ReservedPlace place{.node = p.node, .gpus = {}, .cpu_milli = p.cpu_milli, .mem_mib = p.mem_mib};
    for (const sched::GpuShare& g : p.gpus)
      place.gpus.push_back({g.gpu, g.share, g.mig_start});
    places.push_back(std::move(place));
  }
  return places;
}

sched::ReservationRequest request_for(const Reservation& r,
                                      std::map<std::string, std::string> node_labels) {
  sched::ReservationRequest request{.project = r.project,
                                    .resources = r.resources,
                                    .tasks = static_cast<std::int32_t>(r.nodes),
                                    .constraints = constraints_of(r.place),
                                    .from = r.from,
                                    .until = r.until};
  request.constraints.labels = std::move(node_labels);
  return request;
}

// The reservation as one lease, for the bill.
Task lease_of(const Reservation& r, TaskId id, WallTime to) {
  Task lease;
  lease.id = id;
  lease.state = TaskState::ended;
  lease.price_class = PriceClass::reserved;
  lease.rate = r.rate;
  lease.reservation = r.id;
  lease.lease_from = r.from;
  lease.lease_to = std::max(to, r.from);
  if (!r.places.empty())
    lease.node = r.places.front().node;
  for (const ReservedPlace& p : r.places) {
    lease.gpus.insert(lease.gpus.end(), p.gpus.begin(), p.gpus.end());
    lease.cpu_milli += p.cpu_milli;
    lease.mem_mib += p.mem_mib;
  }
  return lease;
}

}  // namespace

// The part of a lease's payment that falls into the period of its reservation.
NanoUsd paid_inside(const Task& task, const Reservation& r) {
  Task part = task;
  part.lease_from = std::clamp(task.lease_from, r.from, r.until);
  return ledger::lease_cost(
      part, std::clamp(task.lease_to ? task.lease_to : r.until, part.lease_from, r.until));
}

void count_used(const Task& task, WallTime lease_to, Reservation& r) {
  if (task.price_class != PriceClass::reserved)
    return;
  Task part = task;
  part.lease_to = lease_to;
  r.used += paid_inside(part, r);
  const WallTime from = std::clamp(task.lease_from, r.from, r.until);
  r.used_milli_ms += ledger::gpu_milli(task) * (std::clamp(lease_to, from, r.until) - from).ms();
}

Decision Decider::operator()(const Reserve& c) {
  if (!state.users.contains(c.user))
    return fail(Code::unauthorized, "the reserving user does not exist");
  Reservation r{.id = ReservationId(state.next_reservation),
                .name = c.name,
                .project = BILLOW_TRY(project_for(c.project, c.user)),
                .user = c.user,
                .from = std::max(c.from, context.now),
                .until = c.until,
                .resources = c.resources,
                .nodes = c.nodes,
                .place = c.place,
                .places = {},
                .made_at = context.now};
  if (!r.name.empty())
    BILLOW_TRY_VOID(check_spoken_name("reservation", r.name));
  BILLOW_TRY_VOID(check_objects(state, r.user, r.project, context.now));
  for (const auto& [id, other] : state.reservations)
    if (!r.name.empty() && other.project == r.project && other.name == r.name)
      return fail(Code::conflict,
                  fmt::format("reservation \"{}\" already exists, number {}", r.name, id.value),
                  "choose another name, or cancel that one: billow reserve cancel " + r.name);
  if (r.until <= r.from)
    return fail(Code::invalid, "a reservation must end after it begins, and in the future",
                "write it like: billow reserve --gpus 8 --from 18:00 --for 4h");
  if (r.from - context.now > limits::reservation_ahead_max)
    return fail(Code::invalid, "a reservation must begin within a year");
  if (r.until - r.from > limits::reservation_ahead_max)
    return fail(Code::invalid, "a reservation can last at most a year");
  if (state.reservations.size() >= limits::reservations_max)
    return fail(Code::exhausted, fmt::format("{} reservations exist already, which is the limit",
                                             state.reservations.size()));
  if (!r.resources.mig_profile.empty())
    return fail(Code::invalid, "MIG instances cannot be reserved", "reserve the GPU: --gpus 1");
  if (r.resources.gpus <= 0 && !r.resources.takes_node())
    return fail(Code::invalid, "a reservation needs GPUs", "add --gpus 8");
  JobSpec spec;  // a reservation must also be valid as a job
  spec.argv = {"-"};
  spec.resources = r.resources;
  spec.nodes = r.nodes;
  spec.place = r.place;
  spec.node_labels = c.node_labels;
  BILLOW_TRY_VOID(validate(spec));
  if (state.nodes.empty())
    return fail(Code::unavailable, "no node has joined yet, so nothing can be reserved");
  const Quota& quota = state.projects.at(r.project).quota;
  r.places = places_of(BILLOW_TRY(
      sched::place_reservation(state.index, request_for(r, c.node_labels), context.now)));
  // Together with the project's other reservations at the same time it must stay within the
  // project's limit.
  std::int64_t held = r.gpu_milli();
  for (const auto& [id, other] : state.reservations)
    if (other.project == r.project && other.from < r.until && r.from < other.until)
      held += other.gpu_milli();
  const std::int64_t most = quota.may_borrow ? quota.limit_milli : quota.guaranteed_milli;
  if (most >= 0 && held > most)
    return fail(Code::forbidden,
                fmt::format("project {} may use {:g} GPUs at once; with this reservation it would "
                            "have {:g} reserved",
                            state.projects.at(r.project).name, static_cast<double>(most) / 1000,
                            static_cast<double>(held) / 1000));
  const Node& node = state.nodes.at(r.places.front().node);
  if (context.prices && !r.places.front().gpus.empty())
    r.rate = charge_rate(
        state, node,
        node.offer.gpus.at(static_cast<std::size_t>(r.places.front().gpus.front().gpu)).type,
        PriceClass::reserved, context.prices);
  BILLOW_TRY_VOID(Purse(state, context.billed).reserve(r));
  return Events{ReservationMade{std::move(r)}};
}

EventBody Decider::end_reservation(const Reservation& r,
                                   WallTime to,
                                   std::string reason,
                                   TaskId lease) const {
  ReservationEnded ended{.reservation = r.id,
                         .reason = std::move(reason),
                         .lease = {},
                         .unused = {},
                         .project = r.project,
                         .user = r.user};
  if (to <= r.from)
    return ended;  // it never began: nothing is due
  ended.lease = lease_of(r, lease, std::min(to, r.until));
  Reservation all = r;
  for (const auto& [id, task] : state.tasks)
    if (task.reservation == r.id && task.state != TaskState::ended)
      count_used(task, outlives_from(task, ended.lease.lease_to, context), all);
  const NanoUsd whole = ledger::lease_cost(ended.lease, ended.lease.lease_to);
  ended.unused = {std::max<std::int64_t>(0, whole.value - all.used.value)};
  const std::int64_t held_ms =
      std::max<std::int64_t>(1, (ended.lease.lease_to - ended.lease.lease_from).ms());
  ended.unused_milli =
      (std::max<std::int64_t>(0, ledger::gpu_milli(ended.lease) * held_ms - all.used_milli_ms) +
       held_ms / 2) /
      held_ms;
  return ended;
}

Decision Decider::operator()(const CancelReservation& c) {
  const auto found = state.reservations.find(c.reservation);
  if (found == state.reservations.end())
    return fail(Code::not_found,
                fmt::format("no reservation has the number {}", c.reservation.value),
                "see `billow reserve list`");
  return Events{end_reservation(found->second, context.now,
                                c.reason.empty() ? "cancelled" : c.reason,
                                TaskId(state.next_task))};
}

// Each at its exact time, however late it is processed.
void Decider::end_reservations(Events& events, WallTime then) const {
  std::uint64_t next_task = state.next_task;
  for (const auto& [until_ns, id] : state.reservation_ends) {
    if (until_ns > then.ns)
      break;
    const Reservation& r = state.reservations.at(id);
    events.push_back(end_reservation(r, r.until, "its time is over", TaskId(next_task++)));
  }
}

std::vector<EventBody> reservations_over(const State& state,
                                         WallTime then,
                                         const Context& context) {
  Events events;
  Decider{state, context}.end_reservations(events, then);
  return events;
}

// On each tick: ends reservations that are over, and moves one whose node is gone to another place,
// if there is one.
void Decider::tick_reservations(Events& events) const {
  end_reservations(events, context.now);
  // Several may have lost the same node: each finds its place beside those moved before it.
  std::vector<Reservation> moved;
  std::optional<sched::SchedIndex> beside;  // made only for the second one
  for (const auto& [id, r] : state.reservations) {
    if (r.until <= context.now)
      continue;
    const auto there = [&](const ReservedPlace& p) {
      return state.nodes.contains(p.node);
    };
    constexpr std::int64_t look_every_s = 15;
    if (std::ranges::all_of(r.places, there) ||
        (context.now.ns / 1'000'000'000) % look_every_s != 0)
      continue;
    auto request = request_for(r, {});
    std::vector<ReservedPlace> places;
    // Jobs may run in the other places: only missing ones are replaced.
    if (r.from <= context.now) {
      request.from = context.now;
      std::ranges::copy_if(r.places, std::back_inserter(places), there);
      request.tasks -= static_cast<std::int32_t>(places.size());
      for (const ReservedPlace& p : places)
        request.constraints.avoid_nodes.push_back(p.node);
    } else
      request.instead_of = id;
    if (!moved.empty() && !beside)
      beside = sched::SchedIndex::rebuild(state.index.contents());
    for (const Reservation& other : std::exchange(moved, {}))
      beside->upsert_reservation(reserved_of(other));
    const auto found =
        sched::place_reservation(beside ? *beside : state.index, request, context.now);
    if (!found)
      continue;
    std::ranges::move(places_of(*found), std::back_inserter(places));
    moved.push_back(r);
    moved.back().places = places;
    events.push_back(ReservationMoved{id, std::move(places)});
  }
}

void Applier::operator()(const ReservationMade& e) {
  state.reservations[e.reservation.id] = e.reservation;
  state.reservation_ends.insert({e.reservation.until.ns, e.reservation.id});
  state.next_reservation = std::max(state.next_reservation, e.reservation.id.value + 1);
  state.index.upsert_reservation(reserved_of(e.reservation));
}

void Applier::operator()(const ReservationMoved& e) {
  Reservation& r = state.reservations.at(e.reservation);
  r.places = e.places;
  state.index.upsert_reservation(reserved_of(r));
}

void Applier::operator()(const ReservationEnded& e) {
  const auto r = state.reservations.find(e.reservation);
  BILLOW_CHECK(r != state.reservations.end(), "a reservation ended twice");
  state.reservation_ends.erase({r->second.until.ns, e.reservation});
  state.reservations.erase(r);
  state.index.remove_reservation(e.reservation);
  if (e.lease.id)
    state.next_task = std::max(state.next_task, e.lease.id.value + 1);
  // Jobs that wait inside it keep waiting: they were submitted at the reservation's price. Running
  // ones: see outlive.cpp.
}

}  // namespace billow::control
