// HashiCorp Vault, KV version 2: GET /v1/MOUNT/data/PATH with the token in a header.
#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "net/http/http.h"
#include "pool/oauth/web.h"
#include "secrets/backend.h"

namespace billow::secrets {
namespace {

constexpr Duration answer_within = seconds(10), renewal_pause_min = seconds(1);

class Vault final : public Backend {
 public:
  explicit Vault(BackendSettings settings) : settings_(std::move(settings)) {}

  Result<std::string> fetch(const Reference& reference) override {
    const auto answer = BILLOW_TRY(
        get(fmt::format("/v1/{}/data/{}", settings_.mount, reference.path), reference.path));
    const Json& data = answer.at("data", "data");
    if (!data.is_object())
      return fail(
          Code::not_found,
          fmt::format("{}: the last version was deleted, or {} is not a KV version 2 engine",
                      reference.path, settings_.mount));
    if (reference.key.empty() && data.members().size() != 1)
      return fail(Code::invalid,
                  fmt::format("{} has {} keys; name one: {}:{}#KEY", reference.path,
                              data.members().size(), reference.backend, reference.path));
    const Json* value =
        reference.key.empty() ? &data.members().begin()->second : data.find(reference.key);
    if (!value || !value->is_string())
      return fail(Code::not_found,
                  fmt::format("{} has no text named \"{}\"", reference.path, reference.key));
    return value->as_string();
  }

  Result<std::string> check() override {
    const auto answer = BILLOW_TRY(get("/v1/auth/token/lookup-self", "its token"));
    const std::int64_t left = answer.at("data", "ttl").int_or(0);
    return fmt::format(
        "the token of {}{}", shown(answer.at("data", "display_name").str_or("?")),
        left > 0 ? fmt::format(", which expires in {}", format_duration(seconds(left))) : "");
  }

  // A token without an end needs nothing; one that cannot be renewed ends, and `check` says when.
  Result<Duration> renew() override {
    const auto known = BILLOW_TRY(get("/v1/auth/token/lookup-self", "its token"));
    const Json& data = known["data"];
    const std::int64_t whole = data["creation_ttl"].int_or(0);
    std::int64_t left = data["ttl"].int_or(0);
    if (left <= 0 || !data["renewable"].bool_or(false))
      return Duration{};
    if (left <= whole * 2 / 3) {
      const auto renewed = BILLOW_TRY(
          send(net::Method::post, "/v1/auth/token/renew-self", "the renewal of its token"));
      left = renewed.at("auth", "lease_duration").int_or(0);
    }
    return std::max(renewal_pause_min, seconds(left) / 3);
  }

 private:
  Result<Json> get(const std::string& path, std::string_view what) {
    return send(net::Method::get, path, what);
  }

  Result<Json> send(net::Method method, const std::string& path, std::string_view what) {
    std::string base = settings_.address;
    while (base.ends_with('/'))
      base.pop_back();
    pool::WebCall call{.method = method,
                       .url = base + path,
                       .headers = {},
                       .body = method == net::Method::post ? "{}" : "",
                       .timeout = answer_within};
    call.headers.add("X-Vault-Token", settings_.credential);
    call.headers.add("X-Vault-Request", "true");
    if (!settings_.space.empty())
      call.headers.add("X-Vault-Namespace", settings_.space);
    const auto response = web_.send(call);
    if (!response)
      return fail(Code::unavailable, fmt::format("Vault at {} cannot be reached: {}",
                                                 settings_.address, response.error().message));
    const auto json = parse_json(response->body);
    if (response->status == 200 && json && json->is_object())
      return *json;
    return failure(response->status, json ? *json : Json(), what);
  }

  std::unexpected<Error> failure(int status, const Json& json, std::string_view what) const {
    std::string said;
    for (const Json& each : json["errors"].items())
      said += (said.empty() ? ": " : ", ") + shown(each.str_or(""));
    switch (status) {
      case 404:
        return fail(Code::not_found, fmt::format("Vault has nothing at {}{}", what, said));
      case 400:
      case 401:
      case 403:
        return fail(Code::forbidden,
                    fmt::format("Vault refused {} (status {}){}", what, status, said),
                    "check the policy of its token, and whether the token has expired");
      case 503:
        return fail(Code::unavailable, fmt::format("Vault is sealed or in maintenance{}", said));
      default:
        return fail(Code::unavailable,
                    fmt::format("Vault answered with status {}{}", status, said));
    }
  }

  BackendSettings settings_;
  pool::Web web_;
};

}  // namespace

std::unique_ptr<Backend> make_vault(const BackendSettings& settings) {
  return std::make_unique<Vault>(settings);
}

}  // namespace billow::secrets
