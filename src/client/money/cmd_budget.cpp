// budget: limits on what a project, user or job may spend.
#include <fmt/format.h>
#include <unistd.h>

#include "base/money.h"
#include "base/text.h"
#include "client/frame/ask.h"
#include "client/frame/commands.h"
#include "client/frame/values.h"
#include "client/frame/when.h"

namespace billow::client {
namespace {

constexpr OptionSpec budget_key_options[] = {
    {"project", 'p', "NAME", "budget of this project"},
    {"user", 'u', "NAME", "budget of this user"},
    {"job", 0, "N", "total budget of this job"},
    {"daily", 0, nullptr, "per day (UTC)"},
    {"monthly", 0, nullptr, "per month (default)"},
    {"total", 0, nullptr, "for the whole time, without a period"},
};
constexpr OptionSpec budget_limit_options[] = {
    {"warn-only", 0, nullptr, "only warn at 50, 80 and 100 %; stop nothing"},
    {"grace", 0, "T", "time between suspending at the limit and stopping (default 10m)"},
};

struct Owner {
  std::string scope, of;
};
Result<Owner> owner_of(const Parsed& p) {
  const int named = static_cast<int>(p.has("project")) + static_cast<int>(p.has("user")) +
                    static_cast<int>(p.has("job"));
  if (named != 1)
    return fail(Code::invalid,
                named == 0 ? "no owner of the budget given" : "a budget has one owner",
                "give one of --project, --user or --job");
  if (p.has("project"))
    return Owner{"project", p.get("project")};
  if (p.has("user"))
    return Owner{"user", p.get("user")};
  return Owner{"job", p.get("job")};
}
Result<std::string> period_of(const Parsed& p, const Owner& owner) {
  if (p.has("daily") + p.has("monthly") + p.has("total") > 1)
    return fail(Code::invalid, "a budget has one period",
                "choose one of --daily, --monthly or --total");
  if (p.has("daily"))
    return "daily";
  if (p.has("total") || owner.scope == "job")
    return "total";
  return "monthly";
}

int budget_rm(const Parsed& p) {
  const auto owner = owner_of(p);
  if (!owner)
    return report_usage(owner.error());
  const auto period = period_of(p, *owner);
  if (!period)
    return report_usage(period.error());
  return ask(
      p,
      [&](Client& c) {
        return c.del(fmt::format("/v1/budgets/{}/{}/{}", owner->scope,
                                 net::percent_encode(owner->of), *period));
      },
      [&](const Json&) {
        print(fmt::format("removed the {} budget of {} {}\n", *period, owner->scope, owner->of));
      });
}

int budget_set(const Parsed& p) {
  const auto text = one_operand(p, "budget set", "amount");
  if (!text)
    return report_usage(text.error());
  if (*text == "none")
    return budget_rm(p);
  const auto limit = parse_usd(*text);
  if (!limit)
    return report_usage(Error(limit.error()).in("budget set"));
  if (limit->value <= 0)
    return report_usage({Code::invalid,
                         fmt::format("budget set {}: a budget must be more than zero", *text),
                         "for example: billow budget set --project default 500; to remove one: "
                         "billow budget set --project default none"});
  const auto owner = owner_of(p);
  if (!owner)
    return report_usage(owner.error());
  const auto period = period_of(p, *owner);
  if (!period)
    return report_usage(period.error());
  const auto grace = duration_with_unit(p.get("grace", "10m"));
  if (!grace)
    return report_usage(Error(grace.error()).in("--grace"));
  const Json body = Json::object({{"scope", owner->scope},
                                  {"of", owner->of},
                                  {"period", *period},
                                  {"limit_nano_usd", limit->value},
                                  {"stops", !p.has("warn-only")},
                                  {"grace_s", grace->ns / 1'000'000'000}});
  return ask(
      p, [&](Client& c) { return c.put("/v1/budgets", body.dump()); },
      [&](const Json&) {
        print(fmt::format("{} {} may spend {} {}{}\n", owner->scope, owner->of, format_usd(*limit),
                          *period == "daily"     ? "per day"
                          : *period == "monthly" ? "per month"
                                                 : "in total",
                          p.has("warn-only") ? "; beyond it, only warnings" : ""));
      });
}

int budget_show(const Parsed& p) {
  return ask(
      p, [](Client& c) { return c.get("/v1/budgets"); },
      [](const Json& answer) {
        Table table({{"OF"},
                     {"PERIOD"},
                     {"LIMIT", Table::Align::right},
                     {"SPENT", Table::Align::right},
                     {"", Table::Align::right},
                     {"SET ASIDE", Table::Align::right, 0, 3},
                     {"NOW", Table::Align::right},
                     {"FORECAST", Table::Align::right, 0, 2},
                     {"RUNS OUT"},
                     {"AT THE LIMIT", Table::Align::left, 0, 1}});
        for (const Json& b : list_in(answer, "budgets")) {
          const double pct = b["spent_pct"].double_or(0);
          const std::string spent_since = time_text(b["spent_since"], now(), "");
          const Colour colour = pct >= 100  ? Colour::red
                                : pct >= 80 ? Colour::yellow
                                            : Colour::none;
          table.row({fmt::format("{} {}", b["scope"].str_or("?"), b["of"].str_or("?")),
                     std::string(b["period"].str_or("?")),
                     std::string(b["limit"].str_or("?")),
                     {std::string(b["spent"].str_or("?")), colour},
                     {fmt::format("{:.0f} %", pct), colour},
                     b["held_back_nano_usd"].int_or(0) > 0 ? std::string(b["held_back"].str_or("?"))
                                                           : "-",
                     std::string(b["burn"].str_or("-")),
                     std::string(b["forecast"].str_or("-")),
                     spent_since.empty() ? time_text(b["runs_out_at"], now(), "-")
                                         : "spent " + spent_since,
                     b["stops"].bool_or(true)
                         ? (b["capped"].bool_or(false) ? "stopped" : "suspend, then stop")
                         : "warn only"});
        }
        show_table(table, "there are no budgets; set one: billow budget set --project NAME 500");
      });
}

}  // namespace

void add_budget_commands(CommandTable& table) {
  table.push_back({.name = "budget set",
                   .summary = "limit what a project, user or job may spend",
                   .example =
                       "billow budget set 500 --project vision\nbillow budget set 20 --user ana "
                       "--daily\nbillow budget set 3 --job 12",
                   .run = budget_set,
                   .usage = "USD | none",
                   .options = {budget_key_options, budget_limit_options},
                   .operands = Operands::some,
                   .group = money_group});
  table.push_back({.name = "budget show",
                   .summary = "show budgets, spending and when they run out",
                   .example = "billow budget show",
                   .run = budget_show,
                   .group = money_group});
  table.push_back({.name = "budget rm",
                   .summary = "remove a budget",
                   .example = "billow budget rm --project vision",
                   .run = budget_rm,
                   .options = {budget_key_options},
                   .group = money_group});
}

}  // namespace billow::client
