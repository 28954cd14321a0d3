#include "pool/azure/azure_login.h"

#include <fmt/format.h>
#include <stdlib.h>

#include "base/crypto.h"
#include "base/file.h"
#include "base/text.h"
#include "pool/oauth/jwt.h"
#include "pool/resource_name.h"
#include "process/command.h"

namespace billow::pool {
namespace {

constexpr std::size_t azure_file_max = 1 << 20;
constexpr std::string_view assertion_type =
    "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
constexpr std::string_view imds_address = "http://169.254.169.254";
constexpr Duration cli_timeout = seconds(20);

std::string azure_env(const char* name) {
  const char* value = ::getenv(name);
  return value ? value : "";
}

// An application (service principal) and what proves that we are it: one of the last three.
struct Principal {
  std::string tenant, client, source;
  std::string secret;
  std::string certificate;      // path of a PEM file with the certificate and its key
  std::string federated_token;  // path of a token file that others renew
};

Result<std::string> certificate_assertion(const Principal& who,
                                          const std::string& audience,
                                          const Clock& clock) {
  const auto pem = read_file(who.certificate, azure_file_max);
  if (!pem)
    return fail(Code::unauthorized,
                fmt::format("cannot read the certificate: {}", pem.error().message));
  const auto thumbprint = x5t_s256(*pem);
  if (!thumbprint)
    return fail(Code::unauthorized,
                fmt::format("{} has no certificate in PEM form", who.certificate));
  const std::int64_t now_s = clock.wall().ns / 1'000'000'000;
  return signed_jwt(JwtAlgorithm::ps256, Json::object({{"x5t#S256", *thumbprint}}),
                    Json::object({{"aud", audience},
                                  {"exp", now_s + 600},
                                  {"iss", who.client},
                                  {"sub", who.client},
                                  {"nbf", now_s},
                                  {"jti", request_uuid(random_bytes(16))}}),
                    *pem);
}

Result<Login> as_principal(const Principal& who,
                           const AzureLoginOptions& options,
                           Web& web,
                           const Clock& clock) {
  const std::string url =
      fmt::format("{}/{}/oauth2/v2.0/token", options.authority, net::percent_encode(who.tenant));
  BILLOW_TRY_VOID(check_protected("the authority", url));
  std::vector<std::pair<std::string, std::string>> fields = {
      {"client_id", who.client},
      {"scope", options.endpoint + "/.default"},
      {"grant_type", "client_credentials"}};
  if (!who.secret.empty()) {
    fields.emplace_back("client_secret", who.secret);
  } else {
    std::string assertion;
    if (!who.certificate.empty())
      assertion = BILLOW_TRY(certificate_assertion(who, url, clock));
    else if (const auto token = read_file(who.federated_token, azure_file_max))
      assertion = trim(*token);
    else
      return fail(Code::unauthorized,
                  fmt::format("cannot read the federated token: {}", token.error().message));
    fields.emplace_back("client_assertion_type", assertion_type);
    fields.emplace_back("client_assertion", std::move(assertion));
  }
  const net::Response response =
      BILLOW_TRY(web.send({.method = net::Method::post,
                           .url = url,
                           .headers = {{"content-type", "application/x-www-form-urlencoded"}},
                           .body = form(fields)}));
  Login login = BILLOW_TRY(read_token(response, url, clock.wall()));
  login.identity = "application " + who.client;
  login.endpoint = url;
  login.source = who.source;
  login.account = azure_env("AZURE_SUBSCRIPTION_ID");
  return login;
}

std::string_view first_of(const Json& file, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names)
    if (const std::string_view value = file[name].str_or(""); !value.empty())
      return value;
  return "";
}

// The names that `az ad sp create-for-rbac` writes, with and without --json-auth.
Result<Login> from_azure_json(const std::string& text,
                              const std::string& source,
                              const AzureLoginOptions& options,
                              Web& web,
                              const Clock& clock) {
  const auto file = parse_json(text);
  if (!file)
    return fail(Code::unauthorized,
                fmt::format("{} is not JSON: {}", source, file.error().message));
  Principal who;
  who.source = source;
  who.tenant = first_of(*file, {"tenant", "tenantId"});
  who.client = first_of(*file, {"appId", "clientId"});
  who.secret = first_of(*file, {"password", "clientSecret"});
  who.certificate = first_of(*file, {"certificate", "fileWithCertAndPrivateKey"});
  if (who.tenant.empty() || who.client.empty() || (who.secret.empty() && who.certificate.empty()))
    return fail(Code::unauthorized, fmt::format("{} lacks tenant, appId or password", source),
                "write it with: az ad sp create-for-rbac");
  Login login = BILLOW_TRY(as_principal(who, options, web, clock));
  if (const std::string_view subscription = (*file)["subscriptionId"].str_or("");
      !subscription.empty())
    login.account = subscription;
  return login;
}

Result<Login> from_azure_file(const AzureLoginOptions& options, Web& web, const Clock& clock) {
  const auto text = read_file(options.credentials, azure_file_max);
  if (!text)
    return fail(Code::unauthorized,
                fmt::format("cannot read the Azure credentials: {}", text.error().message));
  return from_azure_json(*text, options.credentials, options, web, clock);
}

std::optional<Principal> principal_of_environment() {
  Principal who{.tenant = azure_env("AZURE_TENANT_ID"),
                .client = azure_env("AZURE_CLIENT_ID"),
                .source = "AZURE_CLIENT_ID",
                .secret = azure_env("AZURE_CLIENT_SECRET"),
                .certificate = azure_env("AZURE_CLIENT_CERTIFICATE_PATH"),
                .federated_token = azure_env("AZURE_FEDERATED_TOKEN_FILE")};
  if (who.tenant.empty() || who.client.empty() ||
      (who.secret.empty() && who.certificate.empty() && who.federated_token.empty()))
    return std::nullopt;
  return who;
}

// A machine in Azure with an identity of its own.
Result<Login> managed_identity(const AzureLoginOptions& options, Web& web, const Clock& clock) {
  std::string address = azure_env("AZURE_POD_IDENTITY_AUTHORITY_HOST");
  if (address.empty())
    address = imds_address;
  std::vector<std::pair<std::string, std::string>> query = {{"api-version", "2018-02-01"},
                                                            {"resource", options.endpoint}};
  if (const std::string client = azure_env("AZURE_CLIENT_ID"); !client.empty())
    query.emplace_back("client_id", client);
  const net::Response response =
      BILLOW_TRY(web.send({.url = address + "/metadata/identity/oauth2/token?" + form(query),
                           .headers = {{"metadata", "true"}},
                           .body = {},
                           .connect_timeout = seconds(1),
                           .timeout = seconds(5)}));
  Login login = BILLOW_TRY(read_token(response, "the metadata service", clock.wall()));
  login.source = "the managed identity of this machine";
  login.account = azure_env("AZURE_SUBSCRIPTION_ID");
  return login;
}

Result<Login> azure_cli(const AzureLoginOptions& options) {
  const auto ran = process::run_command({.argv = {"az", "account", "get-access-token", "--output",
                                                  "json", "--resource", options.endpoint},
                                         .env = {},
                                         .input = {},
                                         .timeout = cli_timeout});
  if (!ran || ran->code != 0)
    return fail(Code::unauthorized, fmt::format("the Azure CLI gave no token: {}",
                                                ran ? ran->complaint() : ran.error().message));
  const auto answer = parse_json(ran->out);
  const std::string_view token = answer ? (*answer)["accessToken"].str_or("") : "";
  const std::int64_t expires_s = answer ? number_of((*answer)["expires_on"], 0) : 0;
  if (token.empty() || expires_s <= 0 || !net::valid_field_value(token))
    return fail(Code::unauthorized, "the Azure CLI printed no token",
                "update it to version 2.54 or later");
  Login login;
  login.token = token;
  login.expires_at = WallTime{} + seconds(expires_s);
  login.account = (*answer)["subscription"].str_or("");
  login.source = "the login of the Azure CLI";
  return login;
}

}  // namespace

Result<Login> azure_login(const AzureLoginOptions& options, Web& web, const Clock& clock) {
  if (!options.key.empty())
    return from_azure_json(options.key, "the pool's key", options, web, clock);
  if (!options.credentials.empty())
    return from_azure_file(options, web, clock);
  if (const auto who = principal_of_environment())
    return as_principal(*who, options, web, clock);
  auto login = managed_identity(options, web, clock);
  if (!login)
    login = azure_cli(options);
  if (!login)
    return fail(Code::unauthorized,
                fmt::format("no Azure credentials were found; {}", login.error().message),
                "set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET for the head, or run "
                "az login as its user");
  // A token of Azure is a JWT that names its holder.
  if (login->identity.empty()) {
    const Json claims = unverified_claims(login->token);
    login->identity = first_of(claims, {"upn", "unique_name", "appid", "oid"});
  }
  return login;
}

}  // namespace billow::pool
