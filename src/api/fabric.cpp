// The route that lets nodes measure the connections between their GPUs and to each other.

#include "api/call.h"

#include <fmt/format.h>

#include "core/wire/codec.h"

namespace billow::api::fabric {
namespace {

struct CheckBody {
  std::vector<std::string> nodes;
  std::string pool;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("nodes", s.nodes);
    v("pool", s.pool);
  }
};

Result<std::vector<NodeId>> chosen(const control::State& state, const CheckBody& body) {
  std::vector<NodeId> out;
  if (!body.nodes.empty() && !body.pool.empty())
    return fail(Code::invalid, "name nodes or a pool, not both");
  for (const std::string& name : body.nodes) {
    const Node* node = state.node_by_name(name);
    if (!node)
      return fail(Code::not_found, fmt::format("there is no node \"{}\"", name),
                  "see `billow nodes`");
    if (!node->reachable)
      return fail(Code::unavailable, fmt::format("node {} does not answer", name));
    if (std::find(out.begin(), out.end(), node->id) == out.end())
      out.push_back(node->id);
  }
  if (!body.nodes.empty())
    return out;
  PoolId pool;
  if (!body.pool.empty()) {
    for (const auto& [id, p] : state.pools)
      if (p.name == body.pool)
        pool = id;
    if (!pool)
      return fail(Code::not_found, fmt::format("there is no pool \"{}\"", body.pool),
                  "see `billow pool list`");
  }
  for (const auto& [id, node] : state.nodes)
    if (node.reachable && (!pool || node.pool == pool))
      out.push_back(id);
  if (out.empty() && pool)
    return fail(Code::not_found, fmt::format("pool {} has no node right now", body.pool),
                "nodes are started when the queue needs them; `--min 1` keeps one running");
  return out;
}

}  // namespace

void check(CallPtr call) {
  auto body = read_body<CheckBody>(call);
  if (!body)
    return;
  auto nodes = chosen(call->host.state(), *body);
  if (!nodes)
    return call->fail(nodes.error());
  call->host.check_fabric(*nodes, [call](Result<Json> result) {
    if (!result)
      return call->fail(result.error());
    call->reply(200, *result);
  });
}

}  // namespace billow::api::fabric
