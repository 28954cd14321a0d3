// Google Secret Manager, with the same login as pools.
#include <fmt/format.h>

#include "base/crypto.h"
#include "base/text.h"
#include "pool/gce/gce_login.h"
#include "pool/oauth/api_client.h"
#include "secrets/backend.h"

namespace billow::secrets {
namespace {

constexpr Duration asked_within = seconds(10);

class Google final : public Backend {
 public:
  Google(const BackendSettings& settings, const Clock& clock)
      : settings_(settings),
        logins_(
            [this, &clock] {
              return pool::gce_login({"", settings_.credential}, web_, clock);
            },
            clock),
        client_(
            "Google Secret Manager",
            settings.address.empty() ? "https://secretmanager.googleapis.com" : settings.address,
            web_,
            logins_,
            clock) {}

  // PATH is a secret's name, whose newest version counts, or NAME/versions/NUMBER.
  Result<std::string> fetch(const Reference& reference) override {
    const bool versioned = reference.path.find("/versions/") != std::string::npos;
    const auto answer = client_.call(
        {.target = fmt::format("/v1/projects/{}/secrets/{}{}:access", settings_.project,
                               reference.path, versioned ? "" : "/versions/latest"),
         .timeout = asked_within});
    if (!answer)
      return pass(answer.error());
    if (!answer->ok())
      return failure(*answer, reference.path);
    std::string value;
    if (!base64_decode(answer->body.at("payload", "data").str_or(""), value))
      return fail(Code::unavailable, "Google Secret Manager sent a value that cannot be read");
    return member_of(std::move(value), reference);
  }

  Result<std::string> check() override {
    const auto login = BILLOW_TRY(logins_.get());
    return fmt::format("{} from {}", login.identity.empty() ? "the login" : login.identity,
                       login.source);
  }

 private:
  static std::unexpected<Error> failure(const pool::ApiAnswer& answer, std::string_view what) {
    const std::string why = shown(answer.body.at("error", "message").str_or(""));
    if (answer.status == 404)
      return fail(Code::not_found, fmt::format("Google Secret Manager has nothing at {}", what));
    if (answer.status >= 500 || answer.status == 429)
      return fail(
          Code::unavailable,
          fmt::format("Google Secret Manager answered with status {}: {}", answer.status, why));
    return fail(Code::forbidden, fmt::format("Google Secret Manager refused {}: {}", what, why),
                "its account needs the role Secret Manager Secret Accessor");
  }

  BackendSettings settings_;
  pool::Web web_;
  pool::LoginCache logins_;
  pool::ApiClient client_;
};

}  // namespace

std::unique_ptr<Backend> make_google(const BackendSettings& settings, const Clock& clock) {
  return std::make_unique<Google>(settings, clock);
}

}  // namespace billow::secrets
