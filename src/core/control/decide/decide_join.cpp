// Which agents are accepted as nodes. A machine joins with a join token and makes its own key its
// credential, which is valid for one name and can be revoked separately. An agent's hello is
// accepted only if its credential and its pool allow it: its own name, GPUs that no other node has,
// and no more of them than were ordered.
#include <fmt/format.h>

#include "base/crypto.h"
#include "base/limits.h"
#include "base/text.h"
#include "core/control/decide/decider.h"
#include "core/control/renting/twins.h"

namespace billow::control {

namespace {

// The credential of this head's own agent, which is in the head's data directory. Its node may be
// renamed while the agent is away.
bool is_local(const State& state, const Token& token) {
  const auto user = state.users.find(token.user);
  return token.scope == TokenScope::node && token.name.starts_with("local-node") &&
         user != state.users.end() && user->second.starts_heads;
}

bool answers(const State& state, std::string_view name) {
  const Node* node = name.empty() ? nullptr : state.node_by_name(name);
  return node && node->reachable;
}

}  // namespace

bool speaks_for(const State& state, const Token& token, std::string_view node) {
  if (token.scope != TokenScope::node || node.empty())
    return false;
  if (token.node == node)
    return true;
  const auto machine = state.machines.find(token.node);
  return machine != state.machines.end() && machine->second.pool == token.pool &&
         node_of_machine(node, machine->second);
}

void revoke_credentials(const State& state, std::string_view node, Events& events) {
  for (const auto& [id, token] : state.tokens) {
    if ((token.scope != TokenScope::node && token.scope != TokenScope::join) || token.node != node)
      continue;
    if (is_local(state, token))
      events.push_back(TokenBound{id, ""});
    else
      events.push_back(TokenRevoked{id});
  }
}

Decision Decider::operator()(const OrderToken& c) {
  BILLOW_TRY_VOID(check_name("machine", c.machine));
  if (!state.users.contains(c.user))
    return fail(Code::unauthorized, "the user who let this machine join no longer exists");
  // The order is repeated with the same secret.
  if (const auto same = state.token_by_hash.find(c.hash); same != state.token_by_hash.end())
    return state.tokens.at(same->second).node == c.machine
               ? Decision(Events{})
               : fail(Code::conflict, "this token is for another machine");
  Events events;
  // A machine that was ordered by a head that died may have an earlier token and still be starting:
  // it stays valid. Whichever is used first, the others are used too.
  for (const auto& [id, token] : state.tokens)
    if (token.scope == TokenScope::join && token.node == c.machine &&
        token.expires_at <= context.now)
      events.push_back(TokenRevoked{id});
  Token token{.id = TokenId(state.next_token),
              .name = "join-" + c.machine.substr(0, 58),
              .hash = c.hash,
              .user = c.user,
              .scope = TokenScope::join};
  token.node = c.machine;
  token.pool = c.pool;
  token.once = true;
  token.created_at = context.now;
  token.expires_at = context.now + c.life;
  events.push_back(TokenCreated{std::move(token)});
  return events;
}

namespace {

// Whether the join token is for this node and was not used by another machine.
Status check_join_token(const State& state, const Token& token, const JoinNode& c) {
  const auto machine = state.machines.find(token.node);
  if (!token.node.empty() && c.node != token.node &&
      !(machine != state.machines.end() && node_of_machine(c.node, machine->second)))
    return fail(Code::forbidden,
                fmt::format("this join token is for {}, not for {}", token.node, c.node),
                "use the name that the token was made for: --node-name");
  if (!token.once)
    return {};
  const auto used = token.joined.find(c.node);
  if (used != token.joined.end() ? used->second != c.key
                                 : token.node.empty() && !token.joined.empty())
    return fail(Code::unauthorized,
                fmt::format("this join token was already used by {}",
                            used != token.joined.end() ? used->first : token.joined.begin()->first),
                "create another: billow token create --node (--reusable for several machines)");
  return {};
}

// A credential for this name that another machine has. One that was never used, because its
// machine did not get the answer or was set up anew, is replaced after a while.
Status check_name_free(const State& state, const Token& token, const JoinNode& c, WallTime now) {
  const Node* known = state.node_by_name(c.node);
  const auto taken = [&] {
    return fail(Code::conflict, fmt::format("a node named {} has already joined", c.node),
                fmt::format("choose another name (--node-name), or remove the old node: "
                            "billow node rm {}",
                            c.node));
  };
  if (token.pool)
    return known && known->pool != token.pool ? Status(taken()) : Status{};
  if (known)
    return taken();
  for (const auto& [id, other] : state.tokens)
    if (other.scope == TokenScope::node && other.node == c.node &&
        now - other.created_at < limits::join_unconnected_kept)
      return taken();
  return {};
}

}  // namespace

Decision Decider::operator()(const JoinNode& c) {
  BILLOW_TRY_VOID(check_name("node", c.node));
  const auto found = state.tokens.find(c.token);
  if (found == state.tokens.end() || found->second.scope != TokenScope::join)
    return fail(Code::unauthorized, "the join token is not valid any more",
                "create another: billow token create --node");
  if (!is_public_key(c.key))
    return fail(Code::invalid, "the machine sent no valid key",
                "install the head's version of billow on it");
  const Token& token = found->second;
  // An order's token ends with the order, however long the machine waited in its engine's queue.
  if (token.pool) {
    const auto machine = state.machines.find(token.node);
    if (machine == state.machines.end() || machine->second.pool != token.pool ||
        machine->second.state == MachineState::releasing)
      return fail(Code::unauthorized, fmt::format("machine {} has been released", token.node),
                  "stop its agent");
  }
  BILLOW_TRY_VOID(check_join_token(state, token, c));
  if (const auto known = state.token_by_hash.find(node_key_hash(c.key));
      known != state.token_by_hash.end()) {
    if (state.tokens.at(known->second).node == c.node)
      return Events{};  // the answer was lost, and the machine asks again
    return fail(Code::conflict, "this key is the credential of another node",
                "delete the machine's credential file and join again");
  }
  if (token.once && token.joined.contains(c.node))
    return fail(Code::unauthorized, fmt::format("{} was removed after it had joined", c.node),
                "create another join token: billow token create --node");
  BILLOW_TRY_VOID(check_name_free(state, token, c, context.now));
  if (token.pool && must_wait_for_twin(state, token.node))
    return fail(Code::unavailable,
                fmt::format("a second machine with the name {} is still running; it is ended first",
                            c.node),
                "the machine retries automatically");
  Events events;
  for (const auto& [id, old] : state.tokens)
    if (old.scope == TokenScope::node && old.node == c.node)
      events.push_back(TokenRevoked{id});
  Token credential{.id = TokenId(state.next_token),
                   .name = "node-" + c.node.substr(0, 58),
                   .hash = node_key_hash(c.key),
                   .user = token.user,
                   .scope = TokenScope::node};
  credential.node = c.node;
  credential.pool = token.pool;
  credential.created_at = context.now;
  events.push_back(TokenCreated{std::move(credential)});
  for (const auto& [id, other] : state.tokens)
    if (other.scope == TokenScope::join && other.once &&
        (id == c.token || (!token.node.empty() && other.node == token.node)))
      events.push_back(TokenUsed{id, c.node, c.key});
  return events;
}

// A credential without a node (made by version 0.1, or the local agent's) speaks for the first node
// that says hello with it.
void Decider::bind_credential(Events& events, const AgentHello& c) {
  const auto token = state.tokens.find(c.credential);
  if (token == state.tokens.end() || speaks_for(state, token->second, c.offer.name))
    return;
  for (const auto& [id, other] : state.tokens)
    if (id != c.credential && is_local(state, other) && speaks_for(state, other, c.offer.name))
      events.push_back(TokenBound{id, ""});
  events.push_back(TokenBound{c.credential, c.offer.name});
}

namespace {

// Whether an offer makes sense by itself.
Status check_offer(const NodeOffer& offer) {
  BILLOW_TRY_VOID(check_name("node", offer.name));
  if (offer.gpus.size() > limits::gpus_per_node_max)
    return fail(Code::invalid, fmt::format("the node offers {} GPUs; the limit is {}",
                                           offer.gpus.size(), limits::gpus_per_node_max));
  if (offer.cpu_milli < 0 || offer.mem_mib < 0 || offer.disk_mib < 0)
    return fail(Code::invalid, "the node offers a negative amount of CPUs, memory or disk");
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
Status check_ordered(const State& state, const NodeOffer& offer, const Token& token) {
  const Machine* machine = machine_of(state, offer.name);
  if (const auto order = state.machines.find(token.node);
      !machine && order != state.machines.end() && order->second.nodes > 1)
    return fail(Code::conflict,
                fmt::format("machine {} has {} nodes, and {} is the name of none of them",
                            token.node, order->second.nodes, offer.name),
                fmt::format("give each its own name: --node-name {0}.0, {0}.1 …", token.node));
  if (!machine || machine->pool != token.pool)
    return fail(Code::conflict, fmt::format("machine {} has been released", token.node),
                "stop its agent");
  // A node that is known tells how its last jobs ended. It takes no others.
  if (machine->state == MachineState::releasing && !state.node_by_name(offer.name))
    return fail(Code::conflict, fmt::format("machine {} is being released", token.node),
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
  const bool renamed =
      token.node.empty() || (is_local(state, token) && !answers(state, token.node));
  if (!speaks_for(state, token, offer.name)) {
    if (!renamed)
      return fail(Code::forbidden,
                  fmt::format("this credential is for node {}, not for {}", token.node, offer.name),
                  "let every machine join by itself: billow join");
    // Heads that share a store, or start on a restored one, have an agent each. On one machine
    // these have the same name, and the node is the agent's that runs.
    const bool taken_over = is_local(state, token) && !answers(state, offer.name);
    for (const auto& [id, other] : state.tokens)
      if (id != credential && speaks_for(state, other, offer.name) &&
          !(taken_over && is_local(state, other)))
        return fail(Code::forbidden, fmt::format("node {} has a credential of its own", offer.name),
                    "choose another name: --node-name");
  }
  if (const Node* known = state.node_by_name(offer.name); known && known->pool != token.pool)
    return fail(Code::conflict,
                fmt::format("a node named {} from another pool has already joined", offer.name),
                "choose another name: --node-name");
  return token.pool ? check_ordered(state, offer, token) : Status{};
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
