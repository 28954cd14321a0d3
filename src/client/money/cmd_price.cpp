// price: what hardware costs and what projects pay for it.
#include <fmt/format.h>
#include <unistd.h>

#include "base/money.h"
#include "base/text.h"
#include "client/frame/ask.h"
#include "client/frame/commands.h"
#include "client/money/hourly_rate.h"
#include "core/ledger/books.h"

namespace billow::client {
namespace {

constexpr OptionSpec price_options[] = {
    {"cost", 0, "USD", "hardware cost per GPU-hour"},
    {"charge", 0, "USD", "price for projects per GPU-hour (default: the cost)"},
    {"spot", 0, "USD", "price for --spot jobs per GPU-hour; must be below the charge"},
    {"storage", 0, "USD", "storage price per GiB and month, for pools that charge it"},
    {"egress", 0, "USD", "egress price per GiB, for pools that charge it"},
};
constexpr OptionSpec onprem_options[] = {
    {"purchase", 0, "USD", "purchase price of one node"},
    {"gpus", 0, "N", "GPUs per node (default 8)"},
    {"years", 0, "Y", "depreciation period in years (default 4)"},
    {"power", 0, "W", "average power draw in watts"},
    {"per-kwh", 0, "USD", "price per kilowatt-hour"},
    {"pue", 0, "X", "power usage effectiveness, for cooling and losses (default 1.3)"},
    {"upkeep", 0, "USD", "space, staff and support per year (default 0)"},
    {"charge", 0, "USD", "price for projects per GPU-hour (default: the cost)"},
};

// "H100" means "gpu:H100"; "pool:aws" and "node:gpu-1" stay.
std::string price_target(const std::string& word) {
  return word.find(':') == std::string::npos ? "gpu:" + word : word;
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
        print(fmt::format("set the price of {}, effective now\n", price_target(*word)));
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
                      ? fmt::format(", {} upkeep per year", format_usd(hardware.upkeep_per_year))
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
        print(fmt::format("{}: {} per GPU, {} per node ({})\n", price_target(*word),
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
               {std::pair("storage_gib_month_nano_usd", "storage {} per GiB and month"),
                std::pair("egress_gib_nano_usd", "egress {} per GiB")})
            if (const std::int64_t price = r[field].int_or(0); price > 0)
              how += (how.empty() ? "" : "; ") + fmt::format(fmt::runtime(of), format_usd({price}));
          table.row({std::string(r["of"].str_or("?")), hour(r["cost_usd_h"]),
                     hour(r["charge_usd_h"]), hour(r["charge_spot_usd_h"]), how});
        }
        if (!table.empty())
          print(table.text(look_at(STDOUT_FILENO)) + "\n");
        else
          say("no price is set: the market median applies (see `billow prices`)");
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
        print(fmt::format("removed the price of {}; the market price applies\n",
                          price_target(*word)));
      });
}

}  // namespace

void add_price_commands(CommandTable& table) {
  table.push_back({.name = "price set",
                   .summary = "set the cost of a GPU type, pool or node, and what projects pay",
                   .example = "billow price set H100 --cost 2.10 --charge 2.50 --spot 1.20\nbillow "
                              "price set pool:aws --cost 6.88",
                   .run = price_set,
                   .usage = "TYPE | pool:NAME | node:NAME",
                   .options = {price_options},
                   .operands = Operands::some,
                   .group = money_group});
  table.push_back({.name = "price set-onprem",
                   .summary = "set the price of hardware you own: purchase, years, power",
                   .example = "billow price set-onprem H100 --purchase 280000 --gpus 8 --years 4 "
                              "--power 7000 --per-kwh 0.15",
                   .run = price_onprem,
                   .usage = "TYPE | pool:NAME | node:NAME",
                   .options = {onprem_options},
                   .operands = Operands::some,
                   .group = money_group});
  table.push_back({.name = "price list",
                   .summary = "list set prices and the cost of each node",
                   .example = "billow price list",
                   .run = price_list,
                   .group = money_group});
  table.push_back({.name = "price rm",
                   .summary = "remove a price; the market price applies again",
                   .example = "billow price rm H100",
                   .run = price_rm,
                   .usage = "TYPE | pool:NAME | node:NAME",
                   .operands = Operands::some,
                   .group = money_group});
}

}  // namespace billow::client
