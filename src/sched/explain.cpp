// Answers for people: why a job waits, whether it could ever run, and what would have to change.
#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"
#include "sched/index.h"

namespace billow::sched {
namespace {

using Impl = SchedIndex::Impl;

// "H100 ×8, A100-40 ×4": what this installation has.
std::string inventory(const Impl& index) {
  std::map<std::string, int> count;
  for (const NodeState& n : index.nodes) {
    for (const GpuShape& g : n.shape.gpus) ++count[g.type];
  }
  std::vector<std::string> parts;
  for (const auto& [type, n] : count) parts.push_back(fmt::format("{} ×{}", type, n));
  return parts.empty() ? "no GPU at all" : join(parts, ", ");
}

std::string plural(std::int64_t n, std::string_view what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

auto infeasible(std::string text, std::string hint = {}) {
  return fail(Code::infeasible, "infeasible: " + std::move(text), std::move(hint));
}

Status check_types(const Impl& index, const Resources& r) {
  if (r.gpu_types.empty()) return {};
  std::set<std::string> have;
  for (const NodeState& n : index.nodes) {
    for (const GpuShape& g : n.shape.gpus) have.insert(g.type);
  }
  for (const std::string& type : r.gpu_types) {
    if (have.contains(type)) return {};
  }
  const std::string& first = r.gpu_types.front();
  const std::string close = nearest(first, {have.begin(), have.end()});
  return infeasible(fmt::format("unknown GPU type \"{}\"; {}this Billow has: {}", first,
                                close.empty() ? "" : fmt::format("did you mean {}? ", close), inventory(index)));
}

// Every node refused an empty start: say which request is too large, the narrowest first.
Status why_no_node(const Impl& index, const PlacementClass& c) {
  const Resources& r = c.resources;
  std::int64_t gpus_max = 0, cpu_max = 0, mem_max = 0, gpu_mem_max = 0, allowed_count = 0, linked_max = 0;
  for (const NodeState& n : index.nodes) {
    if (!allowed(c, n)) continue;
    ++allowed_count;
    std::int64_t cards = 0;
    std::map<std::int32_t, std::int64_t> domains;
    for (const GpuShape& g : n.shape.gpus) {
      if (!g.healthy || (!r.gpu_types.empty() && std::ranges::find(r.gpu_types, g.type) == r.gpu_types.end())) continue;
      if (g.mig_enabled != c.mig.has_value()) continue;
      ++cards;
      gpu_mem_max = std::max(gpu_mem_max, g.memory_mib);
      linked_max = std::max(linked_max, ++domains[g.nvlink_domain]);
    }
    gpus_max = std::max(gpus_max, cards);
    cpu_max = std::max(cpu_max, n.shape.cpu_milli);
    mem_max = std::max(mem_max, n.shape.mem_mib);
  }
  const std::string of_type = r.gpu_types.empty() ? "" : " of type " + join(r.gpu_types, " or ");
  if (allowed_count == 0) return infeasible("no node matches the region, zone, pool, label and fabric constraints of the job");
  if (c.mig) {
    return gpus_max == 0 ? infeasible(fmt::format("no GPU{} is in MIG mode, so there is no {} instance", of_type, r.mig_profile))
                         : infeasible(fmt::format("no GPU{} here can hold {} of {}", of_type, plural(r.gpus, "MIG instance"), r.mig_profile));
  }
  if (r.gpus > gpus_max) {
    if (gpus_max == 0) return infeasible(fmt::format("no node has a GPU{}", of_type));
    return infeasible(fmt::format("no node has {}{}; largest is {}", plural(r.gpus, "GPU"), of_type, gpus_max),
                      fmt::format("ask for several nodes: --nodes {} --gpus {}", (r.gpus + gpus_max - 1) / gpus_max, gpus_max));
  }
  if (r.gpus > 0 && r.share.mem_mib > gpu_mem_max)
    return infeasible(fmt::format("no GPU{} has {} MiB of memory; largest is {} MiB", of_type, r.share.mem_mib, gpu_mem_max));
  if (r.cpu_milli > cpu_max)
    return infeasible(fmt::format("no node has {:g} CPUs; largest is {:g}", static_cast<double>(r.cpu_milli) / 1000, static_cast<double>(cpu_max) / 1000));
  if (r.mem_mib > mem_max) return infeasible(fmt::format("no node has {} MiB of memory; largest is {} MiB", r.mem_mib, mem_max));
  if (c.constraints.nvlink_required && r.gpus > linked_max)
    return infeasible(fmt::format("no NVLink domain has {}; largest is {}", plural(r.gpus, "GPU"), linked_max));
  if (r.whole_node) return infeasible("no node can be given whole: one of the GPUs of every candidate is not healthy or of another type");
  return infeasible("no single node has the GPUs, CPUs and memory of this task together");
}

}  // namespace

Status feasible(const SchedIndex& wrapped, const JobRequest& job) {
  const Impl& index = wrapped.impl();
  const Resources& r = job.resources;
  if (job.tasks < 1) return fail(Code::invalid, "a job has at least one node");
  if (r.gpus < 0 || r.share.milli < 0 || r.share.milli > whole_gpu_milli || r.share.mem_mib < 0 || r.cpu_milli < 0 || r.mem_mib < 0)
    return fail(Code::invalid, "resources cannot be negative, nor a share more than the whole card");
  if (r.gpus > 0 && r.mig_profile.empty() && r.share.milli == 0 && r.share.mem_mib == 0)
    return fail(Code::invalid, "a GPU share of nothing: give thousandths of a card or memory");
  if (!r.mig_profile.empty()) {
    if (auto profile = parse_mig_profile(r.mig_profile); !profile) return pass(profile.error());
  }
  if (index.slot_of.empty()) return fail(Code::unavailable, "no node has joined yet", "start an agent, or wait for a pool to bring nodes");
  const PlacementClass c = class_of(index, job);
  const auto [nodes, together] = wrapped.impl().capacity_of(c);
  if (nodes == 0) {
    if (r.gpus > 0) BILLOW_TRY_VOID(check_types(index, r));
    return why_no_node(index, c);
  }
  if (nodes < job.tasks)
    return infeasible(fmt::format("the job asks for {}; only {} could run one of its tasks", plural(job.tasks, "node"), nodes));
  if (job.tasks > 1 && c.constraints.close_required && c.constraints.close != Closeness::anywhere) {
    if (together < job.tasks)
      return infeasible(fmt::format("the {} nodes must be close together, and no one place has more than {} that fit", job.tasks, together),
                        "prefer closeness instead of requiring it");
  }
  if (auto it = index.projects.find(job.project); it != index.projects.end()) {
    const ProjectSettings& s = it->second.settings;
    const std::int64_t asked = gpu_milli_of(job);
    const std::int64_t most = !s.may_borrow ? s.guaranteed_milli : s.limit_milli;
    if (most >= 0 && asked > most)
      return infeasible(fmt::format("the job asks for {:g} GPUs; project {} may use {:g} at once", static_cast<double>(asked) / 1000,
                                    s.name.empty() ? std::to_string(s.id.value) : s.name, static_cast<double>(most) / 1000));
  }
  return {};
}

const char* reason_name(ReasonKind kind) {
  switch (kind) {
    case ReasonKind::held: return "held";
    case ReasonKind::budget: return "budget";
    case ReasonKind::project_limit: return "project_limit";
    case ReasonKind::quota: return "quota";
    case ReasonKind::user_limit: return "user_limit";
    case ReasonKind::array_limit: return "array_limit";
    case ReasonKind::residency: return "residency";
    case ReasonKind::infeasible: return "infeasible";
    case ReasonKind::no_room: return "no_room";
    case ReasonKind::fragmentation: return "fragmentation";
    case ReasonKind::topology: return "topology";
    case ReasonKind::reserved: return "reserved";
    case ReasonKind::waiting_behind: return "waiting_behind";
    case ReasonKind::preempting: return "preempting";
    case ReasonKind::next: return "next";
  }
  return "unknown";
}

namespace {

// The smallest step down that has room now: fewer GPUs, fewer nodes, any type, no required closeness.
std::string smaller_that_fits(Impl& index, const JobRequest& job) {
  const auto fits = [&](const JobRequest& j) { return !place(index, class_of(index, j), j.tasks).empty(); };
  JobRequest j = job;
  if (j.tasks > 1 && j.constraints.close_required) {
    j.constraints.close_required = false;
    if (fits(j)) return "preferring closeness instead of requiring it would start it now";
  }
  j = job;
  if (!j.resources.gpu_types.empty()) {
    j.resources.gpu_types.clear();
    if (fits(j)) return "any GPU type would start it now";
  }
  for (j = job; j.tasks > 1;) {
    --j.tasks;
    if (fits(j)) return fmt::format("--nodes {} would start now", j.tasks);
    if (job.tasks - j.tasks > 64) break;
  }
  for (j = job; j.resources.gpus > 1;) {
    --j.resources.gpus;
    if (fits(j)) return fmt::format("--gpus {} would start now", j.resources.gpus);
  }
  for (j = job; j.resources.gpus == 1 && j.resources.share.milli > 100;) {
    j.resources.share.milli -= 100;
    j.resources.share.mem_mib = 0;
    if (fits(j)) return fmt::format("--gpus {:g} would start now", j.resources.share.milli / 1000.0);
  }
  return {};
}

}  // namespace

Explanation explain(const SchedIndex& wrapped, JobId id, WallTime now) {
  Impl& index = wrapped.impl();
  Explanation e;
  const auto add = [&](ReasonKind kind, std::string text, JobId behind = {}) { e.reasons.push_back({kind, std::move(text), behind}); };
  auto queued = wrapped.queued(id);
  if (!queued) {
    add(ReasonKind::held, index.running.contains(id) ? "it is running" : "it is not in the queue: held, waiting for others to end, or finished");
    return e;
  }
  const JobRequest& job = *queued;
  if (Status ok = feasible(wrapped, job); !ok) add(ReasonKind::infeasible, ok.error().message);
  if (job.eligible_at > now) {
    add(ReasonKind::held, fmt::format("not before {}", format_utc(job.eligible_at)));
    e.earliest_start = job.eligible_at;
  }
  if (auto it = index.projects.find(job.project); it != index.projects.end()) {
    const ProjectState& p = it->second;
    const std::int64_t asked = gpu_milli_of(job);
    const auto gpus = [](std::int64_t milli) { return fmt::format("{:g}", static_cast<double>(milli) / 1000); };
    if (p.settings.budget_exhausted) add(ReasonKind::budget, "the budget of the project is used up");
    if (p.settings.limit_milli >= 0 && p.running_milli + asked > p.settings.limit_milli)
      add(ReasonKind::project_limit, fmt::format("the project uses {} of its {} GPUs, and this asks for {}", gpus(p.running_milli), gpus(p.settings.limit_milli), gpus(asked)));
    if (!p.settings.may_borrow && p.running_milli + asked > p.settings.guaranteed_milli)
      add(ReasonKind::quota, fmt::format("the project may not borrow beyond its {} guaranteed GPUs; {} are in use", gpus(p.settings.guaranteed_milli), gpus(p.running_milli)));
    auto user = p.users.find(job.user);
    const UserRunning mine = user == p.users.end() ? UserRunning{} : user->second;
    if ((p.settings.user_limit_milli >= 0 && mine.milli + asked > p.settings.user_limit_milli) ||
        (p.settings.user_running_max >= 0 && mine.jobs + 1 > p.settings.user_running_max))
      add(ReasonKind::user_limit, fmt::format("this user runs {} with {} GPUs, the most the project allows", plural(mine.jobs, "job"), gpus(mine.milli)));
  }
  if (job.array && job.array_running_max > 0) {
    auto it = index.array_running.find(job.array);
    if (it != index.array_running.end() && it->second >= job.array_running_max)
      add(ReasonKind::array_limit, fmt::format("{} of the array run, as many as it allows at once", it->second));
  }
  if (!e.reasons.empty()) return e;

  if (auto it = index.leaving_for.find(id); it != index.leaving_for.end()) {
    add(ReasonKind::preempting, fmt::format("{} leaving to make room", it->second.size() == 1 ? "one job is" : fmt::format("{} jobs are", it->second.size())));
    return e;
  }
  const Plan next = plan(wrapped, now, {.starts_max = 1 << 20, .tries_max = 1 << 20});
  for (const Start& s : next.starts) {
    if (s.job == id) {
      add(ReasonKind::next, "it starts with the next plan");
      e.earliest_start = now;
      return e;
    }
  }
  for (const Reserve& r : next.reserves) {
    if (r.job == id) e.earliest_start = r.expected_start;
  }
  PlacementClass c = class_of(index, job);
  if (!place(index, c, job.tasks).empty()) {
    const JobId behind = !next.reserves.empty() ? next.reserves.front().job : next.starts.empty() ? JobId{} : next.starts.front().job;
    add(ReasonKind::waiting_behind, behind ? fmt::format("job {} comes first and needs the room", behind.value) : "others come first and take the room", behind);
    if (!next.reserves.empty() && next.reserves.front().expected_start && job.time_limit.ns == 0)
      e.would_start_now = fmt::format("a time limit that ends before {} (--time) would let it pass", format_utc(next.reserves.front().expected_start));
    return e;
  }
  std::int64_t free_cards = 0, free_milli = 0, nodes_that_fit = 0;
  for (const NodeState& n : index.nodes) {
    if (!allowed(c, n)) continue;
    if (fit(c, n)) ++nodes_that_fit;
    free_milli += n.free_milli;
    for (const GpuState& g : n.gpus) free_cards += g.free_milli == whole_gpu_milli;
  }
  if (nodes_that_fit >= job.tasks)
    add(ReasonKind::topology, fmt::format("{} have room, but not close together as required", plural(nodes_that_fit, "node")));
  else if (job.resources.gpus > 0 && free_milli >= gpu_milli_of(job))
    add(ReasonKind::fragmentation, fmt::format("{:g} GPUs are free in sum ({} whole), but not where {} × {} GPUs with their CPUs and memory fit together",
                                               static_cast<double>(free_milli) / 1000, free_cards, plural(job.tasks, "node"), job.resources.gpus));
  else
    add(ReasonKind::no_room, "everything that could run it is in use");
  e.would_start_now = smaller_that_fits(index, job);
  return e;
}

Result<std::vector<Placement>> place_reservation(const SchedIndex& wrapped, const ReservationRequest& r, WallTime now) {
  if (r.until <= r.from || r.until <= now) return fail(Code::invalid, "a reservation ends after it begins, and in the future");
  JobRequest job{.project = r.project, .resources = r.resources, .tasks = r.tasks, .constraints = r.constraints};
  BILLOW_TRY_VOID(feasible(wrapped, job));
  std::vector<Placement> placements = place(wrapped.impl(), class_of(wrapped.impl(), job), r.tasks);
  if (placements.empty()) return fail(Code::exhausted, "nothing that fits is free at that time");
  return placements;
}

}  // namespace billow::sched
