// AWS Secrets Manager, with the same signed requests and the same credential chain as pools.
#include <cstdlib>

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/text.h"
#include "pool/ec2/wire.h"
#include "secrets/backend.h"

namespace billow::secrets {
namespace {

std::string setting(const pool::ec2::Profiles& profiles, const char* name) {
  const auto section = profiles.find("default");
  if (section == profiles.end())
    return {};
  const auto found = section->second.find(name);
  return found == section->second.end() ? "" : found->second;
}

// The keys of the backend as the variables that the credential chain reads first; without any, the
// head's own environment.
pool::ec2::Variables variables_of(const BackendSettings& settings) {
  if (settings.credential.empty())
    return [](const char* name) {
      const char* value = std::getenv(name);
      return std::string(value ? value : "");
    };
  const auto profiles = pool::ec2::parse_profiles("", settings.credential);
  const std::map<std::string, std::string> given = {
      {"AWS_ACCESS_KEY_ID", setting(profiles, "aws_access_key_id")},
      {"AWS_SECRET_ACCESS_KEY", setting(profiles, "aws_secret_access_key")},
      {"AWS_SESSION_TOKEN", setting(profiles, "aws_session_token")},
      {"AWS_EC2_METADATA_DISABLED", "true"}};
  return [given](const char* name) {
    const auto found = given.find(name);
    return found == given.end() ? std::string() : found->second;
  };
}

class Aws final : public Backend {
 public:
  explicit Aws(const BackendSettings& settings)
      : region_(settings.region),
        wire_({.endpoint = settings.address, .profile = {}, .variable = variables_of(settings)}) {}

  Result<std::string> fetch(const Reference& reference) override {
    const auto answer = wire_.json("secretsmanager", region_, "secretsmanager.GetSecretValue",
                                   Json::object({{"SecretId", reference.path}}));
    if (!answer)
      return failure(answer.error(), reference.path);
    if (const Json& text = (*answer)["SecretString"]; text.is_string())
      return member_of(text.as_string(), reference);
    std::string value;
    if (!base64_decode((*answer)["SecretBinary"].str_or(""), value) || value.empty())
      return fail(Code::not_found, fmt::format("{} has no value", reference.path));
    return member_of(std::move(value), reference);
  }

  Result<std::string> check() override {
    const auto answer = wire_.query("sts", region_, "GetCallerIdentity", {});
    if (!answer)
      return failure(answer.error(), "its credentials");
    return fmt::format("the credentials from {}", wire_.credentials().get()->source);
  }

 private:
  static std::unexpected<Error> failure(const pool::ec2::ApiError& error, std::string_view what) {
    const std::string why = shown(error.text());
    if (error.code == "ResourceNotFoundException")
      return fail(Code::not_found, fmt::format("AWS Secrets Manager has nothing at {}", what));
    if (error.status == 0 || error.status >= 500 || error.code == "ThrottlingException")
      return fail(Code::unavailable, fmt::format("AWS Secrets Manager: {}", why));
    return fail(Code::forbidden, fmt::format("AWS Secrets Manager refused {}: {}", what, why),
                "its user needs secretsmanager:GetSecretValue");
  }

  std::string region_;
  pool::ec2::Wire wire_;
};

}  // namespace

std::unique_ptr<Backend> make_aws(const BackendSettings& settings) {
  return std::make_unique<Aws>(settings);
}

}  // namespace billow::secrets
