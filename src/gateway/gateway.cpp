#include "gateway/gateway.h"

#include <sys/socket.h>

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/log.h"
#include "base/text.h"
#include "core/wire/codec.h"
#include "gateway/calls.h"
#include "gateway/mirror.h"
#include "gateway/pure/digits.h"
#include "net/certs.h"
#include "net/guard.h"

namespace billow::gateway {
namespace {

constexpr Duration tick_period = milliseconds(50);
// From the end of a replica until requests that wait for its answer fail.
constexpr Duration last_words_patience = seconds(1);

template <class Map>
void fill(Map& by_endpoint, const std::vector<RequestLimits>& rows) {
  by_endpoint.clear();
  for (const RequestLimits& each : rows)
    by_endpoint[each.endpoint] = each;
}

net::Response deleted(const LiveEndpoint& endpoint, const std::string& request_id = {}) {
  return net::problem(404, fmt::format("endpoint {} was deleted", endpoint.name()), "", request_id);
}

constexpr std::size_t mirrored_body_bytes_max = 1 << 20;
constexpr std::size_t prompt_body_bytes_max = 8 << 20;

}  // namespace

Gateway::Gateway(net::Loop& loop, Options options)
    : loop_(loop),
      options_(std::move(options)),
      several_(options_.proxy.threads > 1),
      hosts_(options_.domains),
      keys_(disk_, options_.data_dir.empty() ? "" : options_.data_dir + "/keys.json"),
      tracer_(random_u64(), options_.trace_sample),
      id_prefix_(random_token(6)),
      secret_(random_token(24)),
      peer_key_(random_token(24)),
      started_at_(system_clock().wall()) {}

Result<std::unique_ptr<Gateway>> Gateway::create(net::Loop& loop, Options options) {
  auto out = std::unique_ptr<Gateway>(new Gateway(loop, std::move(options)));
  BILLOW_TRY_VOID(out->prepare_certificate());
  out->keys_.load();
  out->load_sticky_secret();
  if (!out->options_.otlp.empty())
    out->spans_ = BILLOW_TRY(Spans::create(loop, out->options_.otlp));
  if (!out->options_.sample_to.empty())
    out->samples_ = BILLOW_TRY(Samples::create(loop, {.url = out->options_.sample_to,
                                                      .access = out->options_.bucket_access,
                                                      .gateway = out->keys_.gateway(),
                                                      .seed = random_u64()}));
  out->client_ = BILLOW_TRY(net::HttpClient::create(loop, {}));
  out->webhook_client_ = BILLOW_TRY(net::HttpClient::create(
      loop, {.check_address = net::only_outwards(out->options_.webhook_hosts)}));
  out->proxy_ = BILLOW_TRY(Proxy::create(loop, out->options_.proxy, *out));
  BILLOW_TRY_VOID(out->check_listeners());
  BILLOW_TRY_VOID(out->begin_acme());
  if (!out->options_.data_dir.empty())
    out->log_ =
        std::make_unique<AccessLog>(loop, out->disk_, out->options_.data_dir + "/access.log");
  out->calls_ = std::make_unique<Calls>(*out, BILLOW_TRY(out->webhook_key()));
  out->peers_ = std::make_unique<Peers>(loop, *out->client_);
  out->tick_timer_ = loop.every(tick_period, [at = out.get()] { at->tick(); });
  out->begin_lanes();
  return out;
}

Gateway::~Gateway() {
  end_lanes();
  alive_.reset();
  closing_ = true;
  save();
  tick_timer_.cancel();
  calls_.reset();
  probes_.clear();
  held_.clear();
  for (auto& [name, endpoint] : endpoints_)
    endpoint->close();
  peers_.reset();
  spans_.reset();
  samples_.reset();
  acme_.reset();
  for (const auto& lane : lanes_)
    lane->proxy.reset();
  proxy_.reset();
  // Again: streams that were cut just now are charged too.
  save();
  if (handed_over_)
    tell_successor(true);
  lanes_.clear();
  client_.reset();
  webhook_client_.reset();
}

std::string Gateway::next_request_id() {
  std::string id = id_prefix_ + '-';
  append_number(id, ++last_id_, 16);
  return id;
}

std::shared_ptr<LiveEndpoint> Gateway::find(std::string_view name) const {
  const auto found = endpoints_.find(name);
  return found == endpoints_.end() ? nullptr : found->second;
}

// ---- the table

void Gateway::take_table(Table table) {
  const Decision decision(*this);
  const auto now = loop_.steady();
  head_was_here_ = head_is_here();
  knows_endpoints_ = true;
  forgotten_why_.clear();
  if (head_was_here_)
    renew_peer_key(table.peer_epoch);
  peers_->take(table.peers);
  routes_.take(table.door.models);
  hosts_.take(table.door.domains);
  fill(limits_, table.door.limits);
  std::set<std::string> here;
  std::set<KeyHash> gone_keys;
  for (EndpointRow& row : table.endpoints) {
    here.insert(row.name);
    auto& endpoint = endpoints_[row.name];
    if (!endpoint) {
      endpoint = std::make_shared<LiveEndpoint>(
          row.name, [this](FromGateway m) { say_to_head(std::move(m)); },
          [this] { return free_port(); });
      endpoint->set_head_is_here([this] { return head_is_here(); });
      endpoint->set_wall_clock([] { return system_clock().wall(); });
    }
    if (const auto before = saved_.find(endpoint->name()); before != saved_.end()) {
      endpoint->answers = std::exchange(before->second.first_byte, {});
      endpoint->native_answers = std::exchange(before->second.first_byte_native, {});
      endpoint->totals = std::move(before->second);
      saved_.erase(before);
    }
    const std::vector<KeyRow> keys_before = endpoint->row().key_rows;
    endpoint->update(std::move(row), now);
    for (const KeyRow& key : keys_before)
      if (!endpoint->key_for(key.hash))
        gone_keys.emplace(endpoint->name(), key.hash);
    for (auto& upstream : endpoint->take_ended())
      ended_.emplace_back(now, std::move(upstream));
  }
  for (auto at = endpoints_.begin(); at != endpoints_.end();) {
    if (here.contains(at->first)) {
      ++at;
      continue;
    }
    const auto gone = at->second;
    at = endpoints_.erase(at);
    std::vector<RequestId> waiting;
    for (const auto& [id, held] : gone->router.queue())
      waiting.push_back(id);
    for (RequestId id : waiting)
      refuse_held(*gone, id, deleted(*gone));
    gone->close();
  }
  const auto all = endpoints_;
  for (const auto& [name, endpoint] : all) {
    check_due(endpoint);
    // Waiting requests are served first: a replica that has just woken must not look idle.
    give_out(endpoint);
    endpoint->steer(now);
  }
  calls_->take(table.waiting);
  keep_table(table);
  end_streams_of(std::move(gone_keys));
}

void Gateway::forget_table(const std::string& why) {
  if (!knows_endpoints_)
    return;
  log_error("{}: this gateway serves no endpoint until the head accepts it", why);
  take_table({});
  const Decision decision(*this);
  knows_endpoints_ = false;
  forgotten_why_ = why;
}

// Not after a hand-over: the file is the successor's then.
void Gateway::keep_table(const Table& table) {
  if (options_.data_dir.empty() || handed_over_)
    return;
  Table kept;
  kept.peers = table.peers;
  kept.door = table.door;
  for (const auto& [name, endpoint] : endpoints_)
    kept.endpoints.push_back(endpoint->row());
  std::string text = wire::to_json_text(kept);
  if (text == kept_table_)
    return;
  disk_.replace(options_.data_dir + "/table.json", text);
  kept_table_ = std::move(text);
}

// The head knows that these have ended. The end of a process resets its connections, but the loss
// of a node resets none, and another sleeping process may listen on the port of a replica that
// never bound it; such a process accepts a connection and sends nothing. An answer that is already
// on its way gets a moment to arrive.
void Gateway::give_up_on_ended(SteadyTime now) {
  const auto due = std::partition(ended_.begin(), ended_.end(), [&](const auto& each) {
    return now - each.first < last_words_patience;
  });
  const std::vector<std::pair<SteadyTime, std::shared_ptr<Upstream>>> over(due, ended_.end());
  ended_.erase(due, ended_.end());
  for (const auto& [since, upstream] : over)
    each_proxy([upstream](Proxy& proxy) { proxy.give_up(*upstream); });
}

Status Gateway::load_table() {
  if (const auto figures = read_file(options_.data_dir + "/figures.json"); figures)
    if (auto all = wire::from_json_text<Figures>(*figures))
      for (auto& each : all->endpoints)
        saved_[each.name] = std::move(each);
  const std::string path = options_.data_dir + "/table.json";
  if (options_.data_dir.empty() || !file_exists(path))
    return {};
  auto table = wire::from_json_text<Table>(BILLOW_TRY(read_file(path)));
  if (!table)
    return pass(table.error(), path);
  // An empty one may be that of a gateway that was expelled.
  if (table->endpoints.empty())
    return {};
  take_table(std::move(*table));
  return {};
}

// ---- requests

void Gateway::serve(const std::shared_ptr<Front>& front,
                    const std::shared_ptr<LiveEndpoint>& endpoint,
                    std::size_t prefix_bytes) {
  Ticket& ticket = front->ticket;
  ticket.prefix_bytes = prefix_bytes;
  ticket.timeout = endpoint->policy().timeout;
  ticket.endpoint = endpoint;
  ticket.failure_counted = false;
  ticket.named = prefix_bytes == 0 ? endpoint->name() : "";
  ticket.wants_usage = true;
  ticket.trace = tracer_.begin(front->head().headers.get("traceparent"));
  ticket.http2 = endpoint->policy().protocol != EndpointProtocol::http1;
  if (auto no = check_size(*front, *endpoint))
    return refuse(front, std::move(*no));
  if (!ticket.key.empty() && !ticket.metered)
    if (auto no = count_key(*front, *endpoint)) {
      ++endpoint->totals.limited;
      return refuse(front, std::move(*no));
    }
  const auto& headers = front->head().headers;
  if (headers.has("Prefer") && headers.has_token("Prefer", "respond-async") &&
      ticket.strip_header != internal_header)
    return calls_->accept(front, *endpoint);
  endpoint->scaler.arrived(ticket.arrived);
  ++endpoint->totals.requests;
  if (samples_ && endpoint->policy().sample > 0)
    if (auto sample = samples_->begin(endpoint->policy().sample))
      front->begin_sample(std::move(sample));
  if (endpoint->policy().balance == EndpointBalance::prefix && read_prompt(front, endpoint))
    return;
  route(front, endpoint);
}

void Gateway::route(const std::shared_ptr<Front>& front,
                    const std::shared_ptr<LiveEndpoint>& endpoint) {
  if (!endpoint->policy().sticky.empty())
    wish_for_replica(*front, *endpoint);
  if (endpoint->row().canary != 0)
    choose_revision(*front, *endpoint);
  hold_or_give(front, endpoint, 0);
}

namespace {
Prompt prompt_in(std::string_view body) {
  const std::string_view text = prompt_of(body);
  return {prefix_of(text), text.size()};
}
}  // namespace

// The replica has begun to answer, so it has read the prompt. An answer that is not streamed begins
// when it is complete, which says nothing about how fast the prompt was read.
void Gateway::answer_body_begins(Front& front, std::string_view data) {
  const Decision decision(*this);
  const auto endpoint = std::static_pointer_cast<LiveEndpoint>(front.ticket.endpoint);
  const bool streamed = data.starts_with("data:") || data.starts_with("event:");
  endpoint->router.prompts().read(front.ticket.id, streamed, loop_.steady());
}

// Its replica depends on its prompt, so the body is read first. False: it has none that can be
// read.
bool Gateway::read_prompt(const std::shared_ptr<Front>& front,
                          const std::shared_ptr<LiveEndpoint>& endpoint) {
  if (!front->kept_body().empty()) {  // a request to /v1/…, whose body was read already
    front->ticket.wish.prompt = prompt_in(front->kept_body());
    return false;
  }
  const auto size = front->body_size();
  if (front->head().method != "POST" || !size || *size < prefix_block_bytes ||
      *size > prompt_body_bytes_max || !reserve_body(*front, *size))
    return false;
  front->read_body(prompt_body_bytes_max, [this, front, endpoint](std::string body) {
    auto prompt = prompt_in(body);
    const Decision decision(*this);
    if (find(endpoint->name()) != endpoint)
      return refuse(front, deleted(*endpoint, front->request_id()));
    front->ticket.wish.prompt = std::move(prompt);
    front->keep_body(std::move(body));
    route(front, endpoint);
  });
  return true;
}

// While a canary runs: it gets the request, or a copy of it.
void Gateway::choose_revision(Front& front, LiveEndpoint& endpoint) {
  Ticket& ticket = front.ticket;
  const Replica* before = endpoint.router.find(ticket.wish.replica);
  ticket.wish.canary =
      before ? before->canary : endpoint.for_canary(sender_of(front, endpoint.policy().sticky));
  if (ticket.wish.canary || front.wants_upgrade() || !endpoint.to_be_mirrored(front.head().method))
    return;
  const std::size_t size = front.body_size().value_or(mirrored_body_bytes_max);
  if (size > mirrored_body_bytes_max || !reserve_body(front, size)) {
    ++endpoint.totals.not_mirrored;
    return;
  }
  ticket.mirrored = true;
  front.copy_body(mirrored_body_bytes_max);
}

bool Gateway::reserve_body(Front& front, std::size_t bytes, bool can_do_without) {
  BodyParty& party = front.ticket.body_party;
  if (party.name.empty())
    party = party_of(front);
  if (!bodies_.take(party, bytes, can_do_without))
    return false;
  front.ticket.body_held += bytes;
  return true;
}

// Memory is reserved for what has arrived, not for what is announced: strangers can announce bodies
// where an endpoint is open, and send them slowly.
bool Gateway::grown(const std::shared_ptr<Front>& front, std::size_t bytes) {
  // Small steps first: thousands of short requests at once are usual.
  const std::size_t step = bytes <= limits::gateway_held_body_bytes_max ? 4 << 10 : 64 << 10;
  const Decision decision(*this);
  const std::size_t held = front->ticket.body_held;
  // Those of asynchronous calls have a place of their own.
  if (!front->ticket.shares_memory || bytes <= held ||
      reserve_body(*front, (bytes - held + step - 1) / step * step, false))
    return true;
  auto busy = api_error(503, "overloaded",
                        "this client already has too many large requests in progress; try again");
  busy.headers.add("Retry-After", "1");
  refuse(front, std::move(busy));
  return false;
}

void Gateway::body_freed(Front& front) {
  const Decision decision(*this);
  bodies_.give_back(front.ticket.body_party, std::exchange(front.ticket.body_held, 0));
}

// Sent when the request has ended, so that it never waits for its copy.
void Gateway::mirror(Front& front, const std::shared_ptr<LiveEndpoint>& endpoint) {
  auto body = front.take_copied_body();
  const ReplicaKey to = body ? endpoint->router.take_canary() : 0;
  const auto upstream = to == 0 ? nullptr : endpoint->upstream(to);
  if (!upstream) {
    if (to != 0)
      endpoint->router.finished(to, loop_.steady());
    ++endpoint->totals.not_mirrored;
    return;
  }
  ++endpoint->totals.mirrored;
  const auto copy = std::make_shared<MirrorFront>(front.proxy(), front, std::move(*body));
  // Posted: this runs inside the callback of the request that has ended.
  front.proxy().loop().post([copy, upstream] { copy->send(upstream); });
}

bool Gateway::failed(const std::shared_ptr<Front>& front,
                     const Failure& failure,
                     const std::string& why) {
  const Decision decision(*this);
  const auto endpoint = std::static_pointer_cast<LiveEndpoint>(front->ticket.endpoint);
  const auto now = loop_.steady();
  const ReplicaKey from = front->ticket.upstream ? front->ticket.upstream->key : 0;
  log_debug("endpoint {}: replica {}: {}", endpoint->name(), from, why);
  // First it must confirm that it is alive and still owns its port: a replica that has just died
  // would use up every retry, and another process may have bound its port since. If it has other
  // connections open, it lives: requests that make it close theirs take it from nobody else.
  const bool lives = failure.sent_anything && front->ticket.upstream &&
                     front->proxy().has_connection(*front->ticket.upstream, *front);
  if (!lives)
    endpoint->unreachable(from, now);
  if (may_retry(failure) && !front->ticket.copy)
    endpoint->served(from, true, {}, now);  // else it counts when the request ends
  if (Peers::is_peer(from))
    peers_->lost(from);
  if (!may_retry(failure) || front->ticket.copy) {
    if (front->ticket.others.empty() || front->ticket.copy || !failure.body_kept)
      return false;
    leave_endpoint(*front, true);
    try_next_endpoint(front);
    return true;
  }
  ++endpoint->totals.retried;
  if (Peers::is_peer(from))
    endpoint->router.lent(false);
  endpoint->router.finished(from, now, front->ticket.id);
  front->ticket.upstream = nullptr;
  check_due(endpoint);
  // Posted: this runs inside the callback of the failing connection.
  front->proxy().loop().post([this, front, endpoint, from] {
    if (!front->active() || closing_)
      return;
    const Decision later(*this);
    // The queue of an endpoint that was deleted meanwhile is no longer processed.
    if (find(endpoint->name()) != endpoint)
      return refuse(front, deleted(*endpoint, front->request_id()));
    hold_or_give(front, endpoint, from);
  });
  return true;
}

void Gateway::over(Front& front, End end) {
  const auto endpoint = std::static_pointer_cast<LiveEndpoint>(front.ticket.endpoint);
  const auto now = loop_.steady();
  Ticket& ticket = front.ticket;
  const TokenUsage usage = ticket.wants_usage && !ticket.usage_tail.empty()
                               ? usage_of(ticket.usage_tail, ticket.form.events)
                               : TokenUsage{};
  const bool answered = ticket.first_byte.ns != 0 && ticket.status >= 200 && ticket.status < 300;
  ticket.usage = ticket.counts_tokens && answered
                     ? estimated(usage, ticket.form, ticket.bytes_in, ticket.bytes_out)
                     : usage;
  if (log_ && !ticket.copy)
    log_->add(front, endpoint ? std::string_view(endpoint->name()) : "-", end, now);
  const Decision decision(*this);
  bodies_.give_back(ticket.body_party, std::exchange(ticket.body_held, 0));
  if (ticket.copy)
    return copy_over(front, end);
  if (endpoint)
    charge_key(*endpoint, ticket, end);
  if (!endpoint || closing_)
    return;
  if (spans_ && ticket.trace.sampled)
    on_first([this, spans = Spans::of(front, endpoint->name(), end, now)] { spans_->add(spans); });
  if (samples_ && ticket.sample) {
    samples_->add(front, endpoint->name(), end, now);
    ticket.sample = nullptr;
  }
  if (end == End::client_gone)
    ++endpoint->totals.cancelled;
  // A 5xx answer is a failure for the caller, no matter which program wrote it.
  const bool failed = end == End::replica_failed || end == End::timed_out ||
                      (end == End::refused && ticket.status >= 500) ||
                      (end == End::answered && (ticket.status >= 500 || ticket.failed_inside));
  if (failed && !ticket.failure_counted)
    ++endpoint->totals.failed;
  if (held_.erase(ticket.id) > 0)
    endpoint->router.cancel(ticket.id);
  if (!ticket.upstream)
    return;
  if (ticket.mirrored)
    mirror(front, endpoint);
  if (Peers::is_peer(ticket.upstream->key)) {
    endpoint->router.lent(false);
  } else {
    if (usage.cached)
      endpoint->router.prompts().reported(ticket.id, usage.in, *usage.cached);
    endpoint->router.finished(ticket.upstream->key, now, ticket.id);
    endpoint->scaler.served(now - ticket.given, now);
    judge_replica(*endpoint, ticket, end, now);
  }
  if (ticket.first_byte.ns != 0) {
    const Duration took = ticket.first_byte - ticket.arrived;
    endpoint->first_byte.add(took);
    // Only a sampled trace can be looked up.
    endpoint->answers.add(took, ticket.trace.sampled ? trace_id_text(ticket.trace) : std::string(),
                          system_clock().wall());
    endpoint->native_answers.add(took);
    endpoint->held_time.add(ticket.given - ticket.arrived);
  }
  endpoint->totals.tokens_in += usage.in;
  endpoint->totals.tokens_out += usage.out;
  if (usage.in + usage.out > 0)
    endpoint->scaler.used_tokens(usage.in + usage.out);
  if (endpoint->router.held() > 0)
    front.proxy().loop().post([this, endpoint] {
      const Decision later(*this);
      give_out(endpoint);
    });
}

// What the end of a request says about its replica. One that got the request late is not to blame
// for a time-out.
void Gateway::judge_replica(LiveEndpoint& endpoint, const Ticket& ticket, End end, SteadyTime now) {
  const ReplicaKey key = ticket.upstream->key;
  const bool late =
      end == End::timed_out && ticket.status == 504 && now - ticket.given >= ticket.timeout / 2;
  const bool error = ticket.status >= 500 || ticket.failed_inside;
  if (late)
    endpoint.answered(key, Answered::timed_out, now);
  else if (end == End::answered)
    endpoint.answered(key, ticket.status >= 500 ? Answered::error : Answered::well, now);
  if (late || end == End::answered || end == End::replica_failed)
    endpoint.served(key, late || error || end == End::replica_failed,
                    ticket.first_byte - ticket.given, now);
}

void Gateway::copy_over(Front& front, End end) {
  const auto endpoint = std::static_pointer_cast<LiveEndpoint>(front.ticket.endpoint);
  if (!endpoint || closing_ || !front.ticket.upstream)
    return;
  const auto now = loop_.steady();
  endpoint->router.finished(front.ticket.upstream->key, now);
  judge_replica(*endpoint, front.ticket, end, now);
}

}  // namespace billow::gateway
