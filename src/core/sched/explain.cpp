// Whether a job could ever run here, and if not, which part of its request is too large. Why a job
// waits is in why.cpp.
#include <algorithm>
#include <cmath>
#include <span>

#include <fmt/format.h>

#include "base/text.h"
#include "core/sched/reserved.h"
#include "core/sched/words.h"

namespace billow::sched {
namespace {

using Impl = SchedIndex::Impl;

// The GPUs of this installation: "8 × H100, 4 × A100-40".
std::string inventory(const Impl& index) {
  std::map<std::string, int> count;
  for (const NodeState& n : index.nodes) {
    for (const GpuShape& g : n.shape.gpus)
      ++count[g.type];
  }
  std::vector<std::string> parts;
  for (const auto& [type, n] : count)
    parts.push_back(fmt::format("{} × {}", n, type));
  return parts.empty() ? "none" : join(parts, ", ");
}

auto infeasible(std::string text, std::string hint = {}) {
  return fail(Code::infeasible, std::move(text), std::move(hint));
}

Status check_types(const Impl& index, const Resources& r) {
  if (r.gpu_types.empty())
    return {};
  std::set<std::string> have;
  for (const NodeState& n : index.nodes)
    for (const GpuShape& g : n.shape.gpus)
      have.insert(g.type);
  if (std::ranges::any_of(r.gpu_types, [&](const auto& type) { return have.contains(type); }))
    return {};
  const std::string& first = r.gpu_types.front();
  // "A100" where A100-40 and A100-80 exist: they differ in price and memory, so the user chooses.
  std::vector<std::string> variants;
  for (const std::string& type : have)
    if (lower(type).starts_with(lower(first) + "-"))
      variants.push_back(type);
  if (!variants.empty())
    return infeasible(
        fmt::format("no GPU has exactly the type {}; GPUs here: {}", first, inventory(index)),
        fmt::format("use --gpu-type {}", join(variants, ",")));
  const std::string close = nearest(first, {have.begin(), have.end()});
  if (close.empty() || lower(close)[0] != lower(first)[0])  // A100 is not a typo of H100
    return infeasible(
        fmt::format("no node has GPUs of type {}; GPUs here: {}", first, inventory(index)),
        fmt::format("use --gpu-type {}, or omit it", join({have.begin(), have.end()}, ",")));
  return infeasible(fmt::format("unknown GPU type \"{}\"; GPUs here: {}", first, inventory(index)),
                    fmt::format("did you mean {}?", close));
}

std::int64_t nodes_for(const Impl& index, const PlacementClass& c, std::int64_t gpus) {
  PlacementClass part = c;
  part.resources.gpus = static_cast<std::int32_t>(gpus);
  return std::ranges::count_if(index.nodes, [&](const NodeState& n) {
    return allowed(part, n) && fit_empty(part, n).has_value();
  });
}

// A hint that works: the same number of GPUs on several nodes if there are enough nodes, else the
// largest request that fits.
std::string split_over_nodes(const Impl& index, const PlacementClass& c, std::int64_t gpus_max) {
  const std::int64_t asked = c.resources.gpus;
  for (std::int64_t gpus = gpus_max; gpus > 0; --gpus) {
    if (asked % gpus == 0 && nodes_for(index, c, gpus) >= asked / gpus)
      return fmt::format("use several nodes: --nodes {} --gpus {}", asked / gpus, gpus);
  }
  const std::int64_t most = nodes_for(index, c, gpus_max);
  return most > 1 ? fmt::format("use at most --gpus {}, or several nodes: --nodes {} --gpus {}",
                                gpus_max, most, gpus_max)
                  : fmt::format("use at most --gpus {}", gpus_max);
}

// The MIG instances on the nodes that the job may use: "5 × 1g.10gb, 1 × 2g.20gb".
std::string instances_there(const Impl& index, const PlacementClass& c) {
  std::map<std::string, int> counts;
  for (const NodeState& n : index.nodes)
    if (allowed(c, n))
      for (const GpuShape& g : n.shape.gpus)
        for (const MigPlace& place : g.mig_places)
          ++counts[place.profile];
  std::string out;
  for (const auto& [profile, count] : counts)
    out += fmt::format("{}{} × {}", out.empty() ? "" : ", ", count, profile);
  return out;
}

// The largest of everything on the nodes that the job may use.
struct Largest {
  std::int64_t nodes = 0;
  std::int64_t gpus = 0;         // on one node
  std::int64_t linked_gpus = 0;  // in one NVLink domain
  std::int64_t gpu_mem_mib = 0;
  std::int64_t cpu_milli = 0;
  std::int64_t mem_mib = 0, disk_mib = 0;
  std::int64_t out_of_service = 0;  // unhealthy GPUs that would otherwise count
  std::int64_t in_mig_mode = 0;     // GPUs that offer MIG instances only
};

void add_node(const NodeState& n, const PlacementClass& c, Largest& most) {
  const std::vector<std::string>& types = c.resources.gpu_types;
  std::int64_t cards = 0;
  std::map<std::int32_t, std::int64_t> domains;
  for (const GpuShape& g : n.shape.gpus) {
    if (!types.empty() && std::ranges::find(types, g.type) == types.end())
      continue;
    if (!g.healthy) {
      ++most.out_of_service;
      continue;
    }
    if (g.mig_enabled != c.mig.has_value()) {
      most.in_mig_mode += g.mig_enabled;
      continue;
    }
    ++cards;
    most.gpu_mem_mib = std::max(most.gpu_mem_mib, g.memory_mib);
    most.linked_gpus = std::max(most.linked_gpus, ++domains[g.nvlink_domain]);
  }
  ++most.nodes;
  most.gpus = std::max(most.gpus, cards);
  most.cpu_milli = std::max(most.cpu_milli, n.shape.cpu_milli);
  most.mem_mib = std::max(most.mem_mib, n.shape.mem_mib);
  most.disk_mib = std::max(most.disk_mib, n.shape.disk_mib);
}

std::string of_type(const Resources& r) {
  return r.gpu_types.empty() ? "" : " of type " + join(r.gpu_types, " or ");
}

// The profiles of the cards here, as NVIDIA names them: "1g.10gb" is an eighth of an 80 GB card.
std::vector<std::string> profiles_here(const Impl& index, const std::vector<std::string>& types) {
  struct Size {
    int compute, slices;
  };
  constexpr Size eighths[] = {{1, 1}, {2, 2}, {3, 4}, {4, 4}, {7, 8}};
  constexpr Size quarters[] = {{1, 1}, {2, 2}, {4, 4}};
  std::set<std::string> names;
  for (const NodeState& n : index.nodes)
    for (const GpuShape& g : n.shape.gpus) {
      if (!g.mig_enabled || (!types.empty() && std::ranges::find(types, g.type) == types.end()))
        continue;
      const bool quarter = g.type.starts_with("A30");
      const double card_gb = std::ceil(static_cast<double>(g.memory_mib) / 1024);
      for (const Size& s :
           quarter ? std::span<const Size>(quarters) : std::span<const Size>(eighths))
        names.insert(fmt::format("{}g.{}gb", s.compute,
                                 std::lround(card_gb * s.slices / (quarter ? 4 : 8))));
    }
  return {names.begin(), names.end()};
}

std::string mean_profile(const std::string& asked, const std::vector<std::string>& names) {
  const std::string close = nearest(asked, names);
  return close.empty() ? "" : fmt::format("did you mean {}? ", close);
}

Status why_no_instance(const Impl& index, const PlacementClass& c, const Largest& most) {
  const Resources& r = c.resources;
  if (most.gpus == 0)
    return infeasible(
        fmt::format("no GPU{} is in MIG mode, so none has an instance {}", of_type(r),
                    r.mig_profile),
        "use a part of any GPU (--gpus 0.25), or let an administrator turn MIG mode on (nvidia-smi "
        "-mig 1)");
  const std::vector<std::string> names = profiles_here(index, r.gpu_types);
  if (std::ranges::find(names, r.mig_profile) == names.end() && !r.mig_profile.ends_with("+me"))
    return infeasible(fmt::format("no GPU{} here has MIG instances {}; their profiles: {}",
                                  of_type(r), r.mig_profile, join(names, ", ")),
                      mean_profile(r.mig_profile, names) + "`billow nodes -g` shows the cards");
  const std::string existing = instances_there(index, c);
  return infeasible(
      fmt::format("no GPU{} can hold {} {}; existing instances: {}", of_type(r),
                  plural(r.gpus, "MIG instance"), r.mig_profile,
                  existing.empty() ? "none" : existing),
      "use an existing profile, or start the node with --allow-mig-changes (`billow up`, `billow "
      "join`)");
}

Status why_too_many_gpus(const Impl& index, const PlacementClass& c, const Largest& most) {
  std::string aside;
  if (most.out_of_service > 0)
    aside += fmt::format(" ({} out of service, see `billow nodes`)", most.out_of_service);
  if (most.in_mig_mode > 0)
    aside += fmt::format(" ({} in MIG mode: use --mig PROFILE)", most.in_mig_mode);
  if (most.gpus == 0)
    return infeasible(fmt::format("no node has a GPU{}{}", of_type(c.resources), aside),
                      "let a machine with GPUs join (`billow join`), rent one (`billow cloud "
                      "add`), or simulate some: `billow down`, then `billow up --background "
                      "--sim 8xH100`");
  return infeasible(
      fmt::format("no node has {}{}; the largest has {}{}", plural(c.resources.gpus, "GPU"),
                  of_type(c.resources), most.gpus, aside),
      split_over_nodes(index, c, most.gpus));
}

// One restriction on where the job may run: the option, the values asked for, and what nodes have.
struct Restriction {
  std::string_view option;
  std::vector<std::string> asked;
  std::set<std::string> here;
  bool met = false;  // by at least one node
};

Restriction restriction(const Impl& index,
                        std::string_view option,
                        const std::vector<std::string>& asked,
                        std::string (*of)(const NodeShape&)) {
  Restriction out{option, asked, {}, asked.empty()};
  for (const NodeState& n : index.nodes) {
    if (!n.present)
      continue;
    const std::string value = of(n.shape);
    if (!value.empty())
      out.here.insert(value);
    out.met = out.met || std::ranges::find(asked, value) != asked.end();
  }
  return out;
}

Status not_here(std::string text, const std::string& asked, const std::set<std::string>& here) {
  const std::string close = nearest(asked, {here.begin(), here.end()});
  return infeasible(std::move(text), close.empty() ? "" : fmt::format("did you mean {}?", close));
}

// A label that no node has, by its key or its value.
Status check_labels(const Impl& index, const LabelMap& asked) {
  for (const auto& [key, value] : asked) {
    std::set<std::string> keys;
    std::set<std::string> values;
    for (const NodeState& n : index.nodes)
      for (const auto& [k, v] : n.shape.labels) {
        keys.insert(k);
        if (k == key)
          values.insert(v);
      }
    if (values.empty())
      return not_here(fmt::format("no node has a label \"{}\"; labels here: {}", key,
                                  keys.empty() ? "none" : join({keys.begin(), keys.end()}, ", ")),
                      key, keys);
    if (!values.contains(value))
      return not_here(fmt::format("no node has the label {}={}; values of {} here: {}", key, value,
                                  key, join({values.begin(), values.end()}, ", ")),
                      value, values);
  }
  return {};
}

// No node is where the job may run: names the restriction that none meets.
Status why_no_place(const Impl& index, const PlacementClass& c) {
  const Constraints& k = c.constraints;
  const std::vector<std::string> group =
      k.placement_group.empty() ? std::vector<std::string>{} : std::vector{k.placement_group};
  const auto region = [](const NodeShape& n) {
    return n.place.region;
  };
  const auto pool = [](const NodeShape& n) {
    return n.pool;
  };
  const Restriction all[] = {
      restriction(index, "--region", k.regions, region),
      restriction(index, "--zone", k.zones, [](const NodeShape& n) { return n.place.zone; }),
      restriction(index, "--pool", k.pools, pool),
      restriction(index, "--fabric", k.fabrics, [](const NodeShape& n) { return n.place.fabric; }),
      restriction(index, "--placement-group", group,
                  [](const NodeShape& n) { return n.place.placement_group; }),
      restriction(index, "the project's regions:", c.home_regions, region),
      restriction(index, "the project's pools:", c.home_pools, pool)};
  std::vector<std::string> given;
  for (const Restriction& r : all) {
    if (!r.met)
      return not_here(
          fmt::format("no node matches {} {}; values here: {}", r.option, join(r.asked, ","),
                      r.here.empty() ? "none" : join({r.here.begin(), r.here.end()}, ", ")),
          r.asked.front(), r.here);
    if (!r.asked.empty())
      given.push_back(fmt::format("{} {}", r.option, join(r.asked, ",")));
  }
  BILLOW_TRY_VOID(check_labels(index, k.labels));
  for (const auto& [key, value] : k.labels)
    given.push_back(fmt::format("--node-label {}={}", key, value));
  return infeasible(given.empty() ? std::string("no node is left that the job may use")
                                  : fmt::format("no node matches all of {}", join(given, ", ")),
                    given.empty() ? "" : "drop one of them; `billow nodes --json` shows the nodes");
}

// No node could run a task even if it were empty: says which part of the request is too large.
Status why_no_node(const Impl& index, const PlacementClass& c) {
  const Resources& r = c.resources;
  Largest most;
  for (const NodeState& n : index.nodes)
    if (n.present && allowed_place(c, n.shape) && allowed_by_id(c, n.shape.id))
      add_node(n, c, most);
  if (most.nodes == 0)
    return why_no_place(index, c);
  if (c.mig)
    return why_no_instance(index, c, most);
  if (r.gpus > most.gpus)
    return why_too_many_gpus(index, c, most);
  if (r.gpus > 0 && r.share.mem_mib > most.gpu_mem_mib)
    return infeasible(fmt::format("no GPU{} has {} of memory; the largest has {}", of_type(r),
                                  size_text(r.share.mem_mib), size_text(most.gpu_mem_mib)),
                      fmt::format("use at most --gpu-mem {}G", most.gpu_mem_mib / 1024));
  if (r.cpu_milli > most.cpu_milli)
    return infeasible(fmt::format("no node has {} CPUs; the largest has {}", gpus_text(r.cpu_milli),
                                  gpus_text(most.cpu_milli)),
                      fmt::format("use at most --cpus {}", gpus_text(most.cpu_milli)));
  if (r.mem_mib > most.mem_mib)
    return infeasible(fmt::format("no node has {} of memory; the largest has {}",
                                  size_text(r.mem_mib), size_text(most.mem_mib)),
                      fmt::format("use at most --mem {}G", most.mem_mib / 1024));
  if (r.disk_mib > most.disk_mib)
    return infeasible(fmt::format("no node has {} of free disk; the largest has {}",
                                  size_text(r.disk_mib), size_text(most.disk_mib)),
                      fmt::format("use at most --disk {}G", most.disk_mib / 1024));
  if (c.constraints.nvlink_required && r.gpus > most.linked_gpus)
    return infeasible(
        fmt::format("no NVLink domain has {}; the largest has {}", plural(r.gpus, "GPU"),
                    most.linked_gpus),
        fmt::format("use at most --gpus {}, or drop --topology nvlink", most.linked_gpus));
  if (r.takes_node())
    return infeasible(
        "no whole node fits: each has a GPU that is out of service or of another type");
  return infeasible("no single node has the GPUs, CPUs and memory of a task together");
}

std::string asked_text(const Resources& r) {
  if (r.takes_node())
    return "a whole node";
  std::string text = r.gpus == 0 ? "no GPU"
                     : r.share.milli == 0
                         ? size_text(r.share.mem_mib) + " of a GPU"
                         : gpus_text(std::int64_t{r.gpus} * r.share.milli) + " GPU" +
                               (r.gpus == 1 && r.share.whole() ? "" : "s");
  text += fmt::format(", {} CPUs", gpus_text(r.cpu_milli));
  return r.mem_mib > 0 ? text + " and " + size_text(r.mem_mib) + " of memory" : text;
}

// Whether the job would fit into its reservation if the reservation were empty.
Status fits_its_reservation(const Impl& index, const PlacementClass& c, const JobRequest& job) {
  const auto r = index.reservations.find(job.reservation);
  if (r == index.reservations.end())
    return {};  // it has ended, which `explain` reports
  std::int64_t fits = 0;
  const Placement* largest = nullptr;
  for (const Placement& reserved : r->second.placements) {
    const NodeState* node = index.find(reserved.node);
    if (!node)
      return {};  // the reservation is moved to other nodes
    fits += allowed_place(c, node->shape) && allowed_by_id(c, node->shape.id) &&
            fit_reserved(c, *node, reserved, node->shape.disk_mib);
    if (!largest || reserved.gpus.size() > largest->gpus.size())
      largest = &reserved;
  }
  if (fits >= job.tasks || !largest)
    return {};
  std::int64_t milli = 0;
  for (const GpuShare& g : largest->gpus)
    milli += g.share.milli;
  const std::string nodes = r->second.placements.size() == 1
                                ? ""
                                : fmt::format("on each of {} nodes ", r->second.placements.size());
  return infeasible(
      fmt::format("the job needs {}{}; reservation {} holds {}{} GPU{}, {} CPUs and {} of memory",
                  asked_text(job.resources),
                  job.tasks > 1 ? fmt::format(" on each of {} nodes", job.tasks) : "",
                  job.reservation.value, nodes, gpus_text(milli),
                  milli == whole_gpu_milli ? "" : "s", gpus_text(largest->cpu_milli),
                  size_text(largest->mem_mib)),
      "request no more than that, or drop --reservation");
}

Status within_user_limit(const Impl& index, const JobRequest& job) {
  const auto project = index.projects.find(job.project);
  if (project == index.projects.end())
    return {};
  const ProjectSettings& s = project->second.settings;
  const std::int64_t asked = gpu_milli_of(job);
  if (s.user_limit_milli < 0 || asked <= s.user_limit_milli)
    return {};
  return infeasible(
      fmt::format("the job needs {} GPUs; one user of project {} may use {} at once",
                  gpus_text(asked), s.name.empty() ? std::to_string(s.id.value) : s.name,
                  gpus_text(s.user_limit_milli)),
      fmt::format("ask for at most {} GPUs, or let an admin raise the limit (`billow project set "
                  "--user-max`)",
                  gpus_text(s.user_limit_milli)));
}

// Capacity that is guaranteed to other projects is lent only to jobs that can be preempted. A job
// that needs more than the rest would wait until somebody changes a guarantee.
Status fits_beside_guarantees(const Impl& index, const JobRequest& job) {
  if (gives_way(job) || job.reservation)
    return {};
  std::int64_t guaranteed = 0;
  for (const auto& [id, project] : index.projects)
    guaranteed += project.settings.guaranteed_milli;
  const auto own = index.projects.find(job.project);
  const std::int64_t mine = own == index.projects.end() ? 0 : own->second.settings.guaranteed_milli;
  const std::int64_t open = std::max<std::int64_t>(0, index.total_milli - guaranteed);
  const std::int64_t asked = asked_milli(index, job);
  if (guaranteed == mine || asked <= mine + open)
    return {};
  return infeasible(
      fmt::format("the job needs {} GPUs; jobs of its project that cannot be preempted may use at "
                  "most {} of the {}, because {} are guaranteed to other projects",
                  gpus_text(asked), gpus_text(mine + open), gpus_text(index.total_milli),
                  gpus_text(guaranteed - mine)),
      fmt::format("add --spot to use all of them, ask for at most {} GPUs, or let an admin change "
                  "the guarantees (`billow project set`)",
                  gpus_text(mine + open)));
}

}  // namespace

std::vector<bool> could_run(const SchedIndex& index,
                            const JobRequest& job,
                            const std::vector<NodeShape>& nodes) {
  const PlacementClass c = class_of(index.impl(), job);
  std::vector<bool> out;
  for (const NodeShape& shape : nodes) {
    NodeState node;
    node.shape = shape;
    node.gpus.resize(shape.gpus.size());
    for (std::size_t i = 0; i < shape.gpus.size(); ++i)
      node.ranked.push_back(static_cast<std::uint8_t>(i));
    out.push_back(allowed_place(c, shape) && allowed_by_id(c, shape.id) &&
                  fit_empty(c, node).has_value());
  }
  return out;
}

Status feasible(const SchedIndex& wrapped, const JobRequest& job) {
  BILLOW_TRY_VOID(reservable(wrapped, job));
  BILLOW_TRY_VOID(within_user_limit(wrapped.impl(), job));
  return fits_beside_guarantees(wrapped.impl(), job);
}

namespace {

Status within_project_limit(const Impl& index, const JobRequest& job) {
  const auto it = index.projects.find(job.project);
  if (it == index.projects.end())
    return {};
  const ProjectSettings& s = it->second.settings;
  const std::int64_t asked = gpu_milli_of(job);
  const std::int64_t most = !s.may_borrow ? s.guaranteed_milli : s.limit_milli;
  if (most < 0 || asked <= most)
    return {};
  return infeasible(
      fmt::format("the job needs {} GPUs; project {} may use {} at once", gpus_text(asked),
                  s.name.empty() ? std::to_string(s.id.value) : s.name, gpus_text(most)),
      fmt::format("ask for at most {} GPUs, or let an admin raise the limit (`billow project "
                  "set`)",
                  gpus_text(most)));
}

// Whether the members of a group fit on the nodes if these were empty: each alone, then together.
Status fits_empty_nodes(const SchedIndex& wrapped, const JobRequest& job) {
  std::int32_t first = 0;
  for (const RolePart& role : job.parts) {
    if (auto ok = reservable(wrapped, member_request(job, first)); !ok)
      return pass(std::move(ok.error()), "role " + role.name);
    first += role.tasks;
  }
  if (fit_together_when_empty(wrapped.impl(), job))
    return {};
  return infeasible(
      fmt::format("the {} members of the group do not fit on the nodes together, even if these "
                  "were empty; they need {} GPUs in total",
                  job.tasks, gpus_text(gpu_milli_of(job))),
      job.constraints.close_required ? "prefer closeness instead of requiring it"
                                     : "request fewer members, or fewer resources for each");
}

}  // namespace

Status reservable(const SchedIndex& wrapped, const JobRequest& job) {
  const Impl& index = wrapped.impl();
  if (!job.parts.empty()) {
    BILLOW_TRY_VOID(fits_empty_nodes(wrapped, job));
    return within_project_limit(index, job);
  }
  const Resources& r = job.resources;
  if (job.tasks < 1)
    return fail(Code::invalid, "a job needs at least one node");
  if (r.gpus < 0 || r.share.milli < 0 || r.share.milli > whole_gpu_milli || r.share.mem_mib < 0 ||
      r.cpu_milli < 0 || r.mem_mib < 0 || r.disk_mib < 0)
    return fail(Code::invalid,
                "resources must not be negative, and a share must not exceed one GPU");
  if (r.gpus > 0 && r.mig_profile.empty() && r.share.milli == 0 && r.share.mem_mib == 0)
    return fail(Code::invalid, "the GPU share is empty: give thousandths of a GPU, or memory");
  if (!r.mig_profile.empty()) {
    if (auto profile = parse_mig_profile(r.mig_profile); !profile) {
      const std::vector<std::string> names = profiles_here(index, {});
      Error error = profile.error();
      if (!names.empty())
        error.hint = mean_profile(r.mig_profile, names) + "profiles here: " + join(names, ", ");
      return pass(std::move(error));
    }
  }
  if (index.slot_of.empty())
    return fail(Code::unavailable, "no node has joined yet",
                "start an agent with `billow join`, or wait for a pool to bring nodes");
  const PlacementClass c = class_of(index, job);
  const auto [nodes, together] = wrapped.impl().capacity_of(c);
  if (nodes == 0) {
    if (r.gpus > 0)
      BILLOW_TRY_VOID(check_types(index, r));
    return why_no_node(index, c);
  }
  if (nodes < job.tasks)
    return infeasible(fmt::format("the job needs {}; only {} could run one of its tasks",
                                  plural(job.tasks, "node"), nodes),
                      fmt::format("use at most --nodes {}", nodes));
  if (job.tasks > 1 && c.constraints.close_required && c.constraints.close != Closeness::anywhere) {
    if (together < job.tasks)
      return infeasible(
          fmt::format(
              "the {} nodes must be close together, but no single place has more than {} that fit",
              job.tasks, together),
          "prefer closeness instead of requiring it");
  }
  if (job.reservation)
    BILLOW_TRY_VOID(fits_its_reservation(index, c, job));
  return within_project_limit(index, job);
}

Explanation reservation_over(JobId job, ReservationId reservation, std::size_t elements) {
  Explanation e;
  const std::string whom = elements == 1 ? "it" : fmt::format("its {} waiting elements", elements);
  e.reasons.push_back(
      {.kind = ReasonKind::held,
       .text = fmt::format(
           "Its reservation {} has ended, and nobody has allowed {} to run at the on-demand price.",
           reservation.value, whom)});
  e.would_start_now = fmt::format(
      "`billow resume {0} --on-demand` lets {1} start like any other job; `billow stop {0}` "
      "cancels "
      "{1}",
      job.value, elements == 1 ? "it" : "them");
  return e;
}

const char* reason_name(ReasonKind kind) {
  switch (kind) {
    case ReasonKind::held:
      return "held";
    case ReasonKind::budget:
      return "budget";
    case ReasonKind::project_limit:
      return "project_limit";
    case ReasonKind::quota:
      return "quota";
    case ReasonKind::user_limit:
      return "user_limit";
    case ReasonKind::array_limit:
      return "array_limit";
    case ReasonKind::residency:
      return "residency";
    case ReasonKind::infeasible:
      return "infeasible";
    case ReasonKind::no_capacity:
      return "no_room";  // the API has called it that since its first version
    case ReasonKind::fragmentation:
      return "fragmentation";
    case ReasonKind::topology:
      return "topology";
    case ReasonKind::reserved:
      return "reserved";
    case ReasonKind::waiting_behind:
      return "waiting_behind";
    case ReasonKind::preempting:
      return "preempting";
    case ReasonKind::next:
      return "next";
  }
  return "unknown";
}

}  // namespace billow::sched
