// webhook: where notices are sent.
#include <fmt/format.h>
#include <unistd.h>

#include "base/text.h"
#include "client/frame/ask.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/values.h"
#include "client/frame/when.h"

namespace billow::client {
namespace {

constexpr OptionSpec webhook_options[] = {
    {"kinds", 0, "A,B", "only these notices: budget, idle, job, node, review (monthly)"}};

constexpr OptionSpec rotate_options[] = {
    {"grace", 0, "T",
     "also sign with the old secret for this long (default 24h; 0s: stop at once)"}};

int webhook_add(const Parsed& p) {
  const auto url = one_operand(p, "webhook add", "URL");
  if (!url)
    return report_usage(url.error());
  Json kinds = Json::array();
  if (p.has("kinds"))
    for (const std::string& kind : split(p.get("kinds"), ','))
      kinds.push(std::string(trim(kind)));
  return ask(
      p,
      [&](Client& c) {
        return c.post("/v1/webhooks",
                      Json::object({{"url", *url}, {"kinds", std::move(kinds)}}).dump());
      },
      [](const Json& answer) {
        print(std::string(answer["secret"].str_or("")) + "\n");
        say(fmt::format(
            "this is webhook {}; its messages are signed with the secret above (HMAC-SHA256 of "
            "\"id.timestamp.body\"). Test it with `billow webhook test {}`",
            answer["id"].int_or(0), answer["id"].int_or(0)));
      });
}
int webhook_list(const Parsed& p) {
  return ask(
      p, [](Client& c) { return c.get("/v1/webhooks"); },
      [](const Json& answer) {
        Table table({{"WEBHOOK", Table::Align::right},
                     {"URL", Table::Align::left, 20},
                     {"KINDS"},
                     {"WAITING", Table::Align::right}});
        for (const Json& h : list_in(answer, "webhooks")) {
          std::vector<std::string> kinds;
          for (const Json& kind : h["kinds"].items())
            kinds.emplace_back(kind.str_or("?"));
          table.row({fmt::format("{}", h["id"].int_or(0)), std::string(h["url"].str_or("?")),
                     kinds.empty() ? "all" : join(kinds, ","),
                     fmt::format("{}", h["waiting"].int_or(0))});
        }
        show_table(table, "there are no webhooks; see `billow webhook add --help`");
      });
}
int webhook_rm(const Parsed& p) {
  const auto id = one_operand(p, "webhook rm", "number");
  if (!id)
    return report_usage(id.error());
  return ask(
      p, [&](Client& c) { return c.del("/v1/webhooks/" + net::percent_encode(*id)); },
      [&](const Json&) { print(fmt::format("removed webhook {}\n", *id)); });
}
int webhook_rotate(const Parsed& p) {
  const auto id = one_operand(p, "webhook rotate", "number");
  if (!id)
    return report_usage(id.error());
  Json body = Json::object();
  const auto grace = seconds_option(p, "grace");
  if (!grace)
    return report_usage(grace.error());
  if (*grace)
    body.set("grace_s", **grace);
  const bool at_once = *grace && **grace == 0;
  return ask(
      p,
      [&](Client& c) {
        return c.post("/v1/webhooks/" + net::percent_encode(*id) + "/rotate", body.dump());
      },
      [at_once](const Json& answer) {
        print(std::string(answer["secret"].str_or("")) + "\n");
        say(fmt::format("this is the new secret of webhook {}; {}", answer["id"].int_or(0),
                        at_once ? "its messages are signed with it alone from now on"
                                : fmt::format("its messages also have a signature made with the "
                                              "old secret, which stops working {}",
                                              time_text(answer["old_until"], now(), "now"))));
      });
}
int webhook_test(const Parsed& p) {
  const auto id = one_operand(p, "webhook test", "number");
  if (!id)
    return report_usage(id.error());
  int code = 0;
  const int asked = ask(
      p, [&](Client& c) { return c.post("/v1/webhooks/" + net::percent_encode(*id) + "/test"); },
      [&](const Json& answer) {
        const bool ok = answer["delivered"].bool_or(false);
        print(fmt::format("{}: the receiver answered {}\n", ok ? "delivered" : "refused",
                          answer["status"].int_or(0)));
        code = ok ? 0 : exit_failed;
      });
  return asked ? asked : code;
}

}  // namespace

void add_webhook_commands(CommandTable& table) {
  table.push_back(
      {.name = "webhook add",
       .summary = "send signed notices of budgets, idle jobs, failures and health to a URL",
       .example = "billow webhook add https://hooks.example.com/billow --kinds budget,idle",
       .run = webhook_add,
       .usage = "URL",
       .options = {webhook_options},
       .operands = Operands::some,
       .group = money_group});
  table.push_back({.name = "webhook list",
                   .summary = "list webhooks and their pending notices",
                   .example = "billow webhook list",
                   .run = webhook_list,
                   .group = money_group});
  table.push_back({.name = "webhook rm",
                   .summary = "remove a webhook",
                   .example = "billow webhook rm 1",
                   .run = webhook_rm,
                   .usage = "ID",
                   .operands = Operands::some,
                   .group = money_group});
  table.push_back({.name = "webhook rotate",
                   .summary = "replace the secret that signs a webhook's messages",
                   .example = "billow webhook rotate 1 --grace 7d",
                   .run = webhook_rotate,
                   .usage = "ID",
                   .options = {rotate_options},
                   .operands = Operands::some,
                   .group = money_group});
  table.push_back({.name = "webhook test",
                   .summary = "send a test notice to a webhook",
                   .example = "billow webhook test 1",
                   .run = webhook_test,
                   .usage = "ID",
                   .operands = Operands::some,
                   .group = money_group});
}

}  // namespace billow::client
