// model, domain, endpoint-limits: how requests reach endpoints, and what they may bring.
#include <fmt/format.h>

#include "base/text.h"
#include "client/frame/ask.h"
#include "client/frame/commands.h"
#include "client/frame/values.h"

namespace billow::client {
namespace {

constexpr const char* group = "endpoints";

constexpr OptionSpec model_options[] = {
    {"to", 0, "ENDPOINT[=WEIGHT]",
     "endpoint that serves this model; with several, each gets its part of all weights (default "
     "weight 1; repeatable)",
     true},
    {"fallback", 0, "ENDPOINT",
     "endpoint for requests that these cannot serve (repeatable; tried in this order)", true},
};

Result<Json> read_targets(const std::vector<std::string>& texts) {
  Json out = Json::array();
  for (const std::string& text : texts) {
    const auto equals = text.rfind('=');
    std::int64_t weight = 1;
    if (equals != std::string::npos) {
      const auto given = parse_int(text.substr(equals + 1), 1, 1'000'000);
      if (!given)
        return fail(Code::invalid, fmt::format("--to {} has no valid weight", text),
                    "write --to ENDPOINT=90, with a weight from 1 to 1000000");
      weight = *given;
    }
    out.push(Json::object({{"endpoint", text.substr(0, equals)}, {"weight", weight}}));
  }
  return out;
}

int model_set(const Parsed& p) {
  const auto name = one_operand(p, "model set", "model name");
  if (!name)
    return report_usage(name.error());
  auto to = read_targets(p.all("to"));
  if (!to)
    return report_usage(to.error());
  Json fallbacks = Json::array();
  for (const std::string& each : p.all("fallback"))
    fallbacks.push(each);
  const Json body =
      Json::object({{"name", *name}, {"to", std::move(*to)}, {"fallbacks", std::move(fallbacks)}});
  return ask(
      p, [&](Client& c) { return c.post("/v1/model-routes", body.dump()); },
      [&](const Json&) { print(fmt::format("model {} is served\n", *name)); });
}

// "chat 90 %, chat-b 10 %".
std::string targets_text(const Json& model) {
  std::uint64_t sum = 0;
  for (const Json& each : model["to"].items())
    sum += each["weight"].uint_or(1);
  std::vector<std::string> parts;
  for (const Json& each : model["to"].items()) {
    std::string text(each["endpoint"].str_or("?"));
    if (model["to"].items().size() > 1)
      text += fmt::format(" {:.3g} %", 100.0 * static_cast<double>(each["weight"].uint_or(1)) /
                                           static_cast<double>(std::max<std::uint64_t>(sum, 1)));
    parts.push_back(std::move(text));
  }
  return join(parts, ", ");
}

int model_list(const Parsed& p) {
  return ask(
      p, [](Client& c) { return c.get("/v1/model-routes"); },
      [](const Json& answer) {
        Table table({{"MODEL"}, {"SERVED BY"}, {"FALLBACKS"}, {"PROJECT"}});
        for (const Json& model : list_in(answer, "models")) {
          std::vector<std::string> fallbacks;
          for (const Json& each : model["fallbacks"].items())
            fallbacks.emplace_back(each.str_or("?"));
          table.row({std::string(model["name"].str_or("?")), targets_text(model),
                     fallbacks.empty() ? "-" : join(fallbacks, ", "),
                     std::string(model["project"].str_or("?"))});
        }
        show_table(table,
                   "there are no model names; without one, the name of an endpoint is also its "
                   "model name at /v1");
      });
}

int model_rm(const Parsed& p) {
  const auto name = one_operand(p, "model rm", "model name");
  if (!name)
    return report_usage(name.error());
  return ask(
      p, [&](Client& c) { return c.del("/v1/model-routes?name=" + net::percent_encode(*name)); },
      [&](const Json&) { print(fmt::format("removed model {}; its endpoints stay\n", *name)); });
}

int domain_add(const Parsed& p) {
  if (p.operands.size() != 2)
    return report_usage({Code::invalid, "domain add needs a host name and an endpoint",
                         "for example: billow domain add api.example.org chat"});
  const Json body = Json::object({{"name", p.operands[0]}, {"endpoint", p.operands[1]}});
  return ask(
      p, [&](Client& c) { return c.post("/v1/domains", body.dump()); },
      [&](const Json& made) {
        print(fmt::format("{} now serves endpoint {}\n", made["name"].str_or(p.operands[0]),
                          p.operands[1]));
      });
}

int domain_list(const Parsed& p) {
  return ask(
      p, [](Client& c) { return c.get("/v1/domains"); },
      [](const Json& answer) {
        Table table({{"DOMAIN"}, {"ENDPOINT"}, {"PROJECT"}, {"BY"}});
        for (const Json& each : list_in(answer, "domains")) {
          const std::string endpoint(each["endpoint"].str_or("?"));
          table.row({std::string(each["name"].str_or("?")), endpoint.empty() ? "-" : endpoint,
                     std::string(each["project"].str_or("?")),
                     std::string(each["user"].str_or("?"))});
        }
        show_table(table, "no endpoint has a domain; see `billow domain add --help`");
      });
}

int domain_rm(const Parsed& p) {
  const auto name = one_operand(p, "domain rm", "domain");
  if (!name)
    return report_usage(name.error());
  return ask(
      p, [&](Client& c) { return c.del("/v1/domains/" + net::percent_encode(*name)); },
      [&](const Json&) { print(fmt::format("removed {}\n", *name)); });
}

constexpr OptionSpec limits_options[] = {
    {"body", 0, "SIZE", "largest body of a request, e.g. 10MiB; none: no limit"},
    {"headers", 0, "SIZE", "largest header (all fields) of a request, e.g. 16KiB; none: no limit"},
};

Status read_limit(const Parsed& p, const char* option, const char* member, Json& body) {
  if (!p.has(option))
    return {};
  std::uint64_t bytes = 0;
  if (p.get(option) != "none") {
    const auto given = parse_bytes(p.get(option));
    if (!given || *given == 0)
      return fail(Code::invalid, fmt::format("--{} {} is not a size", option, p.get(option)),
                  "write for example 10MiB, or none");
    bytes = *given;
  }
  body.set(member, bytes);
  return {};
}

int endpoint_limits(const Parsed& p) {
  const auto name = one_operand(p, "endpoint-limits", "endpoint");
  if (!name)
    return report_usage(name.error());
  Json given = Json::object();
  if (const Status body = read_limit(p, "body", "body_bytes_max", given); !body)
    return report_usage(body.error());
  if (const Status headers = read_limit(p, "headers", "header_bytes_max", given); !headers)
    return report_usage(headers.error());
  const std::string path = "/v1/endpoints/" + net::percent_encode(*name) + "/limits";
  return ask(
      p,
      [&](Client& c) -> Result<Json> {
        Json now = BILLOW_TRY(c.get(path));
        if (!p.has("body") && !p.has("headers"))
          return now;
        Json body = Json::object();
        for (const char* member : {"body_bytes_max", "header_bytes_max"})
          body.set(member, given.find(member) ? given[member].uint_or(0) : now[member].uint_or(0));
        return c.put(path, body.dump());
      },
      [&](const Json& now) {
        const auto text = [&](const char* member) {
          const std::uint64_t bytes = now[member].uint_or(0);
          return bytes == 0 ? std::string("no limit") : format_bytes(bytes);
        };
        print(fmt::format("{}: body {}, header fields {}\n", *name, text("body_bytes_max"),
                          text("header_bytes_max")));
      });
}

void add_model_commands(CommandTable& table) {
  table.push_back({.name = "model set",
                   .summary = "choose the endpoints that serve a model name at /v1",
                   .example = "billow model set gpt-4o-mini --to chat\n"
                              "billow model set gpt-4o-mini --to chat=90 --to chat-b=10 "
                              "--fallback small",
                   .run = model_set,
                   .usage = "MODEL",
                   .details =
                       "A key of any of these endpoints can call the model. The request counts "
                       "for this key and for the endpoint that serves it.",
                   .options = {model_options},
                   .operands = Operands::some,
                   .group = group});
  table.push_back({.name = "model list",
                   .summary = "list model names and the endpoints that serve them",
                   .example = "billow model list",
                   .run = model_list,
                   .group = group});
  table.push_back({.name = "model rm",
                   .summary = "remove a model name",
                   .example = "billow model rm gpt-4o-mini",
                   .run = model_rm,
                   .usage = "MODEL",
                   .operands = Operands::some,
                   .group = group});
}

}  // namespace

void add_front_door_commands(CommandTable& table) {
  add_model_commands(table);
  table.push_back({.name = "domain add",
                   .summary = "serve an endpoint at this host name",
                   .example = "billow domain add api.example.org chat",
                   .run = domain_add,
                   .usage = "DOMAIN ENDPOINT",
                   .details = "Only an admin of the installation can add a new name. Admins of "
                              "the endpoint's project can move it to another endpoint of the "
                              "project. The name's DNS record must point to a gateway. "
                              "Certificates: see --certs and --acme of `billow up` and "
                              "`billow gateway`.",
                   .operands = Operands::some,
                   .group = group});
  table.push_back({.name = "domain list",
                   .summary = "list host names and the endpoints they serve",
                   .example = "billow domain list",
                   .run = domain_list,
                   .group = group});
  table.push_back({.name = "domain rm",
                   .summary = "remove a host name",
                   .example = "billow domain rm api.example.org",
                   .run = domain_rm,
                   .usage = "DOMAIN",
                   .operands = Operands::some,
                   .group = group});
  table.push_back({.name = "endpoint-limits",
                   .summary = "show or set the size limits of an endpoint's requests",
                   .example = "billow endpoint-limits chat --body 10MiB --headers 16KiB",
                   .run = endpoint_limits,
                   .usage = "NAME",
                   .options = {limits_options},
                   .operands = Operands::some,
                   .group = group});
}

}  // namespace billow::client
