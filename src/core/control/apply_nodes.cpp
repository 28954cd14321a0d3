// Folding the events of nodes.
#include "core/control/applier.h"

namespace billow::control {

void Applier::operator()(const NodeJoined& e) {
  state.nodes[e.node.id] = e.node;
  state.next_node = std::max(state.next_node, e.node.id.value + 1);
  state.index.upsert_node(shape_of(state, e.node));
  note_node_here(e.node);
}

void Applier::operator()(const NodeOfferChanged& e) {
  Node& n = node(e.node);
  n.offer = e.offer;
  state.index.upsert_node(shape_of(state, n));
}

void Applier::operator()(const NodeReachable& e) {
  Node& n = node(e.node);
  n.reachable = true;  // the books still ask since when it was unreachable
  state.index.upsert_node(shape_of(state, n));
  const auto on = state.tasks_on.find(e.node);
  if (on == state.tasks_on.end())
    return;
  for (TaskId id : on->second) {
    Task& t = task(id);
    if (t.state != TaskState::unreachable)
      continue;
    t.state = state_by_orders(job(t.job), t);
  }
}

void Applier::operator()(const NodeUnreachable& e) {
  Node& n = node(e.node);
  if (!n.reachable)
    return;
  n.reachable = false;
  n.unreachable_since = e.heard_at ? e.heard_at : event.billed_at();
  state.index.upsert_node(shape_of(state, n));
  const auto on = state.tasks_on.find(e.node);
  if (on == state.tasks_on.end())
    return;
  for (TaskId id : on->second)
    task(id).state = TaskState::unreachable;
}

void Applier::operator()(const NodeDrained& e) {
  Node& n = node(e.node);
  n.drained = e.reason;
  state.index.upsert_node(shape_of(state, n));
}

void Applier::operator()(const NodeRemoved& e) {
  state.index.remove_node(e.node);
  state.nodes.erase(e.node);
}

}  // namespace billow::control
