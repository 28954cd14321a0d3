#include "head/tunnels.h"

#include <vector>

namespace billow::head {

using namespace wire::agent_v1;

struct Tunnels::Link final : wire::agent_v1::Tunnel {
  std::weak_ptr<Shared> shared;
  NodeId node;
  std::uint64_t id = 0;

  bool send(Tunnelled message, std::string_view blob) override {
    const auto s = shared.lock();
    if (!s || !s->open.contains(id))
      return false;
    std::visit([this](auto& m) { m.tunnel = id; }, message);
    return s->send(node, message, blob);
  }
  ~Link() override {
    const auto s = shared.lock();
    if (!s || s->open.erase(id) == 0)
      return;
    s->send(node, TunnelEnd{.tunnel = id, .cut = true},
            {});  // an agent that has ended it already passes this over
  }
};

Tunnels::Tunnels(Send send) : shared_(std::make_shared<Shared>()) {
  shared_->send = std::move(send);
}

std::unique_ptr<wire::agent_v1::Tunnel> Tunnels::open(NodeId node,
                                                      TunnelOpen request,
                                                      wire::agent_v1::OnTunnel fn) {
  request.tunnel = shared_->next++;
  auto link = std::make_unique<Link>();
  link->shared = shared_;
  link->node = node;
  link->id = request.tunnel;
  shared_->open[request.tunnel] = {node, std::move(fn)};
  if (shared_->send(node, request, {}))
    return link;
  shared_->open.erase(request.tunnel);
  return nullptr;
}

void Tunnels::take(NodeId from, const Tunnelled& message, std::string_view blob) {
  const std::uint64_t id = std::visit([](const auto& m) { return m.tunnel; }, message);
  const auto found = shared_->open.find(id);
  if (found == shared_->open.end() || found->second.node != from)
    return;  // over already, or another node's
  const auto fn = found->second.fn;
  fn(message, blob);
}

void Tunnels::node_gone(NodeId node, const std::string& why) {
  std::vector<std::pair<std::uint64_t, wire::agent_v1::OnTunnel>> orphans;
  for (const auto& [id, open] : shared_->open)
    if (open.node == node)
      orphans.emplace_back(id, open.fn);
  for (const auto& [id, fn] : orphans) {
    shared_->open.erase(id);
    fn(TunnelEnd{.tunnel = id, .error = why, .cut = true}, {});
  }
}

}  // namespace billow::head
