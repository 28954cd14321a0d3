#include "gateway/calls.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/log.h"
#include "base/text.h"

namespace billow::gateway {
namespace {

constexpr std::size_t under_way_max = 256;
constexpr Duration again_max = seconds(30);
constexpr std::uint32_t webhook_tries_max = 6;

net::Response away(const std::string& request_id) {
  auto answer = net::problem(503, "the head is away, so the call could not be recorded", "try again in a moment, or call without Prefer: respond-async", request_id);
  answer.headers.add("Retry-After", "2");
  return answer;
}

net::Response problem_of(const Error& error, const std::string& request_id) { return net::problem(error, request_id); }

// Ours, not the application's: worth another try.
bool try_again(const Result<net::Response>& answer) {
  if (!answer) return true;
  const bool ours = answer->headers.get("X-Billow-Problem") == "1";
  return ours && (answer->status == 429 || answer->status == 502 || answer->status == 503 || answer->status == 504);
}

}  // namespace

void Calls::accept(const std::shared_ptr<Front>& front, LiveEndpoint& endpoint) {
  if (!gateway_.link() || !gateway_.link()->connected()) return front->refuse(away(front->request_id()));
  front->read_body(limits::async_body_bytes_max, [this, front, name = endpoint.name()](std::string body) {
    AsyncCall call;
    call.id = random_token(18);
    call.endpoint = name;
    call.method = front->head().method;
    call.target = front->head().target.substr(front->ticket.prefix_bytes);
    for (const auto& [field, value] : front->head().headers) {
      // What is about this connection, or proves who asks, is not kept.
      static constexpr std::string_view dropped[] = {"Host", "Connection", "Content-Length", "Transfer-Encoding", "Prefer", "Authorization", "X-Api-Key", "Cookie", "Expect",
                                                     "Upgrade", "TE", "Keep-Alive", "Proxy-Authorization", "Proxy-Connection", "Trailer", internal_header};
      if (std::none_of(std::begin(dropped), std::end(dropped), [&](std::string_view d) { return net::equal_nocase(d, field); })) call.headers[field] = value;
    }
    call.idempotency_key = front->head().headers.get("Idempotency-Key");
    call.body = base64(body);
    const auto number = gateway_.next_number();
    gateway_.link()->ask(AcceptCall{number, std::move(call)}, number, [front](Result<Reply> reply) {
      if (!reply) return front->refuse(away(front->request_id()));
      if (!reply->error.empty()) {
        const bool full = reply->code == "exhausted";
        auto answer = net::problem(full ? 429 : 400, reply->error, "", front->request_id());
        if (full) answer.headers.add("Retry-After", "5");
        return front->refuse(std::move(answer));
      }
      auto answer = net::Response::json(202, Json::object({{"id", reply->id}, {"status", "waiting"}, {"url", "/calls/" + reply->id}}).dump());
      answer.headers.add("Location", "/calls/" + reply->id);
      answer.headers.add("Preference-Applied", "respond-async");
      front->respond(std::move(answer));
    });
  });
}

void Calls::page(const std::shared_ptr<Front>& front, std::string_view id_view) {
  const std::string id(id_view);
  const std::string& method = front->head().method;
  if (method != "GET" && method != "HEAD" && method != "DELETE") return front->refuse(net::problem(405, "a call is read with GET and cancelled with DELETE", "", front->request_id()));
  if (!gateway_.link() || !gateway_.link()->connected()) return front->refuse(away(front->request_id()));
  const auto number = gateway_.next_number();
  if (method == "DELETE") {
    if (const auto running = calls_.find(id); running != calls_.end() && running->second.fetch && !running->second.over) {
      running->second.fetch->cancel();
      running->second.fetch = nullptr;
      --under_way_;
      running->second.again_at = gateway_.loop().steady() + seconds(2);
    }
    AsyncCall cancelled;
    cancelled.id = id;
    cancelled.state = CallState::cancelled;
    cancelled.reason = "cancelled by its client";
    gateway_.link()->ask(EndCall{number, std::move(cancelled)}, number, [front](Result<Reply> reply) {
      if (!reply) return front->refuse(away(front->request_id()));
      if (!reply->error.empty()) return front->refuse(net::problem(reply->code == "not_found" ? 404 : 409, reply->error, "", front->request_id()));
      front->respond(net::Response::json(200, R"({"status":"cancelled"})"));
    });
    return;
  }
  gateway_.link()->ask(AskCall{number, id}, number, [front](Result<Reply> reply) {
    if (!reply) return front->refuse(away(front->request_id()));
    if (!reply->error.empty()) return front->refuse(problem_of({Code::not_found, reply->error, "answers are kept for an hour"}, front->request_id()));
    const Json& call = reply->document;
    if (call["status"].str_or("") != "done") return front->respond(net::Response::json(200, call.dump()));
    // The answer as the application gave it.
    net::Response answer;
    answer.status = static_cast<int>(call["answer_status"].int_or(200));
    for (const auto& [name, value] : call["headers"].members()) answer.headers.add(name, std::string(value.str_or("")));
    answer.headers.set("X-Billow-Call", "done");
    (void)base64_decode(call["answer"].str_or(""), answer.body);
    front->respond(std::move(answer));
  });
}

void Calls::take(std::vector<AsyncCall> waiting) {
  std::set<std::string> here;
  for (AsyncCall& call : waiting) {
    here.insert(call.id);
    auto [at, fresh] = calls_.try_emplace(call.id);
    if (fresh) at->second.call = std::move(call);
  }
  for (auto at = calls_.begin(); at != calls_.end();) {
    if (here.contains(at->first)) {
      ++at;
      continue;
    }
    // Recorded, or cancelled.
    if (at->second.fetch && !at->second.over) {
      at->second.fetch->cancel();
      --under_way_;
    }
    at = calls_.erase(at);
  }
  tick(gateway_.loop().steady());
}

void Calls::tick(SteadyTime now) {
  for (auto& [id, running] : calls_) {
    if (running.over) {
      if (!running.recording && gateway_.link() && gateway_.link()->connected()) record(running);
      continue;
    }
    if (running.fetch || now < running.again_at || under_way_ >= under_way_max) continue;
    begin(running);
  }
}

void Calls::begin(Running& running) {
  const auto endpoint = gateway_.find(running.call.endpoint);
  const auto addresses = gateway_.proxy().bound_addresses();
  if (!endpoint || addresses.empty()) {
    running.again_at = gateway_.loop().steady() + seconds(1);
    return;
  }
  net::ClientRequest request;
  request.endpoint.address = net::parse_address(addresses.front()).value_or(net::Address{});
  request.method = net::parse_method(running.call.method).value_or(net::Method::post);
  request.target = "/f/" + running.call.endpoint + running.call.target;
  for (const auto& [name, value] : running.call.headers) request.headers.add(name, value);
  request.headers.set(internal_header, gateway_.secret());
  request.headers.set("X-Billow-Call", running.call.id);
  (void)base64_decode(running.call.body, request.body);
  request.timeout = endpoint->policy().timeout + hours(1);
  request.body_bytes_max = limits::async_body_bytes_max;
  ++under_way_;
  ++running.tries;
  running.fetch = gateway_.client().fetch(std::move(request), [this, id = running.call.id](Result<net::Response> answer) { answered(id, std::move(answer)); });
}

void Calls::answered(const std::string& id, Result<net::Response> answer) {
  const auto found = calls_.find(id);
  if (found == calls_.end()) return;
  --under_way_;
  Running& running = found->second;
  running.fetch = nullptr;
  const bool too_large = !answer && answer.error().code == Code::too_large;
  const bool old = system_clock().wall() - running.call.made_at > hours(24);
  if (try_again(answer) && !too_large && !old) {
    Duration wait = milliseconds(200);
    for (std::uint32_t i = 1; i < running.tries && wait < again_max; ++i) wait = wait * 2;
    running.again_at = gateway_.loop().steady() + std::min(wait, again_max);
    return;
  }
  running.over = true;
  AsyncCall& call = running.call;
  if (answer) {
    call.state = CallState::done;
    call.status = answer->status;
    for (const auto& [name, value] : answer->headers)
      if (!net::equal_nocase(name, "Connection") && !net::equal_nocase(name, "Content-Length") && !net::equal_nocase(name, "Transfer-Encoding")) call.answer_headers[name] = value;
    call.answer = base64(answer->body);
  } else {
    call.state = CallState::failed;
    call.reason = answer.error().message;
  }
  if (gateway_.link() && gateway_.link()->connected()) record(running);
}

void Calls::record(Running& running) {
  running.recording = true;
  AsyncCall ended = running.call;
  ended.body.clear();
  ended.headers.clear();
  const auto number = gateway_.next_number();
  gateway_.link()->ask(EndCall{number, std::move(ended)}, number, [this, id = running.call.id](Result<Reply> reply) {
    const auto found = calls_.find(id);
    if (found == calls_.end()) return;
    if (!reply) {
      found->second.recording = false;  // again when the head is back
      return;
    }
    if (reply->error.empty()) tell_webhook(found->second.call, 1);
  });
}

void Calls::tell_webhook(const AsyncCall& call, std::uint32_t tries) {
  const auto endpoint = gateway_.find(call.endpoint);
  if (!endpoint || endpoint->policy().webhook.empty()) return;
  const auto url = net::parse_url(endpoint->policy().webhook);
  if (!url) return;
  net::ClientRequest request;
  request.endpoint = url->endpoint;
  request.target = url->target;
  request.method = net::Method::post;
  request.timeout = seconds(10);
  request.headers = {{"Content-Type", "application/json"}, {"Idempotency-Key", call.id}};
  request.body = Json::object({{"id", call.id}, {"endpoint", call.endpoint}, {"status", enum_name(call.state)}, {"answer_status", call.status}, {"url", "/calls/" + call.id}}).dump();
  gateway_.client().fetch(std::move(request), [this, call, tries](Result<net::Response> answer) {
    if (answer && answer->status < 300) return;
    if (tries >= webhook_tries_max) return log_warn("endpoint {}: the webhook did not take the end of call {}", call.endpoint, call.id);
    std::erase_if(timers_, [](const net::Timer& t) { return !t; });
    timers_.push_back(gateway_.loop().after(seconds(1) * (std::int64_t{1} << tries), [this, call, tries] { tell_webhook(call, tries + 1); }));
  });
}

}  // namespace billow::gateway
