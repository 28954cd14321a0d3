#include "head/gateways.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/log.h"
#include "control/money.h"
#include "gateway/messages.h"

namespace billow::head {
namespace {

// Which budget keeps an endpoint's replicas from running, as long as it does.
std::string held_back(const control::State& state, const std::set<JobId>& replicas, WallTime now) {
  for (JobId id : replicas) {
    const Job& job = state.jobs.at(id);
    const auto held = state.money.held.find(id);
    const bool asleep = job.suspension.phase == SuspendPhase::suspended && job.suspension.cause == SuspendCause::budget && !job.suspension.resume_wanted;
    if (held == state.money.held.end() && !asleep) continue;
    if (const Status paid = control::Purse(state, now).take(job, asleep ? Rate{1} : held->second); !paid) return "budget: " + paid.error().message;
  }
  return {};
}

}  // namespace

struct Gateways::Link {
  std::shared_ptr<net::WebSocket> socket;
  std::vector<std::string> addresses;
  std::string sent;                    // the last table
  void send(const gateway::ToGateway& message) {
    if (socket->open()) socket->send_text(gateway::encode(message));
  }
};

Gateways::Gateways(net::Loop& loop, Options options) : loop_(loop), options_(std::move(options)) {
  events_ = options_.engine().watch_events([this](const Event&) { changed(); });
  // Where a node is reached is no event. A table that is as the last one is not sent.
  look_again_ = loop.every(seconds(1), [this] { changed(); });
}

Gateways::~Gateways() {
  *alive_ = false;
  for (const auto& link : links_) link->socket->abort();
}

void Gateways::adopt(std::shared_ptr<net::WebSocket> socket) {
  // Only one can steer: a second one, who sees no requests, would put to sleep what the first one serves from. It dials again, and is
  // taken when the first has gone.
  if (std::any_of(links_.begin(), links_.end(), [](const auto& link) { return link->socket->open(); })) {
    log_debug("another gateway is connected already");
    socket->close();
    return;
  }
  auto link = std::make_shared<Link>();
  link->socket = std::move(socket);
  links_.push_back(link);
  link->socket->on_close([this, alive = alive_, weak = std::weak_ptr(link)](const net::WebSocket::Closed&) {
    if (!*alive) return;
    if (const auto gone = weak.lock()) std::erase(links_, gone);
  });
  link->socket->on_message([this, alive = alive_, weak = std::weak_ptr(link)](std::string_view text, bool) {
    if (const auto from = weak.lock(); from && *alive) heard(from, text);
  });
  log_info("a gateway is connected");
  changed();
}

void Gateways::leave() {
  leaving_ = true;
  for (const auto& link : links_) link->send(gateway::Leave{});
}

std::size_t Gateways::count() const { return links_.size(); }

std::vector<std::string> Gateways::addresses() const {
  std::vector<std::string> out;
  for (const auto& link : links_) out.insert(out.end(), link->addresses.begin(), link->addresses.end());
  return out;
}

const gateway::EndpointFigures* Gateways::figures(const std::string& endpoint) const {
  const auto found = figures_.find(endpoint);
  return found == figures_.end() ? nullptr : &found->second;
}

// One table for all the events of a turn, and only what is durable leaves.
void Gateways::changed() {
  if (posted_ || links_.empty()) return;
  posted_ = true;
  loop_.post([this, alive = alive_] {
    if (!*alive) return;
    posted_ = false;
    options_.engine().when_durable([this, alive, text = table()] {
      if (!*alive) return;
      for (const auto& link : links_) {
        if (link->sent == text || !link->socket->open()) continue;
        link->sent = text;
        link->socket->send_text(text);
      }
    });
  });
}

std::string Gateways::table() const {
  const control::State& state = options_.engine().state();
  gateway::Table table;
  for (const auto& [name, endpoint] : state.endpoints) {
    gateway::EndpointRow row;
    row.name = name;
    if (const Revision* current = endpoint.current()) row.policy = current->policy;
    row.serving = endpoint.serving;
    row.rolling = endpoint.rolling;
    for (const EndpointKey& key : endpoint.keys) row.keys.push_back(key.hash);
    row.failed_job = endpoint.failed_job.value;
    row.failed_reason = endpoint.failed_reason;
    if (const auto replicas = state.replicas.find(name); replicas != state.replicas.end()) {
      row.held_back = held_back(state, replicas->second, system_clock().wall());
      for (JobId id : replicas->second) {
        const Job& job = state.jobs.at(id);
        gateway::ReplicaRow replica{.job = id.value, .job_state = job.state};
        replica.revision = static_cast<std::uint32_t>(std::stoul(job.spec->labels.at(label_revision)));
        replica.spot = job.spec->spot;
        replica.stopping = job.stopping != StopCause::none;
        replica.resume_wanted = job.suspension.resume_wanted;
        if (!job.tasks.empty()) {
          const Task& task = state.tasks.at(job.tasks.front());
          replica.task_state = task.state;
          replica.unsuspendable = task.unsuspendable;
          if (const std::string host = options_.host_of(task.node); !host.empty()) replica.address = fmt::format("{}:{}", host, job.spec->labels.at(label_port));
        }
        row.replicas.push_back(std::move(replica));
      }
    }
    table.endpoints.push_back(std::move(row));
  }
  for (const auto& [id, call] : state.calls)
    if (call.state == CallState::waiting) table.calls.push_back(call);
  return gateway::encode(gateway::ToGateway(std::move(table)));
}

void Gateways::run(Command command) {
  options_.engine().execute(command, {"gateway", ""}, [](Result<std::vector<Event>> done) {
    if (!done) log_debug("a gateway's wish: {}", done.error().message);
  });
}

void Gateways::move(const gateway::MoveReplica& wish) {
  const auto& state = options_.engine().state();
  const auto replicas = state.replicas.find(wish.endpoint);
  if (replicas == state.replicas.end() || !replicas->second.contains(JobId(wish.job))) return;
  if (wish.what == "resume") run(ResumeJob{JobId(wish.job)});
  else if (wish.what == "suspend") run(SuspendJob{JobId(wish.job), wish.reason, SuspendCause::request, SuspendMode::warm});
  else if (wish.what == "stop") run(StopJob{JobId(wish.job), wish.reason, false});
}

void Gateways::heard(const std::shared_ptr<Link>& link, std::string_view text) {
  if (leaving_) return;
  auto message = gateway::decode_from_gateway(text);
  if (!message) return log_warn("a gateway said something that is not understood: {}", message.error().message);
  struct Hear {
    Gateways& self;
    const std::shared_ptr<Link>& link;
    void operator()(const gateway::StartReplica& m) { self.run(billow::StartReplica{m.endpoint, m.revision, m.port, m.spot}); }
    void operator()(const gateway::MoveReplica& m) { self.move(m); }
    void operator()(const RevisionJudged& m) { self.run(JudgeRevision{m.endpoint, m.revision, m.healthy, m.reason}); }
    void operator()(const gateway::AcceptCall& m) { self.accept_call(link, m); }
    void operator()(const gateway::EndCall& m) { self.end_call(link, m); }
    void operator()(const gateway::AskCall& m) { self.ask_call(link, m); }
    void operator()(const gateway::Figures& m) {
      link->addresses = m.addresses;
      for (const auto& each : m.endpoints) self.figures_[each.name] = each;
    }
  };
  std::visit(Hear{*this, link}, *message);
}

void Gateways::accept_call(const std::shared_ptr<Link>& link, const gateway::AcceptCall& wish) {
  options_.engine().execute(billow::AcceptCall{wish.call}, {"gateway", ""}, [this, link, number = wish.number, call = wish.call](Result<std::vector<Event>> done) {
    gateway::Reply reply{.number = number};
    if (!done) {
      reply.error = done.error().message;
      reply.code = code_name(done.error().code);
    } else if (!done->empty()) {
      reply.id = call.id;
    } else {
      for (const auto& [id, old] : options_.engine().state().calls)
        if (old.endpoint == call.endpoint && old.idempotency_key == call.idempotency_key) reply.id = id;
    }
    link->send(reply);
  });
}

void Gateways::end_call(const std::shared_ptr<Link>& link, const gateway::EndCall& wish) {
  options_.engine().execute(billow::EndCall{wish.call}, {"gateway", ""}, [link, number = wish.number](Result<std::vector<Event>> done) {
    gateway::Reply reply{.number = number};
    if (!done) {
      reply.error = done.error().message;
      reply.code = code_name(done.error().code);
    }
    link->send(reply);
  });
}

void Gateways::ask_call(const std::shared_ptr<Link>& link, const gateway::AskCall& wish) {
  gateway::Reply reply{.number = wish.number};
  const auto& calls = options_.engine().state().calls;
  const auto found = calls.find(wish.id);
  if (found == calls.end()) {
    reply.error = "there is no such call, or its answer is no longer kept";
    reply.code = code_name(Code::not_found);
    return link->send(reply);
  }
  const AsyncCall& call = found->second;
  reply.document = Json::object({{"id", call.id}, {"endpoint", call.endpoint}, {"status", enum_name(call.state)}, {"made_at", format_utc(call.made_at)}});
  if (call.state == CallState::done) {
    Json headers = Json::object();
    for (const auto& [name, value] : call.answer_headers) headers.set(name, value);
    reply.document.set("answer_status", call.status);
    reply.document.set("headers", std::move(headers));
    reply.document.set("answer", call.answer);
  }
  if (!call.reason.empty()) reply.document.set("reason", call.reason);
  options_.engine().when_durable([link, reply] { link->send(reply); });
}

}  // namespace billow::head
