// Who may be a node. A machine joins with a join token and gets a credential of its own, which
// speaks for one name and can be revoked alone. What an agent says of itself is believed only as
// far as its credential and its pool allow: a name that is its own, GPUs that nobody else has, and
// no more of them than were asked for.
#include <fmt/format.h>

#include "base/limits.h"
#include "base/text.h"
#include "core/control/decide/decider.h"

namespace billow::control {

void revoke_credentials(const State& state, std::string_view node, Events& events) {
  for (const auto& [id, token] : state.tokens)
    if (token.scope == TokenScope::node && token.node == node)
      events.push_back(TokenRevoked{id});
}

Decision Decider::operator()(const IssueCredential& c) {
  BILLOW_TRY_VOID(check_name("node", c.node));
  if (!state.users.contains(c.user))
    return fail(Code::unauthorized, "whoever let this node join is not known any more");
  if (state.node_by_name(c.node) && !c.replaces_node)
    return fail(Code::conflict, fmt::format("a node named {} has joined already", c.node),
                fmt::format("give this machine another name (--node-name), or forget the old one: "
                            "billow node rm {}",
                            c.node));
  Events events;
  // Made before and never used, or lost on the way to its machine: there is one credential for a
  // name at a time.
  revoke_credentials(state, c.node, events);
  Token token{.id = TokenId(state.next_token),
              .name = "node-" + c.node.substr(0, 58),
              .hash = c.hash,
              .user = c.user,
              .scope = TokenScope::node};
  token.node = c.node;
  token.pool = c.pool;
  token.created_at = context.now;
  events.push_back(TokenCreated{std::move(token)});
  return events;
}

Decision Decider::operator()(const NodeReclaimed& c) {
  Events events;
  const auto node = state.nodes.find(c.node);
  if (node == state.nodes.end())
    return events;
  if (node->second.drained.empty())
    events.push_back(NodeDrained{c.node, fmt::format("{}{}", taken_away, c.reason)});
  const auto on = state.tasks_on.find(c.node);
  if (on == state.tasks_on.end())
    return events;
  std::set<JobId> leaving;
  for (TaskId id : on->second)
    leaving.insert(state.tasks.at(id).job);
  for (JobId id : leaving)
    if (state.jobs.at(id).stopping == StopCause::none)
      events.push_back(
          JobStopping{id,
                      fmt::format("node {} is taken away: {}", node->second.offer.name, c.reason),
                      StopCause::preempted,
                      false,
                      {}});
  return events;
}

Status check_hello(const State& state, const AgentHello& hello) {
  const NodeOffer& offer = hello.offer;
  BILLOW_TRY_VOID(check_name("node", offer.name));
  if (offer.gpus.size() > limits::gpus_per_node_max)
    return fail(Code::invalid, fmt::format("a node offers {} GPUs; {} is the most there can be",
                                           offer.gpus.size(), limits::gpus_per_node_max));
  if (offer.cpu_milli < 0 || offer.mem_mib < 0)
    return fail(Code::invalid, "a node offers less than nothing");
  std::set<std::string> uuids;
  std::int32_t number = 0;
  for (const NodeGpu& gpu : offer.gpus) {
    // Grants and readings name a card by its place in the offer.
    if (gpu.index != number++)
      return fail(Code::invalid, fmt::format("a node offers GPU {} where its GPU {} belongs",
                                             gpu.index, number - 1));
    if (gpu.mem_mib < 0)
      return fail(Code::invalid, fmt::format("GPU {} has a negative amount of memory", gpu.index));
    if (!gpu.uuid.empty() && !uuids.insert(gpu.uuid).second)
      return fail(Code::invalid, fmt::format("the same GPU is offered twice ({})", gpu.uuid));
  }
  if (!hello.credential)
    return {};
  const auto found = state.tokens.find(hello.credential);
  if (found == state.tokens.end())
    return fail(Code::unauthorized, "this node's credential has been revoked",
                "join again with a new token: billow token create --node");
  const Token& token = found->second;
  const auto machine = state.machines.find(token.node);
  const bool own =
      token.node.empty() || offer.name == token.node ||
      (machine != state.machines.end() && node_of_machine(offer.name, machine->second));
  if (!own)
    return fail(
        Code::forbidden,
        fmt::format("this credential speaks for node {}, not for {}", token.node, offer.name),
        "every machine joins by itself: billow join");
  if (const Node* known = state.node_by_name(offer.name); known && known->pool != token.pool)
    return fail(Code::conflict,
                fmt::format("a node named {} from elsewhere has joined already", offer.name),
                "give this one another name: --node-name");
  if (token.pool) {
    if (machine == state.machines.end())
      return fail(Code::conflict, fmt::format("machine {} has been given back", token.node),
                  "its agent may end");
    if (machine->second.state == MachineState::releasing)
      return fail(Code::conflict, fmt::format("machine {} is being given back", token.node),
                  "its agent may end");
    if (static_cast<std::int32_t>(offer.gpus.size()) > machine->second.gpus)
      return fail(Code::forbidden,
                  fmt::format("{} offers {} GPUs, and {} were asked for", offer.name,
                              offer.gpus.size(), machine->second.gpus),
                  "an agent in an allocation offers only what the engine gave it");
    const auto pool = state.pools.find(token.pool);
    if (pool != state.pools.end() && !pool->second.gpu_type.empty())
      for (const NodeGpu& gpu : offer.gpus)
        if (gpu.type != pool->second.gpu_type)
          return fail(Code::forbidden,
                      fmt::format("{} offers a GPU of type {}, and its pool is of {}", offer.name,
                                  gpu.type, pool->second.gpu_type));
  }
  // A card cannot be in two machines. (Simulated ones are made up on each machine, and may be
  // alike.)
  if (offer.simulated || uuids.empty())
    return {};
  for (const auto& [id, node] : state.nodes) {
    if (node.offer.name == offer.name || node.offer.simulated || !node.reachable)
      continue;
    for (const NodeGpu& gpu : node.offer.gpus)
      if (uuids.contains(gpu.uuid))
        return fail(Code::conflict,
                    fmt::format("GPU {} is offered by node {} already", gpu.uuid, node.offer.name),
                    "one agent per machine; end the other one first");
  }
  return {};
}

}  // namespace billow::control
