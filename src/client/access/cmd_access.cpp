// Users, projects and schedules.
#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include "base/text.h"
#include "client/frame/ask.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/table.h"
#include "client/frame/values.h"
#include "client/frame/when.h"
#include "client/request/job_request.h"

namespace billow::client {
namespace {

constexpr OptionSpec role_option[] = {
    {"role", 0, "ROLE", "member (default), viewer, operator, auditor, admin, or one of yours",
     false, Completes::choice, "admin,auditor,member,operator,viewer"}};
constexpr OptionSpec project_options[] = {
    {"weight", 0, "N", "weight of the project when projects compete (default 100)"}};
constexpr OptionSpec user_options[] = {
    {"unix-name", 0, "NAME",
     "Unix account that runs the user's jobs on the nodes (default: the same name)"},
    {"service", 0, nullptr, "a service account: it has tokens and cannot sign in"}};
constexpr OptionSpec user_set_options[] = {
    {"role", 0, "ROLE", "member, viewer, operator, auditor, admin, or one of yours", false,
     Completes::choice, "admin,auditor,member,operator,viewer"},
    {"disable", 0, nullptr, "end the user's tokens and sessions and accept no new ones"},
    {"enable", 0, nullptr, "let a disabled user back in; new tokens are needed"},
    {"jobs", 0, "stop|keep", "the user's jobs with --disable: stop (default) or keep", false,
     Completes::choice, "stop,keep"},
    {"login", 0, "PROVIDER/SUBJECT",
     "identity of the user at a provider; an empty value removes it"},
};
constexpr OptionSpec user_rm_options[] = {
    {"jobs", 0, "stop|keep", "the user's jobs: stop (default) or keep", false, Completes::choice,
     "stop,keep"},
};

std::string text_or_number(const Json& value) {
  return value.is_string()   ? value.as_string()
         : value.is_number() ? fmt::format("{}", value.int_or(0))
                             : "-";
}

int project_create(const Parsed& p) {
  const auto name = one_operand(p, "project create", "name");
  if (!name)
    return report_usage(name.error());
  const auto weight = parse_int(p.get("weight", "100"), 1, 1'000'000);
  if (!weight)
    return report_usage(Error(weight.error()).in("--weight"));
  return ask(
      p,
      [&](Client& c) {
        return c.post("/v1/projects", Json::object({{"name", *name}, {"weight", *weight}}).dump());
      },
      [&](const Json&) {
        print(fmt::format("created project {}; add members with `billow project member {} USER`\n",
                          *name, *name));
      });
}

int project_list(const Parsed& p) {
  return ask(
      p, [](Client& c) { return c.get("/v1/projects"); },
      [](const Json& answer) {
        Table table({{"PROJECT"},
                     {"WEIGHT", Table::Align::right},
                     {"GUARANTEED", Table::Align::right},
                     {"MAX", Table::Align::right},
                     {"RUNNING", Table::Align::right},
                     {"BORROWED", Table::Align::right},
                     {"POLICY"},
                     {"MEMBERS", Table::Align::left, 20}});
        const auto gpus = [](const Json& milli) {
          return milli.is_number()
                     ? fmt::format("{:g}", static_cast<double>(milli.int_or(0)) / 1000)
                     : std::string("-");
        };
        for (const Json& project : list_in(answer, "projects")) {
          std::string members;
          for (const auto& [user, role] : project["members"].members())
            members +=
                fmt::format("{}{} ({})", members.empty() ? "" : ", ", user, role.str_or("?"));
          table.row({std::string(project["name"].str_or("?")),
                     fmt::format("{}", project["weight"].int_or(0)),
                     gpus(project["guaranteed_milli"]), gpus(project["limit_milli"]),
                     gpus(project["running_milli"]), gpus(project["borrowed_milli"]),
                     std::string(project["policy"].str_or("fair")), members});
        }
        show_table(table, "you are not a member of any project");
      });
}

int project_member(const Parsed& p, bool add) {
  if (p.operands.size() != 2)
    return report_usage({Code::invalid, "a project and a user are required",
                         "for example: billow project member vision ana --role member"});
  const std::string path =
      fmt::format("/v1/projects/{}/members/{}", net::percent_encode(p.operands[0]),
                  net::percent_encode(p.operands[1]));
  const std::string role = p.get("role", "member");
  return ask(
      p,
      [&](Client& c) {
        return add ? c.put(path, Json::object({{"role", role}}).dump()) : c.del(path);
      },
      [&](const Json&) {
        print(add ? fmt::format("{} is now {} of project {}\n", p.operands[1], role, p.operands[0])
                  : fmt::format("removed {} from project {}\n", p.operands[1], p.operands[0]));
      });
}

int project_default(const Parsed& p) {
  if (p.operands.empty())
    return ask(
        p, [](Client& c) { return c.get("/v1/status"); },
        [](const Json& answer) {
          const auto name = answer.at("you", "default_project").str_or("");
          if (name.empty())
            say("you have no default project; choose one: billow project default NAME");
          else
            print(std::string(name) + "\n");
        });
  const auto name = one_operand(p, "project default", "project");
  if (!name)
    return report_usage(name.error());
  return ask(
      p,
      [&](Client& c) {
        return c.put("/v1/default-project", Json::object({{"project", *name}}).dump());
      },
      [&](const Json&) { print(fmt::format("{} is now your default project\n", *name)); });
}

int user_create(const Parsed& p) {
  const auto name = one_operand(p, "user create", "name");
  if (!name)
    return report_usage(name.error());
  const Json body = Json::object({{"name", *name},
                                  {"unix_name", p.get("unix-name", *name)},
                                  {"role", p.get("role", "member")},
                                  {"service", p.has("service")}});
  return ask(
      p, [&](Client& c) { return c.post("/v1/users", body.dump()); },
      [&](const Json&) {
        print(fmt::format(
            "created user {}; create a token with `billow token create NAME --user {}`\n", *name,
            *name));
        // The nodes check when a job starts there; until then the accounts of this machine are the
        // best guess.
        const std::string account = p.get("unix-name", *name);
        if (!::getpwnam(account.c_str()))
          say(
              fmt::format("note: this machine has no account \"{}\". Jobs of this user start only "
                          "on nodes that have it: create it there (useradd {}), or choose another "
                          "with --unix-name ACCOUNT",
                          account, account));
      });
}

int user_list(const Parsed& p) {
  return ask(
      p, [](Client& c) { return c.get("/v1/users"); },
      [](const Json& answer) {
        Table table({{"USER"}, {"ROLE"}, {"RUNS AS"}, {"STATE"}, {"KIND"}});
        for (const Json& user : list_in(answer, "users"))
          table.row({std::string(user["name"].str_or("?")), std::string(user["role"].str_or("-")),
                     std::string(user["unix_name"].str_or("-")),
                     std::string(user["state"].str_or("-")),
                     user["service"].bool_or(false) ? "service" : "person"});
        show_table(table, "there are no users");
      });
}

int show_change(const Parsed& p,
                const std::string& done,
                Result<Json> (*ask_head)(Client&, const Parsed&)) {
  return ask(
      p, [&](Client& c) { return ask_head(c, p); },
      [&](const Json& answer) {
        const auto counted = [&](const char* key, std::string_view one, std::string_view what) {
          const std::uint64_t n = answer[key].uint_or(0);
          return n == 0 ? std::string()
                        : fmt::format(", {} {}{} {}", n, one, n == 1 ? "" : "s", what);
        };
        print(fmt::format("{}{}{}\n", done, counted("tokens_revoked", "token", "revoked"),
                          counted("jobs_stopped", "job", "stopped")));
        if (const std::uint64_t n = answer["webhooks_removed"].uint_or(0); n > 0)
          say(fmt::format("note: {} webhook{} of this user removed", n, n == 1 ? "" : "s"));
        for (const Json& name : answer["lost_tokens"].items())
          say(
              fmt::format("note: tokens that this user had created for {0} ended; create another: "
                          "billow token create NAME --user {0}",
                          name.str_or("?")));
        for (const Json& name : answer["endpoints"].items())
          say(
              fmt::format("note: endpoint {} still runs as this user; deploy it again as another "
                          "one",
                          name.str_or("?")));
      });
}

int user_set(const Parsed& p) {
  const auto name = one_operand(p, "user set", "name");
  if (!name)
    return report_usage(name.error());
  if (p.has("disable") && p.has("enable"))
    return report_usage({Code::invalid, "--disable and --enable exclude each other", ""});
  if (p.has("login"))
    return ask(
        p,
        [&](Client& c) {
          return c.put("/v1/users/" + net::percent_encode(*name),
                       Json::object({{"login", p.get("login")}}).dump());
        },
        [&](const Json&) { print(fmt::format("set the login of user {}\n", *name)); });
  if (!p.has("disable") && !p.has("enable") && !p.has("role"))
    return report_usage({Code::invalid, "nothing to set",
                         "for example: billow user set ana --role admin, or --disable"});
  std::string done = "changed user " + *name;
  if (p.has("disable"))
    done = "disabled user " + *name;
  else if (p.has("enable"))
    done = "enabled user " + *name;
  return show_change(p, done, [](Client& c, const Parsed& q) -> Result<Json> {
    Json body = Json::object();
    if (q.has("role"))
      body.set("role", q.get("role"));
    if (q.has("disable") || q.has("enable"))
      body.set("disabled", q.has("disable"));
    if (q.has("jobs"))
      body.set("jobs", q.get("jobs"));
    return c.put("/v1/users/" + net::percent_encode(q.operands[0]), body.dump());
  });
}

int user_rm(const Parsed& p) {
  const auto name = one_operand(p, "user rm", "name");
  if (!name)
    return report_usage(name.error());
  return show_change(p, "removed user " + *name, [](Client& c, const Parsed& q) -> Result<Json> {
    return c.del("/v1/users/" + net::percent_encode(q.operands[0]) +
                 (q.has("jobs") ? "?jobs=" + net::percent_encode(q.get("jobs")) : ""));
  });
}

int schedule_list(const Parsed& p) {
  return ask(
      p, [](Client& c) { return c.get("/v1/schedules"); },
      [](const Json& answer) {
        Table table({{"ID", Table::Align::right},
                     {"SCHEDULE"},
                     {"CRON"},
                     {"NEXT"},
                     {"LAST JOB", Table::Align::right},
                     {"PROJECT"},
                     {"COMMAND", Table::Align::left, 16}});
        for (const Json& s : list_in(answer, "schedules")) {
          std::vector<std::string> argv;
          for (const Json& word : s.at("spec", "argv").items())
            argv.emplace_back(word.str_or("?"));
          table.row({text_or_number(s["id"]), std::string(s["name"].str_or("?")),
                     std::string(s["cron"].str_or("?")), time_text(s["next_at"], now(), "-"),
                     text_or_number(s["last_job"]), text_or_number(s["project"]),
                     std::string(s["command"].str_or(shell_join(argv)))});
        }
        show_table(table,
                   "there are no schedules; add one: billow schedule add --name nightly --cron \"0 "
                   "3 * * *\" -- ./evaluate.sh");
      });
}

int schedule_rm(const Parsed& p) {
  const auto name = one_operand(p, "schedule rm", "name");
  if (!name)
    return report_usage(name.error());
  return ask(
      p, [&](Client& c) { return c.del("/v1/schedules/" + net::percent_encode(*name)); },
      [&](const Json&) { print(fmt::format("removed schedule {}\n", *name)); });
}

}  // namespace

namespace {

void add_user_commands(CommandTable& table) {
  table.push_back({.name = "user create",
                   .summary = "create a user",
                   .example = "billow user create ana --role member",
                   .run = user_create,
                   .usage = "NAME",
                   .options = {role_option, user_options},
                   .operands = Operands::some,
                   .group = people_group});
  table.push_back({.name = "user set",
                   .summary = "change a user's role, or disable or enable the user",
                   .example = "billow user set ana --role admin\nbillow user set ana --disable",
                   .run = user_set,
                   .usage = "NAME",
                   .details = "--disable ends the user's tokens, sessions and open streams at "
                              "once, and stops the user's jobs unless --jobs keep is given.\n"
                              "Nodes that the user let join stay. Endpoints stay: they belong to "
                              "their project.",
                   .options = {user_set_options},
                   .operands = Operands::some,
                   .group = people_group});
  table.push_back({.name = "user rm",
                   .summary = "remove a user with all tokens, memberships and schedules",
                   .example = "billow user rm ana --jobs keep",
                   .run = user_rm,
                   .usage = "NAME",
                   .options = {user_rm_options},
                   .operands = Operands::some,
                   .group = people_group});
  table.push_back({.name = "user list",
                   .summary = "list users",
                   .example = "billow user list",
                   .run = user_list,
                   .group = people_group});
}

}  // namespace

void add_schedule_commands(CommandTable& table) {
  table.push_back(
      {.name = "schedule add",
       .summary = "submit a job on a schedule",
       .example =
           "billow schedule add --name nightly --cron \"0 3 * * *\" --gpus 1 -- ./evaluate.sh",
       .run = schedule_add,
       .usage = "[--] COMMAND [ARG…] | FILE.toml",
       .details = "--cron takes five fields (minute, hour, day, month, weekday) in UTC, or "
                  "@hourly, @daily, @weekly.",
       .options = {job_options(), batch_options()},
       .operands = Operands::command_or_file,
       .group = "jobs"});
  table.push_back({.name = "schedule list",
                   .summary = "list schedules and their next start",
                   .example = "billow schedule list",
                   .run = schedule_list,
                   .group = "jobs"});
  table.push_back({.name = "schedule rm",
                   .summary = "remove a schedule; its jobs keep running",
                   .example = "billow schedule rm nightly",
                   .run = schedule_rm,
                   .usage = "NAME|ID",
                   .operands = Operands::some,
                   .group = "jobs"});
}

void add_access_commands(CommandTable& table) {
  table.push_back({.name = "project create",
                   .summary = "create a project",
                   .example = "billow project create vision --weight 200",
                   .run = project_create,
                   .usage = "NAME",
                   .options = {project_options},
                   .operands = Operands::some,
                   .group = people_group});
  table.push_back({.name = "project list",
                   .summary = "list projects and their members",
                   .example = "billow project list",
                   .run = project_list,
                   .group = people_group});
  table.push_back({.name = "project member",
                   .summary = "add a user to a project, or change the user's role",
                   .example = "billow project member vision ana --role admin",
                   .run = [](const Parsed& p) { return project_member(p, true); },
                   .usage = "PROJECT USER",
                   .options = {role_option},
                   .operands = Operands::some,
                   .group = people_group});
  table.push_back({.name = "project default",
                   .summary = "show or choose the default project of your jobs",
                   .example = "billow project default\nbillow project default vision",
                   .run = project_default,
                   .usage = "[PROJECT]",
                   .details = "The first project that you are added to is your default. Being "
                              "added to others does not change it.",
                   .operands = Operands::some,
                   .group = people_group});
  table.push_back({.name = "project remove",
                   .summary = "remove a user from a project",
                   .example = "billow project remove vision ana",
                   .run = [](const Parsed& p) { return project_member(p, false); },
                   .usage = "PROJECT USER",
                   .operands = Operands::some,
                   .group = people_group});
  add_user_commands(table);
}

}  // namespace billow::client
