// traffic, promote, and what deploy and endpoint-key say about canaries and prices.
#include <fmt/format.h>

#include <cmath>

#include "base/text.h"
#include "client/endpoints/endpoints.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/values.h"

namespace billow::client {

Result<std::uint32_t> read_part(std::string_view what, std::string_view text) {
  const auto wrong = [&] {
    return fail(Code::invalid, fmt::format("{} must be a percentage, not \"{}\"", what, text),
                fmt::format("for example: {} 10%", what));
  };
  if (!text.ends_with('%'))
    return wrong();
  const auto value = parse_double(text.substr(0, text.size() - 1));
  if (!value || !(*value >= 0 && *value <= 100))
    return wrong();
  const double thousandths = *value * 10;
  if (std::abs(thousandths - std::round(thousandths)) > 1e-6)
    return fail(Code::invalid, fmt::format("{} {} is too exact", what, text),
                "give at most one decimal, for example 0.5%");
  return static_cast<std::uint32_t>(std::lround(thousandths));
}

Result<EndpointPrices> read_prices(const std::vector<std::string>& texts) {
  EndpointPrices prices;
  for (std::string_view text : texts) {
    const auto wrong = [&] {
      return fail(Code::invalid, fmt::format("--price {} is not valid", text),
                  "write 0.01/request, in=0.50/Mtoken or out=1.50/Mtoken");
    };
    const auto slash = text.find('/');
    if (slash == text.npos)
      return wrong();
    const std::string_view unit = text.substr(slash + 1);
    std::string_view amount = text.substr(0, slash);
    NanoUsd* into = nullptr;
    if (unit == "request")
      into = &prices.request;
    else if (unit == "Mtoken" && amount.starts_with("in="))
      into = &prices.million_tokens_in;
    else if (unit == "Mtoken" && amount.starts_with("out="))
      into = &prices.million_tokens_out;
    else
      return wrong();
    if (const auto equals = amount.find('='); equals != amount.npos)
      amount.remove_prefix(equals + 1);
    const auto value = parse_usd(amount);
    if (!value)
      return pass(Error(value.error()).in("--price"));
    *into = *value;
  }
  return prices;
}

Result<Json> read_limits(const std::vector<std::string>& texts) {
  Json out = Json::array();
  for (const std::string_view text : texts) {
    const auto wrong = [&] {
      return fail(Code::invalid, fmt::format("--limit {} is not valid", text),
                  "write 100/min, 50000tokens/day or usd=5/day; the period is min, hour or day");
    };
    const auto slash = text.rfind('/');
    if (slash == text.npos)
      return wrong();
    const auto per = enum_value<LimitPer>(text.substr(slash + 1));
    std::string_view amount = text.substr(0, slash);
    if (!per)
      return wrong();
    LimitOf of = LimitOf::requests;
    std::int64_t value = 0;
    if (amount.starts_with("usd=")) {
      of = LimitOf::usd;
      const auto usd = parse_usd(amount.substr(4));
      if (!usd)
        return wrong();
      value = usd->value;
    } else {
      if (amount.ends_with("tokens")) {
        of = LimitOf::tokens;
        amount.remove_suffix(6);
      }
      const auto number = parse_int(amount, 1, INT64_MAX);
      if (!number)
        return wrong();
      value = *number;
    }
    out.push(Json::object({{"of", enum_name(of)}, {"per", enum_name(*per)}, {"amount", value}}));
  }
  return out;
}

std::string prices_text(const EndpointPrices& prices) {
  std::vector<std::string> parts;
  const auto add = [&](NanoUsd price, const char* before, const char* after) {
    if (price.value != 0)
      parts.push_back(fmt::format("{}{}{}", before, format_usd(price).substr(1), after));
  };
  add(prices.request, "", "/request");
  add(prices.million_tokens_in, "in=", "/Mtoken");
  add(prices.million_tokens_out, "out=", "/Mtoken");
  return join(parts, ", --price ");
}

std::string release_text(const Json& release) {
  const double traffic = release["traffic_pct"].double_or(0),
               mirror = release["mirror_pct"].double_or(0);
  std::string text;
  if (traffic > 0 || mirror == 0)
    text = fmt::format("{:g} % of the requests", traffic);
  if (mirror > 0)
    text += fmt::format("{}copies of {:g} % of the {}requests{}", text.empty() ? "" : ", ", mirror,
                        text.empty() ? "" : "other ",
                        release["mirror_post"].bool_or(false) ? " (POST too)" : "");
  if (const auto guard = release["auto_rollback"].str_or("on"); guard != "on")
    text += fmt::format(", automatic rollback: {}", guard);
  return text;
}

namespace {

int cmd_traffic(const Parsed& parsed) {
  if (parsed.operands.size() != 2)
    return report_usage({Code::invalid, "traffic needs an endpoint and a percentage",
                         "for example: billow traffic hello 25%"});
  const std::string& name = parsed.operands[0];
  const auto part = read_part("the part", parsed.operands[1]);
  if (!part)
    return report_usage(part.error());
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  auto done = client->post("/v1/endpoints/" + net::percent_encode(name) + "/traffic",
                           Json::object({{"traffic", *part}}).dump());
  if (!done)
    return report(done.error());
  if (parsed.has("json"))
    print_json(*done);
  else
    print(fmt::format("{}: the canary {} {:g} % of the requests\n", name,
                      (*done)["changed"].bool_or(true) ? "gets" : "already gets",
                      static_cast<double>(*part) / 10));
  return 0;
}

int cmd_promote(const Parsed& parsed) {
  const auto name = one_operand(parsed, "promote", "endpoint");
  if (!name)
    return report_usage(name.error());
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  const std::string path = "/v1/endpoints/" + net::percent_encode(*name);
  auto done = client->post(path + "/promote", "{}");
  if (!done)
    return report(done.error());
  const auto now = client->get(path);
  if (!now)
    return report(now.error());
  const std::uint64_t revision = (*now)["canary"].uint_or(0);
  if (revision == 0)  // it has taken over already
    return await_revision(*client, *name, (*now)["revision"].uint_or(0), parsed.has("json"),
                          parsed.has("quiet"));
  return await_revision(*client, *name, revision, parsed.has("json"), parsed.has("quiet"), true);
}

constexpr OptionSpec promote_options[] = {{"quiet", 'q', nullptr, "print nothing while waiting"}};

}  // namespace

void add_release_commands(CommandTable& table) {
  constexpr const char* group = "endpoints";
  table.push_back({.name = "traffic",
                   .summary = "change the part of the requests that an endpoint's canary gets",
                   .example = "billow traffic hello 25%",
                   .run = cmd_traffic,
                   .usage = "NAME PERCENT",
                   .operands = Operands::some,
                   .group = group});
  table.push_back({.name = "promote",
                   .summary = "let an endpoint's canary take over",
                   .example = "billow promote hello",
                   .run = cmd_promote,
                   .usage = "NAME",
                   .options = {promote_options},
                   .operands = Operands::some,
                   .group = group});
}

}  // namespace billow::client
