#include "client/endpoints/operation.h"

#include <fmt/format.h>

#include "base/text.h"
#include "client/frame/values.h"

namespace billow::client {
namespace {

constexpr OptionSpec options[] = {
    {"health-period", 0, "TIME", "time between two health checks (default 5s)"},
    {"health-timeout", 0, "TIME", "time limit of a health check (default 5s)"},
    {"health-threshold", 0, "N",
     "failed checks in a row until a replica gets no requests, or, of --live, is replaced (default "
     "3)"},
    {"live", 0, "PATH",
     "path that answers 2xx as long as a replica works; one that fails it is replaced (default: "
     "one that fails --health for 30s)"},
    {"start-probe", 0, "PATH",
     "path that answers 2xx when a replica has started; it is asked before --health"},
    {"strategy", 0, "HOW",
     "how a new revision replaces the old one: rolling: beside it; recreate: after the old one has "
     "stopped; auto (default): rolling, or recreate if there is no room for both",
     false, Completes::choice, "auto,rolling,recreate"},
    {"drain", 0, "TIME",
     "how long a replica of an old revision may finish its requests (default 0s: no limit)"},
    {"min-at", 0, "WHEN=N",
     "replicas that are awake at certain times (UTC), e.g. \"Mon-Fri 08:00-18:00=2\" (repeatable; "
     "none removes them)",
     true},
    {"max-spend", 0, "USD/h",
     "limit of what the awake replicas cost per hour together, e.g. 5/h (0: no limit)"},
    {"target-tokens", 0, "N",
     "tokens in flight per replica, by the mean of the answers' usage (0: only requests count)"},
    {"prometheus", 0, "URL", "Prometheus server that --query is sent to"},
    {"query", 0, "PROMQL",
     "query whose value decides how many replicas are awake at least (none removes it)"},
    {"query-target", 0, "VALUE", "value of --query that one replica is enough for (default 1)"},
    {"predict", 0, "WHETHER",
     "on: wake replicas before the load of earlier days returns (default off)", false,
     Completes::choice, "on,off"},
};

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

// "5/h", "$5/h", "0".
Result<NanoUsd> read_spend(std::string_view text) {
  std::string_view amount = text;
  if (amount.ends_with("/h"))
    amount.remove_suffix(2);
  const auto value = parse_usd(amount);
  if (!value || (amount.size() == text.size() && value->value != 0))
    return fail(Code::invalid, fmt::format("--max-spend {} is not valid", text),
                "write --max-spend 5/h, or 0 for no limit");
  return *value;
}

Status read_scaling(const Parsed& parsed, EndpointScaling& s) {
  if (parsed.has("min-at")) {
    s.min_at = parsed.all("min-at");
    if (s.min_at == std::vector<std::string>{"none"})
      s.min_at.clear();
  }
  if (parsed.has("max-spend"))
    s.spend_per_hour = BILLOW_TRY(read_spend(parsed.get("max-spend")));
  BILLOW_TRY_VOID(read_count(parsed, "target-tokens", s.target_tokens));
  if (parsed.has("prometheus"))
    s.query.url = parsed.get("prometheus");
  if (parsed.has("query"))
    s.query.query = parsed.get("query");
  if (parsed.has("query-target")) {
    const auto value = parse_double(parsed.get("query-target"));
    if (!value)
      return pass(Error(value.error()).in("--query-target"));
    s.query.target = *value;
  }
  if (s.query.query == "none")
    s.query = {};
  if (parsed.has("predict")) {
    const std::string on = parsed.get("predict");
    if (on != "on" && on != "off")
      return fail(Code::invalid, "--predict must be on or off");
    s.predict = on == "on";
  }
  return {};
}

}  // namespace

std::span<const OptionSpec> operation_options() {
  return options;
}

Status read_operation(const Parsed& parsed, EndpointPolicy& p) {
  BILLOW_TRY_VOID(read_time(parsed, "health-period", p.probes.period));
  BILLOW_TRY_VOID(read_time(parsed, "health-timeout", p.probes.timeout));
  BILLOW_TRY_VOID(read_count(parsed, "health-threshold", p.probes.threshold));
  if (parsed.has("live"))
    p.probes.live = parsed.get("live");
  if (parsed.has("start-probe"))
    p.probes.start = parsed.get("start-probe");
  if (parsed.has("strategy")) {
    const auto strategy = enum_value<RolloutStrategy>(parsed.get("strategy"));
    if (!strategy)
      return fail(Code::invalid, "--strategy must be auto, rolling or recreate");
    p.rollout.strategy = *strategy;
  }
  BILLOW_TRY_VOID(read_time(parsed, "drain", p.rollout.drain));
  return read_scaling(parsed, p.scaling);
}

std::string typed(Duration time) {
  constexpr std::pair<std::int64_t, const char*> units[] = {{hours(24).ns, "d"},
                                                            {hours(1).ns, "h"},
                                                            {minutes(1).ns, "m"},
                                                            {seconds(1).ns, "s"},
                                                            {milliseconds(1).ns, "ms"}};
  if (time.ns == 0)
    return "0s";
  for (const auto& [unit, name] : units)
    if (time.ns % unit == 0)
      return fmt::format("{}{}", time.ns / unit, name);
  return format_duration(time);
}

void each_operation(const EndpointPolicy& p,
                    const std::function<void(const char*, std::string)>& keep) {
  const EndpointPolicy fresh;
  const auto differs = [&](const char* option, bool differs, std::string value) {
    if (differs)
      keep(option, std::move(value));
  };
  const EndpointProbes& probes = p.probes;
  differs("health-period", probes.period != fresh.probes.period, typed(probes.period));
  differs("health-timeout", probes.timeout != fresh.probes.timeout, typed(probes.timeout));
  differs("health-threshold", probes.threshold != fresh.probes.threshold,
          std::to_string(probes.threshold));
  differs("live", !probes.live.empty(), probes.live);
  differs("start-probe", !probes.start.empty(), probes.start);
  differs("strategy", p.rollout.strategy != fresh.rollout.strategy,
          std::string(enum_name(p.rollout.strategy)));
  differs("drain", p.rollout.drain.ns != 0, typed(p.rollout.drain));
  const EndpointScaling& s = p.scaling;
  differs("min-at", !s.min_at.empty(), fmt::format("\"{}\"", join(s.min_at, "\", --min-at \"")));
  differs("max-spend", s.spend_per_hour.value != 0, format_usd(s.spend_per_hour) + "/h");
  differs("target-tokens", s.target_tokens != 0, std::to_string(s.target_tokens));
  differs("prometheus", !s.query.url.empty(), s.query.url);
  differs("query", s.query.any(), fmt::format("'{}'", s.query.query));
  differs("query-target", s.query.target != fresh.scaling.query.target,
          fmt::format("{:g}", s.query.target));
  differs("predict", s.predict, "on");
}

}  // namespace billow::client
