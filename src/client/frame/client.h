// The head's API as the commands use it: JSON in and out, problem documents as Errors. One
// connection, kept.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "client/frame/command.h"
#include "client/frame/connect.h"
#include "net/http/blocking_client.h"

namespace billow::client {

class Client {
 public:
  static Result<Client> create(ConnectOptions options);

  Result<Json> get(const std::string& target) { return call(net::Method::get, target); }
  Result<Json> post(const std::string& target, std::string body = "{}", net::Headers headers = {}) {
    return call(net::Method::post, target, std::move(body), std::move(headers));
  }
  Result<Json> put(const std::string& target, std::string body) {
    return call(net::Method::put, target, std::move(body));
  }
  Result<Json> del(const std::string& target) { return call(net::Method::del, target); }
  Result<Json> call(net::Method method,
                    const std::string& target,
                    std::string body = {},
                    net::Headers headers = {},
                    Duration timeout = seconds(60));

  // A streamed answer; `on_chunk` false ends it. `quiet_max`: the longest silence that is not an
  // error.
  Status stream(const std::string& target,
                std::function<bool(std::string_view)> on_chunk,
                net::Headers headers = {},
                Duration quiet_max = seconds(120));
  Result<net::BlockingWebSocket> websocket(const std::string& target);

  // After the head was away: it may have come back at another address.
  Status find_again();
  std::string where() const { return address_.endpoint.text(); }
  const HeadAddress& address() const { return address_; }

 private:
  Client(ConnectOptions options, HeadAddress address);
  Result<net::Response> send(net::BlockingClient::Call call);
  // Asks the head of this machine for a token of this account.
  Status sign_in_by_account();
  ConnectOptions options_;
  HeadAddress address_;
  net::BlockingClient http_;
};

// The Error a problem document (or any other answer of status 400 and more) tells.
Error error_of(const net::Response& response);
// Whether no server answered, so that it makes sense to wait and ask again.
bool is_away(const Error& error);

// "/v1/jobs" + {"state","all"} → "/v1/jobs?state=all"; empty values are left out.
std::string with_query(std::string path,
                       const std::vector<std::pair<std::string, std::string>>& query);
std::string path_of_job(std::string_view job, std::string_view rest = {});  // "/v1/jobs/12.3/stop"

}  // namespace billow::client
