// Identity providers of a head: auth add, list, rm.
#include <fmt/format.h>

#include "base/file.h"
#include "base/text.h"
#include "client/access/sign_in_commands.h"
#include "client/frame/ask.h"
#include "client/frame/console.h"
#include "client/frame/table.h"
#include "client/frame/values.h"
#include "net/http/http.h"

namespace billow::client {
namespace {

constexpr OptionSpec auth_add_options[] = {
    {"issuer", 0, "URL", "issuer URL, exactly as the provider publishes it"},
    {"name", 0, "NAME", "name of the provider (default: oidc or workload)"},
    {"client-id", 0, "ID", "Billow's client id there; for workload: the audience of its tokens"},
    {"client-secret-file", 0, "FILE", "file with the client's secret; none: a public client", false,
     Completes::file},
    {"map", 0, "GROUP=PROJECT:ROLE",
     "role of a group's members in a project; PROJECT * is the whole installation", true},
    {"allow-domain", 0, "DOMAIN", "accept only verified e-mail addresses of this domain", true},
    {"groups-claim", 0, "NAME", "claim that lists a person's groups (default groups)"},
    {"name-claim", 0, "NAME", "claim that names a new user (default preferred_username)"},
    {"user", 0, "NAME", "workload: the service account of its jobs (default: the provider's name)"},
    {"expires", 0, "T", "time until tokens of a sign-in expire (default 12h; workload: 1h)"},
    {"check", 0, "T",
     "how often the head asks the provider whether a person may still sign in (default 15m)"},
};

int auth_add(const Parsed& p) {
  const auto kind = one_operand(p, "auth add", "kind (oidc or workload)");
  if (!kind)
    return report_usage(kind.error());
  if (*kind != "oidc" && *kind != "workload")
    return report_usage({Code::invalid, fmt::format("\"{}\" is not a kind of provider", *kind),
                         "use oidc for people or workload for CI systems"});
  if (!p.has("issuer") || p.all("map").empty() || (*kind == "oidc" && !p.has("client-id")))
    return report_usage({Code::invalid, "--issuer, --client-id and --map are required",
                         "see `billow help auth add`"});
  Json body = Json::object(
      {{"kind", *kind}, {"issuer", p.get("issuer")}, {"client_id", p.get("client-id", "billow")}});
  for (const char* list : {"map", "allow-domain"}) {
    Json values = Json::array();
    for (const std::string& value : p.all(list))
      values.push(value);
    body.set(std::string_view(list) == "map" ? "map" : "domains", std::move(values));
  }
  for (const auto& [option, member] :
       {std::pair("groups-claim", "groups_claim"), std::pair("name-claim", "name_claim"),
        std::pair("user", "user")})
    if (p.has(option))
      body.set(member, p.get(option));
  for (const auto& [option, member] :
       {std::pair("expires", "life_s"), std::pair("check", "check_s")})
    if (p.has(option)) {
      const auto value = parse_duration(p.get(option));
      if (!value)
        return report_usage(Error(value.error()).in(fmt::format("--{}", option)));
      body.set(member, value->ns / 1'000'000'000);
    }
  if (p.has("client-secret-file")) {
    const auto secret = read_file(p.get("client-secret-file"), 4096);
    if (!secret)
      return report(secret.error());
    body.set("client_secret", trim(*secret));
  }
  const std::string name = p.get("name", *kind);
  return ask(
      p,
      [&](Client& c) {
        return c.put("/v1/auth/providers/" + net::percent_encode(name), body.dump());
      },
      [&](const Json&) {
        print(fmt::format("{} can now sign in at {}\n", *kind == "oidc" ? "people" : "CI jobs",
                          p.get("issuer")));
        if (*kind == "oidc")
          say("register these redirect addresses at the provider: http://127.0.0.1/callback (any "
              "port, for `billow login`) and https://HEAD/v1/auth/callback (for the dashboard)");
      });
}

int auth_list(const Parsed& p) {
  return ask(
      p, [](Client& c) { return c.get("/v1/auth/providers"); },
      [](const Json& answer) {
        Table table({{"PROVIDER"}, {"KIND"}, {"ISSUER"}, {"CLIENT"}, {"MAPPINGS"}});
        for (const Json& each : list_in(answer, "providers")) {
          std::string map;
          for (const Json& one : each["map"].items())
            map += fmt::format("{}{}", map.empty() ? "" : ", ", one.str_or("?"));
          table.row({std::string(each["name"].str_or("?")), std::string(each["kind"].str_or("?")),
                     std::string(each["issuer"].str_or("?")),
                     std::string(each["client_id"].str_or("?")), map});
        }
        show_table(table, "there are no identity providers; people log in with tokens");
      });
}

int auth_rm(const Parsed& p) {
  const auto name = one_operand(p, "auth rm", "name");
  if (!name)
    return report_usage(name.error());
  return ask(
      p, [&](Client& c) { return c.del("/v1/auth/providers/" + net::percent_encode(*name)); },
      [&](const Json& answer) {
        print(fmt::format("removed identity provider {}; {} tokens revoked\n", *name,
                          answer["tokens_revoked"].uint_or(0)));
      });
}

}  // namespace

void add_auth_commands(CommandTable& table) {
  table.push_back(
      {.name = "auth add",
       .summary = "let people or CI jobs sign in with the accounts of an identity provider",
       .example = "billow auth add oidc --issuer https://id.example.com --client-id billow --map "
                  "ml-team=vision:member\nbillow auth add workload --issuer "
                  "https://token.actions.githubusercontent.com --map "
                  "'repo:org/name:ref:refs/heads/main=vision:member'",
       .run = auth_add,
       .usage = "oidc|workload",
       .details = "Adding a provider of the same name again replaces it.",
       .options = {auth_add_options},
       .operands = Operands::some,
       .group = "people and access"});
  table.push_back({.name = "auth list",
                   .summary = "list the identity providers that the head trusts",
                   .example = "billow auth list",
                   .run = auth_list,
                   .group = "people and access"});
  table.push_back({.name = "auth rm",
                   .summary = "remove an identity provider and revoke the tokens of its sign-ins",
                   .example = "billow auth rm oidc",
                   .run = auth_rm,
                   .usage = "NAME",
                   .operands = Operands::some,
                   .group = "people and access"});
}

}  // namespace billow::client
