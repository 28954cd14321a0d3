// traffic, promote, calls, and what deploy and endpoint-key say about canaries and prices.
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>

#include "base/crypto.h"
#include "base/text.h"
#include "client/endpoints/endpoints.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/table.h"
#include "client/frame/values.h"

namespace billow::client {

Result<std::uint32_t> read_part(std::string_view what, std::string_view text) {
  const auto wrong = [&] {
    return fail(
        Code::invalid, fmt::format("{} must be a percentage, not \"{}\"", what, text),
        what.starts_with("--") ? fmt::format("for example: {} 10%", what) : "for example: 10%");
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

std::vector<std::string> price_texts(const EndpointPrices& prices) {
  std::vector<std::string> parts;
  const auto add = [&](NanoUsd price, const char* before, const char* after) {
    if (price.value != 0)
      parts.push_back(fmt::format("{}{}{}", before, format_usd(price).substr(1), after));
  };
  add(prices.request, "", "/request");
  add(prices.million_tokens_in, "in=", "/Mtoken");
  add(prices.million_tokens_out, "out=", "/Mtoken");
  return parts;
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
    return await_revision(*client, *name, (*now)["revision"].uint_or(0),
                          {.json = parsed.has("json"), .quiet = parsed.has("quiet")});
  return await_revision(
      *client, *name, revision,
      {.json = parsed.has("json"), .quiet = parsed.has("quiet"), .promoted = true});
}

// ---- asynchronous calls

constexpr OptionSpec calls_options[] = {
    {"cancel", 0, nullptr, "cancel this call"},
};

int list_calls(Client& client, const std::string& path, const std::string& name, bool json) {
  const auto all = client.get(path);
  if (!all)
    return report(all.error());
  if (json) {
    print_json(*all);
    return 0;
  }
  Table table({{"CALL"}, {"STATE"}, {"STATUS", Table::Align::right}, {"MADE"}, {"REQUEST"}});
  for (const Json& call : (*all)["calls"].items())
    table.row({std::string(call["id"].str_or("-")), std::string(call["state"].str_or("?")),
               call["status"].uint_or(0) == 0 ? "-" : std::to_string(call["status"].uint_or(0)),
               std::string(call["made_at"].str_or("")),
               fmt::format("{} {}", call["method"].str_or(""), call["path"].str_or(""))});
  if (table.empty())
    say(
        fmt::format("{} has no asynchronous calls; to make one, send a request with the header "
                    "Prefer: respond-async",
                    name));
  else
    print(table.text(look_at(STDOUT_FILENO)));
  if (const auto more = (*all)["left_off"].uint_or(0); more > 0)
    say(fmt::format("{} older calls are not shown", more));
  return 0;
}

// The answer alone goes to the output, so that it can be piped.
int show_call(const Json& call, const std::string& id, bool json) {
  if (json) {
    print_json(call);
    return 0;
  }
  const auto state = call["state"].str_or("?");
  if (state == "done") {
    std::string answer;
    if (!base64_decode(call["answer"].str_or(""), answer))
      return report({Code::internal, "the head sent an answer that cannot be read"});
    print(answer);
    return call["status"].uint_or(0) < 400 ? 0 : 1;
  }
  const auto reason = call["reason"].str_or("");
  say(fmt::format("call {} is {}{}", id, state, reason.empty() ? "" : ": " + printable(reason)));
  return state == "waiting" ? 0 : 1;
}

int cmd_calls(const Parsed& parsed) {
  if (parsed.operands.empty() || parsed.operands.size() > 2)
    return report_usage({Code::invalid, "calls needs an endpoint, and perhaps a call",
                         "for example: billow calls hello"});
  if (parsed.has("cancel") && parsed.operands.size() != 2)
    return report_usage({Code::invalid, "--cancel needs the id of a call",
                         fmt::format("list them with: billow calls {}", parsed.operands[0])});
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  const std::string& name = parsed.operands[0];
  const std::string path = "/v1/endpoints/" + net::percent_encode(name) + "/calls";
  if (parsed.operands.size() == 1)
    return list_calls(*client, path, name, parsed.has("json"));
  const std::string& id = parsed.operands[1];
  const std::string one = path + "/" + net::percent_encode(id);
  if (!parsed.has("cancel")) {
    const auto call = client->get(one);
    return call ? show_call(*call, id, parsed.has("json")) : report(call.error());
  }
  const auto done = client->del(one);
  if (!done)
    return report(done.error());
  if (parsed.has("json"))
    print_json(*done);
  else
    print(fmt::format("call {} was cancelled\n", id));
  return 0;
}

constexpr OptionSpec promote_options[] = {{"quiet", 'q', nullptr, "print nothing while waiting"}};

}  // namespace

void add_release_commands(CommandTable& table) {
  constexpr const char* group = "endpoints";
  table.push_back({.name = "traffic",
                   .summary = "change the share of requests that an endpoint's canary gets",
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
  table.push_back({.name = "calls",
                   .summary = "list asynchronous calls of an endpoint, print an answer, or cancel",
                   .example = "billow calls hello\nbillow calls hello CALL\n"
                              "billow calls hello CALL --cancel",
                   .run = cmd_calls,
                   .usage = "NAME [CALL]",
                   .options = {calls_options},
                   .operands = Operands::some,
                   .group = "endpoints"});
}

}  // namespace billow::client
