#include "client/endpoints/operation.h"

#include <fmt/format.h>

#include "base/text.h"
#include "client/frame/values.h"
#include "core/model/objective.h"

namespace billow::client {
namespace {

constexpr OptionSpec operation_table[] = {
    {"health", 0, "PATH",
     "path that answers 2xx when a replica is ready (default none: any answer counts)"},
    {"start-timeout", 0, "TIME",
     "time limit for a started replica to become healthy (default 10m)"},
    {"health-period", 0, "TIME", "time between two health checks (default 5s)"},
    {"health-timeout", 0, "TIME", "time limit of a health check (default 5s)"},
    {"health-threshold", 0, "N",
     "consecutive failures after which a replica gets no more requests (--live: is replaced; "
     "default 3)"},
    {"live", 0, "PATH",
     "path that answers 2xx as long as a replica works; if it fails, the replica is replaced "
     "(default none: replaced after failing --health for 30s)"},
    {"start-probe", 0, "PATH",
     "path that answers 2xx when a replica has started; it is asked before --health (default "
     "none)"},
    {"strategy", 0, "HOW",
     "when a new revision starts: rolling: beside the old one; recreate: after the old one has "
     "stopped; auto (default): rolling, or recreate if both do not fit",
     false, Completes::choice, "auto,rolling,recreate"},
    {"drain", 0, "TIME",
     "how long a replica of an old revision may finish its requests (default none: no limit)"},
};

constexpr OptionSpec scaling_table[] = {
    {"min", 0, "N", "replicas that are always awake (default 0)"},
    {"max", 0, "N", "maximum number of replicas (default 1)"},
    {"concurrency", 0, "N", "concurrent requests per replica (default 8; 0: no limit)"},
    {"idle", 0, "TIME", "time without requests until the last replica is suspended (default 2m)"},
    {"keep", 0, "suspended=TIME",
     "how long a suspended replica stays in memory before it is stopped (default suspended=1h; "
     "suspended=0: stop instead of suspending)"},
    {"slo", 0, "TIME",
     "target time to the first byte; a request is held for at most two thirds of it (default "
     "750ms)"},
    {"queue", 0, "N", "maximum number of held requests; further ones get 429 (default 1000)"},
    {"balance", 0, "HOW",
     "auto (default): the least busy of the replicas that the load needs; spread: of all that are "
     "awake; pack: the fullest one, so that others can sleep; least-latency: the one that answers "
     "soonest; prefix: the one that will have read this prompt first, judged by its queue and its "
     "prompt cache",
     false, Completes::choice, "auto,spread,pack,least-latency,prefix"},
    {"min-at", 0, "WHEN=N",
     "replicas that are awake at certain times (UTC), e.g. \"Mon-Fri 08:00-18:00=2\" (repeatable; "
     "none removes them)",
     true},
    {"max-spend", 0, "USD/h",
     "highest cost per hour of all awake replicas together, e.g. 5/h (default none)"},
    {"target-tokens", 0, "N",
     "tokens in flight per replica, estimated from the usage in earlier answers (default none: "
     "only requests count)"},
    {"prometheus", 0, "URL", "Prometheus server that --query is sent to"},
    {"query", 0, "PROMQL",
     "query whose value decides how many replicas are awake at least (none removes it)"},
    {"query-target", 0, "VALUE", "value of --query that one replica is enough for (default 1)"},
    {"predict", 0, "WHETHER",
     "on: wake replicas before the load of earlier days returns (default off)", false,
     Completes::choice, "on,off"},
};

constexpr std::string_view none_word = "none";

Status read_time(const Parsed& parsed, const char* name, Duration& into) {
  if (!parsed.has(name))
    return {};
  const auto value = duration_with_unit(parsed.get(name));
  if (!value)
    return pass(Error(value.error()).in(std::string("--") + name));
  into = *value;
  return {};
}

template <class N>
Status read_count(const Parsed& parsed, const char* name, N& into) {
  if (!parsed.has(name))
    return {};
  const auto value = parse_int(parsed.get(name), 0, 1'000'000'000);
  if (!value)
    return pass(Error(value.error()).in(std::string("--") + name));
  into = static_cast<N>(*value);
  return {};
}

// Zero means that there is no limit, or no target.
template <class N>
Status read_count_or_none(const Parsed& parsed, const char* name, N& into) {
  if (parsed.get(name) != none_word)
    return read_count(parsed, name, into);
  into = 0;
  return {};
}

// "5/h", "$5/h", "0", "none".
Result<NanoUsd> read_spend(std::string_view text) {
  if (text == none_word)
    return NanoUsd{};
  std::string_view amount = text;
  if (amount.ends_with("/h"))
    amount.remove_suffix(2);
  const auto value = parse_usd(amount);
  if (!value || (amount.size() == text.size() && value->value != 0))
    return fail(Code::invalid, fmt::format("--max-spend {} is not valid", text),
                "write --max-spend 5/h, or none for no limit");
  return *value;
}

Status read_query(const Parsed& parsed, EndpointQuery& query) {
  if (parsed.has("prometheus"))
    query.url = parsed.get("prometheus");
  if (parsed.has("query"))
    query.query = parsed.get("query");
  if (parsed.has("query-target")) {
    const auto value = parse_double(parsed.get("query-target"));
    if (!value)
      return pass(Error(value.error()).in("--query-target"));
    query.target = *value;
  }
  if (query.query == none_word || query.url == none_word)
    query = {};
  return {};
}

// How long a request and an idle replica wait.
Status read_waits(const Parsed& parsed, EndpointPolicy& p) {
  BILLOW_TRY_VOID(read_time(parsed, "idle", p.idle));
  if (parsed.has("keep")) {
    const std::string keep = parsed.get("keep");
    if (!keep.starts_with("suspended="))
      return fail(Code::invalid, fmt::format("--keep {} is not valid", keep),
                  "write --keep suspended=1h");
    const auto value = duration_with_unit(std::string_view(keep).substr(10));
    if (!value)
      return pass(Error(value.error()).in("--keep"));
    p.keep_suspended = *value;
  }
  if (parsed.has("slo")) {
    Duration slo;
    BILLOW_TRY_VOID(read_time(parsed, "slo", slo));
    p.wait_target = wait_target_of(slo);
  }
  return {};
}

}  // namespace

std::string text_or_none(const Parsed& parsed, const char* name) {
  std::string text = parsed.get(name);
  return text == none_word ? std::string() : text;
}

std::vector<std::string> list_or_none(const Parsed& parsed, const char* name) {
  std::vector<std::string> all = parsed.all(name);
  return all == std::vector<std::string>{std::string(none_word)} ? std::vector<std::string>() : all;
}

std::span<const OptionSpec> operation_options() {
  return operation_table;
}

Status read_operation(const Parsed& parsed, EndpointPolicy& p) {
  BILLOW_TRY_VOID(read_time(parsed, "start-timeout", p.start_timeout));
  BILLOW_TRY_VOID(read_time(parsed, "health-period", p.probes.period));
  BILLOW_TRY_VOID(read_time(parsed, "health-timeout", p.probes.timeout));
  BILLOW_TRY_VOID(read_count(parsed, "health-threshold", p.probes.threshold));
  if (parsed.has("health"))
    p.health = text_or_none(parsed, "health");
  if (parsed.has("live"))
    p.probes.live = text_or_none(parsed, "live");
  if (parsed.has("start-probe"))
    p.probes.start = text_or_none(parsed, "start-probe");
  if (parsed.has("strategy")) {
    const auto strategy = enum_value<RolloutStrategy>(parsed.get("strategy"));
    if (!strategy)
      return fail(Code::invalid, "--strategy must be auto, rolling or recreate");
    p.rollout.strategy = *strategy;
  }
  if (parsed.get("drain") != none_word)
    return read_time(parsed, "drain", p.rollout.drain);
  p.rollout.drain = {};
  return {};
}

std::span<const OptionSpec> scaling_options() {
  return scaling_table;
}

Status read_scaling(const Parsed& parsed, EndpointPolicy& p) {
  BILLOW_TRY_VOID(read_count(parsed, "min", p.min));
  BILLOW_TRY_VOID(read_count(parsed, "max", p.max));
  BILLOW_TRY_VOID(read_count_or_none(parsed, "concurrency", p.concurrency));
  BILLOW_TRY_VOID(read_count(parsed, "queue", p.queue_max));
  BILLOW_TRY_VOID(read_waits(parsed, p));
  if (parsed.has("balance")) {
    const auto balance = enum_value<EndpointBalance>(parsed.get("balance"));
    if (!balance)
      return fail(Code::invalid, "--balance must be auto, spread, pack, least-latency or prefix");
    p.balance = *balance;
  }
  EndpointScaling& s = p.scaling;
  if (parsed.has("min-at"))
    s.min_at = list_or_none(parsed, "min-at");
  if (parsed.has("max-spend"))
    s.spend_per_hour = BILLOW_TRY(read_spend(parsed.get("max-spend")));
  BILLOW_TRY_VOID(read_count_or_none(parsed, "target-tokens", s.target_tokens));
  BILLOW_TRY_VOID(read_query(parsed, s.query));
  if (parsed.has("predict")) {
    const std::string on = parsed.get("predict");
    if (on != "on" && on != "off")
      return fail(Code::invalid, "--predict must be on or off");
    s.predict = on == "on";
  }
  return {};
}

ScaleChange given_scaling(const Parsed& parsed, const EndpointPolicy& p) {
  ScaleChange out;
  const auto set = [&](const char* option, const auto& from, auto& to) {
    if (parsed.has(option))
      to = from;
  };
  set("min", p.min, out.min);
  set("max", p.max, out.max);
  set("concurrency", p.concurrency, out.concurrency);
  set("queue", p.queue_max, out.queue_max);
  set("idle", p.idle, out.idle);
  set("keep", p.keep_suspended, out.keep_suspended);
  set("slo", p.wait_target, out.wait_target);
  set("balance", p.balance, out.balance);
  set("min-at", p.scaling.min_at, out.min_at);
  set("max-spend", p.scaling.spend_per_hour, out.spend_per_hour);
  set("target-tokens", p.scaling.target_tokens, out.target_tokens);
  for (const char* option : {"prometheus", "query", "query-target"})
    set(option, p.scaling.query, out.query);
  set("predict", p.scaling.predict, out.predict);
  return out;
}

}  // namespace billow::client
