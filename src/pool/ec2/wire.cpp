#include "pool/ec2/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "base/backoff.h"
#include "base/crypto.h"
#include "base/rng.h"
#include "net/address.h"
#include "net/http/blocking_client.h"
#include "s3/sign.h"

namespace billow::pool::ec2 {
namespace {

constexpr int answer_pages_max = 1000;
constexpr Duration request_timeout = seconds(60);
// A look that was throttled or met a broken server is repeated; an order never is, because its
// caller must know how often it was sent.
constexpr int read_tries = 4;

const net::XmlElement* find_error(const net::XmlElement& element) {
  if (element.name == "Error" && element.child("Code"))
    return &element;
  for (const net::XmlElement& child : element.children)
    if (const net::XmlElement* found = find_error(child))
      return found;
  return nullptr;
}

bool one_of(std::string_view code, std::initializer_list<std::string_view> codes) {
  return std::find(codes.begin(), codes.end(), code) != codes.end();
}

bool may_pass(const ApiError& error) {
  return error.status == 0 || error.status >= 500 || error.status == 429 ||
         error.code.starts_with("Throttling") ||
         one_of(error.code, {"RequestLimitExceeded", "RequestThrottled", "SlowDown"});
}

bool only_reads(const std::string& action) {
  return action.starts_with("Describe") || action.starts_with("Get");
}

void pause(Duration time) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(time.ns));
}

std::string query_text(const Parameters& parameters) {
  std::string out;
  for (const auto& [name, value] : parameters)
    out += fmt::format("{}{}={}", out.empty() ? "" : "&", net::percent_encode(name),
                       net::percent_encode(value));
  return out;
}

}  // namespace

std::string ApiError::text() const {
  if (code.empty())
    return message;
  return message.empty() ? code : fmt::format("{}: {}", code, message);
}

Error error_of(const ApiError& error) {
  const bool denied = error.status == 401 || error.status == 403;
  return {denied ? Code::unauthorized : Code::unavailable, error.text(), ""};
}

Error identity_error(const ApiError& error) {
  if (error.status >= 400 && error.status < 500)
    return error_of(error).in("these credentials are not accepted");
  return {Code::unavailable, "AWS did not answer: " + error.text(),
          "check the network of the head and the name of the region"};
}

void add_filter(Parameters& parameters,
                const std::string& name,
                const std::vector<std::string>& values) {
  int number = 1;
  for (const auto& [key, value] : parameters)
    number += key.starts_with("Filter.") && key.ends_with(".Name");
  parameters.emplace_back(fmt::format("Filter.{}.Name", number), name);
  for (std::size_t i = 0; i < values.size(); ++i)
    parameters.emplace_back(fmt::format("Filter.{}.Value.{}", number, i + 1), values[i]);
}

// By the code first: EC2 answers "no capacity" with status 500, which elsewhere means "try again".
RefusalKind kind_of(const ApiError& error) {
  const std::string_view code = error.code;
  if (one_of(code, {"InsufficientInstanceCapacity", "InsufficientHostCapacity",
                    "InsufficientReservedInstanceCapacity", "InsufficientVolumeCapacity",
                    "InsufficientCapacity", "UnfulfillableCapacity", "ReservationCapacityExceeded",
                    "InsufficientFreeAddressesInSubnet", "SpotMaxPriceTooLow"}))
    return RefusalKind::capacity;
  if (one_of(code,
             {"VcpuLimitExceeded", "InstanceLimitExceeded", "MaxSpotInstanceCountExceeded",
              "VolumeLimitExceeded", "MaxIOPSLimitExceeded", "MaxSpotFleetRequestCountExceeded"}))
    return RefusalKind::quota;
  const bool names_type = error.message.find("nstance type") != std::string::npos ||
                          error.message.find("nstanceType") != std::string::npos;
  if (code == "Unsupported" || code == "UnsupportedOperation" ||
      (names_type && one_of(code, {"InvalidParameterCombination", "InvalidParameterValue"})))
    return RefusalKind::not_offered;
  // The first order of a new security group or role may come too early, and a used token says that
  // the machine exists or existed: both are settled by looking again.
  if (may_pass(error) ||
      one_of(code, {"InvalidGroup.NotFound", "InvalidGroup.Duplicate", "RequestExpired"}))
    return RefusalKind::no_answer;
  return RefusalKind::settings;
}

RefusalKind kind_of_end(std::string_view reason) {
  if (reason.find("VolumeLimitExceeded") != std::string_view::npos)
    return RefusalKind::quota;
  // A volume key that the account may not use shows up only here.
  if (reason.find("Client.InternalError") != std::string_view::npos ||
      reason.find("Client.InvalidSnapshot") != std::string_view::npos)
    return RefusalKind::settings;
  return RefusalKind::capacity;
}

Answer<net::XmlElement> read_answer(int status, std::string_view body) {
  auto root = net::parse_xml(body);
  if (!root)
    return std::unexpected(
        ApiError{status, "", fmt::format("status {}, and the answer is not XML", status)});
  if (const net::XmlElement* error = find_error(*root); error && status >= 400)
    return std::unexpected(ApiError{status, std::string(error->child_text("Code")),
                                    std::string(error->child_text("Message"))});
  if (status >= 300)
    return std::unexpected(ApiError{status, "", fmt::format("status {}", status)});
  return std::move(*root);
}

std::string host_of(const std::string& service, const std::string& region) {
  return fmt::format("{}.{}.amazonaws.com{}", service, region,
                     region.starts_with("cn-") ? ".cn" : "");
}

Wire::Wire(Options options)
    : options_(std::move(options)),
      chain_({.profile = options_.profile,
              .assume_role = [this](const Credentials& with,
                                    const Role& role) { return assume(with, role); },
              .variable = options_.variable}) {}

Answer<std::pair<int, std::string>> Wire::send(const std::string& service,
                                               const std::string& region,
                                               const net::Headers& headers,
                                               const std::string& body,
                                               const Credentials& credentials) {
  const auto no_answer = [](const Error& error) {
    return std::unexpected(ApiError{0, "", error.message});
  };
  const auto url = net::parse_url(options_.endpoint.empty() ? "https://" + host_of(service, region)
                                                            : options_.endpoint);
  if (!url)
    return no_answer(url.error());
  net::BlockingClient http({.endpoint = url->endpoint, .tls = {}});
  net::BlockingClient::Call call;
  call.method = net::Method::post;
  call.target = "/";
  call.headers = headers;
  call.body = body;
  call.timeout = request_timeout;
  call.body_bytes_max = net::xml_bytes_max;
  s3::Access access;
  access.access_key = credentials.access_key;
  access.secret_key = credentials.secret_key;
  access.session_token = credentials.session_token;
  access.region = region;
  access.service = service;
  s3::sign(call.headers,
           {.method = net::Method::post,
            .path = "/",
            .query = "",
            .host = url->endpoint.host_header(),
            .body = call.body},
           access, system_clock().wall());
  auto response = http.request(call);
  if (!response)
    return no_answer(response.error());
  return std::pair(response->status, std::move(response->body));
}

Answer<net::XmlElement> Wire::query(const std::string& service,
                                    const std::string& region,
                                    const std::string& action,
                                    Parameters parameters) {
  Parameters all{{"Action", action}, {"Version", service == "sts" ? "2011-06-15" : "2016-11-15"}};
  all.insert(all.end(), parameters.begin(), parameters.end());
  Backoff backoff(milliseconds(300), seconds(5));
  Rng rng(random_u64());
  for (int attempt = 1;; ++attempt) {
    if (service == "ec2")
      pause(pace_.take(region, action));
    const auto credentials = chain_.get();
    if (!credentials)
      return std::unexpected(
          ApiError{401, "NoCredentials",
                   credentials.error().message +
                       (credentials.error().hint.empty() ? "" : "; " + credentials.error().hint)});
    const auto sent = send(service, region,
                           {{"Content-Type", "application/x-www-form-urlencoded; charset=utf-8"}},
                           query_text(all), *credentials);
    auto answer = sent ? read_answer(sent->first, sent->second)
                       : Answer<net::XmlElement>(std::unexpected(sent.error()));
    // A page of a proxy is no answer: an empty list would end every machine.
    if (answer && answer->name != action + "Response")
      answer = std::unexpected(
          ApiError{0, "", fmt::format("the answer to {} is <{}>", action, answer->name)});
    if (answer || !only_reads(action) || !may_pass(answer.error()) || attempt == read_tries)
      return answer;
    pause(backoff.next(rng));
  }
}

Answer<Json> Wire::json(const std::string& service,
                        const std::string& region,
                        const std::string& target,
                        const Json& body) {
  const auto credentials = chain_.get();
  if (!credentials)
    return std::unexpected(ApiError{401, "NoCredentials", credentials.error().message});
  auto sent = send(service, region,
                   {{"Content-Type", "application/x-amz-json-1.1"}, {"x-amz-target", target}},
                   body.dump(), *credentials);
  if (!sent)
    return std::unexpected(sent.error());
  const auto answer = parse_json(sent->second);
  if (!answer)
    return std::unexpected(ApiError{
        sent->first, "", fmt::format("status {}, and the answer is not JSON", sent->first)});
  if (sent->first >= 300) {
    const std::string_view type = (*answer)["__type"].str_or("");
    const std::string_view message = (*answer)["Message"].str_or("");
    return std::unexpected(ApiError{sent->first, std::string(type.substr(type.rfind('#') + 1)),
                                    std::string((*answer)["message"].str_or(message))});
  }
  return *answer;
}

Answer<void> Wire::pages(const std::string& region,
                         const std::string& action,
                         Parameters parameters,
                         const std::function<void(const net::XmlElement&)>& each) {
  std::string next;
  for (int page = 0; page < answer_pages_max; ++page) {
    Parameters asked = parameters;
    if (!next.empty())
      asked.emplace_back("NextToken", next);
    const auto root = ec2(region, action, std::move(asked));
    if (!root)
      return std::unexpected(root.error());
    each(*root);
    next = root->child_text("nextToken");
    if (next.empty())
      return {};
  }
  return std::unexpected(ApiError{0, "", fmt::format("{}: the list does not end", action)});
}

Result<Credentials> Wire::assume(const Credentials& with, const Role& role) {
  const bool web = !role.web_identity_token.empty();
  Parameters form_of{{"Action", web ? "AssumeRoleWithWebIdentity" : "AssumeRole"},
                     {"Version", "2011-06-15"},
                     {"RoleArn", role.arn},
                     {"RoleSessionName", role.session.empty() ? "billow" : role.session},
                     {"DurationSeconds", std::to_string(role.duration_s)}};
  if (!role.external_id.empty())
    form_of.emplace_back("ExternalId", role.external_id);
  if (web)
    form_of.emplace_back("WebIdentityToken", role.web_identity_token);
  std::string region = chain_.region();
  if (region.empty())
    region = "us-east-1";
  const auto sent =
      send("sts", region, {{"Content-Type", "application/x-www-form-urlencoded; charset=utf-8"}},
           query_text(form_of), with);
  const auto root = sent ? read_answer(sent->first, sent->second)
                         : Answer<net::XmlElement>(std::unexpected(sent.error()));
  if (!root)
    return pass(error_of(root.error()), fmt::format("role {}", role.arn));
  const net::XmlElement* result =
      root->child(web ? "AssumeRoleWithWebIdentityResult" : "AssumeRoleResult");
  const net::XmlElement* given = result ? result->child("Credentials") : nullptr;
  if (!given)
    return fail(Code::invalid, fmt::format("role {}: the answer has no credentials", role.arn));
  return parse_credentials(
      Json::object({{"AccessKeyId", std::string(given->child_text("AccessKeyId"))},
                    {"SecretAccessKey", std::string(given->child_text("SecretAccessKey"))},
                    {"SessionToken", std::string(given->child_text("SessionToken"))},
                    {"Expiration", std::string(given->child_text("Expiration"))}})
          .dump(),
      "role " + role.arn);
}

}  // namespace billow::pool::ec2
