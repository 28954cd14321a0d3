// What the gateway does without being asked: deadlines of waiting requests, health checks, capacity
// for endpoints that wait, and ports for replicas.
#include <sys/socket.h>

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/text.h"
#include "gateway/calls.h"
#include "gateway/gateway.h"
#include "gateway/pure/query_value.h"

namespace billow::gateway {
namespace {

// Until an idle replica of another endpoint is suspended for one that waits for capacity.
constexpr Duration capacity_patience = milliseconds(100);

// Why a replica waits for capacity. Callers of open endpoints do not get it: the queue is private.
std::string why_waiting(const LiveEndpoint& endpoint) {
  if (endpoint.row().waiting.empty() || endpoint.policy().access == EndpointAccess::open)
    return {};
  return fmt::format("; a replica waits: {}", endpoint.row().waiting);
}

}  // namespace

// Those that wait for what cannot serve. What another gateway passed on is not passed on again.
void Gateway::refuse_hopeless(LiveEndpoint& endpoint, SteadyTime now) {
  if (endpoint.router.held() == 0)
    return;
  const std::string why = endpoint.hopeless(now);
  if (why.empty())
    return;
  const bool others = others_may_serve(endpoint);
  std::vector<RequestId> waiting;
  for (const auto& [id, held] : endpoint.router.queue()) {
    const auto found = held_.find(id);
    if (!others || (found != held_.end() && found->second->ticket.from_peer))
      waiting.push_back(id);
  }
  for (RequestId id : waiting) {
    auto answer =
        net::problem(503, fmt::format("endpoint {} cannot serve: {}", endpoint.name(), why),
                     "see `billow endpoints " + endpoint.name() + "` and its logs");
    answer.headers.add("Retry-After", std::to_string(endpoint.retry_after_s(now)));
    refuse_held(endpoint, id, std::move(answer));
  }
}

void Gateway::tick() {
  const Decision decision(*this);
  const auto now = loop_.steady();
  head_was_here_ = head_is_here();
  const auto all = endpoints_;
  for (const auto& [name, endpoint] : all) {
    for (RequestId id : endpoint->router.expire(now)) {
      auto late = net::problem(
          504,
          fmt::format("no replica of endpoint {} was free within {}{}", name,
                      format_duration(endpoint->policy().timeout), why_waiting(*endpoint)),
          "deploy the endpoint with a longer --timeout or a larger --max, or call it with Prefer: "
          "respond-async");
      late.headers.add("Retry-After", std::to_string(endpoint->retry_after_s(now)));
      refuse_held(*endpoint, id, std::move(late));
    }
    refuse_hopeless(*endpoint, now);
    leave_waiting_endpoint(endpoint, now);
    check_due(endpoint);
    for (ReplicaKey key : endpoint->due_live_checks(now))
      check_health(endpoint, key, Probe::live);
    if (endpoint->query_due(now))
      ask_prometheus(endpoint);
    give_out(endpoint);
    endpoint->steer(now);
  }
  tell_changes();
  give_up_on_ended(now);
  free_capacity();
  peers_->tick(now);
  calls_->tick(now);
  if (samples_)
    samples_->tick(now);
  if (now - saved_at_ > seconds(1)) {
    end_streams_of_expired();
    saved_at_ = now;
    handed_over_ ? tell_successor(false) : hear_predecessor();
    save();
  }
}

void Gateway::save() {
  if (handed_over_)
    return;
  save_figures();
  keys_.save();
}

// Many endpoints share few GPUs: if one waits for capacity, an idle replica of another is suspended
// early.
void Gateway::free_capacity() {
  const auto now = loop_.steady();
  std::size_t wanted = 0;
  for (const auto& [name, endpoint] : endpoints_)
    if (endpoint->waits_for_capacity() && now - endpoint->waits_since() > capacity_patience)
      ++wanted;
  if (wanted == 0)
    return;
  // The longest idle goes first; replicas that are already falling asleep count.
  std::vector<std::pair<SteadyTime, LiveEndpoint*>> idle;
  std::size_t leaving = 0;
  for (const auto& [name, endpoint] : endpoints_) {
    SteadyTime since{INT64_MAX};
    for (const auto& [key, r] : endpoint->router.replicas()) {
      if (r.phase == Phase::leaving || r.phase == Phase::falling)
        ++leaving;
      if (r.phase == Phase::ready && r.in_flight == 0)
        since = std::min(since, std::max(r.idle_since, r.since));
    }
    if (since.ns != INT64_MAX && now - since > capacity_patience)
      idle.emplace_back(since, endpoint.get());
  }
  std::sort(idle.begin(), idle.end());
  for (const auto& [since, endpoint] : idle) {
    if (leaving >= wanted)
      return;
    if (endpoint->yield_one(now))
      ++leaving;
  }
}

// A replica that refuses connections is not there; one that says nothing may be busy.
Check check_result_of(const Error& error) {
  return error.code == Code::timed_out ? Check::no_answer : Check::bad;
}

void Gateway::check_due(const std::shared_ptr<LiveEndpoint>& endpoint) {
  on_first([this, endpoint] {
    for (ReplicaKey key : endpoint->due_checks(loop_.steady()))
      check_health(endpoint, key);
  });
}

void Gateway::check_health(const std::shared_ptr<LiveEndpoint>& endpoint,
                           ReplicaKey key,
                           Probe probe) {
  const auto report = [probe](LiveEndpoint& live, ReplicaKey of, Check result, SteadyTime now) {
    probe == Probe::live ? live.live_checked(of, result, now) : live.checked(of, result, now);
  };
  const auto upstream = endpoint->upstream(key);
  if (!upstream)
    return report(*endpoint, key, Check::bad, loop_.steady());
  const auto [path, timeout] = endpoint->question(key, probe);
  const auto judge = [this, weak = std::weak_ptr(endpoint), key, report, probe,
                      any = path.empty()](Result<int> status) {
    const Decision decision(*this);
    const auto live = weak.lock();
    if (!live || closing_)
      return;
    const bool healthy = status && (any ? *status != 503 : *status >= 200 && *status < 300);
    report(*live, key,
           healthy  ? Check::good
           : status ? Check::bad
                    : check_result_of(status.error()),
           loop_.steady());
    if (!healthy || probe == Probe::live)
      return;
    give_out(live);
    live->steer(loop_.steady());
  };
  if (const auto protocol = endpoint->policy().protocol; protocol != EndpointProtocol::http1) {
    std::erase_if(probes_, [](const auto& probe) { return probe->over(); });
    probes_.push_back(Http2Probe::start(
        loop_, *upstream,
        {.path = path, .grpc = protocol == EndpointProtocol::grpc, .timeout = timeout}, judge));
    return;
  }
  net::ClientRequest request;
  request.endpoint.address = net::parse_address(upstream->name).value_or(net::Address{});
  request.target = path.empty() ? "/" : path;
  request.timeout = timeout;
  request.headers = {{"User-Agent", "billow-gateway health"}, {"Connection", "close"}};
  request.on_chunk = [](std::string_view) {
  };  // only the status counts
  client_->fetch(std::move(request), [judge](Result<net::Response> answer) {
    judge(answer ? Result<int>(answer->status) : pass(std::move(answer.error())));
  });
}

// The same guard as for webhooks: users name the address, and the gateway must not look for them
// into networks that they cannot reach.
void Gateway::ask_prometheus(const std::shared_ptr<LiveEndpoint>& endpoint) {
  const EndpointQuery query = endpoint->policy().scaling.query;
  const auto url = net::parse_url(query.url);
  if (!url)
    return endpoint->query_answered(query.query, pass(url.error()), loop_.steady());
  net::ClientRequest request;
  request.endpoint = url->endpoint;
  std::string path = url->target;
  while (path.ends_with('/'))
    path.pop_back();
  request.target = path + "/api/v1/query?query=" + net::percent_encode(query.query);
  request.timeout = seconds(5);
  request.body_bytes_max = 1 << 20;
  request.headers = {{"User-Agent", "billow-gateway scaling"}};
  webhook_client_->fetch(std::move(request), [this, weak = std::weak_ptr(endpoint),
                                              text = query.query](Result<net::Response> answer) {
    const Decision decision(*this);
    const auto live = weak.lock();
    if (!live || closing_)
      return;
    live->query_answered(text,
                         answer ? query_value(answer->status, answer->body)
                                : Result<double>(pass(std::move(answer.error()))),
                         loop_.steady());
  });
}

// A port that no replica has and that is free on this machine now. On other machines it is a guess:
// a replica that finds it taken fails, and its successor gets another.
Result<std::uint16_t> Gateway::free_port() {
  std::set<std::uint16_t> taken;
  for (const auto& [name, endpoint] : endpoints_)
    for (const ReplicaRow& replica : endpoint->row().replicas)
      taken.insert(replica.port);
  return ports_.propose(
      taken,
      [](std::uint16_t port) {
        return net::listen_on({.host = "127.0.0.1", .port = port, .unix_path = {}}).has_value();
      },
      random_u64(), loop_.steady());
}

}  // namespace billow::gateway
