// commitment: GPUs paid for whether used or not; project tag: cost centres for invoices.
#include <fmt/format.h>
#include <unistd.h>

#include "base/formats/utc.h"
#include "base/money.h"
#include "base/text.h"
#include "client/frame/ask.h"
#include "client/frame/commands.h"
#include "client/frame/table.h"
#include "client/money/hourly_rate.h"

namespace billow::client {
namespace {

constexpr OptionSpec commitment_options[] = {
    {"gpu", 0, "TYPE", "GPU type"},
    {"gpus", 0, "N", "number of GPUs"},
    {"rate", 0, "USD", "price per GPU-hour, used or not"},
    {"from", 0, "DAY", "first day, e.g. 2026-01-01"},
    {"to", 0, "DAY", "day after the last day"},
};

int commitment_set(const Parsed& p) {
  const auto name = one_operand(p, "commitment set", "name");
  if (!name)
    return report_usage(name.error());
  for (const char* option : {"gpu", "gpus", "rate", "from", "to"})
    if (!p.has(option))
      return report_usage({Code::invalid, fmt::format("--{} is missing", option),
                           "for example: billow commitment set cud-2026 --gpu H100 --gpus 16 "
                           "--rate 1.85 --from 2026-01-01 --to 2027-01-01"});
  const auto gpus = parse_int(p.get("gpus"), 1, 1'000'000);
  if (!gpus)
    return report_usage(Error(gpus.error()).in("--gpus"));
  const auto rate = per_second(p, "rate");
  if (!rate)
    return report_usage(rate.error());
  const auto day = [&](const char* option) -> Result<std::int64_t> {
    const WallTime at = utc_or_zero(p.get(option) + "T00:00:00Z");
    if (!at)
      return fail(Code::invalid, fmt::format("--{}: \"{}\" is not a date", option, p.get(option)),
                  "use a form like 2026-01-01");
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
      [&](const Json&) { print(fmt::format("saved commitment {}\n", *name)); });
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
                     usd_text(c["unused_nano_usd"]),
                     fmt::format("{} d", c["days_left"].int_or(0))});
        show_table(table, "there are no commitments; see `billow commitment set --help`");
      });
}
int commitment_rm(const Parsed& p) {
  const auto name = one_operand(p, "commitment rm", "name");
  if (!name)
    return report_usage(name.error());
  return ask(
      p, [&](Client& c) { return c.del("/v1/commitments/" + net::percent_encode(*name)); },
      [&](const Json&) { print(fmt::format("removed commitment {}\n", *name)); });
}
int project_tag(const Parsed& p) {
  const auto equals = p.operands.size() == 2 ? p.operands[1].find('=') : std::string::npos;
  if (equals == std::string::npos)
    return report_usage({Code::invalid, "a project and a tag are required",
                         "for example: billow project tag vision cost-centre=4711"});
  const std::string key = p.operands[1].substr(0, equals), value = p.operands[1].substr(equals + 1);
  return ask(
      p,
      [&](Client& c) {
        return c.put(fmt::format("/v1/projects/{}/tags/{}", net::percent_encode(p.operands[0]),
                                 net::percent_encode(key)),
                     Json::object({{"value", value}}).dump());
      },
      [&](const Json&) {
        print(value.empty() ? fmt::format("removed tag {1} of {0}\n", p.operands[0], key)
                            : fmt::format("{}: {} is {}\n", p.operands[0], key, value));
      });
}

}  // namespace

void add_commitment_commands(CommandTable& table) {
  table.push_back({.name = "commitment set",
                   .summary = "record GPUs that are paid for whether used or not",
                   .example = "billow commitment set cud-2026 --gpu H100 --gpus 16 --rate 1.85 "
                              "--from 2026-01-01 --to 2027-01-01",
                   .run = commitment_set,
                   .usage = "NAME",
                   .options = {commitment_options},
                   .operands = Operands::some,
                   .group = money_group});
  table.push_back({.name = "commitment list",
                   .summary = "list commitments with their use, coverage and end",
                   .example = "billow commitment list",
                   .run = commitment_list,
                   .group = money_group});
  table.push_back({.name = "commitment rm",
                   .summary = "remove a commitment",
                   .example = "billow commitment rm cud-2026",
                   .run = commitment_rm,
                   .usage = "NAME",
                   .operands = Operands::some,
                   .group = money_group});
  table.push_back({.name = "project tag",
                   .summary = "set a cost centre or another tag for invoices",
                   .example = "billow project tag vision cost-centre=4711",
                   .run = project_tag,
                   .usage = "PROJECT KEY=VALUE",
                   .operands = Operands::some,
                   .group = "people and access"});
}

}  // namespace billow::client
