#include "head/agents.h"

#include <fmt/format.h>

#include "base/limits.h"
#include "base/log.h"

namespace billow::head {

using namespace wire::agent_v1;

struct Agents::Link final : Session {
  std::shared_ptr<net::WebSocket> socket;
  std::string address;
  bool tls = false;
  bool warned = false;  // of what it says, once

  bool send(const ToAgent& message, std::string_view blob) override {
    return socket->send_binary(encode(message, blob));
  }
  bool send_raw(std::string_view frame) override { return socket->send_binary(frame); }
  bool open() const override { return socket->open(); }
  void close(std::string_view why) override {
    socket->close(
        why == "refused" ? net::WebSocket::close_policy : net::WebSocket::close_going_away,
        std::string(why));
  }
  std::string peer() const override { return address; }
  bool confidential() const override {
    return tls || address.starts_with("unix") || address.starts_with("127.") ||
           address.starts_with("[::1]");
  }
};

struct Agents::Waiting {
  struct Read {
    NodeId node;
    api::Host::OnChunk fn;
  };
  std::uint64_t next = 1;
  std::unordered_map<std::uint64_t, Read> reads;
  std::unordered_map<
      TaskId,
      std::map<std::uint64_t, std::function<void(const wire::agent_v1::InputTaken&)>>>
      inputs;
};

struct Agents::LogSub final : api::Subscription {
  std::weak_ptr<Waiting> waiting;
  Agents* agents = nullptr;
  std::uint64_t id = 0;
  ~LogSub() override {
    const auto w = waiting.lock();
    if (!w)
      return;
    const auto found = w->reads.find(id);
    if (found == w->reads.end())
      return;
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
    if (!w)
      return;
    const auto found = w->inputs.find(task);
    if (found == w->inputs.end())
      return;
    found->second.erase(id);
    if (found->second.empty())
      w->inputs.erase(found);
  }
};

Agents::Agents(net::Loop& loop, const Clock& clock, std::function<Engine&()> engine)
    : loop_(loop),
      clock_(clock),
      sessions_(clock, std::move(engine)),
      waiting_(std::make_shared<Waiting>()) {}
Agents::~Agents() = default;

void Agents::adopt(std::shared_ptr<net::WebSocket> socket, std::string peer, TokenId credential) {
  auto link = std::make_shared<Link>();
  link->socket = std::move(socket);
  link->address = std::move(peer);
  link->credential = credential;
  link->tls = tls_;
  link->heard = clock_.steady();
  link->socket->on_message([this, weak = std::weak_ptr(link)](std::string_view data, bool) {
    if (auto l = weak.lock())
      take(l, data);
  });
  // The close callback owns the link until then.
  link->socket->on_close([this, link](const net::WebSocket::Closed&) { closed(link); });
}

void Agents::take(const std::shared_ptr<Link>& link, std::string_view data) {
  link->heard = clock_.steady();
  if (is_copy_frame(data)) {
    const auto copying = decode_copy(data);
    if (const auto* copied = copying ? std::get_if<FilesCopied>(&*copying) : nullptr;
        copied && link->node)
      copies_.take(link->node, *copied);
    return;
  }
  if (wire::fabric_v1::is_fabric(data)) {
    const auto answer = wire::fabric_v1::decode_answer(data);
    if (answer && link->node && on_fabric_)
      on_fabric_(link->node, *answer);
    return;
  }
  if (is_tunnel_frame(data)) {
    const auto tunnelled = decode_tunnel(data);
    if (tunnelled && link->node)
      tunnels_.take(link->node, tunnelled->message, tunnelled->blob);
    return;
  }
  auto frame = decode_from_agent(data);
  if (!frame)
    return sessions_.refuse(link, frame.error().message,
                            "is this agent of the same version as its head?");
  if (auto* h = std::get_if<Hello>(&frame->message)) {
    // Where it dials from is where the other nodes of a gang find it, unless it says otherwise.
    if (h->offer.address.empty() && !link->address.starts_with("unix") &&
        link->address != "unknown") {
      const auto colon = link->address.rfind(':');
      std::string host = link->address.substr(0, colon);
      if (host.starts_with("["))
        host = host.substr(1, host.size() - 2);
      if (host.starts_with("::ffff:"))
        host = host.substr(7);
      h->offer.address = host.starts_with("127.") || host == "::1" ? own_address_ : std::move(host);
    } else if (h->offer.address.empty()) {
      h->offer.address = own_address_;
    }
    return sessions_.hello(link, *h);
  }
  if (!link->node)
    return sessions_.refuse(link, "an agent must say hello first", "");
  if (const auto* r = std::get_if<Report>(&frame->message))
    return sessions_.report(link, *r);
  if (const auto* notice = std::get_if<Reclaimed>(&frame->message))
    return sessions_.reclaimed(link, *notice);
  if (auto* beat = std::get_if<Heartbeat>(&frame->message)) {
    // A task that has just ended here may be in a reading that was on its way; cards never are.
    if (const std::size_t offered = beat->gpus.size();
        sessions_.keep_believed(link, *beat) > 0 && beat->gpus.size() < offered && !link->warned) {
      link->warned = true;
      log_warn("node {}: readings of GPUs that it did not offer are passed over", link->name);
    }
    if (on_heartbeat_)
      on_heartbeat_(link->node, *beat);
    readings_[link->node] = std::move(*beat);
    sessions_.heartbeat(link);
  } else if (const auto* mark = std::get_if<MeterMark>(&frame->message)) {
    sessions_.marks(link, *mark);
  } else if (const auto* note = std::get_if<IdleNote>(&frame->message)) {
    sessions_.idle_note(link, *note);
  } else if (const auto* asked = std::get_if<KeepAliveAsked>(&frame->message)) {
    sessions_.keep_alive(link, *asked);
  } else if (const auto* chunk = std::get_if<LogChunk>(&frame->message)) {
    const auto found = waiting_->reads.find(chunk->subscription);
    if (found == waiting_->reads.end() || found->second.node != link->node)
      return;
    const auto fn = std::move(found->second.fn);
    waiting_->reads.erase(found);
    fn(*chunk, frame->blob);
  } else if (const auto* taken = std::get_if<InputTaken>(&frame->message)) {
    const auto found = waiting_->inputs.find(taken->task);
    if (found == waiting_->inputs.end() || !sessions_.has_task(link->node, taken->task))
      return;  // or somebody speaks of another node's task
    const auto copy = found->second;
    for (const auto& [id, fn] : copy)
      fn(*taken);
  }
}

void Agents::closed(const std::shared_ptr<Link>& link) {
  if (!sessions_.closed(link))
    return;
  readings_.erase(link->node);
  copies_.node_gone(link->node);
  tunnels_.node_gone(link->node, fmt::format("node {} does not answer any more", link->name));
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
  for (const auto& fn : orphans)
    fn(LogChunk{.error = fmt::format("node {} does not answer", link->name)}, {});
}

std::unique_ptr<api::Subscription> Agents::read_log(NodeId node,
                                                    LogRead request,
                                                    api::Host::OnChunk fn) {
  request.subscription = waiting_->next++;
  auto sub = std::make_unique<LogSub>();
  sub->waiting = waiting_;
  sub->agents = this;
  sub->id = request.subscription;
  if (!connected(node)) {
    loop_.post([fn] {
      fn(LogChunk{.error = "its node does not answer; the log is there, try again later"}, {});
    });
    return sub;
  }
  waiting_->reads[request.subscription] = {node, std::move(fn)};
  send(node, request, {});
  return sub;
}

std::unique_ptr<api::Subscription> Agents::watch_input(
    TaskId task, std::function<void(const wire::agent_v1::InputTaken&)> fn) {
  auto sub = std::make_unique<InputSub>();
  sub->waiting = waiting_;
  sub->task = task;
  sub->id = waiting_->next++;
  waiting_->inputs[task][sub->id] = std::move(fn);
  return sub;
}

bool Agents::send_fabric(NodeId node, const wire::fabric_v1::Ask& ask) {
  const auto link = std::static_pointer_cast<Link>(sessions_.find(node));
  return link && link->socket->send_binary(wire::fabric_v1::encode(ask));
}

const Heartbeat* Agents::readings(NodeId node) const {
  const auto found = readings_.find(node);
  return found == readings_.end() ? nullptr : &found->second;
}

void Agents::watch_silence() {
  copies_.look(clock_.steady());
  sessions_.watch_silence(
      [this](const SessionPtr& session) { closed(std::static_pointer_cast<Link>(session)); });
}

bool Agents::is_own(NodeId node) const {
  return sessions_.peer_of(node).starts_with("unix");
}

std::string Agents::host_of(NodeId node) const {
  const std::string peer = sessions_.peer_of(node);
  if (peer.empty()) {
    // Away just now. What is known to be on this machine stays reachable here.
    const auto known = hosts_.find(node);
    return known == hosts_.end() ? "" : known->second;
  }
  std::string host = peer.starts_with("unix") ? "127.0.0.1" : peer.substr(0, peer.rfind(':'));
  hosts_[node] = host;
  return host;
}

}  // namespace billow::head
