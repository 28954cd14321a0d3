#include "head/agents.h"

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/limits.h"
#include "base/log.h"

namespace billow::head {

using namespace wire::agent_v1;

struct Agents::Link final : AgentLink {
  std::shared_ptr<net::WebSocket> socket;
  std::string address;
  std::function<bool()> still_certified;
  bool tls = false;
  bool warned = false;  // a warning about its readings was logged

  bool send(const ToAgent& message, std::string_view blob) override {
    std::string frame = encode(message, blob);
    const bool sent = socket->send_binary(frame);
    wipe(frame);  // an order to start a task holds its secrets
    return sent;
  }
  bool send_raw(std::string_view frame) override { return socket->send_binary(frame); }
  bool open() const override { return socket->open(); }
  void close(std::string_view why) override {
    socket->close(
        why == "refused" ? net::WebSocket::close_policy : net::WebSocket::close_going_away,
        std::string(why));
  }
  std::string peer() const override { return address; }
  bool certified() const override { return still_certified(); }
  bool confidential() const override {
    return tls || address.starts_with("unix") || address.starts_with("127.") ||
           address.starts_with("[::1]");
  }
};

struct Agents::Waiting {
  struct Read {
    NodeId node;
    OnChunk fn;
  };
  std::uint64_t next = 1;
  std::unordered_map<std::uint64_t, Read> reads;
  std::unordered_map<
      TaskId,
      std::map<std::uint64_t, std::function<void(const wire::agent_v1::InputTaken&)>>>
      inputs;
};

struct Agents::LogSub final : net::Subscription {
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
struct Agents::InputSub final : net::Subscription {
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
      links_(clock, std::move(engine)),
      waiting_(std::make_shared<Waiting>()) {}
Agents::~Agents() = default;

void Agents::adopt(std::shared_ptr<net::WebSocket> socket,
                   std::string peer,
                   TokenId credential,
                   std::function<bool()> certified) {
  auto link = std::make_shared<Link>();
  link->socket = std::move(socket);
  link->address = std::move(peer);
  link->credential = credential;
  link->still_certified = std::move(certified);
  link->tls = tls_;
  link->heard = clock_.steady();
  link->socket->on_message([this, weak = std::weak_ptr(link)](std::string_view data, bool) {
    if (auto l = weak.lock())
      take(l, data);
  });
  // The close callback owns the link until then.
  link->socket->on_close([this, link](const net::WebSocket::Closed&) { closed(link); });
}

// Frames of the other protocols that share the connection. False: it is one of the agent protocol.
bool Agents::take_other(const Link& link, std::string_view data) {
  if (is_copy_frame(data)) {
    const auto copying = decode_copy(data);
    if (const auto* copied = copying ? std::get_if<FilesCopied>(&*copying) : nullptr;
        copied && link.node)
      copies_.take(link.node, *copied);
    return true;
  }
  if (wire::fabric_v1::is_fabric(data)) {
    const auto answer = wire::fabric_v1::decode_answer(data);
    if (answer && link.node && on_fabric_)
      on_fabric_(link.node, *answer);
    return true;
  }
  if (is_tunnel_frame(data)) {
    const auto tunnelled = decode_tunnel(data);
    if (tunnelled && link.node)
      tunnels_.take(link.node, tunnelled->message, tunnelled->blob);
    return true;
  }
  return false;
}

// The other nodes of a gang reach an agent at the address it connected from, unless it names
// another.
std::string Agents::address_for_gangs(const Link& link) const {
  if (link.address.starts_with("unix") || link.address == "unknown")
    return own_address_;
  std::string host = link.address.substr(0, link.address.rfind(':'));
  if (host.starts_with("["))
    host = host.substr(1, host.size() - 2);
  if (host.starts_with("::ffff:"))
    host = host.substr(7);
  return host.starts_with("127.") || host == "::1" ? own_address_ : host;
}

void Agents::take_reclaimed(const AgentLinkPtr& link, Reclaimed& notice) {
  if (std::string why = on_reclaimed_ ? on_reclaimed_(link->name) : ""; !why.empty())
    notice.reason = std::move(why);
  links_.reclaimed(link, notice);
}

void Agents::take_heartbeat(Link& link, const AgentLinkPtr& pointer, Heartbeat& beat) {
  // A task that has just ended here may still be in a reading that was on its way; a GPU never is.
  if (const std::size_t offered = beat.gpus.size();
      links_.keep_believed(pointer, beat) > 0 && beat.gpus.size() < offered && !link.warned) {
    link.warned = true;
    log_warn("node {}: ignoring readings of GPUs that it does not offer", link.name);
  }
  if (on_heartbeat_)
    on_heartbeat_(link.node, beat);
  readings_[link.node] = std::move(beat);
  links_.heartbeat(pointer);
}

void Agents::take_log(NodeId node, const LogChunk& chunk, std::string_view frames) {
  const auto found = waiting_->reads.find(chunk.subscription);
  if (found == waiting_->reads.end() || found->second.node != node)
    return;
  const auto fn = std::move(found->second.fn);
  waiting_->reads.erase(found);
  fn(chunk, frames);
}

void Agents::take_input(NodeId node, const InputTaken& taken) {
  const auto found = waiting_->inputs.find(taken.task);
  if (found == waiting_->inputs.end() || !links_.has_task(node, taken.task))
    return;  // nobody listens, or it is another node's task
  const auto copy = found->second;
  for (const auto& [id, fn] : copy)
    fn(taken);
}

void Agents::take(const std::shared_ptr<Link>& link, std::string_view data) {
  link->heard = clock_.steady();
  if (take_other(*link, data))
    return;
  auto frame = decode_from_agent(data);
  if (!frame)
    return links_.refuse(link, frame.error().message,
                         "check that the agent and the head have the same version");
  if (auto* hello = get_if<Hello>(&frame->message)) {
    if (hello->offer.address.empty())
      hello->offer.address = address_for_gangs(*link);
    if (on_offer_)
      on_offer_(hello->offer);
    return links_.hello(link, *hello);
  }
  if (!link->node)
    return links_.refuse(link, "the agent sent a message before its hello", "");
  if (const auto* r = get_if<Report>(&frame->message))
    links_.report(link, *r);
  else if (auto* notice = get_if<Reclaimed>(&frame->message))
    take_reclaimed(link, *notice);
  else if (auto* beat = get_if<Heartbeat>(&frame->message))
    take_heartbeat(*link, link, *beat);
  else if (const auto* mark = get_if<MeterMark>(&frame->message))
    links_.marks(link, *mark);
  else if (const auto* note = get_if<IdleNote>(&frame->message))
    links_.idle_note(link, *note);
  else if (const auto* asked = get_if<KeepAliveAsked>(&frame->message))
    links_.keep_alive(link, *asked);
  else if (const auto* chunk = get_if<LogChunk>(&frame->message))
    take_log(link->node, *chunk, frame->blob);
  else if (const auto* taken = get_if<InputTaken>(&frame->message))
    take_input(link->node, *taken);
}

void Agents::closed(const std::shared_ptr<Link>& link) {
  if (!links_.closed(link))
    return;
  readings_.erase(link->node);
  copies_.node_gone(link->node);
  tunnels_.node_gone(link->node, fmt::format("node {} does not answer any more", link->name));
  // Readers of its logs get an error, and ask again when it is back.
  std::vector<OnChunk> orphans;
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

std::unique_ptr<net::Subscription> Agents::read_log(NodeId node, LogRead request, OnChunk fn) {
  request.subscription = waiting_->next++;
  auto sub = std::make_unique<LogSub>();
  sub->waiting = waiting_;
  sub->agents = this;
  sub->id = request.subscription;
  if (!connected(node)) {
    loop_.post([fn] {
      fn(LogChunk{.error =
                      "the job's node does not answer; its log is kept there, try again later"},
         {});
    });
    return sub;
  }
  waiting_->reads[request.subscription] = {node, std::move(fn)};
  send(node, request, {});
  return sub;
}

std::unique_ptr<net::Subscription> Agents::watch_input(
    TaskId task, std::function<void(const wire::agent_v1::InputTaken&)> fn) {
  auto sub = std::make_unique<InputSub>();
  sub->waiting = waiting_;
  sub->task = task;
  sub->id = waiting_->next++;
  waiting_->inputs[task][sub->id] = std::move(fn);
  return sub;
}

bool Agents::send_fabric(NodeId node, const wire::fabric_v1::Ask& ask) {
  const auto link = std::static_pointer_cast<Link>(links_.find(node));
  return link && link->socket->send_binary(wire::fabric_v1::encode(ask));
}

const Heartbeat* Agents::readings(NodeId node) const {
  const auto found = readings_.find(node);
  return found == readings_.end() ? nullptr : &found->second;
}

void Agents::watch_silence() {
  copies_.look(clock_.steady());
  links_.watch_silence(
      [this](const AgentLinkPtr& link) { closed(std::static_pointer_cast<Link>(link)); });
}

bool Agents::is_own(NodeId node) const {
  return links_.peer_of(node).starts_with("unix");
}

std::string Agents::host_of(NodeId node) const {
  const std::string peer = links_.peer_of(node);
  if (peer.empty()) {
    // Not connected right now: the address it had last.
    const auto known = hosts_.find(node);
    return known == hosts_.end() ? "" : known->second;
  }
  std::string host = peer.starts_with("unix") ? "127.0.0.1" : peer.substr(0, peer.rfind(':'));
  hosts_[node] = host;
  return host;
}

}  // namespace billow::head
