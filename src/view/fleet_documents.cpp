#include "view/fleet_documents.h"

#include <algorithm>

#include "core/control/decide/decide.h"
#include "core/ledger/meter.h"
#include "core/sched/mig.h"
#include "view/json_parts.h"
#include "view/names.h"

namespace billow::view {
namespace {

Json mig_profiles(const NodeGpu& gpu) {
  Json out = Json::array();
  for (const sched::MigPlace& place : sched::parse_mig_offer(gpu.mig).places)
    out.push(place.profile);
  return out;
}
// A MIG instance that a task holds; the agent may have created it for that job.
struct HeldInstance {
  std::string profile;
  JobId job;
};
// The MIG instances of a card, existing or held, by their first memory slice.
Json mig_instances(const NodeGpu& gpu, const std::map<std::int32_t, HeldInstance>& held) {
  std::map<std::int32_t, HeldInstance> all = held;
  for (const sched::MigPlace& place : sched::parse_mig_offer(gpu.mig).places)
    all.try_emplace(place.start, HeldInstance{place.profile, {}});
  Json out = Json::array();
  for (const auto& [start, instance] : all)
    out.push(Json::object({{"profile", instance.profile},
                           {"start", start},
                           {"job", instance.job ? Json(instance.job.value) : Json()}}));
  return out;
}

// What jobs hold of each card of a node.
struct Held {
  std::int64_t milli = 0;
  Json jobs = Json::array();
  std::map<std::int32_t, HeldInstance> instances;  // by first memory slice
};

std::vector<Held> held_on(const control::State& state, const Node& node) {
  std::vector<Held> held(node.offer.gpus.size());
  const auto on = state.tasks_on.find(node.id);
  if (on == state.tasks_on.end())
    return held;
  for (const TaskId id : on->second) {
    const Task& task = state.tasks.at(id);
    if (!task.holds_gpus())
      continue;
    for (const GpuGrant& grant : task.gpus) {
      const auto gpu = static_cast<std::size_t>(grant.gpu);
      if (gpu >= held.size())
        continue;
      held[gpu].milli += grant.share.milli;
      held[gpu].jobs.push(task.job.value);
      if (grant.mig_start >= 0)
        held[gpu].instances[grant.mig_start] = {state.jobs.at(task.job).spec->resources.mig_profile,
                                                task.job};
    }
  }
  return held;
}

void add_reading(Json& document, const wire::agent_v1::GpuReading& r) {
  const auto known = [&](const char* name, Json value) {
    document.set(name, r.lost ? Json() : std::move(value));
  };
  known("util_pct", r.util_pct);
  known("mem_used_mib", r.mem_used_mib);
  known("power_w", static_cast<double>(r.power_mw) / 1000.0);
  known("temperature_c", r.temperature_c);
  if (r.lost)
    document.set("lost", true);
  if (r.sm_active_permille >= 0)
    document.set("sm_active_pct", r.sm_active_permille / 10.0);
  if (r.mem_util_pct >= 0)
    document.set("mem_util_pct", r.mem_util_pct);
  document.set("score", r.score);
  if (!r.fault.empty())
    document.set("fault", r.fault);
}

Json gpu_document(const Node& node,
                  const NodeGpu& gpu,
                  Held held,
                  const wire::agent_v1::Heartbeat* readings) {
  Json doc = Json::object({{"index", gpu.index},
                           {"type", gpu.type},
                           {"model", gpu.model},
                           {"vendor", gpu.vendor},
                           {"mem_mib", gpu.mem_mib},
                           {"uuid", gpu.uuid},
                           {"used_milli", held.milli},
                           {"unhealthy", node.gpu_trouble(gpu)},
                           {"jobs", std::move(held.jobs)},
                           {"nvlink_domain", gpu.nvlink_domain},
                           {"numa", gpu.numa},
                           {"mig", mig_profiles(gpu)},
                           {"mig_instances", mig_instances(gpu, held.instances)},
                           {"mig_any", sched::parse_mig_offer(gpu.mig).any}});
  if (readings)
    for (const auto& r : readings->gpus)
      if (r.gpu == gpu.index)
        add_reading(doc, r);
  return doc;
}

// Why it takes no jobs: what a person or the head said, and what becomes of a silent machine.
std::string reason_of(const control::State& state, const Node& node) {
  const std::string silent = control::silent_note(state, node);
  return node.drained + (node.drained.empty() || silent.empty() ? "" : "; ") + silent;
}

}  // namespace

ReservedCards reserved_cards(const control::State& state, WallTime now) {
  ReservedCards reserved;
  for (const auto& [id, reservation] : state.reservations)
    if (reservation.from <= now && now < reservation.until)
      for (const ReservedPlace& place : reservation.places)
        for (const GpuGrant& grant : place.gpus)
          reserved[{place.node, grant.gpu}] += grant.share.milli;
  return reserved;
}

std::int64_t kept_free(const ReservedCards& reserved,
                       const Node& node,
                       const NodeGpu& gpu,
                       std::int64_t held_milli) {
  const auto inside = reserved.find({node.id, gpu.index});
  if (inside == reserved.end() || !node.reachable || !node.drained.empty() ||
      !node.gpu_trouble(gpu).empty())
    return 0;
  return std::clamp<std::int64_t>(whole_gpu_milli - held_milli, 0, inside->second);
}

FleetCounts fleet_counts(const control::State& state, const Readings& readings, WallTime now) {
  FleetCounts out;
  const ReservedCards reserved = reserved_cards(state, now);
  for (const auto& [id, node] : state.nodes) {
    ++out.nodes;
    ++(!node.reachable         ? out.nodes_unreachable
       : !node.drained.empty() ? out.nodes_drained
                               : out.nodes_ready);
    const wire::agent_v1::Heartbeat* beat = readings ? readings(id) : nullptr;
    const std::vector<Held> held = held_on(state, node);
    for (std::size_t i = 0; i < node.offer.gpus.size(); ++i) {
      const NodeGpu& gpu = node.offer.gpus[i];
      ++out.gpus;
      const std::int64_t used = std::min<std::int64_t>(held[i].milli, whole_gpu_milli);
      out.held_milli += used;
      const std::int64_t rest = whole_gpu_milli - used;
      const bool lost =
          !node.reachable ||
          (beat && std::any_of(beat->gpus.begin(), beat->gpus.end(),
                               [&](const auto& r) { return r.gpu == gpu.index && r.lost; }));
      if (lost) {
        out.lost_milli += rest;
        continue;
      }
      if (!node.drained.empty() || !node.gpu_trouble(gpu).empty()) {
        out.drained_milli += rest;
        continue;
      }
      const std::int64_t kept = kept_free(reserved, node, gpu, used);
      out.reserved_milli += kept;
      out.free_milli += rest - kept;
    }
  }
  return out;
}

Json node_document(const control::State& state,
                   const Node& node,
                   const wire::agent_v1::Heartbeat* readings) {
  Json gpus = Json::array();
  std::vector<Held> held = held_on(state, node);
  for (std::size_t i = 0; i < node.offer.gpus.size(); ++i)
    gpus.push(gpu_document(node, node.offer.gpus[i], std::move(held[i]), readings));
  const char* status = !node.reachable         ? "unreachable"
                       : !node.drained.empty() ? "drained"
                                               : "ready";
  Json out = Json::object({{"id", node.id.value},
                           {"name", node.offer.name},
                           {"state", status},
                           {"reason", reason_of(state, node)},
                           {"gpus", std::move(gpus)},
                           {"cpu_milli", node.offer.cpu_milli},
                           {"mem_mib", node.offer.mem_mib},
                           {"disk_mib", node.offer.disk_mib},
                           {"labels", string_map(node.offer.labels)},
                           {"version", node.offer.version},
                           {"simulated", node.offer.simulated},
                           {"arch", node.offer.arch},
                           {"joined_at", format_utc(node.joined_at)}});
  if (readings && readings->images_bytes >= 0)
    out.set("images", Json::object({{"bytes", readings->images_bytes},
                                    {"bytes_max_per_user", readings->images_bytes_max}}));
  return out;
}

void add_quota(Json& document, const control::State& state, const Project& project, WallTime now) {
  const Quota& q = project.quota;
  document.set("guaranteed_milli", q.guaranteed_milli);
  document.set("limit_milli", q.limit_milli >= 0 ? Json(q.limit_milli) : Json());
  document.set("user_limit_milli", q.user_limit_milli >= 0 ? Json(q.user_limit_milli) : Json());
  document.set("user_running_max", q.user_running_max >= 0 ? Json(q.user_running_max) : Json());
  document.set("may_borrow", q.may_borrow);
  document.set("policy", enum_name(q.policy));
  document.set("regions", string_list(q.regions));
  document.set("pools", string_list(q.pools));
  const std::int64_t running = state.index.running_milli(project.id);
  document.set("running_milli", running);
  document.set("borrowed_milli", q.guaranteed_milli > 0
                                     ? std::max<std::int64_t>(0, running - q.guaranteed_milli)
                                     : 0);
  document.set("usage_gpu_hours", state.index.usage(project.id, now) / 3.6e6);
}

Json reservation_document(const control::State& state, const Reservation& r, WallTime now) {
  Json places = Json::array();
  std::int64_t cpu_milli = 0, mem_mib = 0;
  for (const ReservedPlace& p : r.places) {
    const auto node = state.nodes.find(p.node);
    Json gpus = Json::array();
    for (const GpuGrant& g : p.gpus)
      gpus.push(g.gpu);
    places.push(
        Json::object({{"node", node == state.nodes.end() ? Json() : Json(node->second.offer.name)},
                      {"gpus", std::move(gpus)},
                      {"cpu_milli", p.cpu_milli},
                      {"mem_mib", p.mem_mib}}));
    cpu_milli += p.cpu_milli;
    mem_mib += p.mem_mib;
  }
  std::int64_t used = 0;
  for (const auto& [id, task] : state.tasks)
    if (task.reservation == r.id && task.state != TaskState::ended &&
        task.price_class == PriceClass::reserved)
      used += ledger::gpu_milli(task);
  Task whole;  // the price of the whole reservation, used or not
  whole.rate = r.rate;
  whole.lease_from = r.from;
  for (const ReservedPlace& p : r.places)
    whole.gpus.insert(whole.gpus.end(), p.gpus.begin(), p.gpus.end());
  const NanoUsd cost = ledger::lease_cost(whole, r.until);
  return Json::object({{"id", r.id.value},
                       {"name", r.name},
                       {"project", project_name(state, r.project)},
                       {"user", user_name(state, r.user)},
                       {"from", format_utc(r.from)},
                       {"until", format_utc(r.until)},
                       {"state", now < r.from ? "waiting" : "active"},
                       {"gpus", r.resources.gpus},
                       {"nodes", r.nodes},
                       {"gpu_milli", r.gpu_milli()},
                       {"cpu_milli", cpu_milli},
                       {"mem_mib", mem_mib},
                       {"used_milli", used},
                       {"places", std::move(places)},
                       {"cost_nano_usd", cost.value},
                       {"cost", format_usd(cost)},
                       {"price_class", enum_name(PriceClass::reserved)}});
}

}  // namespace billow::view
