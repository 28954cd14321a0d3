// notify: the notices that a person wants, and where they go.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "client/access/secret_input.h"
#include "client/frame/ask.h"
#include "client/frame/commands.h"
#include "client/frame/values.h"
#include "client/frame/when.h"

namespace billow::client {
namespace {

constexpr const char* vias = "email,slack,discord,ntfy,webhook,browser";
constexpr OptionSpec choice_options[] = {
    {"on", 0, "A,B",
     "events to report: ends, fails, waits, idle, budget (default: ends,waits,idle,budget)"},
    {"wait", 0, "T", "a job counts as waiting after this time in the queue (default 1h)"},
    {"budget", 0, "PCT", "report when a budget passes this percentage: 50, 80 (default) or 100"}};
constexpr OptionSpec add_options[] = {
    {"file", 0, "PATH", "read the address from this file instead of a prompt or a pipe", false,
     Completes::file},
    {"token-file", 0, "PATH", "ntfy: file with the access token", false, Completes::file}};

// The choice, on top of what the target had.
Result<Json> choice(const Parsed& p, const Json& before) {
  Json out = Json::object();
  Json on = Json::array();
  std::vector<std::string> names = list_option(p, "on");
  if (!p.has("on")) {
    names.clear();
    for (const Json& each : before["on"].items())
      names.emplace_back(each.str_or(""));
  }
  for (const std::string& name : names)
    on.push(name);
  out.set("on", std::move(on));
  out.set("wait_s", before["wait_s"].int_or(3600));
  if (p.has("wait")) {
    const auto wait = duration_with_unit(p.get("wait"));
    if (!wait)
      return pass(Error(wait.error()).in("--wait"));
    out.set("wait_s", wait->ns / 1'000'000'000);
  }
  out.set("budget_pct",
          BILLOW_TRY(int_option(p, "budget", before["budget_pct"].int_or(80), 1, 100)));
  return out;
}

Json usual_choice() {
  Json on = Json::array();
  for (const char* each : {"ends", "waits", "idle", "budget"})
    on.push(each);
  return Json::object({{"on", std::move(on)}});
}

std::string words_of(const Json& target) {
  std::vector<std::string> out;
  for (const Json& each : target["on"].items()) {
    const std::string name(each.str_or("?"));
    if (name == "waits")
      out.push_back(
          fmt::format("waits > {}", format_duration(seconds(target["wait_s"].int_or(0)))));
    else if (name == "budget")
      out.push_back(fmt::format("budget > {} %", target["budget_pct"].int_or(0)));
    else
      out.push_back(name);
  }
  return join(out, ", ");
}

void say_added(const Json& made) {
  const std::int64_t id = made["id"].int_or(0);
  print(fmt::format("added target {}: {} to {}\n", id, made["via"].str_or("?"),
                    made["to"].str_or("?")));
  if (made["via"].str_or("") == "email") {
    if (made["code_sent"].bool_or(false))
      say(fmt::format("a mail with a code was sent; enter it: billow notify confirm {} CODE", id));
    else
      say(fmt::format("the mail with the code could not be sent: {}", made["trouble"].str_or("")));
  } else if (made["secret"].is_string()) {
    print(std::string(made["secret"].as_string()) + "\n");
    say("messages are signed with the secret above (HMAC-SHA256 of \"id.timestamp.body\")");
  } else if (made["via"].str_or("") != "browser") {
    say(fmt::format("try it: billow notify test {}", id));
  }
}

int notify_add(const Parsed& p) {
  if (p.operands.empty() || p.operands.size() > 2)
    return report_usage({Code::invalid, "a kind of target is required",
                         fmt::format("billow notify add KIND, with KIND one of: {}", vias)});
  const std::string& via = p.operands[0];
  const bool address_needed = via != "browser", is_mail = via == "email";
  if (p.operands.size() == 2 && !is_mail)
    return report_usage(
        {Code::invalid, "the address must not be given on the command line: it is a secret",
         fmt::format("run `billow notify add {0}` and type it, or pipe it in", via)});
  auto body = choice(p, usual_choice());
  if (!body)
    return report_usage(body.error());
  body->set("via", via);
  if (p.operands.size() == 2) {
    body->set("address", p.operands[1]);
  } else if (address_needed) {
    const auto address =
        secret_input(p.get("file"), is_mail ? "mail address" : fmt::format("address of {}", via));
    if (!address)
      return report(address.error());
    body->set("address", std::string(trim(*address)));
  }
  if (p.has("token-file")) {
    const auto token = secret_input(p.get("token-file"), "token");
    if (!token)
      return report(token.error());
    body->set("token", std::string(trim(*token)));
  }
  return ask(
      p, [&](Client& c) { return c.post("/v1/notify", body->dump()); }, say_added);
}

int notify_list(const Parsed& p) {
  return ask(
      p, [](Client& c) { return c.get("/v1/notify"); },
      [](const Json& answer) {
        Table table({{"TARGET", Table::Align::right},
                     {"VIA"},
                     {"TO", Table::Align::left, 20},
                     {"WHEN"},
                     {"WAITING", Table::Align::right},
                     {"NOTE", Table::Align::left, 20}});
        for (const Json& t : list_in(answer, "targets")) {
          std::string note(t["trouble"].str_or(""));
          if (!t["confirmed"].bool_or(true))
            note = "not confirmed yet: enter the code in the mail";
          else if (note.empty() && t["sent_at"].is_string())
            note = fmt::format("last sent {} ago", age(t["sent_at"], now()));
          table.row({fmt::format("{}", t["id"].int_or(0)), std::string(t["via"].str_or("?")),
                     std::string(t["to"].str_or("?")), words_of(t),
                     fmt::format("{}", t["waiting"].int_or(0)), note});
        }
        show_table(table, "no notices are sent to you; see `billow notify add --help`");
      });
}

std::string path_of(const std::string& id, std::string_view what = {}) {
  return "/v1/notify/" + net::percent_encode(id) + std::string(what);
}

int notify_set(const Parsed& p) {
  const auto id = one_operand(p, "notify set", "number");
  if (!id)
    return report_usage(id.error());
  return ask(
      p,
      [&](Client& c) -> Result<Json> {
        Json before = Json::object();
        for (const Json& t : list_in(BILLOW_TRY(c.get("/v1/notify")), "targets"))
          if (fmt::format("{}", t["id"].int_or(0)) == *id)
            before = t;
        const Json body = BILLOW_TRY(choice(p, before));
        return c.put(path_of(*id), body.dump());
      },
      [&](const Json&) { print(fmt::format("changed target {}\n", *id)); });
}

int notify_rm(const Parsed& p) {
  const auto id = one_operand(p, "notify rm", "number");
  if (!id)
    return report_usage(id.error());
  return ask(
      p, [&](Client& c) { return c.del(path_of(*id)); },
      [&](const Json&) { print(fmt::format("removed target {}\n", *id)); });
}

int notify_test(const Parsed& p) {
  const auto id = one_operand(p, "notify test", "number");
  if (!id)
    return report_usage(id.error());
  return ask(
      p, [&](Client& c) { return c.post(path_of(*id, "/test")); },
      [&](const Json&) { print("delivered\n"); });
}

int notify_confirm(const Parsed& p) {
  if (p.operands.size() != 2)
    return report_usage({Code::invalid, "a target and its code are required",
                         "billow notify confirm ID CODE, with the code in the mail"});
  const Json body = Json::object({{"code", p.operands[1]}});
  return ask(
      p, [&](Client& c) { return c.post(path_of(p.operands[0], "/confirm"), body.dump()); },
      [&](const Json&) {
        print(fmt::format("target {} is confirmed: notices are sent to it\n", p.operands[0]));
      });
}

}  // namespace

void add_notify_commands(CommandTable& table) {
  table.push_back(
      {.name = "notify add",
       .summary = "send me a notice when my jobs end, wait or idle, or a budget is nearly spent",
       .example = "billow notify add email ana@example.org\n"
                  "billow notify add slack --on fails,budget < slack-url.txt\n"
                  "billow notify add ntfy --wait 30m",
       .run = notify_add,
       .usage = "email ADDRESS|slack|discord|ntfy|webhook|browser",
       .details = "The address of a Slack or Discord webhook, of an ntfy topic or of a webhook is "
                  "a secret: it is typed or piped in, stored encrypted, and never shown "
                  "again.\nFor a mail address, enter the code that is mailed to it with `billow "
                  "notify confirm`.\nYou get notices about your own jobs and about budgets that "
                  "you may see. An array sends one notice, when its last job has ended.",
       .options = {choice_options, add_options},
       .operands = Operands::some,
       .completes = Completes::choice,
       .choices = vias,
       .group = people_group});
  table.push_back({.name = "notify list",
                   .summary = "list where your notices go",
                   .example = "billow notify list",
                   .run = notify_list,
                   .group = people_group});
  table.push_back({.name = "notify set",
                   .summary = "change which events a target gets",
                   .example = "billow notify set 1 --on fails,waits --wait 2h",
                   .run = notify_set,
                   .usage = "ID",
                   .options = {choice_options},
                   .operands = Operands::some,
                   .group = people_group});
  table.push_back({.name = "notify confirm",
                   .summary = "confirm a mail address with the code that was sent to it",
                   .example = "billow notify confirm 1 3f5a9c21d0",
                   .run = notify_confirm,
                   .usage = "ID CODE",
                   .operands = Operands::some,
                   .group = people_group});
  table.push_back({.name = "notify test",
                   .summary = "send a test notice",
                   .example = "billow notify test 1",
                   .run = notify_test,
                   .usage = "ID",
                   .operands = Operands::some,
                   .group = people_group});
  table.push_back({.name = "notify rm",
                   .summary = "remove a target",
                   .example = "billow notify rm 1",
                   .run = notify_rm,
                   .usage = "ID",
                   .operands = Operands::some,
                   .group = people_group});
}

}  // namespace billow::client
