// Which agents are accepted as nodes. A machine joins with a join token and gets its own
// credential, which is valid for one name and can be revoked separately. An agent's hello is
// accepted only if its credential and its pool allow it: its own name, GPUs that no other node has,
// and no more of them than were ordered.
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
    return fail(Code::unauthorized, "the user who let this node join no longer exists");
  if (state.node_by_name(c.node) && !c.replaces_node)
    return fail(Code::conflict, fmt::format("a node named {} has already joined", c.node),
                fmt::format("choose another name (--node-name), or remove the old node: "
                            "billow node rm {}",
                            c.node));
  Events events;
  // A name has one credential at a time: an earlier one was never used or got lost.
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

namespace {

// Whether an offer makes sense by itself.
Status check_offer(const NodeOffer& offer) {
  BILLOW_TRY_VOID(check_name("node", offer.name));
  if (offer.gpus.size() > limits::gpus_per_node_max)
    return fail(Code::invalid, fmt::format("the node offers {} GPUs; the limit is {}",
                                           offer.gpus.size(), limits::gpus_per_node_max));
  if (offer.cpu_milli < 0 || offer.mem_mib < 0)
    return fail(Code::invalid, "the node offers a negative amount of CPUs or memory");
  std::set<std::string> uuids;
  std::int32_t number = 0;
  for (const NodeGpu& gpu : offer.gpus) {
    // Grants and readings name a GPU by its position in the offer.
    if (gpu.index != number++)
      return fail(Code::invalid,
                  fmt::format("the node offers GPU {} at position {}", gpu.index, number - 1));
    if (gpu.mem_mib < 0)
      return fail(Code::invalid, fmt::format("GPU {} has a negative amount of memory", gpu.index));
    if (!gpu.uuid.empty() && !uuids.insert(gpu.uuid).second)
      return fail(Code::invalid, fmt::format("the node offers GPU {} twice", gpu.uuid));
  }
  return {};
}

// Whether the node is what its pool ordered.
Status check_ordered(const State& state,
                     const NodeOffer& offer,
                     const Token& token,
                     const Machine* machine) {
  if (!machine)
    return fail(Code::conflict, fmt::format("machine {} has been given back", token.node),
                "stop its agent");
  if (machine->state == MachineState::releasing)
    return fail(Code::conflict, fmt::format("machine {} is being given back", token.node),
                "stop its agent");
  if (static_cast<std::int32_t>(offer.gpus.size()) > machine->gpus)
    return fail(Code::forbidden,
                fmt::format("{} offers {} GPUs, but {} were ordered", offer.name, offer.gpus.size(),
                            machine->gpus),
                "let the agent offer only the GPUs of its allocation: --only-gpus");
  const auto pool = state.pools.find(token.pool);
  if (pool == state.pools.end() || pool->second.gpu_type.empty())
    return {};
  for (const NodeGpu& gpu : offer.gpus)
    if (gpu.type != pool->second.gpu_type)
      return fail(Code::forbidden, fmt::format("{} offers a GPU of type {}, but its pool has {}",
                                               offer.name, gpu.type, pool->second.gpu_type));
  return {};
}

// Whether the credential allows this name and this offer.
Status check_credential(const State& state, const NodeOffer& offer, TokenId credential) {
  const auto found = state.tokens.find(credential);
  if (found == state.tokens.end())
    return fail(Code::unauthorized, "this node's credential has been revoked",
                "join again with a new token: billow token create --node");
  const Token& token = found->second;
  const auto at = state.machines.find(token.node);
  const Machine* machine = at == state.machines.end() ? nullptr : &at->second;
  const bool own = token.node.empty() || offer.name == token.node ||
                   (machine && node_of_machine(offer.name, *machine));
  if (!own)
    return fail(Code::forbidden,
                fmt::format("this credential is for node {}, not for {}", token.node, offer.name),
                "let every machine join by itself: billow join");
  if (const Node* known = state.node_by_name(offer.name); known && known->pool != token.pool)
    return fail(Code::conflict,
                fmt::format("a node named {} from another pool has already joined", offer.name),
                "choose another name: --node-name");
  return token.pool ? check_ordered(state, offer, token, machine) : Status{};
}

// A GPU cannot be in two machines. (Simulated GPUs are invented on each machine and may collide.)
Status check_unique_gpus(const State& state, const NodeOffer& offer) {
  std::set<std::string> uuids;
  for (const NodeGpu& gpu : offer.gpus)
    if (!gpu.uuid.empty())
      uuids.insert(gpu.uuid);
  if (offer.simulated || uuids.empty())
    return {};
  for (const auto& [id, node] : state.nodes) {
    if (node.offer.name == offer.name || node.offer.simulated || !node.reachable)
      continue;
    for (const NodeGpu& gpu : node.offer.gpus)
      if (uuids.contains(gpu.uuid))
        return fail(Code::conflict,
                    fmt::format("node {} already offers GPU {}", node.offer.name, gpu.uuid),
                    "run one agent per machine; stop the other one first");
  }
  return {};
}

}  // namespace

Status check_hello(const State& state, const AgentHello& hello) {
  BILLOW_TRY_VOID(check_offer(hello.offer));
  if (!hello.credential)
    return {};
  BILLOW_TRY_VOID(check_credential(state, hello.offer, hello.credential));
  return check_unique_gpus(state, hello.offer);
}

}  // namespace billow::control
