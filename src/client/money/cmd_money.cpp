// What is set about money: budgets, prices, idle rules, keep-alives, webhooks, commitments, cost
// centres.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

#include "base/money.h"
#include "base/text.h"
#include "client/frame/ask.h"
#include "client/frame/commands.h"
#include "client/request/job_names.h"
#include "core/ledger/books.h"
#include "net/ask_keepalive.h"

namespace billow::client {
namespace {

constexpr OptionSpec budget_options[] = {
    {"project", 'p', "NAME", "of this project"},
    {"user", 'u', "NAME", "of this user"},
    {"job", 0, "N", "of this job, for all of it"},
    {"daily", 0, nullptr, "per day (UTC)"},
    {"monthly", 0, nullptr, "per month; this is what holds without a word"},
    {"total", 0, nullptr, "once and for all"},
    {"warn-only", 0, nullptr, "warn at 50, 80 and 100 %, and stop nothing"},
    {"grace", 0, "T", "between suspending at the cap and stopping (10m)"},
};
constexpr OptionSpec price_options[] = {
    {"cost", 0, "USD", "what the hardware costs, per GPU-hour"},
    {"charge", 0, "USD", "what projects pay, per GPU-hour; without it, the cost"},
    {"spot", 0, "USD", "what projects pay for --spot, per GPU-hour; below the charge"},
    {"storage", 0, "USD", "per GiB and month, where the pool prices it"},
    {"egress", 0, "USD", "per GiB that leaves, where the pool prices it"},
};
constexpr OptionSpec onprem_options[] = {
    {"purchase", 0, "USD", "what one node cost"},
    {"gpus", 0, "N", "GPUs in it (8)"},
    {"years", 0, "Y", "over which it is written off (4)"},
    {"power", 0, "W", "what it draws on average, in watts"},
    {"per-kwh", 0, "USD", "price of a kilowatt-hour"},
    {"pue", 0, "X", "watts drawn for each watt used: cooling and losses (1.3)"},
    {"upkeep", 0, "USD", "space, people and support, per year (0)"},
    {"charge", 0, "USD", "what projects pay, per GPU-hour; without it, the cost"},
};
constexpr OptionSpec idle_options[] = {
    {"project", 'p', "NAME",
     "of this project; without it, of every project without rules of its own"},
    {"warn", 0, "T", "warn after this long without work"},
    {"suspend", 0, "T", "suspend after"},
    {"stop", 0, "T", "stop after, where it cannot be suspended or its node bills"},
    {"keepalive-max", 0, "T", "the longest keep-alive"},
    {"off", 0, nullptr, "no ladder; the floor still holds"},
    {"reset", 0, nullptr, "back to what holds for everybody"},
    {"floor", 0, "T",
     "an admin's bound: nothing idles longer, whatever a project or a keep-alive says; 0 for none"},
};
constexpr OptionSpec keepalive_options[] = {
    {"for", 0, "T", "how long (1h)"},
    {"reason", 0, "TEXT", "why; it is kept in the journal"},
};
constexpr OptionSpec webhook_options[] = {
    {"kinds", 0, "A,B", "only notices of budget, idle, job, node or review (the monthly one)"}};
constexpr OptionSpec commitment_options[] = {
    {"gpu", 0, "TYPE", "of which GPU"},
    {"gpus", 0, "N", "how many"},
    {"rate", 0, "USD", "per GPU-hour, used or not"},
    {"from", 0, "DAY", "such as 2026-01-01"},
    {"to", 0, "DAY", "the day after the last"},
};

std::string usd(const Json& nano) {
  return format_usd({nano.int_or(0)});
}

struct Owner {
  std::string scope, of;
};
Result<Owner> owner_of(const Parsed& p) {
  const int named = static_cast<int>(p.has("project")) + static_cast<int>(p.has("user")) +
                    static_cast<int>(p.has("job"));
  if (named != 1)
    return fail(Code::invalid, named == 0 ? "whose budget?" : "a budget has one owner",
                "name one of --project, --user or --job");
  if (p.has("project"))
    return Owner{"project", p.get("project")};
  if (p.has("user"))
    return Owner{"user", p.get("user")};
  return Owner{"job", p.get("job")};
}
Result<std::string> period_of(const Parsed& p, const Owner& owner) {
  if (p.has("daily") + p.has("monthly") + p.has("total") > 1)
    return fail(Code::invalid, "a budget has one period", "daily, monthly or total");
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
        print(fmt::format("the {} budget of {} {} is gone\n", *period, owner->scope, owner->of));
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
                         fmt::format("budget set {}: a budget is more than nothing", *text),
                         "write it like: billow budget set --project default 500; to take one "
                         "away: billow budget set --project default none"});
  const auto owner = owner_of(p);
  if (!owner)
    return report_usage(owner.error());
  const auto period = period_of(p, *owner);
  if (!period)
    return report_usage(period.error());
  const auto grace = parse_duration(p.get("grace", "10m"));
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
                          *period == "daily"     ? "a day"
                          : *period == "monthly" ? "a month"
                                                 : "in all",
                          p.has("warn-only") ? "; beyond it there are only warnings" : ""));
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
                     {"HELD BACK", Table::Align::right, 0, 3},
                     {"NOW", Table::Align::right},
                     {"FORECAST", Table::Align::right, 0, 2},
                     {"RUNS OUT"},
                     {"AT THE CAP", Table::Align::left, 0, 1}});
        for (const Json& b : list_in(answer, "budgets")) {
          const double pct = b["spent_pct"].double_or(0);
          const std::string spent_since(b["spent_since"].str_or(""));
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
                     spent_since.empty() ? std::string(b["runs_out_at"].str_or("-"))
                                         : "spent since " + spent_since,
                     b["stops"].bool_or(true)
                         ? (b["capped"].bool_or(false) ? "stopped" : "suspend, then stop")
                         : "warns only"});
        }
        show_table(table, "there are no budgets; set one: billow budget set --project NAME 500");
      });
}

// ---- prices
// "H100", "gpu:H100", "pool:aws", "node:gpu-1"
std::string price_target(const std::string& word) {
  return word.find(':') == std::string::npos ? "gpu:" + word : word;
}

Result<std::optional<std::int64_t>> per_second(const Parsed& p, const char* name) {
  if (!p.has(name))
    return std::optional<std::int64_t>();
  auto amount = parse_usd(p.get(name));
  if (!amount)
    return pass(amount.error(), std::string("--") + name);
  return std::optional<std::int64_t>((amount->value + 1800) / 3600);
}

int price_set(const Parsed& p) {
  const auto word = one_operand(p, "price set", "GPU type, pool:NAME or node:NAME");
  if (!word)
    return report_usage(word.error());
  Json body = Json::object({{"of", price_target(*word)}});
  for (const auto& [option, field] : {std::pair("cost", "cost"), std::pair("charge", "charge"),
                                      std::pair("spot", "charge_spot")}) {
    const auto rate = per_second(p, option);
    if (!rate)
      return report_usage(rate.error());
    if (*rate)
      body.set(field, **rate);
  }
  for (const auto& [option, field] :
       {std::pair("storage", "storage_gib_month"), std::pair("egress", "egress_gib")}) {
    if (!p.has(option))
      continue;
    const auto amount = parse_usd(p.get(option));
    if (!amount)
      return report_usage(Error(amount.error()).in(std::string("--") + option));
    body.set(field, amount->value);
  }
  return ask(
      p, [&](Client& c) { return c.put("/v1/prices", body.dump()); },
      [&](const Json&) {
        print(fmt::format("the price of {} holds from now on\n", price_target(*word)));
      });
}

int price_onprem(const Parsed& p) {
  const auto word = one_operand(p, "price set-onprem", "GPU type, pool:NAME or node:NAME");
  if (!word)
    return report_usage(word.error());
  ledger::OwnedHardware hardware;
  const auto money = [&](const char* name, NanoUsd& into) -> Status {
    if (p.has(name))
      into = BILLOW_TRY(parse_usd(p.get(name)));
    return {};
  };
  const auto milli = [&](const char* name, std::int64_t& into) -> Status {
    if (p.has(name))
      into = BILLOW_TRY(parse_milli(p.get(name)));
    return {};
  };
  for (const Status& read :
       {money("purchase", hardware.purchase), money("per-kwh", hardware.per_kwh),
        money("upkeep", hardware.upkeep_per_year), milli("years", hardware.years_milli),
        milli("pue", hardware.pue_milli)})
    if (!read)
      return report_usage(read.error());
  const auto power = parse_int(p.get("power", "0"), 0, 1'000'000);
  const auto gpus = parse_int(p.get("gpus", "8"), 1, 1024);
  if (!power)
    return report_usage(Error(power.error()).in("--power"));
  if (!gpus)
    return report_usage(Error(gpus.error()).in("--gpus"));
  hardware.power_w = *power;
  const auto rate = ledger::owned_rate(hardware);
  if (!rate)
    return report_usage(rate.error());
  const Rate per_gpu{(rate->nano_usd_per_s + *gpus / 2) / *gpus};
  const std::string how =
      fmt::format("{} over {:g} years{}{}, {} GPUs", format_usd(hardware.purchase),
                  static_cast<double>(hardware.years_milli) / 1000,
                  hardware.power_w ? fmt::format(", {} W at {}/kWh and PUE {:g}", hardware.power_w,
                                                 format_usd(hardware.per_kwh),
                                                 static_cast<double>(hardware.pue_milli) / 1000)
                                   : "",
                  hardware.upkeep_per_year.value
                      ? fmt::format(", {} upkeep a year", format_usd(hardware.upkeep_per_year))
                      : "",
                  *gpus);
  Json body =
      Json::object({{"of", price_target(*word)}, {"cost", per_gpu.nano_usd_per_s}, {"how", how}});
  const auto charge = per_second(p, "charge");
  if (!charge)
    return report_usage(charge.error());
  if (*charge)
    body.set("charge", **charge);
  return ask(
      p, [&](Client& c) { return c.put("/v1/prices", body.dump()); },
      [&](const Json&) {
        print(fmt::format("{}: {} a GPU, {} a node ({})\n", price_target(*word),
                          format_rate_per_hour(per_gpu), format_rate_per_hour(*rate), how));
      });
}

int price_list(const Parsed& p) {
  return ask(
      p, [](Client& c) { return c.get("/v1/prices"); },
      [](const Json& answer) {
        const auto hour = [](const Json& v) {
          return v.is_number() ? fmt::format("${:.4f}/h", v.double_or(0)) : std::string("-");
        };
        Table table({{"PRICE OF"},
                     {"COST", Table::Align::right},
                     {"CHARGE", Table::Align::right},
                     {"SPOT", Table::Align::right},
                     {"HOW", Table::Align::left, 20}});
        for (const Json& r : list_in(answer, "prices")) {
          std::string how(r["how"].str_or(""));
          for (const auto& [field, of] :
               {std::pair("storage_gib_month_nano_usd", "storage {} a GiB and month"),
                std::pair("egress_gib_nano_usd", "egress {} a GiB")})
            if (const std::int64_t price = r[field].int_or(0); price > 0)
              how += (how.empty() ? "" : "; ") + fmt::format(fmt::runtime(of), format_usd({price}));
          table.row({std::string(r["of"].str_or("?")), hour(r["cost_usd_h"]),
                     hour(r["charge_usd_h"]), hour(r["charge_spot_usd_h"]), how});
        }
        if (!table.empty())
          print(table.text(look_at(STDOUT_FILENO)) + "\n");
        else
          say("no price is set: the market's median is used (`billow prices`)");
        Table nodes({{"NODE"},
                     {"POOL"},
                     {"BILLS"},
                     {"GPUS", Table::Align::right},
                     {"COSTS", Table::Align::right}});
        for (const Json& n : answer["nodes"].items())
          nodes.row({std::string(n["node"].str_or("?")), std::string(n["pool"].str_or("-")),
                     n["bills"].bool_or(false) ? "yes" : "no",
                     fmt::format("{}", n["gpus"].int_or(0)), hour(n["cost_usd_h"])});
        show_table(nodes, "there are no nodes");
      });
}
int price_rm(const Parsed& p) {
  const auto word = one_operand(p, "price rm", "GPU type, pool:NAME or node:NAME");
  if (!word)
    return report_usage(word.error());
  return ask(
      p, [&](Client& c) { return c.del("/v1/prices/" + net::percent_encode(price_target(*word))); },
      [&](const Json&) {
        print(fmt::format("the price of {} is gone; the market's holds\n", price_target(*word)));
      });
}

// ---- idleness
int cmd_keepalive(const Parsed& p) {
  const auto lasts = parse_duration(p.get("for", "1h"));
  if (!lasts)
    return report_usage(Error(lasts.error()).in("--for"));
  if (p.operands.size() > 1)
    return report_usage({Code::invalid, "one job at a time", "billow keepalive 12 --for 2h"});
  const auto told = [](Duration asked, Duration kept) {
    print(fmt::format("kept alive for {}{}\n", format_duration(kept),
                      kept < asked ? ", the most this project allows" : ""));
    return 0;
  };
  if (p.operands.empty()) {
    const char* socket = std::getenv(net::keepalive_variable);
    if (!socket)
      return report_usage(
          {Code::invalid, "which job?",
           "inside a job no number is needed; elsewhere: billow keepalive 12 --for 2h"});
    const auto kept = net::ask_keepalive(socket, *lasts, p.get("reason"));
    return kept ? told(*lasts, *kept) : report(kept.error());
  }
  const Json body =
      Json::object({{"for_s", lasts->ns / 1'000'000'000}, {"reason", p.get("reason")}});
  return ask(
      p,
      [&](Client& c) -> Result<Json> {
        return c.post(
            path_of_job(BILLOW_TRY(job_of(c, p.operands[0], NameUse::change)), "keepalive"),
            body.dump());
      },
      [&](const Json& answer) { told(*lasts, seconds(answer["for_s"].int_or(0))); });
}

int idle_set(const Parsed& p) {
  Json body = Json::object();
  if (p.has("project"))
    body.set("project", p.get("project"));
  if (p.has("off"))
    body.set("enabled", false);
  if (p.has("reset"))
    body.set("reset", true);
  for (const auto& [option, field] :
       {std::pair("warn", "warn_s"), std::pair("suspend", "suspend_s"), std::pair("stop", "stop_s"),
        std::pair("keepalive-max", "keepalive_max_s"), std::pair("floor", "floor_suspend_s")}) {
    if (!p.has(option))
      continue;
    const auto d = parse_duration(p.get(option));
    if (!d)
      return report_usage(Error(d.error()).in(std::string("--") + option));
    body.set(field, d->ns / 1'000'000'000);
  }
  if (body.members().empty() || (body.members().size() == 1 && p.has("project")))
    return report_usage(
        {Code::invalid, "nothing to set", "billow idle set --project vision --suspend 30m"});
  return ask(
      p, [&](Client& c) { return c.put("/v1/idle", body.dump()); },
      [](const Json&) { print("it holds from now on, for running jobs too\n"); });
}
int idle_show(const Parsed& p) {
  return ask(
      p, [](Client& c) { return c.get("/v1/idle"); },
      [](const Json& answer) {
        Table table({{"PROJECT"},
                     {"LADDER"},
                     {"WARN", Table::Align::right},
                     {"SUSPEND", Table::Align::right},
                     {"STOP", Table::Align::right},
                     {"KEEP-ALIVE AT MOST", Table::Align::right}});
        const auto add = [&](const std::string& name, const Json& policy) {
          const auto t = [&](const char* field) {
            return format_duration(seconds(policy[field].int_or(0)));
          };
          table.row({name, policy["enabled"].bool_or(true) ? "on" : "off", t("warn_s"),
                     t("suspend_s"), t("stop_s"), t("keepalive_max_s")});
        };
        add("(all others)", answer["default"]);
        for (const auto& [name, policy] : answer["projects"].members())
          add(name, policy);
        print(table.text(look_at(STDOUT_FILENO)));
        const std::int64_t floor = answer.at("floor", "suspend_s").int_or(0);
        print(floor ? fmt::format("floor: nothing idles longer than {}\n",
                                  format_duration(seconds(floor)))
                    : "there is no floor\n");
      });
}

// ---- webhooks
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
        say(
            fmt::format("this is webhook {}; its messages are signed with the secret above "
                        "(HMAC-SHA256 of \"id.timestamp.body\"). Try it: billow webhook test {}",
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
      [&](const Json&) { print(fmt::format("webhook {} is gone\n", *id)); });
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
        print(fmt::format("{}: it answered {}\n", ok ? "delivered" : "refused",
                          answer["status"].int_or(0)));
        code = ok ? 0 : exit_failed;
      });
  return asked ? asked : code;
}

// ---- commitments and cost centres
int commitment_set(const Parsed& p) {
  const auto name = one_operand(p, "commitment set", "name");
  if (!name)
    return report_usage(name.error());
  const auto gpus = parse_int(p.get("gpus", "0"), 1, 1'000'000);
  if (!gpus)
    return report_usage(Error(gpus.error()).in("--gpus"));
  const auto rate = per_second(p, "rate");
  if (!rate)
    return report_usage(rate.error());
  const auto day = [&](const char* option) -> Result<std::int64_t> {
    const WallTime at = parse_utc(p.get(option) + "T00:00:00Z");
    if (!at)
      return fail(Code::invalid, fmt::format("--{}: \"{}\" is no day", option, p.get(option)),
                  "write it like 2026-01-01");
    return at.ns / 86'400'000'000'000;
  };
  const auto from = day("from"), to = day("to");
  if (!from)
    return report_usage(from.error());
  if (!to)
    return report_usage(to.error());
  const Json body = Json::object({{"name", *name},
                                  {"gpu", p.get("gpu")},
                                  {"gpus", *gpus},
                                  {"rate", rate->value_or(0)},
                                  {"from_day", *from},
                                  {"to_day", *to}});
  return ask(
      p, [&](Client& c) { return c.put("/v1/commitments", body.dump()); },
      [&](const Json&) { print(fmt::format("commitment {} is kept\n", *name)); });
}
int commitment_list(const Parsed& p) {
  return ask(
      p, [](Client& c) { return c.get("/v1/commitments"); },
      [](const Json& answer) {
        Table table({{"COMMITMENT"},
                     {"OF"},
                     {"RATE", Table::Align::right},
                     {"FROM"},
                     {"TO"},
                     {"USED", Table::Align::right},
                     {"COVERS", Table::Align::right},
                     {"UNUSED", Table::Align::right},
                     {"LEFT", Table::Align::right}});
        for (const Json& c : list_in(answer, "commitments"))
          table.row({std::string(c["name"].str_or("?")),
                     fmt::format("{}×{}", c["gpus"].int_or(0), c["gpu"].str_or("?")),
                     fmt::format("${:.2f}/h", c["usd_h"].double_or(0)),
                     std::string(c["from"].str_or("?")), std::string(c["to"].str_or("?")),
                     fmt::format("{:.0f} %", c["utilisation_pct"].double_or(0)),
                     fmt::format("{:.0f} %", c["coverage_pct"].double_or(0)),
                     usd(c["unused_nano_usd"]), fmt::format("{} d", c["days_left"].int_or(0))});
        show_table(table, "there are no commitments; see `billow commitment set --help`");
      });
}
int commitment_rm(const Parsed& p) {
  const auto name = one_operand(p, "commitment rm", "name");
  if (!name)
    return report_usage(name.error());
  return ask(
      p, [&](Client& c) { return c.del("/v1/commitments/" + net::percent_encode(*name)); },
      [&](const Json&) { print(fmt::format("commitment {} is gone\n", *name)); });
}
int project_tag(const Parsed& p) {
  const auto equals = p.operands.size() == 2 ? p.operands[1].find('=') : std::string::npos;
  if (equals == std::string::npos)
    return report_usage(
        {Code::invalid, "name a project and a tag", "billow project tag vision cost-centre=4711"});
  const std::string key = p.operands[1].substr(0, equals), value = p.operands[1].substr(equals + 1);
  return ask(
      p,
      [&](Client& c) {
        return c.put(fmt::format("/v1/projects/{}/tags/{}", net::percent_encode(p.operands[0]),
                                 net::percent_encode(key)),
                     Json::object({{"value", value}}).dump());
      },
      [&](const Json&) {
        print(value.empty() ? fmt::format("{} has no {} any more\n", p.operands[0], key)
                            : fmt::format("{}: {} is {}\n", p.operands[0], key, value));
      });
}

}  // namespace

void add_money_commands(CommandTable& table) {
  constexpr const char* group = "money and advice";
  table.push_back(
      {.name = "budget set",
       .summary =
           "how much a project, user or job may spend; jobs are suspended at the cap, then stopped",
       .example = "billow budget set 500 --project vision\nbillow budget set 20 --user ana "
                  "--daily\nbillow budget set 3 --job 12",
       .run = budget_set,
       .usage = "USD | none",
       .options = {budget_options},
       .operands = Operands::some,
       .group = group});
  table.push_back({.name = "budget show",
                   .summary = "budgets, what is spent of them, and when they run out",
                   .example = "billow budget show",
                   .run = budget_show,
                   .group = group});
  table.push_back({.name = "budget rm",
                   .summary = "take a budget away",
                   .example = "billow budget rm --project vision",
                   .run = budget_rm,
                   .options = {budget_options},
                   .group = group});
  table.push_back({.name = "price set",
                   .summary = "what a GPU type, pool or node costs, and what projects pay",
                   .example = "billow price set H100 --cost 2.10 --charge 2.50 --spot 1.20\nbillow "
                              "price set pool:aws --cost 6.88",
                   .run = price_set,
                   .usage = "TYPE | pool:NAME | node:NAME",
                   .options = {price_options},
                   .operands = Operands::some,
                   .group = group});
  table.push_back({.name = "price set-onprem",
                   .summary = "the price of hardware you own: purchase, years, power",
                   .example = "billow price set-onprem H100 --purchase 280000 --gpus 8 --years 4 "
                              "--power 7000 --per-kwh 0.15",
                   .run = price_onprem,
                   .usage = "TYPE | pool:NAME | node:NAME",
                   .options = {onprem_options},
                   .operands = Operands::some,
                   .group = group});
  table.push_back({.name = "price list",
                   .summary = "prices that were set, and what each node costs",
                   .example = "billow price list",
                   .run = price_list,
                   .group = group});
  table.push_back({.name = "price rm",
                   .summary = "take a price back",
                   .example = "billow price rm H100",
                   .run = price_rm,
                   .usage = "TYPE | pool:NAME | node:NAME",
                   .operands = Operands::some,
                   .group = group});
  table.push_back(
      {.name = "idle set",
       .summary = "when a job that does nothing is warned, suspended and stopped",
       .example =
           "billow idle set --project vision --suspend 30m --stop 1h\nbillow idle set --floor 6h",
       .run = idle_set,
       .options = {idle_options},
       .group = group});
  table.push_back({.name = "idle show",
                   .summary = "the idle rules",
                   .example = "billow idle show",
                   .run = idle_show,
                   .group = group});
  table.push_back(
      {.name = "keepalive",
       .summary = "leave an idle job alone for a while; inside a job it needs no number",
       .example = "billow keepalive --for 2h --reason \"waiting for labels\"\nbillow keepalive 12 "
                  "--for 30m",
       .run = cmd_keepalive,
       .usage = "[JOB]",
       .options = {keepalive_options},
       .operands = Operands::some,
       .completes = Completes::job,
       .group = group});
  table.push_back(
      {.name = "webhook add",
       .summary = "send notices of budgets, idleness, failures and health to a URL, signed",
       .example = "billow webhook add https://hooks.example.com/billow --kinds budget,idle",
       .run = webhook_add,
       .usage = "URL",
       .options = {webhook_options},
       .operands = Operands::some,
       .group = group});
  table.push_back({.name = "webhook list",
                   .summary = "webhooks, and how many notices wait",
                   .example = "billow webhook list",
                   .run = webhook_list,
                   .group = group});
  table.push_back({.name = "webhook rm",
                   .summary = "end a webhook",
                   .example = "billow webhook rm 1",
                   .run = webhook_rm,
                   .usage = "ID",
                   .operands = Operands::some,
                   .group = group});
  table.push_back({.name = "webhook test",
                   .summary = "send a webhook a test, now",
                   .example = "billow webhook test 1",
                   .run = webhook_test,
                   .usage = "ID",
                   .operands = Operands::some,
                   .group = group});
  table.push_back({.name = "commitment set",
                   .summary = "GPUs that are paid for whether used or not",
                   .example = "billow commitment set cud-2026 --gpu H100 --gpus 16 --rate 1.85 "
                              "--from 2026-01-01 --to 2027-01-01",
                   .run = commitment_set,
                   .usage = "NAME",
                   .options = {commitment_options},
                   .operands = Operands::some,
                   .group = group});
  table.push_back({.name = "commitment list",
                   .summary = "how far commitments are used, cover the demand, and when they end",
                   .example = "billow commitment list",
                   .run = commitment_list,
                   .group = group});
  table.push_back({.name = "commitment rm",
                   .summary = "forget a commitment",
                   .example = "billow commitment rm cud-2026",
                   .run = commitment_rm,
                   .usage = "NAME",
                   .operands = Operands::some,
                   .group = group});
  table.push_back({.name = "project tag",
                   .summary = "a cost centre or another tag, for invoices",
                   .example = "billow project tag vision cost-centre=4711",
                   .run = project_tag,
                   .usage = "PROJECT KEY=VALUE",
                   .operands = Operands::some,
                   .group = "people and access"});
}

}  // namespace billow::client
