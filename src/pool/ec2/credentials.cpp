#include "pool/ec2/credentials.h"

#include <fmt/format.h>
#include <time.h>

#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "net/address.h"
#include "net/http/blocking_client.h"
#include "process/command.h"

namespace billow::pool::ec2 {
namespace {

constexpr int roles_max = 5;  // a chain of roles longer than this is a loop
constexpr Duration refresh_before = minutes(5);
constexpr Duration metadata_timeout = seconds(2);
constexpr Duration process_timeout = seconds(30);
constexpr std::string_view sso_section = "sso-session ";
constexpr std::size_t sso_files_max = 64;

// "2026-11-16T09:30:00Z"; zero: not a time.
WallTime time_of(std::string_view text) {
  struct tm utc {};
  if (!::strptime(std::string(text).c_str(), "%Y-%m-%dT%H:%M:%S", &utc))
    return {};
  return WallTime{} + seconds(::timegm(&utc));
}

void read_sections(std::string_view text, bool config, Profiles& out) {
  std::string section;
  for (const std::string& raw : split(text, '\n')) {
    // Indented lines belong to a nested setting (s3 = …), which is of no interest here.
    const std::string_view line = trim(raw);
    if (line.empty() || line.front() == '#' || line.front() == ';' || raw.front() == ' ' ||
        raw.front() == '\t')
      continue;
    if (line.front() == '[' && line.back() == ']') {
      section = trim(line.substr(1, line.size() - 2));
      if (config && section.starts_with("profile "))
        section = trim(std::string_view(section).substr(8));
      else if (config && section != "default" && !section.starts_with(sso_section))
        section.clear();  // services
      continue;
    }
    const auto equals = line.find('=');
    if (section.empty() || equals == std::string_view::npos)
      continue;
    out[section][lower(trim(line.substr(0, equals)))] = trim(line.substr(equals + 1));
  }
}

Result<std::string> fetch(const std::string& url, net::Method method, net::Headers headers) {
  const net::Url parsed = BILLOW_TRY(net::parse_url(url));
  net::BlockingClient http(
      {.endpoint = parsed.endpoint, .tls = {}, .connect_timeout = metadata_timeout});
  net::BlockingClient::Call call;
  call.method = method;
  call.target = parsed.target;
  call.headers = std::move(headers);
  call.timeout = metadata_timeout;
  const net::Response response = BILLOW_TRY(http.request(call));
  if (response.status != 200)
    return fail(Code::unavailable, fmt::format("{} answered {}", url, response.status));
  return response.body;
}

// Credentials may be sent to these only: anybody can set a variable to another address.
bool is_container_host(const net::Endpoint& endpoint) {
  const std::string& host = endpoint.address.host;
  return endpoint.tls || endpoint.address.is_loopback() || host == "169.254.170.2" ||
         host == "169.254.170.23" || host == "fd00:ec2::23";
}

std::string setting(const std::map<std::string, std::string>& section, const char* key) {
  const auto found = section.find(key);
  return found == section.end() ? "" : found->second;
}

}  // namespace

Profiles parse_profiles(std::string_view config, std::string_view credentials) {
  Profiles out;
  read_sections(config, true, out);
  read_sections(credentials, false, out);
  return out;
}

Result<Credentials> parse_credentials(std::string_view json, std::string source) {
  const auto answer = parse_json(json);
  if (!answer)
    return fail(Code::invalid, fmt::format("{}: the answer is not JSON", source));
  Credentials out;
  out.source = std::move(source);
  out.access_key = (*answer)["AccessKeyId"].str_or("");
  out.secret_key = (*answer)["SecretAccessKey"].str_or("");
  const std::string_view token = (*answer)["Token"].str_or("");
  out.session_token = (*answer)["SessionToken"].str_or(token);
  out.expires = time_of((*answer)["Expiration"].str_or(""));
  if (out.access_key.empty() || out.secret_key.empty())
    return fail(Code::invalid, fmt::format("{}: the answer has no access key", out.source));
  return out;
}

std::string CredentialChain::profile_name() const {
  if (!options_.profile.empty())
    return options_.profile;
  const std::string named = options_.variable("AWS_PROFILE");
  return named.empty() ? "default" : named;
}

Result<Profiles> CredentialChain::profiles() const {
  const std::string home = options_.variable("HOME");
  const auto content = [&](const char* variable, const char* file) -> Result<std::string> {
    std::string path = options_.variable(variable);
    if (path.empty())
      path = home + "/.aws/" + file;
    return file_exists(path) ? read_file(path, 1 << 20) : Result<std::string>("");
  };
  return parse_profiles(BILLOW_TRY(content("AWS_CONFIG_FILE", "config")),
                        BILLOW_TRY(content("AWS_SHARED_CREDENTIALS_FILE", "credentials")));
}

std::string CredentialChain::region() {
  for (const char* name : {"AWS_REGION", "AWS_DEFAULT_REGION"})
    if (options_.profile.empty())
      if (std::string set = options_.variable(name); !set.empty())
        return set;
  const auto all = profiles();
  if (!all)
    return {};
  const auto found = all->find(profile_name());
  return found == all->end() ? "" : setting(found->second, "region");
}

Result<Credentials> CredentialChain::get() {
  const WallTime now = system_clock().wall();
  {
    auto kept = kept_.lock();
    if (!kept->access_key.empty() && (!kept->expires || now + refresh_before < kept->expires))
      return *kept;
  }
  auto found = find();
  auto kept = kept_.lock();
  if (found)
    *kept = *found;
  else if (!kept->access_key.empty() && now < kept->expires)
    return *kept;  // the old ones still hold
  return found;
}

Result<Credentials> CredentialChain::find() {
  // An explicit profile of the pool wins over the environment.
  if (options_.profile.empty() && !options_.variable("AWS_ACCESS_KEY_ID").empty())
    return of_environment();
  const Profiles all = BILLOW_TRY(profiles());
  const std::string name = profile_name();
  const bool named = !options_.profile.empty() || !options_.variable("AWS_PROFILE").empty();
  if (all.contains(name) || named) {
    auto found = of_profile(all, name, 0);
    if (found || named)
      return found;
  }
  if (!options_.variable("AWS_WEB_IDENTITY_TOKEN_FILE").empty())
    return of_web_identity();
  if (!options_.variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI").empty() ||
      !options_.variable("AWS_CONTAINER_CREDENTIALS_FULL_URI").empty())
    return of_container();
  if (lower(options_.variable("AWS_EC2_METADATA_DISABLED")) != "true")
    if (auto found = of_metadata())
      return found;
  return fail(Code::unauthorized, "no AWS credentials were found",
              "run `aws configure` as the user who runs the head, or set AWS_ACCESS_KEY_ID and "
              "AWS_SECRET_ACCESS_KEY for it, or give the head's instance a role");
}

Result<Credentials> CredentialChain::of_environment() const {
  Credentials out;
  out.access_key = options_.variable("AWS_ACCESS_KEY_ID");
  out.secret_key = options_.variable("AWS_SECRET_ACCESS_KEY");
  out.session_token = options_.variable("AWS_SESSION_TOKEN");
  out.source = "environment";
  if (out.secret_key.empty())
    return fail(Code::unauthorized, "AWS_ACCESS_KEY_ID is set and AWS_SECRET_ACCESS_KEY is not");
  return out;
}

Result<Credentials> CredentialChain::of_source(const std::string& source,
                                               const Profiles& profiles,
                                               int depth) {
  if (source == "Environment")
    return of_environment();
  if (source == "Ec2InstanceMetadata")
    return of_metadata();
  if (source == "EcsContainer")
    return of_container();
  return of_profile(profiles, source, depth);
}

Result<Credentials> CredentialChain::of_profile(const Profiles& profiles,
                                                const std::string& name,
                                                int depth) {
  const auto found = profiles.find(name);
  if (found == profiles.end())
    return fail(Code::unauthorized, fmt::format("there is no AWS profile \"{}\"", name),
                "see ~/.aws/config and ~/.aws/credentials of the user who runs the head");
  if (depth >= roles_max)
    return fail(Code::invalid, fmt::format("AWS profile \"{}\": its roles form a loop", name));
  const auto& section = found->second;
  const std::string key = setting(section, "aws_access_key_id"),
                    secret = setting(section, "aws_secret_access_key");
  if (const std::string role = setting(section, "role_arn"); !role.empty()) {
    std::string from = setting(section, "source_profile");
    const bool itself = from == name && !key.empty();
    if (from.empty())
      from = setting(section, "credential_source");
    if (!setting(section, "mfa_serial").empty())
      return fail(Code::unsupported,
                  fmt::format("AWS profile \"{}\" needs a person with an MFA device", name),
                  "use a role without MFA for the head");
    const Credentials base =
        itself ? Credentials{key, secret, setting(section, "aws_session_token"), {}, ""}
               : BILLOW_TRY(of_source(from, profiles, depth + 1));
    Role wanted{role, setting(section, "role_session_name"), setting(section, "external_id"), "",
                parse_int(setting(section, "duration_seconds"), 900, 43200).value_or(3600)};
    auto assumed = options_.assume_role(base, wanted);
    if (!assumed)
      return pass(std::move(assumed.error()), fmt::format("AWS profile {}", name));
    assumed->source = "profile " + name;
    return assumed;
  }
  if (!key.empty() && !secret.empty())
    return Credentials{key, secret, setting(section, "aws_session_token"), {}, "profile " + name};
  if (const std::string command = setting(section, "credential_process"); !command.empty()) {
    auto done = process::run_command(
        {.argv = {"/bin/sh", "-c", command}, .env = {}, .input = {}, .timeout = process_timeout});
    if (!done)
      return pass(std::move(done.error()), fmt::format("credential_process of profile {}", name));
    if (done->code != 0)
      return fail(Code::unauthorized, fmt::format("credential_process of profile {} failed: {}",
                                                  name, done->complaint()));
    return parse_credentials(done->out, "profile " + name);
  }
  if (!setting(section, "sso_account_id").empty())
    return of_sso(profiles, name);
  return fail(Code::unauthorized, fmt::format("AWS profile \"{}\" has no credentials", name),
              "use access keys, role_arn, credential_process or the settings of SSO");
}

namespace {

// The login that `aws sso login` left behind, as long as it holds.
Result<std::string> sso_token(const std::string& folder,
                              const std::string& start_url,
                              WallTime now) {
  std::error_code error;
  std::size_t read = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder, error)) {
    if (file.path().extension() != ".json" || ++read > sso_files_max)
      continue;
    const auto text = read_file(file.path().string(), 64 << 10);
    const auto login = text ? parse_json(*text) : Result<Json>(Json());
    if (login && (*login)["startUrl"].str_or("") == start_url &&
        now < time_of((*login)["expiresAt"].str_or("")))
      return std::string((*login)["accessToken"].str_or(""));
  }
  return fail(Code::unauthorized, fmt::format("the SSO login at {} has expired", start_url));
}

}  // namespace

// Temporary keys of a role, for the access token of a login in the browser.
Result<Credentials> CredentialChain::of_sso(const Profiles& profiles, const std::string& name) {
  auto section = profiles.at(name);
  if (const auto session =
          profiles.find(std::string(sso_section) + setting(section, "sso_session"));
      session != profiles.end())
    section.insert(session->second.begin(), session->second.end());
  auto token = sso_token(options_.variable("HOME") + "/.aws/sso/cache",
                         setting(section, "sso_start_url"), system_clock().wall());
  if (!token) {
    token.error().hint =
        fmt::format("run `aws sso login --profile {}` as the user who runs the head", name);
    return pass(std::move(token.error()), "AWS profile " + name);
  }
  std::string portal = options_.variable("AWS_ENDPOINT_URL_SSO");
  if (portal.empty())
    portal = fmt::format("https://portal.sso.{}.amazonaws.com", setting(section, "sso_region"));
  const auto answer =
      fetch(fmt::format("{}/federation/credentials?role_name={}&account_id={}", portal,
                        net::percent_encode(setting(section, "sso_role_name")),
                        net::percent_encode(setting(section, "sso_account_id"))),
            net::Method::get, {{"x-amz-sso_bearer_token", *token}});
  if (!answer)
    return pass(Error(answer.error()), "AWS profile " + name);
  const Json given = parse_json(*answer).value_or(Json())["roleCredentials"];
  Credentials out{std::string(given["accessKeyId"].str_or("")),
                  std::string(given["secretAccessKey"].str_or("")),
                  std::string(given["sessionToken"].str_or("")),
                  {given["expiration"].int_or(0) * 1'000'000},
                  "profile " + name + " (SSO)"};
  if (out.access_key.empty() || out.secret_key.empty())
    return fail(Code::invalid, fmt::format("AWS profile {}: SSO gave no keys", name));
  return out;
}

Result<Credentials> CredentialChain::of_web_identity() const {
  Role role;
  role.arn = options_.variable("AWS_ROLE_ARN");
  role.session = options_.variable("AWS_ROLE_SESSION_NAME");
  // The file is read anew each time: it is replaced while we run.
  role.web_identity_token =
      trim(BILLOW_TRY(read_file(options_.variable("AWS_WEB_IDENTITY_TOKEN_FILE"), 64 << 10)));
  auto assumed = options_.assume_role({}, role);
  if (!assumed)
    return pass(std::move(assumed.error()), "web identity");
  assumed->source = "web identity";
  return assumed;
}

Result<Credentials> CredentialChain::of_container() const {
  std::string url = options_.variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  if (const std::string path = options_.variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
      !path.empty())
    url = "http://169.254.170.2" + path;
  const net::Url parsed = BILLOW_TRY(net::parse_url(url));
  if (!is_container_host(parsed.endpoint))
    return fail(Code::forbidden,
                "AWS_CONTAINER_CREDENTIALS_FULL_URI must be https, loopback or a container "
                "credential address");
  std::string token = options_.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  if (const std::string file = options_.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
      !file.empty())
    token = trim(BILLOW_TRY(read_file(file, 64 << 10)));
  net::Headers headers;
  if (!token.empty())
    headers.set("Authorization", token);
  return parse_credentials(BILLOW_TRY(fetch(url, net::Method::get, std::move(headers))),
                           "container");
}

Result<Credentials> CredentialChain::of_metadata() const {
  std::string base = options_.variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  if (base.empty())
    base = "http://169.254.169.254";
  while (base.ends_with('/'))
    base.pop_back();
  const std::string token =
      BILLOW_TRY(fetch(base + "/latest/api/token", net::Method::put,
                       {{"X-aws-ec2-metadata-token-ttl-seconds", "300"}, {"Content-Length", "0"}}));
  const net::Headers headers{{"X-aws-ec2-metadata-token", token}};
  const std::string roles = base + "/latest/meta-data/iam/security-credentials/";
  const std::string role(trim(BILLOW_TRY(fetch(roles, net::Method::get, headers))));
  return parse_credentials(BILLOW_TRY(fetch(roles + role, net::Method::get, headers)),
                           "instance metadata");
}

}  // namespace billow::pool::ec2
