// Answers for people: whether a job could ever run here, and if not, which request is too large.
// Why it waits is in why.cpp.
#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"
#include "core/sched/reserved.h"

namespace billow::sched {
namespace {

using Impl = SchedIndex::Impl;

// "H100 ×8, A100-40 ×4": what this installation has.
std::string inventory(const Impl& index) {
  std::map<std::string, int> count;
  for (const NodeState& n : index.nodes) {
    for (const GpuShape& g : n.shape.gpus)
      ++count[g.type];
  }
  std::vector<std::string> parts;
  for (const auto& [type, n] : count)
    parts.push_back(fmt::format("{} ×{}", type, n));
  return parts.empty() ? "no GPU at all" : join(parts, ", ");
}

// As people ask for it: "500 GiB", "512 MiB"; a part is cut off rather than rounded up, so that
// what is named as the largest can be had.
std::string size_text(std::int64_t mib) {
  if (mib < 1024)
    return fmt::format("{} MiB", mib);
  return fmt::format("{:g} GiB", static_cast<double>(mib * 10 / 1024) / 10);
}

std::string plural(std::int64_t n, std::string_view what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

auto infeasible(std::string text, std::string hint = {}) {
  return fail(Code::infeasible, "infeasible: " + std::move(text), std::move(hint));
}

Status check_types(const Impl& index, const Resources& r) {
  if (r.gpu_types.empty())
    return {};
  std::set<std::string> have;
  for (const NodeState& n : index.nodes) {
    for (const GpuShape& g : n.shape.gpus)
      have.insert(g.type);
  }
  for (const std::string& type : r.gpu_types) {
    if (have.contains(type))
      return {};
  }
  const std::string& first = r.gpu_types.front();
  // "A100" where there are A100-40 and A100-80: which of them is a question of price and memory, so
  // it is asked and not guessed.
  std::vector<std::string> variants;
  for (const std::string& type : have)
    if (lower(type).starts_with(lower(first) + "-"))
      variants.push_back(type);
  if (!variants.empty())
    return infeasible(
        fmt::format("no GPU here is a plain {}; this Billow has: {}", first, inventory(index)),
        fmt::format("any of its kinds: --gpu-type {}", join(variants, ",")));
  const std::string close = nearest(first, {have.begin(), have.end()});
  return infeasible(fmt::format("unknown GPU type \"{}\"; {}this Billow has: {}", first,
                                close.empty() ? "" : fmt::format("did you mean {}? ", close),
                                inventory(index)));
}

std::int64_t nodes_for(const Impl& index, const PlacementClass& c, std::int64_t gpus) {
  PlacementClass part = c;
  part.resources.gpus = static_cast<std::int32_t>(gpus);
  return std::ranges::count_if(index.nodes, [&](const NodeState& n) {
    return allowed(part, n) && fit_empty(part, n).has_value();
  });
}

// A hint that works: as many GPUs over several nodes, if there are nodes for it; else the most
// there is.
std::string split_over_nodes(const Impl& index, const PlacementClass& c, std::int64_t gpus_max) {
  const std::int64_t asked = c.resources.gpus;
  for (std::int64_t gpus = gpus_max; gpus > 0; --gpus) {
    if (asked % gpus == 0 && nodes_for(index, c, gpus) >= asked / gpus)
      return fmt::format("ask for several nodes: --nodes {} --gpus {}", asked / gpus, gpus);
  }
  const std::int64_t most = nodes_for(index, c, gpus_max);
  return most > 1
             ? fmt::format("ask for at most --gpus {}, or over several nodes --nodes {} --gpus {}",
                           gpus_max, most, gpus_max)
             : fmt::format("ask for at most --gpus {}", gpus_max);
}

// "5 × 1g.10gb, 1 × 2g.20gb": the MIG instances of the nodes it may use.
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

// Every node refused an empty start: say which request is too large, the narrowest first.
Status why_no_node(const Impl& index, const PlacementClass& c) {
  const Resources& r = c.resources;
  std::int64_t gpus_max = 0, cpu_max = 0, mem_max = 0, gpu_mem_max = 0, allowed_count = 0,
               linked_max = 0, sick = 0, cut_up = 0;
  for (const NodeState& n : index.nodes) {
    if (!allowed(c, n))
      continue;
    ++allowed_count;
    std::int64_t cards = 0;
    std::map<std::int32_t, std::int64_t> domains;
    for (const GpuShape& g : n.shape.gpus) {
      if (!r.gpu_types.empty() && std::ranges::find(r.gpu_types, g.type) == r.gpu_types.end())
        continue;
      if (!g.healthy) {
        ++sick;
        continue;
      }
      if (g.mig_enabled != c.mig.has_value()) {
        cut_up += g.mig_enabled;
        continue;
      }
      ++cards;
      gpu_mem_max = std::max(gpu_mem_max, g.memory_mib);
      linked_max = std::max(linked_max, ++domains[g.nvlink_domain]);
    }
    gpus_max = std::max(gpus_max, cards);
    cpu_max = std::max(cpu_max, n.shape.cpu_milli);
    mem_max = std::max(mem_max, n.shape.mem_mib);
  }
  const std::string of_type = r.gpu_types.empty() ? "" : " of type " + join(r.gpu_types, " or ");
  if (allowed_count == 0)
    return infeasible(
        "no node matches the region, zone, pool, label and fabric constraints of the job");
  if (c.mig) {
    if (gpus_max == 0)
      return infeasible(fmt::format("no GPU{} is in MIG mode, so there is no {} instance", of_type,
                                    r.mig_profile),
                        "a part of any GPU: --gpus 0.25; or an administrator turns MIG mode on "
                        "(nvidia-smi -mig 1)");
    const std::string there = instances_there(index, c);
    return infeasible(fmt::format("no GPU{} here can hold {} of {}; {}", of_type,
                                  plural(r.gpus, "MIG instance"), r.mig_profile,
                                  there.empty() ? "no instance is made yet" : "there are " + there),
                      "ask for one of these; or the node's `billow up` (or `join`) may make others "
                      "as asked for: --allow-mig-changes");
  }
  if (r.gpus > gpus_max) {
    const std::string but = fmt::format(
        "{}{}", sick ? fmt::format(" ({} out of service, see `billow nodes`)", sick) : "",
        cut_up ? fmt::format(" ({} in MIG mode, given as instances: --mig PROFILE)", cut_up) : "");
    if (gpus_max == 0)
      return infeasible(fmt::format("no node has a GPU{}{}", of_type, but));
    return infeasible(fmt::format("no node has {}{}; largest is {}{}", plural(r.gpus, "GPU"),
                                  of_type, gpus_max, but),
                      split_over_nodes(index, c, gpus_max));
  }
  if (r.gpus > 0 && r.share.mem_mib > gpu_mem_max)
    return infeasible(fmt::format("no GPU{} has {} of memory; largest is {}", of_type,
                                  size_text(r.share.mem_mib), size_text(gpu_mem_max)));
  if (r.cpu_milli > cpu_max)
    return infeasible(fmt::format("no node has {:g} CPUs; largest is {:g}",
                                  static_cast<double>(r.cpu_milli) / 1000,
                                  static_cast<double>(cpu_max) / 1000));
  if (r.mem_mib > mem_max)
    return infeasible(fmt::format("no node has {} of memory; largest is {}", size_text(r.mem_mib),
                                  size_text(mem_max)),
                      fmt::format("ask for at most --mem {}G", mem_max / 1024));
  if (c.constraints.nvlink_required && r.gpus > linked_max)
    return infeasible(
        fmt::format("no NVLink domain has {}; largest is {}", plural(r.gpus, "GPU"), linked_max));
  if (r.takes_node())
    return infeasible(
        "no node can be given whole: one of the GPUs of every candidate is not healthy or of "
        "another type");
  return infeasible("no single node has the GPUs, CPUs and memory of this task together");
}

std::string number(std::int64_t milli) {
  return fmt::format("{:g}", static_cast<double>(milli) / 1000);
}
std::string asked_text(const Resources& r) {
  if (r.takes_node())
    return "a whole node";
  std::string text = r.gpus == 0          ? "no GPU"
                     : r.share.milli == 0 ? size_text(r.share.mem_mib) + " of a GPU"
                                          : number(std::int64_t{r.gpus} * r.share.milli) + " GPU" +
                                                (r.gpus == 1 && r.share.whole() ? "" : "s");
  text += fmt::format(", {} CPUs", number(r.cpu_milli));
  return r.mem_mib > 0 ? text + " and " + size_text(r.mem_mib) + " of memory" : text;
}

// Whether the reservation it names could ever hold it, were nothing else inside.
Status fits_its_reservation(const Impl& index, const PlacementClass& c, const JobRequest& job) {
  const auto r = index.reservations.find(job.reservation);
  if (r == index.reservations.end())
    return {};  // it is over: why it waits is told by other words
  std::int64_t fits = 0;
  const Placement* largest = nullptr;
  for (const Placement& reserved : r->second.placements) {
    const NodeState* node = index.find(reserved.node);
    if (!node)
      return {};  // other places are sought for it
    fits += allowed_place(c, node->shape) && allowed_by_id(c, node->shape.id) &&
            fit_reserved(c, *node, reserved);
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
      fmt::format(
          "the job asks for {}{}; reservation {} holds {}{} GPU{}, {} CPUs and {} of memory",
          asked_text(job.resources),
          job.tasks > 1 ? fmt::format(" on each of {} nodes", job.tasks) : "",
          job.reservation.value, nodes, number(milli), milli == whole_gpu_milli ? "" : "s",
          number(largest->cpu_milli), size_text(largest->mem_mib)),
      "ask for no more than that, or leave --reservation out");
}

}  // namespace

Status feasible(const SchedIndex& wrapped, const JobRequest& job) {
  const Impl& index = wrapped.impl();
  const Resources& r = job.resources;
  if (job.tasks < 1)
    return fail(Code::invalid, "a job has at least one node");
  if (r.gpus < 0 || r.share.milli < 0 || r.share.milli > whole_gpu_milli || r.share.mem_mib < 0 ||
      r.cpu_milli < 0 || r.mem_mib < 0)
    return fail(Code::invalid,
                "resources cannot be negative, nor a share more than the whole card");
  if (r.gpus > 0 && r.mig_profile.empty() && r.share.milli == 0 && r.share.mem_mib == 0)
    return fail(Code::invalid, "a GPU share of nothing: give thousandths of a card or memory");
  if (!r.mig_profile.empty()) {
    if (auto profile = parse_mig_profile(r.mig_profile); !profile)
      return pass(profile.error());
  }
  if (index.slot_of.empty())
    return fail(Code::unavailable, "no node has joined yet",
                "start an agent, or wait for a pool to bring nodes");
  const PlacementClass c = class_of(index, job);
  const auto [nodes, together] = wrapped.impl().capacity_of(c);
  if (nodes == 0) {
    if (r.gpus > 0)
      BILLOW_TRY_VOID(check_types(index, r));
    return why_no_node(index, c);
  }
  if (nodes < job.tasks)
    return infeasible(fmt::format("the job asks for {}; only {} could run one of its tasks",
                                  plural(job.tasks, "node"), nodes));
  if (job.tasks > 1 && c.constraints.close_required && c.constraints.close != Closeness::anywhere) {
    if (together < job.tasks)
      return infeasible(
          fmt::format(
              "the {} nodes must be close together, and no one place has more than {} that fit",
              job.tasks, together),
          "prefer closeness instead of requiring it");
  }
  if (job.reservation)
    BILLOW_TRY_VOID(fits_its_reservation(index, c, job));
  if (auto it = index.projects.find(job.project); it != index.projects.end()) {
    const ProjectSettings& s = it->second.settings;
    const std::int64_t asked = gpu_milli_of(job);
    const std::int64_t most = !s.may_borrow ? s.guaranteed_milli : s.limit_milli;
    if (most >= 0 && asked > most)
      return infeasible(fmt::format("the job asks for {:g} GPUs; project {} may use {:g} at once",
                                    static_cast<double>(asked) / 1000,
                                    s.name.empty() ? std::to_string(s.id.value) : s.name,
                                    static_cast<double>(most) / 1000));
  }
  return {};
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
    case ReasonKind::no_room:
      return "no_room";
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
