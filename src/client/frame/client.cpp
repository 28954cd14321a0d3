#include "client/frame/client.h"

#include <fmt/format.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "client/frame/commands.h"

namespace billow::client {

constexpr int busy_attempts_max = 300;

Client::Client(ConnectOptions options, HeadAddress address)
    : options_(std::move(options)),
      address_(std::move(address)),
      http_({.endpoint = address_.endpoint, .tls = address_.tls}) {}

Result<Client> Client::create(ConnectOptions options) {
  auto address = BILLOW_TRY(find_head(options));
  Client client(std::move(options), std::move(address));
  if (client.address_.by_account && client.address_.token.empty())
    BILLOW_TRY_VOID(client.sign_in_by_account());
  return client;
}

Status Client::sign_in_by_account() {
  const net::Response response =
      BILLOW_TRY(http_.request({.method = net::Method::post, .target = "/v1/session/account"}));
  if (response.status >= 300)
    return pass(error_of(response));
  const Json answer = BILLOW_TRY(parse_json(response.body));
  address_.token = std::string(answer["token"].str_or(""));
  keep_account_token(answer);
  return {};
}

Status Client::find_again() {
  auto address = find_head(options_);
  if (!address)
    return pass(std::move(address.error()));
  address_ = std::move(*address);
  http_ = net::BlockingClient({.endpoint = address_.endpoint, .tls = address_.tls});
  return {};
}

bool is_away(const Error& error) {
  return error.code == Code::unavailable || error.code == Code::timed_out;
}

Result<net::Response> Client::send(net::BlockingClient::Call call) {
  const auto once = [&] {
    call.headers.set("Authorization", "Bearer " + address_.token);
    auto response = http_.request(call);
    // A local socket whose connection queue is momentarily full refuses with EAGAIN: the head is
    // alive but busy.
    for (int i = 0; i < busy_attempts_max && !response &&
                    response.error().message.ends_with(::strerror(EAGAIN));
         ++i) {
      ::usleep(10'000);
      response = http_.request(call);
    }
    return response;
  };
  // Without a socket there is certainly no head: then nothing was sent, and starting one is safe.
  const auto nobody_there = [](const Error& e) {
    return e.code == Code::not_found ||
           (e.code == Code::unavailable && e.message.starts_with("cannot connect"));
  };
  auto response = once();
  // The token of this account has ended before its time, with a restored head or a new data
  // directory.
  if (response && response->status == 401 && address_.by_account) {
    BILLOW_TRY_VOID(sign_in_by_account());
    response = once();
  }
  // A head that answered once and is gone was stopped or will return; either way the client must
  // not replace it.
  if (response)
    options_.may_start = false;
  if (response || !nobody_there(response.error()))
    return response;
  if (!address_.configured && options_.may_start && can_start_head()) {
    if (options_.needs_gpus && !head_ran_in(address_.data_dir))
      BILLOW_TRY_VOID(machine_has_gpus());
    BILLOW_TRY_VOID(start_head(address_.data_dir));
    options_.may_start = false;
    BILLOW_TRY_VOID(find_again());
    return once();
  }
  return fail(Code::unavailable,
              address_.configured
                  ? response.error().message
                  : fmt::format("no head is running here (looked in {})", address_.data_dir),
              address_.configured ? "check the address, and that `billow up` is running there"
              : can_start_head()
                  ? "start one with `billow up`, or choose one with --head or BILLOW_HEAD"
                  : "log in to a head: billow login https://HEAD:7070");
}

Result<Json> Client::call(net::Method method,
                          const std::string& target,
                          std::string body,
                          net::Headers headers,
                          Duration timeout) {
  if (!body.empty())
    headers.set("Content-Type", "application/json");
  auto response = BILLOW_TRY(send({.method = method,
                                   .target = target,
                                   .headers = std::move(headers),
                                   .body = std::move(body),
                                   .timeout = timeout}));
  if (response.status >= 300)
    return pass(error_of(response));
  if (response.body.empty())
    return Json::object();
  auto json = parse_json(response.body);
  if (!json)
    return fail(
        Code::internal,
        fmt::format("the head's answer to {} is not JSON: {}", target, json.error().message),
        fmt::format("is {} a Billow head?", where()));
  return json;
}

Status Client::stream(const std::string& target,
                      std::function<bool(std::string_view)> on_chunk,
                      net::Headers headers,
                      Duration quiet_max) {
  auto response = send({.target = target,
                        .headers = std::move(headers),
                        .timeout = quiet_max,
                        .on_chunk = std::move(on_chunk)});
  if (!response)
    return pass(std::move(response.error()));
  if (response->status >= 300)
    return pass(error_of(*response));
  return {};
}

Result<net::BlockingWebSocket> Client::websocket(const std::string& target) {
  return http_.websocket(target, {{"Authorization", "Bearer " + address_.token}});
}

Error error_of(const net::Response& response) {
  Error error{net::code_of_status(response.status), {}, {}};
  if (const auto json = parse_json(response.body); json && json->is_object()) {
    error.message = std::string((*json)["detail"].str_or((*json)["title"].str_or("")));
    error.hint = std::string((*json)["hint"].str_or(""));
  }
  if (error.message.empty())
    error.message =
        fmt::format("the head answered {} {}", response.status, net::status_text(response.status));
  if (error.code == Code::internal) {
    if (const auto id = response.headers.get("X-Request-Id"); !id.empty() && error.hint.empty())
      error.hint = fmt::format("look for request {} in the head's log", id);
  }
  return error;
}

std::string with_query(std::string path,
                       const std::vector<std::pair<std::string, std::string>>& query) {
  char separator = '?';
  for (const auto& [name, value] : query) {
    if (value.empty())
      continue;
    path += separator + name + "=" + net::percent_encode(value);
    separator = '&';
  }
  return path;
}

std::string path_of_job(std::string_view job, std::string_view rest) {
  return fmt::format("/v1/jobs/{}{}{}", net::percent_encode(job), rest.empty() ? "" : "/", rest);
}

}  // namespace billow::client
