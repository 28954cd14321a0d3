// One address for all models: /v1/models, /v1/chat/completions and the other paths of
// OpenAI-compatible APIs. The request's "model" is the name of an endpoint, which gets the request
// as it came.
#include <algorithm>

#include <fmt/format.h>

#include "base/json.h"
#include "base/text.h"
#include "gateway/gateway.h"
#include "gateway/pure/model_name.h"

namespace billow::gateway {
namespace {

// The model can stand behind the messages, so the whole body is read first.
constexpr std::size_t body_bytes_max = 8 << 20;

}  // namespace

net::Response api_error(int status, std::string_view code, const std::string& message) {
  return net::Response::json(
      status, Json::object({{"error", Json::object({{"message", message},
                                                    {"type", "invalid_request_error"},
                                                    {"code", code}})}})
                  .dump());
}

namespace {

Json model_document(const std::string& name) {
  return Json::object({{"id", name}, {"object", "model"}, {"created", 0}, {"owned_by", "billow"}});
}

}  // namespace

// The endpoints that admit the caller, by name.
std::vector<std::string> Gateway::models_for(Front& front) const {
  std::vector<std::string> names;
  const Ticket before = front.ticket;
  for (const auto& [name, endpoint] : endpoints_) {
    if (!check_access(front, *endpoint, secret_, peer_key_))
      names.push_back(name);
    front.ticket = before;
  }
  std::sort(names.begin(), names.end());
  return names;
}

void Gateway::front_door(const std::shared_ptr<Front>& front) {
  const std::string_view path = front->path();
  const bool looks = front->head().method == "GET" || front->head().method == "HEAD";
  if (front->head().method == "OPTIONS") {
    for (const auto& [name, endpoint] : endpoints_)
      if (auto answer = cors_preflight(*front, endpoint->policy()); answer && answer->status == 204)
        return front->refuse(std::move(*answer));
  }
  const std::vector<std::string> names = models_for(*front);
  if (names.empty())
    return front->refuse(api_error(401, "invalid_api_key",
                                   "this key opens no endpoint; its owner creates keys with: "
                                   "billow endpoint-key NAME"));
  if (looks && path == "/v1/models") {
    Json list = Json::array();
    for (const std::string& name : names)
      list.push(model_document(name));
    return front->respond(net::Response::json(
        200, Json::object({{"object", "list"}, {"data", std::move(list)}}).dump()));
  }
  if (looks && path.starts_with("/v1/models/")) {
    const std::string name(path.substr(std::string_view("/v1/models/").size()));
    if (!std::binary_search(names.begin(), names.end(), name))
      return front->refuse(api_error(404, "model_not_found",
                                     fmt::format("the model \"{}\" does not exist, or this key "
                                                 "does not open it",
                                                 name)));
    return front->respond(net::Response::json(200, model_document(name).dump()));
  }
  if (front->head().method != "POST")
    return front->refuse(api_error(
        404, "not_found", "no model is named; use POST with a \"model\", or /f/NAME/v1/…"));
  // Bodies of all requests together are bounded: strangers can send them where an endpoint is open.
  const std::size_t size = std::min(front->body_size().value_or(body_bytes_max), body_bytes_max);
  if (size > limits::gateway_held_body_bytes_max) {
    if (!reserve_body(*front, size)) {
      auto busy =
          api_error(503, "overloaded", "too many large requests are on their way; try again");
      busy.headers.add("Retry-After", "1");
      return front->refuse(std::move(busy));
    }
  }
  front->ticket.strip_credentials = true;
  front->read_body(body_bytes_max, [this, front](std::string body) {
    const auto model = model_name(body);
    if (!model)
      return front->refuse(api_error(400, "model_missing",
                                     "the body must be a JSON object with the text \"model\""));
    const auto endpoint = find(*model);
    if (!endpoint || check_access(*front, *endpoint, secret_, peer_key_))
      return front->refuse(
          api_error(404, "model_not_found",
                    fmt::format("the model \"{}\" does not exist, or this key does not open it; "
                                "GET /v1/models lists those that it opens",
                                *model)));
    front->keep_body(std::move(body));
    serve(front, endpoint, 0);
  });
}

}  // namespace billow::gateway
