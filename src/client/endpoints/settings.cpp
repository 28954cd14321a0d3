#include "client/endpoints/settings.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "client/endpoints/endpoints.h"
#include "client/request/job_request.h"
#include "core/model/objective.h"

namespace billow::client {

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

std::string Setting::shown() const {
  return values.empty() ? "none" : flag ? "yes" : join(values, ", ");
}

std::string Setting::options(std::string_view between) const {
  if (flag)
    return "--" + option;
  std::vector<std::string> out;
  for (const std::string& value : values)
    out.push_back(fmt::format("--{} {}", option, shell_quote(value)));
  return values.empty() ? fmt::format("--{} none", option) : join(out, between);
}

namespace {

// Collects the settings of a policy beside those of a fresh deployment.
struct Collected {
  std::vector<Setting> out;

  template <class T>
  void operator()(const char* option, const T& value, const T& fresh, std::string text) {
    out.push_back({option, {std::move(text)}, value == fresh, false});
  }
  // Empty: there is none.
  void text(const char* option, const std::string& value) {
    Setting made{option, {}, value.empty(), false};
    if (!value.empty())
      made.values.push_back(value);
    out.push_back(std::move(made));
  }
  void list(const char* option, std::vector<std::string> values) {
    const bool usual = values.empty();
    out.push_back({option, std::move(values), usual, false});
  }
  void flag(const char* option, bool value) {
    out.push_back({option, value ? std::vector<std::string>{"yes"} : std::vector<std::string>{},
                   !value, true});
  }
};

void add_operation(Collected& add, const EndpointPolicy& p, const EndpointPolicy& fresh) {
  const EndpointProbes &probes = p.probes, &usual = fresh.probes;
  add("health-period", probes.period, usual.period, typed(probes.period));
  add("health-timeout", probes.timeout, usual.timeout, typed(probes.timeout));
  add("health-threshold", probes.threshold, usual.threshold, std::to_string(probes.threshold));
  add.text("live", probes.live);
  add.text("start-probe", probes.start);
  add("strategy", p.rollout.strategy, fresh.rollout.strategy,
      std::string(enum_name(p.rollout.strategy)));
  add.text("drain", p.rollout.drain.ns == 0 ? "" : typed(p.rollout.drain));
  const EndpointScaling& s = p.scaling;
  add.list("min-at", s.min_at);
  add.text("max-spend",
           s.spend_per_hour.value == 0 ? "" : format_usd(s.spend_per_hour).substr(1) + "/h");
  add.text("target-tokens", s.target_tokens == 0 ? "" : std::to_string(s.target_tokens));
  add.text("prometheus", s.query.url);
  add.text("query", s.query.query);
  add("query-target", s.query.target, fresh.scaling.query.target,
      fmt::format("{:g}", s.query.target));
  add("predict", s.predict, false, s.predict ? "on" : "off");
}

}  // namespace

std::vector<Setting> settings_of(const EndpointPolicy& p) {
  EndpointPolicy fresh;
  fresh.access = EndpointAccess::key;
  Collected add;
  add("access", p.access, fresh.access, std::string(enum_name(p.access)));
  add("min", p.min, fresh.min, std::to_string(p.min));
  add("max", p.max, fresh.max, std::to_string(p.max));
  add.flag("spot", p.spot);
  add.text("regions", join(p.regions, ","));
  add("concurrency", p.concurrency, fresh.concurrency, std::to_string(p.concurrency));
  add("timeout", p.timeout, fresh.timeout, typed(p.timeout));
  add("idle", p.idle, fresh.idle, typed(p.idle));
  add("keep", p.keep_suspended, fresh.keep_suspended, "suspended=" + typed(p.keep_suspended));
  add("slo", p.wait_target, fresh.wait_target, typed(objective_of(p.wait_target)));
  add("start-timeout", p.start_timeout, fresh.start_timeout, typed(p.start_timeout));
  add("base-on-demand", p.base_on_demand, fresh.base_on_demand, std::to_string(p.base_on_demand));
  add.text("health", p.health);
  add("queue", p.queue_max, fresh.queue_max, std::to_string(p.queue_max));
  add.list("cors", p.cors);
  add.text("webhook", p.webhook);
  add("protocol", p.protocol, fresh.protocol, std::string(enum_name(p.protocol)));
  add("balance", p.balance, fresh.balance, std::string(enum_name(p.balance)));
  add.text("sticky", p.sticky);
  add.text("sample", p.sample == 0 ? "" : fmt::format("{:g}%", p.sample / 10.0));
  add.list("price", price_texts(p.prices));
  add_operation(add, p, fresh);
  return std::move(add.out);
}

std::string settings_text(const EndpointPolicy& policy, std::span<const std::string_view> without) {
  std::vector<std::string> said;
  for (const Setting& setting : settings_of(policy))
    if (!setting.usual && std::ranges::find(without, setting.option) == without.end())
      said.push_back(setting.options());
  return join(said, ", ");
}

// ---- the program

namespace {

// Options that say the same as another one, or nothing about a replica.
constexpr std::string_view left_out[] = {"name", "constraint", "cloud", "by", "pack", "spot"};

const Json& member_at(const Json& spec, std::string_view field) {
  const auto dot = field.find('.');
  const std::string_view schema = field.substr(0, dot), member = field.substr(dot + 1);
  return schema == "Resources"      ? spec.at("resources", member)
         : schema == "Share"        ? spec["resources"].at("share", member)
         : schema == "PlaceWish"    ? spec.at("place", member)
         : schema == "Surroundings" ? spec.at("surroundings", member)
                                    : spec[member];
}

std::string typed_number(std::string_view field, const Json& value) {
  const std::int64_t number = value.int_or(0);
  if (field.ends_with("_ns"))
    return typed(nanoseconds(number));
  if (field.ends_with("_mib"))
    return number % 1024 == 0 ? fmt::format("{}G", number / 1024) : fmt::format("{}M", number);
  if (field.ends_with("_milli"))
    return fmt::format("{:g}", static_cast<double>(number) / 1000);
  if (field.ends_with("_nano_usd_per_gpu_h"))
    return format_usd(NanoUsd{number}).substr(1);
  return value.dump();
}

// One of the volumes, secrets or inputs.
std::string typed_object(const Json& one) {
  if (const auto url = one["url"].str_or(""); !url.empty())
    return fmt::format("{}:{}", url, one["path"].str_or(""));
  const std::string name(one["name"].str_or(""));
  if (const auto file = one["file"].str_or(""); !file.empty())
    return fmt::format("{}:{}", name, file);
  if (const auto variable = one["variable"].str_or(""); !variable.empty())
    return variable == name ? name : fmt::format("{}={}", name, variable);
  return fmt::format("{}:{}{}", name, one["path"].str_or(""),
                     one["read_only"].bool_or(false) ? ":ro" : "");
}

std::vector<std::string> typed_values(const OptionField& option, const Json& value) {
  if (value.is_bool())
    return value.bool_or(false) ? std::vector<std::string>{"yes"} : std::vector<std::string>{};
  if (value.is_string())
    return {std::string(value.str_or(""))};
  if (value.is_number())
    return {typed_number(option.field, value)};
  std::vector<std::string> out;
  for (const Json& item : value.items())
    out.push_back(item.is_string() ? std::string(item.str_or("")) : typed_object(item));
  for (const auto& [key, item] : value.members())
    out.push_back(fmt::format("{}={}", key, item.str_or("")));
  if (!option.shown.repeats && out.size() > 1)
    out = {join(out, ",")};
  return out;
}

// A part of one GPU, or a number of GPUs.
std::string gpus_of(const Json& resources) {
  const std::int64_t gpus = resources["gpus"].int_or(0),
                     milli = resources.at("share", "milli").int_or(0);
  return gpus == 1 && milli > 0 && milli < 1000
             ? fmt::format("{:g}", static_cast<double>(milli) / 1000)
             : std::to_string(gpus);
}

}  // namespace

std::vector<Setting> program_settings(const Json& spec) {
  std::vector<Setting> out;
  for (const OptionField& option : option_fields()) {
    const std::string_view name = option.shown.name;
    const Json& value = member_at(spec, option.field);
    if (std::ranges::find(left_out, name) != std::end(left_out) || value.is_null())
      continue;
    Setting made{
        name == "region" ? "regions" : std::string(name), {}, false, option.shown.value == nullptr};
    if (name == "gpus")
      made.values = {gpus_of(spec["resources"])};
    else
      made.values = typed_values(option, value);
    if (made.values != std::vector<std::string>{"0"} && !made.values.empty())
      out.push_back(std::move(made));
  }
  return out;
}

// ---- changes

std::string SettingChange::text() const {
  return fmt::format("{}: {} → {}{}", setting, before, after,
                     keep.empty() ? "" : fmt::format(" (give {} to keep it)", keep));
}

std::vector<SettingChange> changes_between(const std::vector<Setting>& before,
                                           const std::vector<Setting>& after,
                                           const std::function<bool(const std::string&)>& given) {
  const auto find = [](const std::vector<Setting>& in, const std::string& option) {
    const auto at = std::ranges::find(in, option, &Setting::option);
    return at == in.end() ? Setting{option, {}, true, false} : *at;
  };
  std::vector<SettingChange> out;
  for (const Setting& was : before) {
    const Setting now = find(after, was.option);
    if (was.values == now.values)
      continue;
    const bool lost = !was.usual && !was.values.empty() && !given(was.option);
    out.push_back({was.option, was.shown(), now.shown(), lost ? was.options(" ") : std::string()});
  }
  for (const Setting& now : after)
    if (std::ranges::find(before, now.option, &Setting::option) == before.end() &&
        !now.values.empty())
      out.push_back({now.option, "none", now.shown(), ""});
  return out;
}

std::optional<SettingChange> lost_variables(const std::vector<std::string>& before,
                                            const Environment& after) {
  constexpr std::size_t named_max = 5;
  Setting lost{"env-var", {}, false, false};
  for (const std::string& name : before)
    if (!name.starts_with("BILLOW_") && !after.contains(name))
      lost.values.push_back(name);
  if (lost.values.empty())
    return std::nullopt;
  const std::size_t more = lost.values.size() - std::min(lost.values.size(), named_max);
  lost.values.resize(lost.values.size() - more);
  return SettingChange{lost.option,
                       lost.shown() + (more == 0 ? "" : fmt::format(" and {} more", more)), "none",
                       lost.options(" ")};
}

Json changes_document(const std::vector<SettingChange>& changes) {
  Json out = Json::array();
  for (const SettingChange& change : changes) {
    Json one = Json::object(
        {{"setting", change.setting}, {"before", change.before}, {"after", change.after}});
    if (!change.keep.empty())
      one.set("keep", change.keep);
    out.push(std::move(one));
  }
  return out;
}

}  // namespace billow::client
