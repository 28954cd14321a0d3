// Tokens: those of people, machines and agents; and approvals of what agents ask for.
#include <fmt/format.h>
#include <unistd.h>

#include "base/money.h"
#include "base/text.h"
#include "client/frame/ask.h"
#include "client/frame/commands.h"
#include "client/frame/terminal.h"
#include "client/frame/values.h"
#include "client/frame/when.h"
#include "net/http/http.h"

namespace billow::client {
namespace token_command {
namespace {

constexpr OptionSpec token_options[] = {
    {"user", 'u', "NAME",
     "create it for this user (admins only; the token then names you as its creator)"},
    {"scope", 0, "SCOPE",
     "full (default), read, submit (jobs of one project), join (a machine may join), node (for an "
     "agent) or gateway (for a gateway)",
     false, Completes::choice, "full,read,submit,join,node,gateway"},
    {"project", 'p', "NAME", "project for --scope submit and --agent"},
    {"expires", 0, "T",
     "time until it expires, e.g. 30d, or never (default: 90d; join tokens: one day; agent tokens: "
     "8h; node and gateway: never)"},
    {"node", 0, nullptr, "create a join token: the machine that presents it becomes a node"},
    {"reusable", 0, nullptr, "with --node: any number of machines may join (default: one)"},
    {"node-name", 0, "NAME", "restrict a join or node token to this node"},
    {"agent", 0, nullptr,
     "create a token for a program that acts for you, with the hard limits below"},
    {"budget", 0, "USD", "with --agent: all its jobs together never cost more"},
    {"per-job", 0, "USD",
     "with --agent: a job that may cost more needs approval (default: the budget)"},
    {"gpus", 'g', "N", "with --agent: GPUs that its jobs hold at once (default 1)"},
    {"at-expiry", 0, "stop|keep", "with --agent: its jobs when it expires: stop (default) or keep",
     false, Completes::choice, "stop,keep"},
};

constexpr OptionSpec rotate_options[] = {
    {"grace", 0, "T", "how long the old value is still accepted (default 1h, at most 30d)"},
    {"expires", 0, "T",
     "time until the new value expires, or never (default: 90d; never if the token does not "
     "expire)"},
};

constexpr OptionSpec approvals_options[] = {
    {"all", 'a', nullptr, "also those that were decided or have expired"},
};

std::string text_or_number(const Json& value) {
  return value.is_string()   ? value.as_string()
         : value.is_number() ? fmt::format("{}", value.int_or(0))
                             : "-";
}

// The limits of an agent token, into the body.
Status set_agent_limits(const Parsed& p, bool agent, Json& body) {
  for (const char* option : {"budget", "per-job", "gpus", "at-expiry"})
    if (p.has(option) && !agent)
      return fail(Code::invalid, fmt::format("--{} is only for agent tokens", option),
                  "add --agent");
  if (!agent)
    return {};
  const NanoUsd budget =
      BILLOW_TRY(parse_usd(BILLOW_TRY(required_option(p, "budget", "add --budget 20"))));
  const NanoUsd per_job = p.has("per-job") ? BILLOW_TRY(parse_usd(p.get("per-job"))) : budget;
  const double gpus = BILLOW_TRY(number_option(p, "gpus", 1, 0, 1e6));
  const std::string then = BILLOW_TRY(choice_option(p, "at-expiry", "stop", "stop,keep"));
  body.set("agent", Json::object({{"budget", budget.value},
                                  {"per_job", per_job.value},
                                  {"gpus_milli", static_cast<std::int64_t>(gpus * 1000 + 0.5)},
                                  {"keep_jobs", then == "keep"}}));
  return {};
}

Status set_life(const Parsed& p, Json& body) {
  const std::string given = p.get("expires");
  if (given.empty())
    return {};
  if (given == "never") {
    body.set("life_s", -1);
    return {};
  }
  const auto life = duration_with_unit(given);
  if (!life)
    return pass(Error(life.error()).in("--expires"));
  body.set("life_s", life->ns / 1'000'000'000);
  return {};
}

// "$3.20 of $20.00, $5.00 committed"
std::string agent_spent(const Json& agent) {
  if (!agent.is_object())
    return "-";
  std::string text =
      fmt::format("{} of {}", agent["spent"].str_or("?"), agent["budget"].str_or("?"));
  if (agent["committed_nano_usd"].int_or(0) > 0)
    text += fmt::format(", {} committed", agent["committed"].str_or("?"));
  return text;
}

int token_create(const Parsed& p) {
  const bool joins = p.has("node") || p.get("scope") == "join";
  const bool agent = p.has("agent") || p.get("scope") == "agent";
  Result<std::string> name = p.operands.empty() && joins   ? Result<std::string>("join")
                             : p.operands.empty() && agent ? Result<std::string>("agent")
                                                           : one_operand(p, "token create", "name");
  if (!name)
    return report_usage(name.error());
  if (p.has("node") && p.has("scope") && p.get("scope") != "join")
    return report_usage(
        {Code::invalid, "--node creates a join token and excludes --scope", "omit --scope"});
  if (agent && (joins || (p.has("scope") && p.get("scope") != "agent")))
    return report_usage(
        {Code::invalid, "--agent excludes --node and other scopes", "omit --scope and --node"});
  Json body = Json::object({{"name", *name},
                            {"scope", joins   ? "join"
                                      : agent ? "agent"
                                              : p.get("scope", "full")}});
  if (const Status set = set_agent_limits(p, agent, body); !set)
    return report_usage(set.error());
  if (p.has("project"))
    body.set("project", p.get("project"));
  if (p.has("node-name"))
    body.set("node", p.get("node-name"));
  if (p.has("reusable"))
    body.set("reusable", true);
  const std::string path =
      p.has("user") ? "/v1/users/" + net::percent_encode(p.get("user")) + "/tokens" : "/v1/tokens";
  if (const Status set = set_life(p, body); !set)
    return report_usage(set.error());
  std::string address;
  return ask(
      p,
      [&](Client& c) -> Result<Json> {
        auto made = c.post(path, body.dump());
        // Where another machine finds this head: its https address, or any that is not this
        // machine's alone.
        if (const auto status = made && joins ? c.get("/v1/status") : Result<Json>(Json::object()))
          for (const Json& at : (*status)["addresses"].items())
            if (const auto text = at.str_or("");
                text.find("//127.") == std::string_view::npos &&
                text.find("//localhost") == std::string_view::npos &&
                text.find("//[::1]") == std::string_view::npos)
              address = text;
        return made;
      },
      [&](const Json& made) {
        print(std::string(made["token"].str_or("")) + "\n");
        if (joins) {
          // A script that keeps the token in a variable must not find it again on stderr, which
          // goes to logs.
          const std::string shown =
              look_at(STDOUT_FILENO).terminal ? std::string(made["token"].str_or("")) : "TOKEN";
          if (address.empty())
            return say(
                "other machines cannot join: this head listens on this machine only. Restart it "
                "with `billow down` and `billow up --background --listen 0.0.0.0:7070`, then "
                "create the token again (it carries the fingerprint of the new certificate)");
          say(fmt::format("run on {}: billow join {} --token {}",
                          p.has("reusable") ? "each machine that joins" : "the machine that joins",
                          address, shown));
          return;
        }
        say(fmt::format(
            "this is token {} ({}); it is shown only once and expires {}. Use it as "
            "BILLOW_TOKEN.",
            text_or_number(made["id"]), *name, time_text(made["expires_at"], now(), "never")));
      });
}

int token_list(const Parsed& p) {
  return ask(
      p, [](Client& c) { return c.get("/v1/tokens"); },
      [](const Json& answer) {
        Table table({{"TOKEN", Table::Align::right},
                     {"NAME"},
                     {"USER"},
                     {"SCOPE"},
                     {"PROJECT"},
                     {"AGE", Table::Align::right},
                     {"LAST USED"},
                     {"EXPIRES"},
                     {"SPENT"},
                     {"LEFT"}});
        for (const Json& t : list_in(answer, "tokens"))
          table.row({text_or_number(t["id"]), std::string(t["name"].str_or("-")),
                     text_or_number(t["user"]), std::string(t["scope"].str_or("?")),
                     text_or_number(t["project"]), age(t["created_at"], now()),
                     time_text(t["last_used_at"], now(), "-"),
                     // A join token for one machine is worthless once that machine has joined.
                     t["used_by"].is_string() ? fmt::format("used by {}", t["used_by"].str_or("?"))
                                              : time_text(t["expires_at"], now(), "never"),
                     agent_spent(t["agent"]), text_or_number(t.at("agent", "left"))});
        show_table(table, "there are no tokens");
      });
}

int token_rotate(const Parsed& p) {
  const auto id = one_operand(p, "token rotate", "token number");
  if (!id)
    return report_usage(id.error());
  Json body = Json::object();
  const auto grace = seconds_option(p, "grace");
  if (!grace)
    return report_usage(grace.error());
  if (*grace)
    body.set("grace_s", **grace);
  if (const Status set = set_life(p, body); !set)
    return report_usage(set.error());
  return ask(
      p,
      [&](Client& c) {
        return c.post("/v1/tokens/" + net::percent_encode(*id) + "/rotate", body.dump());
      },
      [&](const Json& made) {
        print(std::string(made["token"].str_or("")) + "\n");
        say(
            fmt::format("this is the new value of token {}; it is shown only once and expires {}. "
                        "The old value expires {}.",
                        *id, time_text(made["expires_at"], now(), "never"),
                        time_text(made["old_until"], now(), "now")));
      });
}

int token_revoke(const Parsed& p) {
  const auto id = one_operand(p, "token revoke", "token number");
  if (!id)
    return report_usage(id.error());
  return ask(
      p, [&](Client& c) { return c.del("/v1/tokens/" + net::percent_encode(*id)); },
      [&](const Json& answer) {
        const std::uint64_t more = answer["tokens_revoked"].uint_or(1) - 1;
        print(fmt::format("revoked token {}{}\n", *id,
                          more == 0 ? ""
                          : more == 1
                              ? " and one token that was created with it"
                              : fmt::format(" and {} tokens that were created with it", more)));
      });
}

int approvals_list(const Parsed& p) {
  return ask(
      p,
      [&](Client& c) { return c.get(p.has("all") ? "/v1/approvals?all=true" : "/v1/approvals"); },
      [](const Json& answer) {
        Table table({{"ID", Table::Align::right},
                     {"AGENT"},
                     {"PROJECT"},
                     {"STATE"},
                     {"EXPIRES"},
                     {"REQUEST"}});
        for (const Json& a : list_in(answer, "approvals"))
          table.row({text_or_number(a["id"]), std::string(a["agent"].str_or("?")),
                     std::string(a["project"].str_or("-")), std::string(a["state"].str_or("?")),
                     time_text(a["expires_at"], now(), "-"), std::string(a["text"].str_or(""))});
        show_table(table, "no request waits for approval");
      });
}

int approvals_decide(const Parsed& p, const char* decision, const char* done) {
  const auto id = one_operand(p, fmt::format("approvals {}", decision), "approval number");
  if (!id)
    return report_usage(id.error());
  return ask(
      p,
      [&](Client& c) {
        return c.post("/v1/approvals/" + net::percent_encode(*id),
                      Json::object({{"decision", decision}}).dump());
      },
      [&](const Json& answer) {
        print(fmt::format("{} request {} of agent {}: {}\n", done, *id,
                          printable(answer["agent"].str_or("?")),
                          printable(answer["text"].str_or(""))));
      });
}

}  // namespace
}  // namespace token_command

void add_token_commands(CommandTable& table) {
  using namespace token_command;
  table.push_back(
      {.name = "token create",
       .summary = "create a token; it is shown once",
       .example = "billow token create ci --scope submit --project vision --expires 30d",
       .run = token_create,
       .usage = "NAME",
       .details = "A token expires no later than the token or browser session that created it. "
                  "Tokens for another user (--user) are for admins, and never for root\nor for the "
                  "user who started the head.\n\nA token created with --agent can submit jobs in "
                  "one project and stop them. What its jobs may cost is set aside from --budget "
                  "when they are submitted; a job without --time gets the time that --per-job pays "
                  "for. Other actions need approval (see `billow approvals`) or are refused.",
       .options = {token_options},
       .operands = Operands::some,
       .group = people_group});
  table.push_back({.name = "token list",
                   .summary = "list tokens, without their secrets",
                   .example = "billow token list",
                   .run = token_list,
                   .group = people_group});
  table.push_back({.name = "token rotate",
                   .summary = "give a token a new value; the old one works for a while",
                   .example = "billow token rotate 3 --grace 1d",
                   .run = token_rotate,
                   .usage = "ID",
                   .details = "Tokens and sessions that were created with it stay valid.",
                   .options = {rotate_options},
                   .operands = Operands::some,
                   .group = people_group});
  table.push_back({.name = "token revoke",
                   .summary = "revoke a token, and all tokens that were created with it",
                   .example = "billow token revoke 3",
                   .run = token_revoke,
                   .usage = "ID",
                   .operands = Operands::some,
                   .group = people_group});
  table.push_back({.name = "approvals list",
                   .summary = "list the requests of agents that wait for approval",
                   .example = "billow approvals list",
                   .run = approvals_list,
                   .options = {approvals_options},
                   .group = people_group});
  table.push_back(
      {.name = "approvals approve",
       .summary = "approve an agent's request, once",
       .example = "billow approvals approve 3",
       .run = [](const Parsed& p) { return approvals_decide(p, "approve", "approved"); },
       .usage = "ID",
       .operands = Operands::some,
       .group = people_group});
  table.push_back({.name = "approvals deny",
                   .summary = "refuse a request of an agent",
                   .example = "billow approvals deny 3",
                   .run = [](const Parsed& p) { return approvals_decide(p, "deny", "denied"); },
                   .usage = "ID",
                   .operands = Operands::some,
                   .group = people_group});
}

}  // namespace billow::client
