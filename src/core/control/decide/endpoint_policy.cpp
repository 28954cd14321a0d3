#include "core/control/decide/endpoint_policy.h"

#include <fmt/format.h>

#include <cmath>

#include "base/limits.h"
#include "base/text.h"
#include "core/model/timed_min.h"

namespace billow::control {
namespace {

std::unexpected<Error> wrong_setting(std::string message, std::string hint = {}) {
  return fail(Code::invalid, std::move(message), std::move(hint));
}

Status check_probe_path(const char* option, const std::string& path) {
  if (path.empty())
    return {};
  if (path.front() != '/' || path.size() > 1024)
    return wrong_setting(fmt::format("--{} must be a path, such as /healthz", option));
  for (char c : path)
    if (c <= 0x20 || c >= 0x7f)
      return wrong_setting(
          fmt::format("--{} contains a character that must be percent-encoded", option));
  return {};
}

Status check_web_address(const char* option, const std::string& url) {
  if (!url.starts_with("http://") && !url.starts_with("https://"))
    return wrong_setting(fmt::format("--{} must be an http:// or https:// address", option));
  return {};
}

Status check_numbers(const EndpointPolicy& p) {
  if (p.max < 1)
    return wrong_setting(
        "--max must be at least 1",
        "with --min 0 an endpoint without requests costs nothing; `billow delete` removes it");
  if (p.max > limits::endpoint_replicas_max)
    return wrong_setting(fmt::format("--max must be at most {}", limits::endpoint_replicas_max));
  if (p.min > p.max)
    return wrong_setting(
        fmt::format("--min {} exceeds --max {}", p.min, p.max),
        fmt::format("use --min {} --max {}, or --min {} --max {}", p.min, p.min, p.max, p.max));
  if (p.base_on_demand > p.max)
    return wrong_setting(
        fmt::format("--base-on-demand {} exceeds --max {}", p.base_on_demand, p.max),
        fmt::format("use --max {} or more", p.base_on_demand));
  if (p.concurrency > 100'000)
    return wrong_setting("--concurrency must be at most 100000");
  if (p.timeout.ns <= 0 || p.timeout > hours(24))
    return wrong_setting("--timeout must be between 1 ms and 24 h");
  if (p.idle.ns < 0 || p.keep_suspended.ns < 0 || p.wait_target.ns <= 0 || p.start_timeout.ns <= 0)
    return wrong_setting("times of an endpoint must not be negative");
  return {};
}

Status check_service(const EndpointPolicy& p) {
  if (p.queue_max < 1 || p.queue_max > 100'000)
    return wrong_setting("--queue must be between 1 and 100000");
  if (p.cors.size() > 32)
    return wrong_setting("more than 32 origins are given");
  for (const auto& origin : p.cors)
    if (origin != "*" && !origin.starts_with("http://") && !origin.starts_with("https://"))
      return wrong_setting(fmt::format("\"{}\" is not an origin", origin),
                           "write https://example.org, or * for all");
  if (!p.webhook.empty())
    BILLOW_TRY_VOID(check_web_address("webhook", p.webhook));
  if (!p.sticky.empty() && p.sticky != "client" && p.sticky != "cookie" &&
      !p.sticky.starts_with("header:") && !p.sticky.starts_with("cookie:"))
    return wrong_setting("--sticky must be client, cookie, header:NAME or cookie:NAME");
  if (p.sample > 1000)
    return wrong_setting("--sample must be at most 100%");
  if (p.prices.request.value < 0 || p.prices.million_tokens_in.value < 0 ||
      p.prices.million_tokens_out.value < 0)
    return wrong_setting("--price must not be negative");
  return {};
}

Status check_probes(const EndpointPolicy& p) {
  BILLOW_TRY_VOID(check_probe_path("health", p.health));
  BILLOW_TRY_VOID(check_probe_path("live", p.probes.live));
  BILLOW_TRY_VOID(check_probe_path("start-probe", p.probes.start));
  if (p.probes.period < milliseconds(100) || p.probes.period > hours(1))
    return wrong_setting("--health-period must be between 100ms and 1h");
  if (p.probes.timeout < milliseconds(10) || p.probes.timeout > minutes(5))
    return wrong_setting("--health-timeout must be between 10ms and 5m");
  if (p.probes.threshold < 1 || p.probes.threshold > 100)
    return wrong_setting("--health-threshold must be between 1 and 100");
  if (p.rollout.drain.ns < 0 || p.rollout.drain > hours(24))
    return wrong_setting("--drain must be between 0 and 24h",
                         "0 lets requests finish however long they take");
  return {};
}

Status check_query(const EndpointQuery& q) {
  if (q.query.empty() != q.url.empty())
    return wrong_setting(
        q.query.empty() ? "--prometheus needs a --query" : "--query needs --prometheus",
        "for example: --prometheus http://metrics.example.org:9090 --query "
        "'sum(queue_length)' --query-target 10");
  if (!q.any())
    return {};
  BILLOW_TRY_VOID(check_web_address("prometheus", q.url));
  if (q.url.find('@') != q.url.npos || q.url.find('?') != q.url.npos || q.url.size() > 1024)
    return wrong_setting("--prometheus must not contain credentials or a query",
                         "write http://HOST:PORT, and PromQL as --query");
  if (q.query.size() > 4096)
    return wrong_setting("--query must have at most 4096 characters");
  if (!std::isfinite(q.target) || q.target <= 0)
    return wrong_setting("--query-target must be above 0",
                         "the endpoint keeps one replica awake per this amount");
  return {};
}

Status check_scaling(const EndpointPolicy& p) {
  const EndpointScaling& s = p.scaling;
  if (s.min_at.size() > 32)
    return wrong_setting("more than 32 --min-at are given");
  for (const std::string& text : s.min_at) {
    const TimedMin at = BILLOW_TRY(parse_timed_min(text));
    if (at.min > p.max)
      return wrong_setting(fmt::format("--min-at \"{}\" exceeds --max {}", text, p.max),
                           fmt::format("raise it: --max {}", at.min));
  }
  if (s.spend_per_hour.value < 0)
    return wrong_setting("--max-spend must not be negative", "0 removes the limit");
  if (s.target_tokens > 1'000'000'000)
    return wrong_setting("--target-tokens must be at most 1000000000");
  return check_query(s.query);
}

}  // namespace

Status tidy_origins(std::vector<std::string>& origins) {
  for (std::string& origin : origins) {
    if (origin == "*")
      continue;
    const auto host = origin.find("://");
    if (host == std::string::npos)
      continue;  // check_policy() refuses it
    if (origin.ends_with('/'))
      origin.pop_back();
    if (const auto path = origin.find_first_of("/?#", host + 3); path != std::string::npos)
      return wrong_setting(fmt::format("--cors {}: an origin has no path", origin),
                           "write --cors " + origin.substr(0, path));
  }
  return {};
}

Status check_policy(const EndpointPolicy& p) {
  BILLOW_TRY_VOID(check_numbers(p));
  BILLOW_TRY_VOID(check_service(p));
  BILLOW_TRY_VOID(check_probes(p));
  return check_scaling(p);
}

}  // namespace billow::control
