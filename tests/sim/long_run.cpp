// The parts of a long run: hours in which nothing goes wrong, machines that are rented, and what
// begins again with the next faults. Time in which nothing happens costs nothing: while every node
// is connected and no work is left, ticks are ten minutes apart and heartbeats are taken for heard.
#include "audit.h"
#include "endpoints.h"
#include "head.h"
#include "node.h"
#include "provider.h"
#include "world.h"

namespace billow::sim {

// A few jobs every two hours.
void World::pass_quietly(std::int64_t until_ns) {
  const auto done = [this] {
    return clients->all_done() && all_is_well();
  };
  while (now_ns < until_ns) {
    sleep_until(std::min(until_ns, now_ns + some(minutes(5), hours(4)).ns));
    clients->wish(static_cast<std::size_t>(rng.between(1, 3)));
    clients->settle_down();
    bool ended = run_until(now_ns + minutes(30).ns, done);
    for (int minute = 0; !ended && minute < 20; ++minute) {
      clients->stop_infeasible();
      ended = run_until(now_ns + minutes(1).ns, done);
    }
    if (!ended)
      broken("without any fault, work does not end");
  }
}

void World::sleep_until(std::int64_t until_ns) {
  asleep_ = true;
  tick_after(minutes(10));
  run_until(until_ns, {});
  now_ns = until_ns;
  asleep_ = false;
  hear_all();
  tick_after(seconds(1));
}

void World::hear_all() {
  for (const auto& h : heads)
    for (const auto& weak : h->conns)
      if (const auto conn = weak.lock())
        conn->heard = head_clock.steady();
}

bool World::all_is_well() const {
  const SimHead* leader = head();
  if (!leader || heads.size() != 1)
    return false;
  const control::State& state = leader->engine->state();
  for (const auto& n : nodes) {
    if (n->gone)
      continue;
    const Node* known = state.node_by_name(n->name);
    if (!n->up || !n->core() || !n->core()->welcomed() || !known || !known->reachable ||
        n->core()->unacknowledged_count() > 0)
      return false;
  }
  return state.machines.empty() && !provider->has_late() && provider->running() == 0;
}

// Other faults, other people, and new nodes for those that are gone.
void World::begin_again() {
  bury_gone();
  head()->check_replay_and_save();
  calm = false;
  provider->trouble_again();
  draw_character();
  clients->wish(static_cast<std::size_t>(rng.between(3, 14)));
  endpoints->begin_again();
  const auto own = std::count_if(nodes.begin(), nodes.end(),
                                 [](const auto& n) { return !n->gone && !n->is_rented(); });
  for (auto count = static_cast<std::size_t>(own); count < own_nodes_; ++count) {
    nodes.push_back(
        std::make_unique<SimNode>(*this, next_node_++, static_cast<int>(rng.between(1, 4))));
    nodes.back()->boot();
  }
}

// Nodes that are gone and that the head no longer knows are not looked at again.
void World::bury_gone() {
  const control::State& state = head()->engine->state();
  const auto kept = std::stable_partition(nodes.begin(), nodes.end(), [&](const auto& n) {
    return !n->gone || state.node_by_name(n->name) || n->live().size() > 0;
  });
  buried_.insert(buried_.end(), std::make_move_iterator(kept),
                 std::make_move_iterator(nodes.end()));
  nodes.erase(kept, nodes.end());
}

// Machines of the provider start and end.
void World::run_rented() {
  provider->pass();
  for (auto& [external, i] : provider->instances()) {
    const auto found = std::find_if(nodes.begin(), nodes.end(),
                                    [&](const auto& n) { return n->rented_as == external; });
    if (found == nodes.end() && !i.to && i.joins && i.joins <= provider->now()) {
      nodes.push_back(std::make_unique<SimNode>(*this, i.name, external, i.token));
      ++counts.machines;
      nodes.back()->boot();
    } else if (found != nodes.end() && i.to && !(*found)->gone) {
      (*found)->power_off();
      (*found)->gone = true;
    }
  }
  provider->forget_ended();
}

}  // namespace billow::sim
