// Reading an index: its contents in canonical order, an index rebuilt from them, and the check that
// both agree.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/sched/index.h"

namespace billow::sched {

SchedIndex::SchedIndex() : impl_(std::make_unique<Impl>()) {}
SchedIndex::SchedIndex(SchedSettings settings) : SchedIndex() {
  impl_->settings = settings;
}
SchedIndex::SchedIndex(SchedIndex&&) noexcept = default;
SchedIndex& SchedIndex::operator=(SchedIndex&&) noexcept = default;
SchedIndex::~SchedIndex() = default;

SchedIndex SchedIndex::rebuild(const IndexContents& c) {
  SchedIndex index(c.settings);
  for (const NodeShape& n : c.nodes)
    index.upsert_node(n);
  for (const ProjectSettings& p : c.projects)
    index.upsert_project(p);
  for (const RunningJob& j : c.running)
    index.restore_running(j);
  for (const JobRequest& j : c.queued)
    index.enqueue(j);
  for (const Reservation& r : c.reservations)
    index.upsert_reservation(r);
  for (const Sleeper& s : c.sleepers)
    index.asleep(s);
  // Last, because restoring jobs has accrued some usage.
  for (const Usage& u : c.usage)
    index.set_usage(u);
  index.set_typical(c.typical);
  index.impl_->learned = c.learned;
  return index;
}

IndexContents SchedIndex::contents() const {
  const Impl& x = *impl_;
  IndexContents c;
  c.settings = x.settings;
  for (const NodeState& n : x.nodes) {
    if (n.present)
      c.nodes.push_back(n.shape);
  }
  std::ranges::sort(c.nodes, {}, &NodeShape::id);
  for (const auto& [id, p] : x.projects) {
    c.projects.push_back(p.settings);
    c.usage.push_back(p.usage);
    for (const auto& [user, had] : p.had)
      c.usage.push_back(had.usage);
  }
  for (const auto& [id, job] : x.running)
    c.running.push_back(job);
  std::ranges::sort(c.running, {}, [](const RunningJob& j) { return j.request.id; });
  for (const auto& [id, job] : x.queued)
    c.queued.push_back(x.request_of(id, job));
  std::ranges::sort(c.queued, {}, &JobRequest::id);
  for (const auto& [id, r] : x.reservations)
    c.reservations.push_back(r);
  for (const auto& [id, s] : x.sleepers)
    c.sleepers.push_back(s);
  c.typical = x.typical;
  c.learned = x.learned;
  return c;
}

bool SchedIndex::equals(const SchedIndex& other) const {
  IndexContents a = contents(), b = other.contents();
  a.learned = b.learned = {};
  return a == b;
}
const Learned& SchedIndex::learned() const {
  return impl_->learned;
}
void SchedIndex::set_learned(const Learned& learned) {
  impl_->learned = learned;
  impl_->model.reset();
}

Status SchedIndex::check_invariants() const {
  const SchedIndex fresh = rebuild(contents());
  const Impl &a = *impl_, &b = *fresh.impl_;
  const auto differs = [](std::string what) {
    return fail(Code::internal, "scheduler index: " + std::move(what));
  };
  for (const auto& [id, slot] : a.slot_of) {
    const NodeState &n = a.nodes[slot], &m = *b.find(id);
    if (n.free_cpu_milli != m.free_cpu_milli || n.free_mem_mib != m.free_mem_mib ||
        n.free_disk_mib != m.free_disk_mib || n.free_milli != m.free_milli || n.tasks != m.tasks ||
        n.jobs != m.jobs || n.hash != m.hash || n.awaited != m.awaited)
      return differs(fmt::format("node {} differs from its rebuilt state", id.value));
    if (n.free_cpu_milli < 0 || n.free_mem_mib < 0 || n.free_disk_mib < 0)
      return differs(fmt::format("node {} is oversubscribed", id.value));
    for (const GpuState& g : n.gpus) {
      if (g.free_milli < 0 || g.free_mem_mib < 0)
        return differs(fmt::format("a GPU of node {} is oversubscribed", id.value));
    }
  }
  if (a.total_milli != b.total_milli || a.total_cpu_milli != b.total_cpu_milli ||
      a.total_mem_mib != b.total_mem_mib)
    return differs("totals differ");
  if (a.cards != b.cards)
    return differs("the numbers of cards differ");
  if (a.array_running != b.array_running)
    return differs("array counts differ");
  if (a.repairs != b.repairs)
    return differs("repairs differ");
  if (a.ending != b.ending)
    return differs("expected ends differ");
  if (a.moving != b.moving)
    return differs("those that move differ");
  std::size_t members = 0;
  for (GroupSlot g = 0; g < a.groups.size(); ++g) {
    for (Slot s : a.groups.at(g).members) {
      ++members;
      if (a.nodes[s].group != g || a.groups.at(g).tie != a.nodes[s].hash)
        return differs(
            fmt::format("node {} is in a group it is not like", a.nodes[s].shape.id.value));
    }
  }
  if (members != a.slot_of.size())
    return differs("groups do not cover the nodes");
  for (const auto& [id, p] : a.projects) {
    const ProjectState& q = b.projects.at(id);
    if (p.rate_milli != q.rate_milli || p.running_milli != q.running_milli ||
        p.users.size() != q.users.size())
      return differs(fmt::format("project {} differs from its rebuilt state", id.value));
    for (const auto& [user, had] : p.had) {
      const auto again = q.had.find(user);
      if (again == q.had.end() || again->second.rate_milli != had.rate_milli)
        return differs(fmt::format("user {} of project {} differs from its rebuilt state",
                                   user.value, id.value));
    }
  }
  if (a.guaranteed_milli != b.guaranteed_milli || a.firm_borrowed_milli != b.firm_borrowed_milli)
    return differs("the sums of guarantees differ");
  std::size_t jobs = 0;
  for (const auto& [key, kind] : a.kinds)
    jobs += kind->jobs;
  if (jobs != a.queued.size())
    return differs("kinds do not cover the queue");
  return {};
}

std::size_t SchedIndex::running_count() const {
  return impl_->running.size();
}
std::size_t SchedIndex::queued_count() const {
  return impl_->queued.size();
}
const RunningJob* SchedIndex::running(JobId id) const {
  auto it = impl_->running.find(id);
  return it == impl_->running.end() ? nullptr : &it->second;
}
std::optional<JobRequest> SchedIndex::queued(JobId id) const {
  auto it = impl_->queued.find(id);
  if (it == impl_->queued.end())
    return std::nullopt;
  return impl_->request_of(id, it->second);
}
const NodeShape* SchedIndex::node(NodeId id) const {
  const NodeState* n = impl_->find(id);
  return n ? &n->shape : nullptr;
}
std::int64_t SchedIndex::free_milli(NodeId id) const {
  const NodeState* n = impl_->find(id);
  return n ? n->free_milli : 0;
}
std::int64_t SchedIndex::free_cpu_milli(NodeId id) const {
  const NodeState* n = impl_->find(id);
  return n ? n->free_cpu_milli : 0;
}
std::int64_t SchedIndex::free_mem_mib(NodeId id) const {
  const NodeState* n = impl_->find(id);
  return n ? n->free_mem_mib : 0;
}
std::int64_t SchedIndex::free_disk_mib(NodeId id) const {
  const NodeState* n = impl_->find(id);
  return n ? n->free_disk_mib : 0;
}
const std::set<JobId>& SchedIndex::waiting_for_members() const {
  return impl_->repairs;
}
double SchedIndex::usage(ProjectId id, WallTime now) const {
  auto it = impl_->projects.find(id);
  if (it == impl_->projects.end())
    return 0;
  Usage usage = it->second.usage;
  impl_->accrue(usage, it->second.rate_milli, now);
  return usage.milli_seconds;
}
std::int64_t SchedIndex::running_milli(ProjectId id) const {
  auto it = impl_->projects.find(id);
  return it == impl_->projects.end() ? 0 : it->second.running_milli;
}

}  // namespace billow::sched
