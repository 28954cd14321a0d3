// idle and keepalive: what happens to jobs that do no work, and exemptions from it.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

#include "base/text.h"
#include "client/frame/ask.h"
#include "client/frame/commands.h"
#include "client/frame/values.h"
#include "client/request/job_names.h"
#include "net/ask_keepalive.h"

namespace billow::client {
namespace {

constexpr OptionSpec idle_options[] = {
    {"project", 'p', "NAME",
     "project the rules apply to (default: all projects without their own rules)"},
    {"warn", 0, "T", "warn after this long idle"},
    {"suspend", 0, "T", "suspend after this long idle"},
    {"stop", 0, "T",
     "stop after this long idle, if the job cannot be suspended or its node is billed"},
    {"keepalive-max", 0, "T", "longest allowed keep-alive"},
    {"off", 0, nullptr, "no warnings and no stops; the floor still applies"},
    {"reset", 0, nullptr, "remove the project's own rules"},
    {"floor", 0, "T",
     "upper limit set by an admin: no job idles longer, whatever its project or a keep-alive "
     "allows; 0 for none"},
};
constexpr OptionSpec keepalive_options[] = {
    {"for", 0, "T", "how long (default 1h)"},
    {"reason", 0, "TEXT", "reason to record in the journal"},
};

int cmd_keepalive(const Parsed& p) {
  const auto lasts = duration_with_unit(p.get("for", "1h"));
  if (!lasts)
    return report_usage(Error(lasts.error()).in("--for"));
  if (p.operands.size() > 1)
    return report_usage(
        {Code::invalid, "keepalive accepts one job", "for example: billow keepalive 12 --for 2h"});
  const auto told = [](Duration asked, Duration kept) {
    print(fmt::format("kept alive for {}{}\n", format_duration(kept),
                      kept < asked ? ", the maximum of this project" : ""));
    return 0;
  };
  if (p.operands.empty()) {
    const char* socket = std::getenv(net::keepalive_variable);
    if (!socket)
      return report_usage({Code::invalid, "no job given",
                           "outside a job give its number: billow keepalive 12 --for 2h"});
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
    const auto d = duration_with_unit(p.get(option));
    if (!d)
      return report_usage(Error(d.error()).in(std::string("--") + option));
    body.set(field, d->ns / 1'000'000'000);
  }
  if (body.members().empty() || (body.members().size() == 1 && p.has("project")))
    return report_usage({Code::invalid, "nothing to set",
                         "for example: billow idle set --project vision --suspend 30m"});
  return ask(
      p, [&](Client& c) { return c.put("/v1/idle", body.dump()); },
      [](const Json&) { print("changed the idle settings; running jobs follow them now\n"); });
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
                     {"KEEP-ALIVE MAX", Table::Align::right}});
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
        print(floor ? fmt::format("floor: no job idles longer than {}\n",
                                  format_duration(seconds(floor)))
                    : "there is no floor\n");
      });
}

}  // namespace

void add_idle_commands(CommandTable& table) {
  table.push_back(
      {.name = "idle set",
       .summary = "set when idle jobs get a warning, are suspended and are stopped",
       .example =
           "billow idle set --project vision --suspend 30m --stop 1h\nbillow idle set --floor 6h",
       .run = idle_set,
       .options = {idle_options},
       .group = money_group});
  table.push_back({.name = "idle show",
                   .summary = "show the idle rules",
                   .example = "billow idle show",
                   .run = idle_show,
                   .group = money_group});
  table.push_back(
      {.name = "keepalive",
       .summary = "exempt a job from the idle rules for a while (inside a job: that job)",
       .example = "billow keepalive --for 2h --reason \"waiting for labels\"\nbillow keepalive 12 "
                  "--for 30m",
       .run = cmd_keepalive,
       .usage = "[JOB]",
       .options = {keepalive_options},
       .operands = Operands::some,
       .completes = Completes::job,
       .group = money_group});
}

}  // namespace billow::client
