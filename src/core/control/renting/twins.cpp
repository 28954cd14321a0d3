#include "core/control/renting/twins.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/limits.h"
#include "base/text.h"
#include "core/control/decide/node_gone.h"

namespace billow::control {
namespace {

// "PLACE/ID,ID" of providers that list places and the members of gangs, or one id.
std::vector<std::string> ids_in(const std::string& external) {
  const auto slash = external.find('/');
  return split(slash == std::string::npos ? external : external.substr(slash + 1), ',');
}

bool same_id(const std::string& a, const std::string& b) {
  if (a == b)
    return true;
  for (const std::string& one : ids_in(a))
    for (const std::string& other : ids_in(b))
      if (one == other)
        return true;
  return false;
}

// A name with a place is unique there, whatever else is listed of the machine.
bool is_plain_id(const std::string& external) {
  return !external.empty() && external.find('/') == std::string::npos;
}

bool has_joined(const State& state, const Machine& machine) {
  if (!machine.booked.empty())
    return true;
  return std::any_of(state.tokens.begin(), state.tokens.end(), [&](const auto& entry) {
    return entry.second.scope == TokenScope::node && entry.second.pool == machine.pool &&
           node_of_machine(entry.second.node, machine);
  });
}

// The provider's id of the machine that the node runs on, as its agent says; empty: it does not.
std::string id_said_by(const Node& node) {
  for (const char* key : {"provider-id", "instance-id", "slurm-job"})
    if (const auto found = node.offer.labels.find(key); found != node.offer.labels.end())
      return found->second;
  return {};
}

std::string id_of_node(const State& state, const Machine& machine) {
  for (const NodeId id : nodes_of(state, machine))
    if (std::string said = id_said_by(state.nodes.at(id)); !said.empty())
      return said;
  return {};
}

// The ids on which the nodes of a gang's machine run: one of the whole order, or one of each node.
// Empty: not all of them are known.
std::set<std::string> ids_of_gang(const State& state, const Machine& machine) {
  const std::vector<NodeId> nodes = nodes_of(state, machine);
  std::set<std::string> out;
  for (const NodeId id : nodes)
    out.insert(id_said_by(state.nodes.at(id)));
  return nodes.size() < machine.nodes || out.contains("") ? std::set<std::string>() : out;
}

bool node_answers(const State& state, const Machine& machine) {
  const auto nodes = nodes_of(state, machine);
  return std::any_of(nodes.begin(), nodes.end(),
                     [&](NodeId id) { return state.nodes.at(id).reachable; });
}

bool has_tasks(const State& state, const Machine& machine) {
  const auto nodes = nodes_of(state, machine);
  return std::any_of(nodes.begin(), nodes.end(),
                     [&](NodeId id) { return state.tasks_on.contains(id); });
}

// Everything that is listed under one name, and everything that the state knows of that name.
class Family {
 public:
  Family(const State& state,
         const Pool& pool,
         const std::string& name,
         std::vector<MachineSighting> listed)
      : state_(state), name_(name), left_(std::move(listed)) {
    if (const auto found = state.machines.find(name);
        found != state.machines.end() && found->second.pool == pool.id)
      main_ = &found->second;
    const std::string prefix = name + "~";
    for (auto at = state.machines.lower_bound(prefix);
         at != state.machines.end() && at->first.starts_with(prefix); ++at)
      if (at->second.twin_of == name && at->second.pool == pool.id)
        twins_.push_back(&at->second);
    for (const EndedMachine& ended : pool.ended)
      if (ended.name == name)
        ended_.push_back(&ended);
  }

  void told_apart(std::vector<MachineSighting>& out) {
    const bool unknown = !main_ && ended_.empty() && twins_.empty();
    if (main_ && main_->nodes > 1)
      return gang_told_apart(out);
    if (unknown || (main_ && main_->is_disk())) {
      std::ranges::move(left_, std::back_inserter(out));
      return;
    }
    const bool alone = main_ && left_.size() == 1 && twins_.empty();
    if (alone && (main_->external.empty() || main_->external == left_.front().external)) {
      out.push_back(std::move(left_.front()));
      return;
    }
    // What was billed when it ended is listed for a while longer.
    std::erase_if(left_, [&](const MachineSighting& seen) {
      return seen.ended && !seen.external.empty() && was_billed(seen.external) &&
             !(main_ && same_id(main_->external, seen.external));
    });
    const std::string before = main_ ? main_->external : std::string();
    const Machine* displaced = nullptr;  // the twin whose id turns out to be the main machine's
    if (const auto own = main_ ? own_sighting() : left_.end(); own != left_.end()) {
      for (const Machine* twin : twins_)
        if (!own->external.empty() && same_id(twin->external, own->external))
          displaced = twin;
      take(own, name_, false, out);
    }
    for (const Machine* twin : twins_)
      if (const auto seen = find(twin == displaced ? before : twin->external); seen != left_.end())
        take(seen, twin->name, true, out);
      else if (twin == displaced)
        out.push_back({.name = twin->name,
                       .external = before,
                       .note = main_->note,
                       .billed_from = main_->billed_from,
                       .twin_of = name_});
    for (MachineSighting& seen : left_)
      add_new(std::move(seen), out);
  }

 private:
  using At = std::vector<MachineSighting>::iterator;

  // The nodes of one order may be listed one by one, so two ids do not mean two machines. When all
  // nodes have said on which ids they run, and these are listed, other ids are twins.
  void gang_told_apart(std::vector<MachineSighting>& out) {
    for (const Machine* twin : twins_)
      for (At seen = find(twin->external); seen != left_.end(); seen = find(twin->external))
        take(seen, twin->name, true, out);
    const std::set<std::string> own = ids_of_gang(state_, *main_);
    const auto is_own = [&](const MachineSighting& seen) {
      return std::ranges::any_of(own, [&](const auto& id) { return same_id(id, seen.external); });
    };
    const bool known = !own.empty() && std::ranges::all_of(own, [&](const auto& id) {
      const At seen = find(id);
      return seen != left_.end() && !seen->ended;
    });
    for (MachineSighting& seen : left_)
      if (!known || is_own(seen))
        out.push_back(std::move(seen));
      else if (!seen.ended)
        add_new(std::move(seen), out);
  }

  bool was_billed(const std::string& external) const {
    return std::any_of(ended_.begin(), ended_.end(), [&](const EndedMachine* one) {
      return !one->external.empty() && same_id(one->external, external);
    });
  }
  At find(const std::string& external) {
    return std::find_if(left_.begin(), left_.end(), [&](const MachineSighting& seen) {
      return !external.empty() && same_id(seen.external, external);
    });
  }
  bool is_twin(const MachineSighting& seen) const {
    return std::any_of(twins_.begin(), twins_.end(),
                       [&](const Machine* twin) { return same_id(twin->external, seen.external); });
  }
  // The oldest that still exists and is not known to be another machine. One that still waits in a
  // queue has no beginning yet: it comes after those that run.
  At first_living() {
    const auto age = [](const MachineSighting& seen) {
      return std::tuple(seen.billed_from.ns == 0, seen.billed_from, seen.external);
    };
    At out = left_.end();
    for (At at = left_.begin(); at != left_.end(); ++at)
      if (!at->ended && !is_twin(*at) && (out == left_.end() || age(*at) < age(*out)))
        out = at;
    return out;
  }

  At own_sighting() {
    const std::string node = id_of_node(state_, *main_);
    if (const At own = find(node); own != left_.end())
      return own;
    const At own = find(main_->external);
    const bool joined = has_joined(state_, *main_);
    if (own != left_.end() && !own->ended) {
      // Of two machines, the one that runs is the node.
      if (joined && own->starting && node_answers(state_, *main_))
        for (At at = left_.begin(); at != left_.end(); ++at)
          if (!at->ended && !at->starting)
            return at;
      return own;
    }
    const bool is_other = !node.empty() && same_id(node, main_->external);
    const bool may_be_other =
        !is_other && (!joined || own == left_.end() || node_answers(state_, *main_));
    if (may_be_other) {
      if (const At other = first_living(); other != left_.end())
        return other;
      // Its node answers, and a twin is all that is left of the two.
      if (own != left_.end() && joined)
        for (At at = left_.begin(); at != left_.end(); ++at)
          if (!at->ended)
            return at;
    }
    if (own != left_.end())
      return own;
    for (At at = left_.begin(); at != left_.end(); ++at)
      if (at->ended && !is_twin(*at) &&
          !(is_plain_id(main_->external) && is_plain_id(at->external)))
        return at;
    return left_.end();
  }

  void take(At at, const std::string& name, bool twin, std::vector<MachineSighting>& out) {
    out.push_back(std::move(*at));
    left_.erase(at);
    out.back().name = name;
    out.back().twin_of = twin ? name_ : std::string();
  }

  // One that has ended before any list showed it costs what the provider says, or is not known.
  void add_new(MachineSighting seen, std::vector<MachineSighting>& out) {
    if (seen.external.empty() || (seen.ended && !(seen.billed_from && seen.billed_to)))
      return;
    do
      seen.name = fmt::format("{}~{}", name_, ++number_);
    while (state_.machines.contains(seen.name));
    seen.twin_of = name_;
    out.push_back(std::move(seen));
  }

  const State& state_;
  std::string name_;
  std::vector<MachineSighting> left_;
  const Machine* main_ = nullptr;
  std::vector<const Machine*> twins_;
  std::vector<const EndedMachine*> ended_;
  int number_ = 1;
};

std::string words_of(const std::string& name, const std::string& external) {
  return fmt::format("a second machine ({}) with the name {}: its order was carried out twice",
                     external, name);
}

// The twin as it enters the state: like the machine whose name it has, billed since it was created.
Machine twin_from(const State& state,
                  const Pool& pool,
                  const MachineSighting& seen,
                  const Context& context,
                  std::uint64_t account) {
  Machine twin;
  const auto main = state.machines.find(seen.twin_of);
  if (main != state.machines.end() && main->second.pool == pool.id) {
    twin.offer = main->second.offer;
    twin.gpus = main->second.gpus;
    // One id of all nodes: the twin has as many.
    if (main->second.nodes > 1 && ids_of_gang(state, main->second).size() == 1)
      twin.nodes = main->second.nodes;
  }
  twin.billed_from = seen.billed_from;
  for (const EndedMachine& ended : pool.ended) {
    if (ended.name != seen.twin_of)
      continue;
    if (main == state.machines.end()) {
      twin.offer = ended.offer;
      twin.gpus = ended.gpus;
    }
    // It was taken for gone, and billed until then.
    if (!ended.external.empty() && same_id(ended.external, seen.external))
      twin.billed_from = std::max(twin.billed_from, ended.billed_to);
  }
  twin.name = seen.name;
  twin.twin_of = seen.twin_of;
  twin.pool = pool.id;
  twin.state = MachineState::here;
  twin.wanted_at = twin.here_at = context.now;
  twin.external = seen.external;
  twin.note = std::string(utf8_prefix(repaired_utf8(seen.note), limits::words_bytes_max));
  const Rate price = twin.offer ? twin.offer->price : pool.price;
  if (price.nano_usd_per_s > 0 && pool.capabilities && pool.capabilities->bills_from_order)
    twin.account = NodeId(account);
  return twin;
}

// Whether it is known that the twin is not the node. When each was created does not tell: the
// provider says it by its own clock, and when the node joined is known by that of the head.
bool is_surplus(const State& state,
                const Machine& twin,
                const Machine& main,
                const std::vector<MachineSighting>& listed) {
  if (!has_joined(state, main))
    return true;  // the other one will be (must_wait_for_twin)
  if (main.nodes > 1)
    return true;  // none of its nodes runs there
  const std::string node = id_of_node(state, main);
  if (!node.empty() && same_id(node, main.external))
    return !same_id(node, twin.external);
  const bool starting = std::any_of(listed.begin(), listed.end(), [&](const MachineSighting& seen) {
    return seen.name == twin.name && seen.starting && !seen.ended;
  });
  return starting && node_answers(state, main);
}

}  // namespace

std::vector<MachineSighting> tell_apart(const State& state,
                                        const Pool& pool,
                                        const std::vector<MachineSighting>& listed) {
  std::map<std::string, std::vector<MachineSighting>> by_name;
  for (const MachineSighting& seen : listed) {
    const std::string& name = seen.twin_of.empty() ? seen.name : seen.twin_of;
    auto& group = by_name[name];
    // A list that names a machine twice shows no second one.
    const auto same = std::ranges::find_if(group, [&](const MachineSighting& other) {
      return !seen.external.empty() && other.external == seen.external;
    });
    const auto at = same == group.end() ? group.insert(same, seen) : same;
    if (at->ended && !seen.ended)
      *at = seen;
    at->name = name;
    at->twin_of.clear();
  }
  std::vector<MachineSighting> out;
  for (auto& [name, group] : by_name)
    Family(state, pool, name, std::move(group)).told_apart(out);
  return out;
}

bool settle_twins(const State& state,
                  const Pool& pool,
                  const std::vector<MachineSighting>& listed,
                  const Context& context,
                  Events& events) {
  std::vector<Machine> twins;
  for (const auto& [name, machine] : state.machines)
    if (machine.pool == pool.id && !machine.twin_of.empty() &&
        machine.state != MachineState::releasing)
      twins.push_back(machine);
  std::uint64_t account = state.next_node;
  bool found_new = false;
  for (const MachineSighting& seen : listed) {
    if (seen.twin_of.empty() || state.machines.contains(seen.name))
      continue;
    Machine twin = twin_from(state, pool, seen, context, account++);
    events.push_back(MachineWanted{twin, words_of(twin.twin_of, twin.external)});
    if (seen.ended) {
      machine_gone(state, twin,
                   {.reason = words_of(twin.twin_of, twin.external), .billed_to = seen.billed_to},
                   context, events);
      continue;
    }
    found_new = true;
    twins.push_back(std::move(twin));
  }
  const std::set<std::string> gone = gone_in(events);
  for (const Machine& twin : twins) {
    if (gone.contains(twin.name))
      continue;
    const auto found = state.machines.find(twin.twin_of);
    const std::string why = words_of(twin.twin_of, twin.external);
    if (found == state.machines.end() || found->second.pool != pool.id ||
        gone.contains(twin.twin_of) || is_surplus(state, twin, found->second, listed)) {
      // Nothing runs under its name any more: an order that was refused brought it all the same.
      const bool unused = found == state.machines.end() && !gone.contains(twin.twin_of);
      events.push_back(MachineReleased{twin.name, why, unused});
      continue;
    }
    const Machine& main = found->second;
    const bool idle = !has_tasks(state, main);
    const std::string doubt = fmt::format(
        "two machines ({} and {}) run with the name {}, and it is unknown which one is the node: "
        "both end after its jobs",
        main.external, twin.external, main.name);
    for (const NodeId id : nodes_of(state, main))
      if (state.nodes.at(id).drained.empty())
        events.push_back(NodeDrained{id, doubt});
    const bool here = main.state == MachineState::here;
    if (idle && here)
      events.push_back(MachineReleased{main.name, doubt});
    if (idle && main.state != MachineState::wanted)
      events.push_back(MachineReleased{twin.name, why});
  }
  return found_new;
}

bool is_only_watched(const State& state, const Pool& pool) {
  return pool.state == PoolState::removing &&
         std::none_of(state.machines.begin(), state.machines.end(),
                      [&](const auto& entry) { return entry.second.pool == pool.id; });
}

bool must_wait_for_twin(const State& state, const std::string& machine) {
  const auto found = state.machines.find(machine);
  if (found == state.machines.end() || has_joined(state, found->second))
    return false;
  return std::any_of(state.machines.begin(), state.machines.end(), [&](const auto& entry) {
    return entry.second.twin_of == machine && entry.second.pool == found->second.pool;
  });
}

}  // namespace billow::control
