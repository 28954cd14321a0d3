#include "pool/gce/gce_login.h"

#include <fmt/format.h>
#include <stdlib.h>

#include "base/file.h"
#include "pool/oauth/jwt.h"

namespace billow::pool {
namespace {

constexpr std::string_view google_token_url = "https://oauth2.googleapis.com/token";
// Machines are managed with the first; the second lets `account()` ask which rights are missing.
constexpr std::string_view google_scopes =
    "https://www.googleapis.com/auth/compute "
    "https://www.googleapis.com/auth/cloud-platform.read-only";
constexpr std::size_t google_file_max = 1 << 20;

std::string google_env(const char* name) {
  const char* value = ::getenv(name);
  return value ? value : "";
}

struct GoogleFile {
  std::string path;
  std::string source;
};

GoogleFile find_google_file(const std::string& credentials) {
  if (!credentials.empty())
    return {credentials, credentials};
  if (const std::string named = google_env("GOOGLE_APPLICATION_CREDENTIALS"); !named.empty())
    return {named, fmt::format("GOOGLE_APPLICATION_CREDENTIALS ({})", named)};
  std::string folder = google_env("CLOUDSDK_CONFIG");
  if (folder.empty())
    folder = google_env("HOME") + "/.config/gcloud";
  const std::string login = folder + "/application_default_credentials.json";
  if (file_exists(login))
    return {login, fmt::format("the login of gcloud ({})", login)};
  return {};
}

Result<Login> ask_google(const std::string& url,
                         const std::vector<std::pair<std::string, std::string>>& fields,
                         Web& web,
                         const Clock& clock) {
  BILLOW_TRY_VOID(check_protected("the token endpoint", url));
  const net::Response response =
      BILLOW_TRY(web.send({.method = net::Method::post,
                           .url = url,
                           .headers = {{"content-type", "application/x-www-form-urlencoded"}},
                           .body = form(fields)}));
  Login login = BILLOW_TRY(read_token(response, url, clock.wall()));
  login.endpoint = url;
  return login;
}

// The key of a service account signs a statement, and Google answers with a token.
Result<Login> service_account(const Json& key, Web& web, const Clock& clock) {
  const std::string email(key["client_email"].str_or(""));
  const std::string url(key["token_uri"].str_or(google_token_url));
  const std::int64_t now_s = clock.wall().ns / 1'000'000'000;
  Json header = Json::object();
  if (const std::string_view id = key["private_key_id"].str_or(""); !id.empty())
    header.set("kid", id);
  const Json claims = Json::object({{"iss", email},
                                    {"scope", google_scopes},
                                    {"aud", url},
                                    {"exp", now_s + 3600},
                                    {"iat", now_s}});
  const std::string assertion = BILLOW_TRY(signed_jwt(
      JwtAlgorithm::rs256, std::move(header), claims, std::string(key["private_key"].str_or(""))));
  Login login = BILLOW_TRY(ask_google(
      url,
      {{"grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"}, {"assertion", assertion}},
      web, clock));
  login.identity = email;
  login.account = key["project_id"].str_or("");
  return login;
}

Result<Login> gcloud_login(const Json& file, Web& web, const Clock& clock) {
  const std::string url(file["token_uri"].str_or(google_token_url));
  Login login =
      BILLOW_TRY(ask_google(url,
                            {{"refresh_token", std::string(file["refresh_token"].str_or(""))},
                             {"client_id", std::string(file["client_id"].str_or(""))},
                             {"client_secret", std::string(file["client_secret"].str_or(""))},
                             {"grant_type", "refresh_token"}},
                            web, clock));
  login.account = file["quota_project_id"].str_or("");
  return login;
}

Result<Login> from_google_json(const std::string& text,
                               const std::string& source,
                               Web& web,
                               const Clock& clock) {
  const auto json = parse_json(text);
  if (!json)
    return fail(Code::unauthorized,
                fmt::format("{} is not JSON: {}", source, json.error().message));
  const std::string_view type = (*json)["type"].str_or("");
  if (type != "service_account" && type != "authorized_user")
    return fail(Code::unauthorized, fmt::format("{} has credentials of type \"{}\"", source, type),
                "use the key of a service account or the login of gcloud auth application-default "
                "login");
  auto login = type == "service_account" ? service_account(*json, web, clock)
                                         : gcloud_login(*json, web, clock);
  if (!login)
    return pass(std::move(login.error()), source);
  login->source = source;
  return login;
}

Result<Login> from_google_file(const GoogleFile& file, Web& web, const Clock& clock) {
  const auto text = read_file(file.path, google_file_max);
  if (!text)
    return fail(Code::unauthorized,
                fmt::format("cannot read the Google credentials: {}", text.error().message));
  return from_google_json(*text, file.source, web, clock);
}

Result<std::string> ask_metadata(const std::string& path, Web& web) {
  std::string host = google_env("GCE_METADATA_HOST");
  if (host.empty())
    host = "metadata.google.internal";
  const net::Response response =
      BILLOW_TRY(web.send({.url = "http://" + host + "/computeMetadata/v1/" + path,
                           .headers = {{"metadata-flavor", "Google"}},
                           .body = {},
                           .connect_timeout = seconds(1),
                           .timeout = seconds(5)}));
  if (response.status != 200)
    return fail(Code::unavailable,
                fmt::format("the metadata server answered HTTP {}", response.status));
  return response.body;
}

Result<Login> from_metadata(Web& web, const Clock& clock) {
  const std::string account = "instance/service-accounts/default/";
  const auto token = ask_metadata(account + "token", web);
  if (!token)
    return fail(Code::unauthorized, "no Google credentials were found",
                "set GOOGLE_APPLICATION_CREDENTIALS for the head, or run gcloud auth "
                "application-default login as its user");
  net::Response response;
  response.body = *token;
  Login login = BILLOW_TRY(read_token(response, "the metadata server", clock.wall()));
  login.source = "the metadata server";
  login.identity = ask_metadata(account + "email", web).value_or("");
  login.account = ask_metadata("project/project-id", web).value_or("");
  return login;
}

}  // namespace

Result<Login> gce_login(const GceLoginOptions& options, Web& web, const Clock& clock) {
  if (!options.key.empty())
    return from_google_json(options.key, "the pool's key", web, clock);
  const GoogleFile file = find_google_file(options.credentials);
  return file.path.empty() ? from_metadata(web, clock) : from_google_file(file, web, clock);
}

Result<std::string> gce_identity(const Login& login, Web& web) {
  if (!login.identity.empty())
    return login.identity;
  // Beside the endpoint that gave the token: …/token and …/tokeninfo.
  const std::string url = login.endpoint + "info";
  const net::Response response = BILLOW_TRY(
      web.send({.method = net::Method::post,
                .url = url,
                .headers = {{"content-type", "application/x-www-form-urlencoded;charset=UTF-8"},
                            {"authorization", "Bearer " + login.token}},
                .body = {}}));
  const auto body = parse_json(response.body);
  const std::string_view email = body ? (*body)["email"].str_or("") : "";
  if (response.status != 200 || email.empty())
    return fail(Code::unavailable, "Google does not say whose credentials these are");
  return std::string(email);
}

}  // namespace billow::pool
