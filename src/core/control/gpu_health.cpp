// Cards taken out of service one by one: the head drains a GPU that became unhealthy, with the
// reason; a person puts it back. Jobs on it continue. A fault older than a person's decision does
// not drain the card again, otherwise an undrain would last only until the next heartbeat.
#include <algorithm>

#include <fmt/format.h>

#include "core/control/applier.h"
#include "core/control/decide/decider.h"

namespace billow::control {

Decision Decider::operator()(const DrainGpu& c) {
  const auto node = state.nodes.find(c.node);
  if (node == state.nodes.end())
    return fail(Code::not_found, "no such node");
  const auto& gpus = node->second.offer.gpus;
  if (std::ranges::none_of(gpus, [&](const NodeGpu& gpu) { return gpu.index == c.gpu; }))
    return fail(Code::not_found,
                fmt::format("node {} has no GPU {}", node->second.offer.name, c.gpu),
                "see `billow nodes`");
  const GpuMark* mark = node->second.mark(c.gpu);
  if ((mark ? mark->drained : std::string()) == c.reason)
    return Events{};
  if (c.fault_at && mark && (!mark->drained.empty() || c.fault_at <= mark->since))
    return Events{};
  return Events{GpuDrained{c.node, c.gpu, c.reason}};
}

void Applier::operator()(const GpuDrained& e) {
  Node& n = node(e.node);
  GpuMark* mark = nullptr;
  for (GpuMark& m : n.gpu_marks)
    if (m.gpu == e.gpu)
      mark = &m;
  if (!mark)
    mark = &n.gpu_marks.emplace_back(GpuMark{.gpu = e.gpu, .drained = {}, .since = {}});
  mark->drained = e.reason;
  mark->since = event.at;
  reshape(e.node);
}

}  // namespace billow::control
