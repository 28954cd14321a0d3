#include "head/gateways.h"

#include <fmt/format.h>
#include <algorithm>

#include "base/log.h"
#include "core/control/decide/front_door.h"
#include "core/control/decide/releases.h"
#include "core/control/money.h"
#include "core/model/call_limits.h"
#include "gateway/proxy.h"
#include "head/gateways/link.h"
#include "view/waiting.h"

namespace billow::head {
namespace {

// How long a gateway may be disconnected before another one manages its region's replicas.
constexpr Duration adopt_after = seconds(60);

const std::vector<std::string>& regions_of(const Endpoint& endpoint) {
  static const std::vector<std::string> anywhere;
  const Revision* current = endpoint.current();
  return current ? current->spec->place.regions : anywhere;
}

std::string region_of(const Job& replica) {
  const auto label = replica.spec->labels.find(label_region);
  return label == replica.spec->labels.end() ? std::string() : label->second;
}

bool among(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

Gateways::Gateways(net::Loop& loop, Options options) : loop_(loop), options_(std::move(options)) {
  for (const auto& [id, call] : options_.engine().state().calls)
    if (call.state == CallState::waiting)
      calls_[call.endpoint].emplace(call.made_at.ns, id);
  for (const auto& [name, endpoint] : options_.engine().state().endpoints) {
    counts_.restore(endpoint);
    if (counts_.any(name))
      add_up(name);
  }
  events_ = options_.engine().watch_events([this](const Event& event) {
    follow_calls(event);
    if (const auto* deleted = get_if<EndpointDeleted>(&event.body)) {
      counts_.forget(deleted->endpoint);
      figures_.erase(deleted->endpoint);
      for (const auto& link : links_)
        link->figures.erase(deleted->endpoint);
    }
    changed();
  });
  // Where a node is reached is no event. A table that is as the last one is not sent.
  look_again_ = loop.every(seconds(1), [this] {
    look_who_waits();
    look_for_room();
    changed();
  });
}

Gateways::~Gateways() {
  *alive_ = false;
  for (const auto& link : links_)
    link->socket->abort();
}

void Gateways::adopt(std::shared_ptr<net::WebSocket> socket, gateway::Dialled who) {
  auto link = std::make_shared<Link>();
  link->socket = std::move(socket);
  link->region = std::move(who.region);
  link->name = std::move(who.name);
  link->own = who.own;
  link->connected_at = link->seen_at = system_clock().wall();
  if (leaving_)  // it was started shortly before the head began to end
    link->send(gateway::Leave{});
  gone_since_.erase(link->region);
  links_.push_back(link);
  link->socket->on_close(
      [this, alive = alive_, weak = std::weak_ptr(link)](const net::WebSocket::Closed&) {
        if (!*alive)
          return;
        if (const auto link = weak.lock())
          gone(link);
      });
  link->socket->on_message(
      [this, alive = alive_, weak = std::weak_ptr(link)](std::string_view text, bool) {
        if (const auto from = weak.lock(); from && *alive)
          heard(from, text);
      });
  log_info("a gateway connected{}{}", link->region.empty() ? "" : ", region " + link->region,
           is_first(*link) ? "" : "; it forwards requests to the one that connected first");
  changed();
}

void Gateways::gone(const std::shared_ptr<Link>& link) {
  gone_since_[link->region] = loop_.steady();
  peer_epoch_ = static_cast<std::uint64_t>(system_clock().wall().ns);
  std::erase(links_, link);
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, each] : asked_)
    numbers.push_back(number);
  for (const std::uint64_t number : numbers)
    heard_of(link.get(), number);
  remember(*link);
  changed();
}

const Gateways::Link* Gateways::leader() const {
  for (const auto& link : links_)
    if (link->socket->open())
      return link.get();
  return nullptr;
}

const Gateways::Link* Gateways::link_of(const std::string& region) const {
  for (const auto& link : links_)
    if (link->socket->open() && link->region == region)
      return link.get();
  return nullptr;
}

// Only the first of a region steers: a second one sees other requests, and would put to sleep what
// the first serves from, or give it more requests than it has slots. It passes requests on to the
// first, and takes its place when that has gone.
bool Gateways::is_first(const Link& link) const {
  return link_of(link.region) == &link;
}

// A gateway that replaces another one comes while the head still sees its predecessor's connection.
// It is not a second one: it dials again.
bool Gateways::is_successor(const Link& link) const {
  const Link* first = link_of(link.region);
  return first && first != &link && !link.gateway.empty() && first->gateway == link.gateway;
}

// Whether it may have replicas of an endpoint. Where no gateway of the endpoint's regions is there,
// the first one stands in.
bool Gateways::steers(const Link& link, const Endpoint& endpoint) const {
  const auto& regions = regions_of(endpoint);
  if (!link.socket->open())
    return false;
  if (among(regions, link.region))
    return is_first(link);
  if (std::any_of(regions.begin(), regions.end(),
                  [&](const std::string& r) { return link_of(r) != nullptr; }))
    return false;
  return &link == leader();
}

// Whose replica it is; null: its gateway is away for a moment, and nobody else's.
const Gateways::Link* Gateways::owner(const Endpoint& endpoint, const Job& replica) const {
  const std::string region = region_of(replica);
  if (region.empty()) {
    for (const auto& link : links_)
      if (!among(regions_of(endpoint), link->region) && steers(*link, endpoint))
        return link.get();
    return leader();
  }
  if (const Link* own = link_of(region))
    return own;
  const auto gone = gone_since_.find(region);
  return gone != gone_since_.end() && loop_.steady() - gone->second < adopt_after ? nullptr
                                                                                  : leader();
}

void Gateways::leave() {
  leaving_ = true;
  for (const auto& link : links_) {
    record_counts(*link);
    link->send(gateway::Leave{});
  }
}

// One table for all the events of a turn, and only what is durable leaves.
// A second gateway of a region gets none before it has said who it is.
bool Gateways::ready(const Link& link) const {
  return link.socket->open() && (is_first(link) || !link.gateway.empty());
}

void Gateways::changed() {
  if (posted_ || links_.empty())
    return;
  posted_ = true;
  loop_.post([this, alive = alive_] {
    if (!*alive)
      return;
    posted_ = false;
    for (const auto& link : links_) {
      if (!ready(*link))
        continue;
      options_.engine().when_durable([this, alive, link, text = table(*link)] {
        if (*alive)
          send_table(link, text);
      });
    }
  });
}

void Gateways::send_table(const std::shared_ptr<Link>& link, const std::string& text) {
  if (link->sent == text || !link->socket->open())
    return;
  link->sent = text;
  link->socket->send_text(text);
}

// A new key may be used at once, so it must not be given out before the gateways have it. A gateway
// that does not answer must not hold the caller up for long.
void Gateways::when_known(std::function<void()> fn) {
  constexpr Duration patience = seconds(2);
  const std::uint64_t number = next_ask_++;
  Known& made = asked_[number];
  made.fn = std::move(fn);
  made.patience = loop_.after(patience, [this, number] { known(number); });
  for (const auto& link : links_)
    if (ready(*link))
      made.waits_for.insert(link.get());
  for (const auto& link : links_)
    if (made.waits_for.contains(link.get()))
      options_.engine().when_durable([this, alive = alive_, link, number, text = table(*link)] {
        if (!*alive)
          return;
        send_table(link, text);
        link->send(gateway::Ask{number});
      });
  if (made.waits_for.empty())
    known(number);
}

void Gateways::heard_of(const Link* link, std::uint64_t number) {
  const auto found = asked_.find(number);
  if (found == asked_.end())
    return;
  found->second.waits_for.erase(link);
  if (found->second.waits_for.empty())
    known(number);
}

void Gateways::known(std::uint64_t number) {
  if (auto found = asked_.extract(number); !found.empty())
    found.mapped().fn();
}

// Why replicas wait, for gateways to tell clients whose requests wait. Only for endpoints that have
// waited for a while.
void Gateways::look_who_waits() {
  constexpr Duration patience = seconds(1);
  constexpr std::size_t looks_max = 32;
  const control::State& state = options_.engine().state();
  const WallTime now = system_clock().wall();
  std::map<std::string, std::string> waiting;
  for (const auto& [name, replicas] : state.replicas) {
    if (links_.empty() || waiting.size() >= looks_max)
      break;
    for (JobId id : replicas) {
      const Job& job = state.jobs.at(id);
      const bool asleep = job.state == JobState::suspended && job.suspension.resume_wanted &&
                          now - job.suspension.since > patience;
      if (!asleep && (job.state != JobState::queued || now - job.submitted_at < patience))
        continue;
      if (std::string why = view::waiting_reason(state, job, now); !why.empty())
        waiting.emplace(name, std::move(why));
      break;
    }
  }
  waiting_ = std::move(waiting);
}

gateway::ReplicaRow Gateways::replica_row(const Job& job) const {
  const control::State& state = options_.engine().state();
  gateway::ReplicaRow replica{.job = job.id.value, .job_state = job.state};
  replica.revision = static_cast<std::uint32_t>(std::stoul(job.spec->labels.at(label_revision)));
  replica.port = static_cast<std::uint16_t>(std::stoul(job.spec->labels.at(label_port)));
  replica.spot = job.spec->spot;
  replica.stopping = job.stopping != StopCause::none;
  replica.resume_wanted = job.suspension.resume_wanted;
  if (!job.tasks.empty()) {
    const Task& task = state.tasks.at(job.tasks.front());
    replica.task_state = task.state;
    replica.unsuspendable = task.unsuspendable;
    const AgentLinks::Port port = options_.port_of(task.id);
    replica.port_holder = port.holder;
    replica.port_look = port.look;
    if (const std::string host = options_.host_of(task.node); !host.empty())
      replica.address = fmt::format("{}:{}", host, replica.port);
  }
  return replica;
}

std::string Gateways::table(const Link& link) const {
  const control::State& state = options_.engine().state();
  gateway::Table table;
  table.door = control::served_front_door(state);
  table.peer_epoch = peer_epoch_;
  for (const auto& other : links_)
    if (other.get() != &link && other->socket->open() && !other->peer_address.empty() &&
        is_first(*other))
      table.peers.push_back({other->region, other->peer_address, other->peer_key});
  for (const auto& [name, endpoint] : state.endpoints) {
    gateway::EndpointRow row;
    row.name = name;
    if (const Revision* current = endpoint.current()) {
      row.policy = current->policy;
      row.deployed_at = current->made_at;
    }
    row.serving = endpoint.serving;
    row.rolling = endpoint.rolling;
    row.canary = endpoint.canary;
    if (const Revision* canary = control::canary_of(endpoint))
      row.release = canary->release;
    add_keys(row, endpoint, link);
    add_limits(row, endpoint);
    row.failed_job = endpoint.failed_job.value;
    row.failed_reason = endpoint.failed_reason;
    row.failed_port_taken = endpoint.failed_port_taken;
    if (const auto why = waiting_.find(name); why != waiting_.end())
      row.waiting = why->second;
    row.steered = steers(link, endpoint);
    if (const auto owner = state.users.find(endpoint.user); owner != state.users.end())
      row.account = owner->second.unix_name;
    for (const auto& other : links_)
      if (other.get() != &link && steers(*other, endpoint))
        row.elsewhere.push_back({other->region, 0});
    if (const auto replicas = state.replicas.find(name); replicas != state.replicas.end()) {
      row.held_back = control::held_back(state, replicas->second, system_clock().wall());
      for (JobId id : replicas->second) {
        const Job& job = state.jobs.at(id);
        if (const Link* whose = owner(endpoint, job); whose != &link) {
          const bool awake = whose && !job.tasks.empty() &&
                             state.tasks.at(job.tasks.front()).state == TaskState::running &&
                             job.stopping == StopCause::none;
          for (auto& other : row.elsewhere)
            other.awake += awake && other.region == whose->region;
          continue;
        }
        row.replicas.push_back(replica_row(job));
      }
    }
    table.endpoints.push_back(std::move(row));
  }
  // One gateway carries them out, no matter which one accepted them.
  if (&link == leader())
    for (const auto& [endpoint, waiting] : calls_) {
      std::size_t shown = 0;
      for (auto at = waiting.begin();
           at != waiting.end() && shown < limits::async_under_way_of_endpoint_max; ++at, ++shown)
        table.waiting.push_back({at->second, endpoint});
    }
  return gateway::encode(gateway::ToGateway(std::move(table)));
}

// Which calls wait, the oldest first: the state has them by their ids, and a table is made for
// every change.
void Gateways::follow_calls(const Event& event) {
  if (const auto* accepted = get_if<CallAccepted>(&event.body)) {
    calls_[accepted->call.endpoint].emplace(accepted->call.made_at.ns, accepted->call.id);
  } else if (const auto* ended = get_if<CallEnded>(&event.body)) {
    for (auto at = calls_.begin(); at != calls_.end(); ++at) {
      const auto& calls = options_.engine().state().calls;
      const auto known = calls.find(ended->id);
      if (known != calls.end() && known->second.endpoint != at->first)
        continue;
      if (known != calls.end())
        at->second.erase({known->second.made_at.ns, ended->id});
      else
        std::erase_if(at->second, [&](const auto& each) { return each.second == ended->id; });
      if (!at->second.empty())
        continue;
      calls_.erase(at);
      return;
    }
  }
}

void Gateways::run(Command command) {
  options_.engine().execute(command, {"gateway", ""}, [](Result<std::vector<Event>> done) {
    if (!done)
      log_debug("a gateway's request failed: {}", done.error().message);
  });
}

void Gateways::move(const gateway::MoveReplica& wish) {
  const auto& state = options_.engine().state();
  const auto replicas = state.replicas.find(wish.endpoint);
  if (replicas == state.replicas.end() || !replicas->second.contains(JobId(wish.job)))
    return;
  if (wish.what == "resume")
    run(ResumeJob{JobId(wish.job)});
  else if (wish.what == "suspend")
    run(SuspendJob{JobId(wish.job), wish.reason, SuspendCause::request, SuspendMode::warm});
  else if (wish.what == "stop")
    run(StopJob{JobId(wish.job), wish.reason, false});
}

// Only of agents that look at all: others would not understand.
void Gateways::look(const gateway::LookAtReplica& wish) {
  const auto& state = options_.engine().state();
  const auto replicas = state.replicas.find(wish.endpoint);
  if (replicas == state.replicas.end() || !replicas->second.contains(JobId(wish.job)))
    return;
  const Job& job = state.jobs.at(JobId(wish.job));
  if (job.tasks.empty() || options_.port_of(job.tasks.front()).holder == PortHolder::unsaid)
    return;
  options_.look(state.tasks.at(job.tasks.front()).node, {job.tasks.front(), wish.number});
}

void Gateways::heard(const std::shared_ptr<Link>& link, std::string_view text) {
  if (leaving_)
    return;
  auto message = gateway::decode_from_gateway(text);
  if (!message)
    return log_warn("a gateway sent a message that cannot be read: {}", message.error().message);
  struct Hear {
    Gateways& self;
    const std::shared_ptr<Link>& link;
    void operator()(const gateway::StartReplica& m) {
      const auto found = self.options_.engine().state().endpoints.find(m.endpoint);
      if (found == self.options_.engine().state().endpoints.end() ||
          !self.steers(*link, found->second))
        return;
      const Revision* revision = found->second.revision(m.revision);
      self.run(billow::StartReplica{
          m.endpoint, m.revision, m.port, m.spot,
          revision && among(revision->spec->place.regions, link->region) ? link->region : ""});
    }
    void operator()(const gateway::MoveReplica& m) { self.move(m); }
    void operator()(const gateway::LookAtReplica& m) { self.look(m); }
    void operator()(const RevisionJudged& m) { self.judged(link, m); }
    void operator()(const gateway::AcceptCall& m) { self.accept_call(link, m); }
    void operator()(const gateway::EndCall& m) { self.end_call(link, m); }
    void operator()(const gateway::AskCall& m) { self.ask_call(link, m); }
    void operator()(const gateway::TakeCall& m) { self.take_call(link, m); }
    void operator()(const gateway::Heard& m) { self.heard_of(link.get(), m.number); }
    void operator()(const gateway::Figures& m) { self.take_figures(link, m); }
  };
  std::visit(Hear{*this, link}, *message);
}

// A broken revision is broken for all; a healthy one takes over when everybody who serves it says
// so.
void Gateways::judged(const std::shared_ptr<Link>& link, const RevisionJudged& verdict) {
  const auto& endpoints = options_.engine().state().endpoints;
  const auto found = endpoints.find(verdict.endpoint);
  if (found == endpoints.end())
    return;
  const bool ends_canary = !verdict.healthy && found->second.canary == verdict.revision;
  if (found->second.rolling != verdict.revision && !ends_canary)
    return;
  if (verdict.healthy) {
    auto& [revision, regions] = agreed_[verdict.endpoint];
    if (revision != verdict.revision)
      regions.clear();
    revision = verdict.revision;
    regions.insert(link->region);
    for (const auto& other : links_)
      if (steers(*other, found->second) && !regions.contains(other->region))
        return;
  }
  agreed_.erase(verdict.endpoint);
  std::string reason = verdict.reason;
  JobId failed = verdict.job;
  const control::State& state = options_.engine().state();
  if (const Job* job = state.find_job(failed); job && !verdict.healthy) {
    const bool waited = job->tasks.empty() && job->state == JobState::queued;
    std::string why = waited ? view::waiting_reason(state, *job, system_clock().wall())
                      : !job->tasks.empty() ? options_.trouble_of(job->tasks.front())
                                            : std::string();
    if (why.empty())
      why = gateway::not_listening(replica_row(*job));
    if (!why.empty())
      reason += (waited ? ": " : "; ") + why;
    if (waited)
      failed = {};  // it never ran: there is no log to read
  }
  run(JudgeRevision{verdict.endpoint, verdict.revision, verdict.healthy, reason, failed});
}

void Gateways::accept_call(const std::shared_ptr<Link>& link, const gateway::AcceptCall& wish) {
  options_.engine().execute(
      billow::AcceptCall{wish.call}, {"gateway", ""},
      [this, link, number = wish.number, id = wish.call.id, endpoint = wish.call.endpoint,
       key = wish.call.idempotency_key](Result<std::vector<Event>> done) {
        gateway::Reply reply{.number = number};
        if (!done) {
          reply.error = done.error().message;
          reply.code = code_name(done.error().code);
          reply.hint = done.error().hint;
        } else if (!done->empty()) {
          reply.id = id;
        } else {
          for (const auto& [earlier, old] : options_.engine().state().calls)
            if (old.endpoint == endpoint && old.idempotency_key == key)
              reply.id = earlier;
        }
        link->send(reply);
      });
}

void Gateways::end_call(const std::shared_ptr<Link>& link, const gateway::EndCall& wish) {
  options_.engine().execute(billow::EndCall{wish.call}, {"gateway", ""},
                            [link, number = wish.number](Result<std::vector<Event>> done) {
                              gateway::Reply reply{.number = number};
                              if (!done) {
                                reply.error = done.error().message;
                                reply.code = code_name(done.error().code);
                              }
                              link->send(reply);
                            });
}

void Gateways::take_call(const std::shared_ptr<Link>& link, const gateway::TakeCall& wish) {
  gateway::Reply reply{.number = wish.number};
  const auto& calls = options_.engine().state().calls;
  if (const auto found = calls.find(wish.id);
      found != calls.end() && found->second.state == CallState::waiting) {
    reply.call = found->second;
  } else {
    reply.error = "the call is no longer waiting";
    reply.code = code_name(Code::not_found);
  }
  link->send(reply);
}

void Gateways::ask_call(const std::shared_ptr<Link>& link, const gateway::AskCall& wish) {
  gateway::Reply reply{.number = wish.number};
  const auto& calls = options_.engine().state().calls;
  const auto found = calls.find(wish.id);
  if (found == calls.end()) {
    reply.error = "there is no such call, or its answer has been dropped";
    reply.code = code_name(Code::not_found);
    return link->send(reply);
  }
  const AsyncCall& call = found->second;
  reply.document = Json::object({{"id", call.id},
                                 {"endpoint", call.endpoint},
                                 {"status", enum_name(call.state)},
                                 {"made_at", format_utc(call.made_at)}});
  if (call.state == CallState::done) {
    Json headers = Json::object();
    for (const auto& [name, value] : call.answer_headers)
      headers.set(name, value);
    reply.document.set("answer_status", call.status);
    reply.document.set("headers", std::move(headers));
    reply.document.set("answer", call.answer);
  }
  if (!call.reason.empty())
    reply.document.set("reason", call.reason);
  options_.engine().when_durable([link, reply] { link->send(reply); });
}

}  // namespace billow::head
