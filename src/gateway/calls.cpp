#include "gateway/calls.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/log.h"
#include "base/text.h"
#include "core/model/call_limits.h"
#include "gateway/pure/kept_fields.h"

namespace billow::gateway {
namespace {

constexpr const char* no_such_call = "there is no such call, or its answer has been dropped";
constexpr std::size_t id_random_bytes = 18;

// As random_token() makes them.
bool may_be_id(std::string_view id) {
  return id.size() == id_random_bytes * 4 / 3 && std::ranges::all_of(id, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '-' || c == '_';
         });
}

constexpr Duration again_max = seconds(30);
constexpr std::uint32_t webhook_tries_max = 6;
// After a refusal by the head, no further body is read during this time.
constexpr Duration full_for = seconds(1);

net::Response away(const std::string& request_id) {
  auto answer =
      net::problem(503, "the head is unreachable, so the call could not be recorded",
                   "retry in a moment, or call without Prefer: respond-async", request_id);
  answer.headers.add("Retry-After", "2");
  return answer;
}

net::Response come_back(std::string_view why,
                        std::string_view hint,
                        const char* after_s,
                        const std::string& request_id) {
  auto answer = net::problem(429, why, hint, request_id);
  answer.headers.add("Retry-After", after_s);
  return answer;
}
constexpr std::string_view full_hint =
    "retry after the time in Retry-After, or call without Prefer: respond-async";

// Whether a field of an answer changes what a browser does with the whole site.
bool acts_for_site(std::string_view field) {
  return net::equal_nocase(field, "Service-Worker-Allowed") ||
         net::equal_nocase(field, "Clear-Site-Data") ||
         net::equal_nocase(field, "Strict-Transport-Security");
}

net::Response refused_by_head(const Reply& reply, const std::string& request_id) {
  if (reply.code == code_name(Code::exhausted))
    return come_back(reply.error, reply.hint, "5", request_id);
  // As the RFC draft of Idempotency-Key requires.
  const int status = reply.code == code_name(Code::conflict)    ? 422
                     : reply.code == code_name(Code::not_found) ? 404
                     : reply.code == code_name(Code::too_large) ? 413
                                                                : 400;
  return net::problem(status, reply.error, reply.hint, request_id);
}

net::Response problem_of(const Error& error, const std::string& request_id) {
  return net::problem(error, request_id);
}

// A failure of Billow's, not of the application: worth a retry.
bool try_again(const Result<net::Response>& answer) {
  if (!answer)
    return true;
  const bool ours = answer->headers.get("X-Billow-Problem") == "1";
  return ours && (answer->status == 429 || answer->status == 502 || answer->status == 503 ||
                  answer->status == 504);
}

// The caller for the purpose of an Idempotency-Key: the endpoint key that was used. Without one,
// the caller is anonymous.
std::string caller_of(const Front& front) {
  const auto& with = front.ticket.strip_header;
  return with.empty() ? std::string() : sha256_hex(front.head().headers.get(with));
}

// An Idempotency-Key belongs to one caller and one request. Anonymous callers cannot be told apart:
// their calls are the same only if the requests are identical to the byte.
std::string bound_key(const AsyncCall& call,
                      std::string_view key,
                      const std::string& caller,
                      std::string_view credentials,
                      std::string_view body) {
  if (key.empty())
    return {};
  const std::string what =
      sha256_hex(fmt::format("{}\n{}\n{}", call.method, call.target, sha256_hex(body)));
  const std::string whose = sha256_hex(
      caller.empty() ? fmt::format("anybody\n{}\n{}\n{}", sha256_hex(credentials), what, key)
                     : fmt::format("key\n{}\n{}", caller, key));
  return fmt::format("bound:{}:{}", whose, what);
}

std::size_t answer_bytes(const AsyncCall& call) {
  std::size_t bytes = 1024 + call.answer.size();
  for (const auto& [name, value] : call.answer_headers)
    bytes += name.size() + value.size();
  return bytes;
}

}  // namespace

// Reserves space for a call on the connection to the head, freed with the returned object; null:
// the connection is full. An endpoint with nothing in transit gets a first slot even while others
// have to wait.
std::shared_ptr<void> Calls::place_on_the_line(const LiveEndpoint& endpoint, std::size_t bytes) {
  const bool open = endpoint.policy().access == EndpointAccess::open;
  const std::lock_guard lock(accepting_->mutex);
  const auto found = accepting_->of_endpoint.find(endpoint.name());
  const std::size_t here = found == accepting_->of_endpoint.end() ? 0 : found->second;
  if (here + bytes > (open ? limits::async_accepted_at_once_of_open_endpoint_bytes_max
                           : limits::async_accepted_at_once_of_endpoint_bytes_max))
    return nullptr;
  if (accepting_->all + bytes > (here == 0 ? limits::async_accepted_at_once_first_bytes_max
                                           : limits::async_accepted_at_once_bytes_max))
    return nullptr;
  accepting_->all += bytes;
  accepting_->of_endpoint[endpoint.name()] += bytes;
  return std::shared_ptr<void>(accepting_.get(),
                               [line = accepting_, name = endpoint.name(), bytes](void*) {
                                 const std::lock_guard lock(line->mutex);
                                 line->all -= bytes;
                                 if ((line->of_endpoint[name] -= bytes) == 0)
                                   line->of_endpoint.erase(name);
                               });
}

void Calls::refuse(const Asker& asker, net::Response response) {
  gateway_.act(asker.front, asker.id,
               [front = asker.front, response = std::move(response)]() mutable {
                 front->refuse(std::move(response));
               });
}

void Calls::respond(const Asker& asker, net::Response response) {
  gateway_.act(asker.front, asker.id,
               [front = asker.front, response = std::move(response)]() mutable {
                 front->respond(std::move(response));
               });
}

void Calls::accept(const std::shared_ptr<Front>& front, LiveEndpoint& endpoint) {
  if (!gateway_.head_is_here())
    return gateway_.refuse(front, away(front->request_id()));
  if (!net::parse_method(front->head().method)) {
    return gateway_.refuse(
        front,
        net::problem(405, fmt::format("{} cannot be called asynchronously", front->head().method),
                     "call without Prefer: respond-async", front->request_id()));
  }
  const auto now = gateway_.loop().steady();
  if (const auto full = full_.find(endpoint.name()); full != full_.end()) {
    if (now < full->second.until)
      return gateway_.refuse(front,
                             come_back(full->second.why, full_hint, "5", front->request_id()));
    full_.erase(full);
  }
  // Before the body is read: incoming bodies use memory too.
  const std::size_t bytes =
      1024 + std::min<std::size_t>(front->head().content_length.value_or(
                                       front->head().chunked ? limits::async_body_bytes_max : 0),
                                   limits::async_body_bytes_max);
  auto place = place_on_the_line(endpoint, bytes);
  if (!place)
    return gateway_.refuse(
        front,
        come_back(
            fmt::format("asynchronous calls of endpoint {} arrive faster than they can be recorded",
                        endpoint.name()),
            full_hint, "1", front->request_id()));
  front->read_body(limits::async_body_bytes_max,
                   [this, front, name = endpoint.name(), caller = caller_of(*front),
                    place = std::move(place)](std::string body) mutable {
                     const Gateway::Decision decision(gateway_);
                     accept_body(front, name, std::move(caller), std::move(body), std::move(place));
                   });
}

void Calls::accept_body(const std::shared_ptr<Front>& front,
                        const std::string& endpoint,
                        std::string caller,
                        std::string body,
                        std::shared_ptr<void> place) {
  const auto& headers = front->head().headers;
  AsyncCall call;
  call.id = random_token(id_random_bytes);
  call.endpoint = endpoint;
  call.method = front->head().method;
  call.target = front->head().target.substr(front->ticket.prefix_bytes);
  for (const auto& [field, value] : headers) {
    // Headers about this connection or with credentials are not stored.
    static constexpr std::string_view dropped[] = {"Host",
                                                   "Connection",
                                                   "Content-Length",
                                                   "Transfer-Encoding",
                                                   "Prefer",
                                                   "Authorization",
                                                   "X-Api-Key",
                                                   "Cookie",
                                                   "Expect",
                                                   "Upgrade",
                                                   "TE",
                                                   "Keep-Alive",
                                                   "Proxy-Authorization",
                                                   "Proxy-Connection",
                                                   "Trailer"};
    if (!tells_of_client(field) && !is_own_field(field) &&
        std::none_of(std::begin(dropped), std::end(dropped),
                     [&](std::string_view d) { return net::equal_nocase(d, field); }))
      keep_field(call.headers, field, value);
  }
  call.headers[call_client_header] = client_address(*front);
  call.headers[call_proto_header] = client_proto(*front);
  if (!front->ticket.key.empty()) {
    const std::string& owner = front->ticket.key_endpoint;
    call.headers[call_key_header] = front->ticket.key;
    call.headers[call_key_endpoint_header] = owner.empty() ? endpoint : owner;
  }
  const std::string credentials = fmt::format("{}\n{}\n{}", headers.get("Authorization"),
                                              headers.get("X-Api-Key"), headers.get("Cookie"));
  call.idempotency_key = bound_key(call, headers.get("Idempotency-Key"), caller, credentials, body);
  call.body = base64(body);
  const auto number = gateway_.next_number();
  gateway_.ask_head(
      AcceptCall{number, std::move(call)}, number,
      [this, asker = Asker(front), by_host = front->ticket.by_host, endpoint,
       place = std::move(place)](Result<Reply> reply) {
        if (!reply)
          return refuse(asker, away(asker.request_id));
        if (!reply->error.empty()) {
          if (reply->code == code_name(Code::exhausted))
            full_[endpoint] = {gateway_.loop().steady() + full_for, reply->error};
          return refuse(asker, refused_by_head(*reply, asker.request_id));
        }
        const std::string url = (by_host ? std::string(own_prefix) : "") + "/calls/" + reply->id;
        auto answer = net::Response::json(
            202, Json::object({{"id", reply->id}, {"status", "waiting"}, {"url", url}}).dump());
        answer.headers.add("Location", url);
        answer.headers.add("Preference-Applied", "respond-async");
        respond(asker, std::move(answer));
      });
}

void Calls::page(const std::shared_ptr<Front>& front, std::string_view id_view) {
  const std::string id(id_view);
  const std::string& method = front->head().method;
  if (method != "GET" && method != "HEAD" && method != "DELETE")
    return gateway_.refuse(
        front, net::problem(405, "a call is read with GET and cancelled with DELETE", "",
                            front->request_id()));
  if (!gateway_.head_is_here())
    return gateway_.refuse(front, away(front->request_id()));
  // Strangers can ask: nothing that cannot be an id goes to the head, and a bounded number at once.
  if (!may_be_id(id))
    return gateway_.refuse(front, net::problem(404, no_such_call, "", front->request_id()));
  Asker asker(front);
  asker.cancels = method == "DELETE";
  if (asked_ < limits::async_asked_at_once_max)
    return ask(asker, id);
  if (asking_.size() >= limits::async_asking_max)
    return gateway_.refuse(
        front, come_back("too many clients are asking for answers of calls",
                         "retry after the time in Retry-After", "1", front->request_id()));
  asking_.push_back([this, asker, id] { ask(asker, id); });
}

void Calls::cancel(const Asker& asker, const std::string& id) {
  if (const auto running = calls_.find(id);
      running != calls_.end() && running->second.fetch && !running->second.over) {
    running->second.fetch->cancel();
    not_under_way(running->second);
    running->second.fetch = nullptr;
    running->second.again_at = gateway_.loop().steady() + seconds(2);
  }
  AsyncCall cancelled;
  cancelled.id = id;
  cancelled.state = CallState::cancelled;
  cancelled.reason = "cancelled by its client";
  const auto number = gateway_.next_number();
  gateway_.ask_head(EndCall{number, std::move(cancelled)}, number,
                    [this, asker](Result<Reply> reply) {
                      if (!reply)
                        return refuse(asker, away(asker.request_id));
                      if (!reply->error.empty())
                        return refuse(asker, net::problem(reply->code == "not_found" ? 404 : 409,
                                                          reply->error, "", asker.request_id));
                      respond(asker, net::Response::json(200, R"({"status":"cancelled"})"));
                    });
}

void Calls::ask(const Asker& asker, const std::string& id) {
  ++asked_;
  const auto number = gateway_.next_number();
  gateway_.ask_head(AskCall{number, id}, number, [this, asker, id](Result<Reply> reply) {
    --asked_;
    const bool known =
        reply && reply->error.empty() && asker.may_see(reply->document["endpoint"].str_or(""));
    if (known && asker.cancels)
      cancel(asker, id);
    else
      answer_page(asker, std::move(reply));
    // Posted, because the connection may be completing a request right now.
    if (!asking_.empty())
      gateway_.loop().post([this, alive = std::weak_ptr(accepting_)] {
        if (alive.expired())
          return;
        const Gateway::Decision decision(gateway_);
        if (asking_.empty() || asked_ >= limits::async_asked_at_once_max)
          return;
        const auto next = std::move(asking_.front());
        asking_.pop_front();
        next();
      });
  });
}

void Calls::answer_page(const Asker& asker, Result<Reply> reply) {
  if (!reply)
    return refuse(asker, away(asker.request_id));
  if (reply->error.empty() && !asker.may_see(reply->document["endpoint"].str_or("")))
    reply->error = no_such_call;
  if (!reply->error.empty())
    return refuse(asker, problem_of({Code::not_found, reply->error,
                                     "answers are kept for an hour, or until newer ones need the "
                                     "space"},
                                    asker.request_id));
  const Json& call = reply->document;
  if (call["status"].str_or("") != "done")
    return respond(asker, net::Response::json(200, call.dump()));
  // The application's answer, unchanged at its own host name. The name of the gateway belongs to
  // all endpoints: there a page of one must not act for the others.
  net::Response answer;
  answer.status = static_cast<int>(call["answer_status"].int_or(200));
  for (const auto& [name, value] : call["headers"].members())
    kept_field(name, value.str_or(""), [&](std::string field, std::string text) {
      if (asker.endpoint || !acts_for_site(field))
        answer.headers.add(std::move(field), std::move(text));
    });
  if (!asker.endpoint) {
    answer.headers.add("Content-Security-Policy", "sandbox");
    answer.headers.set("X-Content-Type-Options", "nosniff");
  }
  answer.headers.set("X-Billow-Call", "done");
  (void)base64_decode(call["answer"].str_or(""), answer.body);
  respond(asker, std::move(answer));
}

void Calls::take(const std::vector<WaitingCall>& waiting) {
  std::set<std::string_view> here;
  for (const WaitingCall& call : waiting) {
    here.insert(call.id);
    auto [at, fresh] = calls_.try_emplace(call.id);
    if (!fresh)
      continue;
    at->second.call.id = call.id;
    at->second.call.endpoint = call.endpoint;
  }
  for (auto at = calls_.begin(); at != calls_.end();) {
    if (here.contains(at->first)) {
      ++at;
      continue;
    }
    // Recorded or cancelled.
    if (at->second.fetch && !at->second.over)
      at->second.fetch->cancel();
    if (at->second.under_way())
      not_under_way(at->second);
    at = calls_.erase(at);
  }
  tick(gateway_.loop().steady());
}

void Calls::tick(SteadyTime now) {
  const bool connected = gateway_.head_is_here();
  std::vector<Running*> others;
  const auto start = [&](Running& running) {
    return running.here                                               ? begin(running)
           : connected && taking_ < limits::async_fetched_at_once_max ? take_whole(running)
                                                                      : void();
  };
  for (auto& [id, running] : calls_) {
    if (running.over) {
      if (!running.recording && connected)
        record(running);
      continue;
    }
    if (running.under_way() || now < running.again_at)
      continue;
    // Endpoints without a running call come first and do not wait for those that have taken all
    // slots.
    if (under_way_.contains(running.call.endpoint))
      others.push_back(&running);
    else
      start(running);
  }
  for (Running* running : others) {
    if (under_way_all_ >= limits::async_under_way_max)
      return;
    start(*running);
  }
}

// The table contains only names; the call itself is fetched when its turn comes.
void Calls::take_whole(Running& running) {
  running.taking = true;
  ++taking_;
  ++under_way_all_;
  ++under_way_[running.call.endpoint];
  const auto number = gateway_.next_number();
  gateway_.ask_head(TakeCall{number, running.call.id}, number,
                    [this, id = running.call.id](Result<Reply> reply) {
                      --taking_;
                      const auto found = calls_.find(id);
                      if (found != calls_.end() && found->second.taking) {
                        Running& running = found->second;
                        not_under_way(running);
                        running.taking = false;
                        if (!reply || !reply->error.empty()) {
                          // The next table shows whether it still waits.
                          running.again_at = gateway_.loop().steady() + seconds(1);
                        } else {
                          running.call = std::move(reply->call);
                          running.here = true;
                          begin(running);
                        }
                      }
                      if (taking_ == 0 && reply)
                        tick(gateway_.loop().steady());
                    });
}

void Calls::not_under_way(const Running& running) {
  --under_way_all_;
  if (const auto at = under_way_.find(running.call.endpoint);
      at != under_way_.end() && --at->second == 0)
    under_way_.erase(at);
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
  for (const auto& [name, value] : running.call.headers)
    kept_field(name, value, [&](std::string field, std::string text) {
      // Calls of an older gateway may have what their clients said of themselves.
      if (!tells_of_client(field))
        request.headers.add(std::move(field), std::move(text));
    });
  request.headers.set(internal_header, gateway_.secret());
  request.headers.set(call_header, running.call.id);
  (void)base64_decode(running.call.body, request.body);
  request.timeout = endpoint->policy().timeout + hours(1);
  request.body_bytes_max = limits::async_body_bytes_max;
  ++under_way_all_;
  ++under_way_[running.call.endpoint];
  ++running.tries;
  running.fetch = gateway_.client().fetch(
      std::move(request), [this, id = running.call.id](Result<net::Response> answer) {
        answered(id, std::move(answer));
      });
}

void Calls::answered(const std::string& id, Result<net::Response> answer) {
  const Gateway::Decision decision(gateway_);
  const auto found = calls_.find(id);
  if (found == calls_.end())
    return;
  Running& running = found->second;
  not_under_way(running);
  running.fetch = nullptr;
  const bool too_large = !answer && answer.error().code == Code::too_large;
  const bool old = system_clock().wall() - running.call.made_at > hours(24);
  if (try_again(answer) && !too_large && !old) {
    Duration wait = milliseconds(200);
    for (std::uint32_t i = 1; i < running.tries && wait < again_max; ++i)
      wait = wait * 2;
    running.again_at = gateway_.loop().steady() + std::min(wait, again_max);
    return;
  }
  running.over = true;
  AsyncCall& call = running.call;
  call.body = {};
  call.headers.clear();
  if (answer) {
    call.state = CallState::done;
    call.status = answer->status;
    for (const auto& [name, value] : answer->headers)
      if (!net::equal_nocase(name, "Connection") && !net::equal_nocase(name, "Content-Length") &&
          !net::equal_nocase(name, "Transfer-Encoding"))
        keep_field(call.answer_headers, name, value);
    call.answer = base64(answer->body);
  } else {
    call.state = CallState::failed;
    call.reason = answer.error().message;
  }
  if (gateway_.head_is_here())
    record(running);
}

// Only when there is space on the connection; the next tick checks again.
void Calls::record(Running& running) {
  const std::size_t bytes = answer_bytes(running.call);
  if (recording_bytes_ > 0 && recording_bytes_ + bytes > limits::async_recorded_at_once_bytes_max)
    return;
  running.recording = true;
  recording_bytes_ += bytes;
  const auto number = gateway_.next_number();
  gateway_.ask_head(EndCall{number, running.call}, number,
                    [this, id = running.call.id, bytes](Result<Reply> reply) {
                      recording_bytes_ -= bytes;
                      const auto found = calls_.find(id);
                      if (found == calls_.end())
                        return;
                      if (!reply) {
                        found->second.recording = false;  // again when the head is back
                        return;
                      }
                      const AsyncCall& call = found->second.call;
                      if (reply->error.empty())
                        tell_webhook(call.endpoint, id,
                                     Json::object({{"id", id},
                                                   {"endpoint", call.endpoint},
                                                   {"status", enum_name(call.state)},
                                                   {"answer_status", call.status},
                                                   {"url", "/calls/" + id}})
                                         .dump(),
                                     1);
                    });
}

Json Calls::webhook_key() const {
  return Json::object({{"algorithm", "ed25519"}, {"public_key", public_key_of(key_).value_or("")}});
}

void Calls::tell_webhook(const std::string& name,
                         const std::string& id,
                         std::string told,
                         std::uint32_t tries) {
  const Gateway::Decision decision(gateway_);
  const auto endpoint = gateway_.find(name);
  if (!endpoint || endpoint->policy().webhook.empty())
    return;
  const auto url = net::parse_url(endpoint->policy().webhook);
  if (!url)
    return;
  net::ClientRequest request;
  request.endpoint = url->endpoint;
  request.target = url->target;
  request.method = net::Method::post;
  request.timeout = seconds(10);
  const std::string timestamp = std::to_string(system_clock().wall().ns / 1'000'000'000);
  request.headers = {{"Content-Type", "application/json"},
                     {"Idempotency-Key", id},
                     {"Billow-Id", id},
                     {"Billow-Timestamp", timestamp}};
  // Anybody can check it with the gateway's public key, so no secret has to be handed out.
  if (const auto signature = sign(key_, fmt::format("{}.{}.{}", id, timestamp, told)))
    request.headers.add("Billow-Signature", "ed25519=" + *signature);
  request.body = told;
  gateway_.webhook_client().fetch(
      std::move(request), [this, name, id, told, tries](Result<net::Response> answer) {
        if (answer && answer->status < 300)
          return;
        if (!answer && answer.error().code == Code::forbidden)
          return log_warn("endpoint {}: {}; {}", name, answer.error().message, answer.error().hint);
        if (tries >= webhook_tries_max)
          return log_warn("endpoint {}: the webhook did not accept the end of call {}", name, id);
        std::erase_if(timers_, [](const net::Timer& t) { return !t; });
        timers_.push_back(gateway_.loop().after(
            seconds(1) * (std::int64_t{1} << tries),
            [this, name, id, told, tries] { tell_webhook(name, id, told, tries + 1); }));
      });
}

}  // namespace billow::gateway
