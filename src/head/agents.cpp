#include "head/agents.h"

#include <fmt/format.h>

#include "base/limits.h"
#include "base/log.h"

namespace billow::head {

using namespace wire::agent_v1;

struct Agents::Link {
  std::shared_ptr<net::WebSocket> socket;
  std::string peer;
  NodeId node;            // zero until its hello was accepted
  std::string name;
  SteadyTime heard;
};

struct Agents::Waiting {
  struct Read {
    NodeId node;
    api::Host::OnChunk fn;
  };
  std::uint64_t next = 1;
  std::unordered_map<std::uint64_t, Read> reads;
  std::unordered_map<TaskId, std::map<std::uint64_t, std::function<void(std::uint64_t)>>> inputs;
};

struct Agents::LogSub final : api::Subscription {
  std::weak_ptr<Waiting> waiting;
  Agents* agents = nullptr;
  std::uint64_t id = 0;
  ~LogSub() override {
    const auto w = waiting.lock();
    if (!w) return;
    const auto found = w->reads.find(id);
    if (found == w->reads.end()) return;
    const NodeId node = found->second.node;
    w->reads.erase(found);
    agents->send(node, LogCancel{id}, {});
  }
};
struct Agents::InputSub final : api::Subscription {
  std::weak_ptr<Waiting> waiting;
  TaskId task;
  std::uint64_t id = 0;
  ~InputSub() override {
    const auto w = waiting.lock();
    if (!w) return;
    const auto found = w->inputs.find(task);
    if (found == w->inputs.end()) return;
    found->second.erase(id);
    if (found->second.empty()) w->inputs.erase(found);
  }
};

Agents::Agents(net::Loop& loop, const Clock& clock, std::function<Engine&()> engine)
    : loop_(loop), clock_(clock), engine_(std::move(engine)), waiting_(std::make_shared<Waiting>()) {}
Agents::~Agents() = default;

void Agents::adopt(std::shared_ptr<net::WebSocket> socket, std::string peer) {
  auto link = std::make_shared<Link>(Link{std::move(socket), std::move(peer), {}, {}, clock_.steady()});
  link->socket->on_message([this, weak = std::weak_ptr(link)](std::string_view data, bool) { if (auto l = weak.lock()) take(l, data); });
  // The close callback owns the link until then.
  link->socket->on_close([this, link](const net::WebSocket::Closed&) { closed(link); });
}

void Agents::refuse(const std::shared_ptr<Link>& link, std::string message, std::string hint) {
  log_warn("agent at {} refused: {}", link->peer, message);
  link->socket->send_binary(encode(Refused{std::move(message), std::move(hint)}));
  link->socket->close(net::WebSocket::close_policy, "refused");
}

void Agents::take(const std::shared_ptr<Link>& link, std::string_view data) {
  link->heard = clock_.steady();
  auto frame = decode_from_agent(data);
  if (!frame) return refuse(link, frame.error().message, "is this agent of the same version as its head?");
  if (const auto* h = std::get_if<Hello>(&frame->message)) return hello(link, *h);
  if (!link->node) return refuse(link, "an agent must say hello first", "");
  if (const auto* r = std::get_if<Report>(&frame->message)) return report(link, *r);
  if (auto* beat = std::get_if<Heartbeat>(&frame->message)) {
    readings_[link->node] = std::move(*beat);
  } else if (const auto* chunk = std::get_if<LogChunk>(&frame->message)) {
    const auto found = waiting_->reads.find(chunk->subscription);
    if (found == waiting_->reads.end() || found->second.node != link->node) return;
    const auto fn = std::move(found->second.fn);
    waiting_->reads.erase(found);
    fn(*chunk, frame->blob);
  } else if (const auto* taken = std::get_if<InputTaken>(&frame->message)) {
    const auto found = waiting_->inputs.find(taken->task);
    if (found == waiting_->inputs.end()) return;
    const auto copy = found->second;
    for (const auto& [id, fn] : copy) fn(taken->bytes);
  }
}

void Agents::hello(const std::shared_ptr<Link>& link, const Hello& h) {
  if (h.version != protocol_version)
    return refuse(link, fmt::format("the agent speaks protocol {}, this head {}", h.version, protocol_version), "install the head's version of billow on the node");
  Engine& engine = engine_();
  if (h.epoch_seen > engine.state().epoch)
    return refuse(link, fmt::format("the agent has seen a newer head (epoch {}, this one is {})", h.epoch_seen, engine.state().epoch), "stop this head: another one has taken over");
  if (const Node* known = engine.state().node_by_name(h.offer.name); known && links_.contains(known->id)) {
    const auto old = links_.at(known->id);
    // The same machine dials again (its old connection is not dead yet here), or somebody else uses its name.
    if (known->offer.boot_id != h.offer.boot_id) return refuse(link, fmt::format("a node named {} is connected already", h.offer.name), "give this one another name: --node-name");
    old->node = {};
    links_.erase(known->id);
    old->socket->close(net::WebSocket::close_going_away, "connected again");
  }
  link->name = h.offer.name;
  const Seq before = engine.state().seq;
  engine.execute(AgentHello{h.offer, h.tasks}, {"node:" + h.offer.name, ""}, [this, link, h, before](Result<std::vector<Event>> events) {
    if (!events) return refuse(link, events.error().message, events.error().hint);
    Engine& engine = engine_();
    const Node* node = engine.state().node_by_name(h.offer.name);
    if (!node || !link->socket->open()) return;
    link->node = node->id;
    links_[node->id] = link;
    silent_since_.erase(node->id);
    link->socket->send_binary(encode(Welcome{engine.state().epoch, node->id, limits::agent_heartbeat.ms()}));
    std::size_t gpus = node->offer.gpus.size();
    log_info("node {} is here: {} GPUs, {} tasks", h.offer.name, gpus, h.tasks.size());
    (void)before;
    engine.enqueue(control::hello_effects(engine.state(), node->id, h.tasks));
  });
}

void Agents::report(const std::shared_ptr<Link>& link, const Report& r) {
  engine_().execute(AgentReport{link->node, r.status}, {"node:" + link->name, ""}, [link, number = r.number](Result<std::vector<Event>> events) {
    if (!events) log_warn("node {}: {}", link->name, events.error().message);
    link->socket->send_binary(encode(Ack{number}));
  });
}

void Agents::closed(const std::shared_ptr<Link>& link) {
  if (!link->node) return;
  const auto found = links_.find(link->node);
  if (found == links_.end() || found->second != link) return;
  links_.erase(found);
  silent_since_[link->node] = clock_.steady();
  readings_.erase(link->node);
  log_info("node {} went away", link->name);
  // Whoever waits for its logs is told, and asks again when it is back.
  std::vector<api::Host::OnChunk> orphans;
  for (auto at = waiting_->reads.begin(); at != waiting_->reads.end();) {
    if (at->second.node == link->node) {
      orphans.push_back(std::move(at->second.fn));
      at = waiting_->reads.erase(at);
    } else {
      ++at;
    }
  }
  for (const auto& fn : orphans) fn(LogChunk{.error = fmt::format("node {} does not answer", link->name)}, {});
}

bool Agents::send(NodeId node, const ToAgent& message, std::string_view blob) {
  const auto found = links_.find(node);
  if (found == links_.end()) return false;
  return found->second->socket->send_binary(encode(message, blob));
}

// A message to an agent that is away is not kept: its hello brings everything up to date.
void Agents::deliver(const control::Effect& effect) { send(effect.node, effect.message, {}); }

std::unique_ptr<api::Subscription> Agents::read_log(NodeId node, LogRead request, api::Host::OnChunk fn) {
  request.subscription = waiting_->next++;
  auto sub = std::make_unique<LogSub>();
  sub->waiting = waiting_;
  sub->agents = this;
  sub->id = request.subscription;
  if (!connected(node)) {
    loop_.post([fn] { fn(LogChunk{.error = "its node does not answer; the log is there, try again later"}, {}); });
    return sub;
  }
  waiting_->reads[request.subscription] = {node, std::move(fn)};
  send(node, request, {});
  return sub;
}

std::unique_ptr<api::Subscription> Agents::watch_input(TaskId task, std::function<void(std::uint64_t)> fn) {
  auto sub = std::make_unique<InputSub>();
  sub->waiting = waiting_;
  sub->task = task;
  sub->id = waiting_->next++;
  waiting_->inputs[task][sub->id] = std::move(fn);
  return sub;
}

const Heartbeat* Agents::readings(NodeId node) const {
  const auto found = readings_.find(node);
  return found == readings_.end() ? nullptr : &found->second;
}

void Agents::watch_silence() {
  const SteadyTime now = clock_.steady();
  std::vector<std::shared_ptr<Link>> dead;
  for (const auto& [node, link] : links_) if (now - link->heard > limits::agent_unreachable_after) dead.push_back(link);
  for (const auto& link : dead) {
    link->socket->close(net::WebSocket::close_going_away, "silent");
    closed(link);
  }
  Engine& engine = engine_();
  for (const auto& [id, node] : engine.state().nodes) {
    if (links_.contains(id)) continue;
    const auto [since, fresh] = silent_since_.try_emplace(id, now);  // after a restart of the head the count begins anew
    if (node.reachable && now - since->second > limits::agent_unreachable_after) {
      loop_.post([this, id = id] { engine_().execute(NodeSilent{id}, {"head", ""}, {}); });
    } else if (!node.reachable && now - since->second > limits::agent_unreachable_after + limits::agent_self_fence + limits::fence_margin) {
      loop_.post([this, id = id] { engine_().execute(NodeFenced{id}, {"head", ""}, {}); });
    }
  }
}

}  // namespace billow::head
