// Calls the head with this node's credential.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "net/http/blocking_client.h"
#include "net/http/node_credential.h"

namespace billow::agent {

class HeadClient {
 public:
  HeadClient(const net::Endpoint& head,
             const net::TlsClientOptions& tls,
             std::shared_ptr<const net::NodeCredential> credential)
      : http_({.endpoint = head, .tls = tls}), credential_(std::move(credential)) {}
  Result<std::string> call(net::Method method, std::string target, std::string body = {}) {
    net::BlockingClient::Call call{.method = method,
                                   .target = std::move(target),
                                   .body = std::move(body),
                                   .timeout = seconds(120)};
    call.headers.set("Authorization", BILLOW_TRY(credential_->authorization(method, call.target)));
    if (!call.body.empty())
      call.headers.set("Content-Type", "application/octet-stream");
    auto response = BILLOW_TRY(http_.request(call));
    if (response.status >= 300) {
      std::string why = fmt::format("the head answered {}", response.status);
      if (const auto json = parse_json(response.body); json && json->is_object())
        why = std::string((*json)["detail"].str_or(why));
      return fail(net::code_of_status(response.status), why);
    }
    return std::move(response.body);
  }

 private:
  net::BlockingClient http_;
  std::shared_ptr<const net::NodeCredential> credential_;
};

}  // namespace billow::agent
