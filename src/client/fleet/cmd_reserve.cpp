// Sharing: GPUs reserved ahead of time, and what projects are promised and held to.
#include <fmt/format.h>
#include <unistd.h>

#include <ctime>

#include "base/text.h"
#include "client/fleet/calendar.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/table.h"
#include "client/frame/when.h"
#include "client/request/job_request.h"
#include "core/wire/codec.h"

namespace billow::client {
namespace {

constexpr OptionSpec reserve_options[] = {
    {"gpus", 'g', "N", "GPUs per node"},
    {"gpu-type", 0, "A,B", "any of these types"},
    {"nodes", 'N', "N", "on this many nodes (1)"},
    {"whole-node", 0, nullptr, "whole nodes: every GPU and core"},
    {"cpus", 'c', "N",
     "CPU cores per node (the GPUs' part of the node's by default, less an eighth for jobs without "
     "GPUs)"},
    {"mem", 0, "SIZE", "memory per node (its part likewise)"},
    {"from", 0, "WHEN",
     "when it begins, in UTC: now (the default), +2h, 18:00, \"2026-11-16 18:00\""},
    {"for", 0, "T", "how long, such as 8h"},
    {"until", 0, "WHEN", "when it ends, instead of --for"},
    {"name", 'n', "NAME", "a name, for people and --reservation"},
    {"project", 'p', "NAME", "who pays, and whose jobs may use it"},
    {"region", 0, "A,B", "only in one of these regions"},
    {"zone", 0, "A,B", "only in one of these zones"},
    {"pool", 0, "A,B", "only on nodes of one of these pools"},
    {"fabric", 0, "A,B", "only on nodes with this network"},
    {"placement-group", 0, "NAME", "only on nodes of this placement group"},
    {"topology", 0, "LEVEL[:required]", "how near the nodes are to each other"},
    {"node-label", 0, "K=V", "only on nodes with this label", true},
};
constexpr OptionSpec calendar_options[] = {{"days", 0, "N", "how far to look ahead (7)"}};
constexpr OptionSpec project_set_options[] = {
    {"guarantee", 0, "GPUS", "it gets this many back whenever it asks"},
    {"max", 0, "GPUS", "it never runs more than this at once; none: no limit"},
    {"weight", 0, "N", "its share of what is left, where projects compete"},
    {"borrow", 0, "YES|NO", "may use what others leave idle, beyond its guarantee (yes)", false,
     Completes::choice, "yes,no"},
    {"policy", 0, "POLICY",
     "order of its own jobs: fair between its users, strictly as submitted (fifo), or shortest "
     "first, by known or learned length",
     false, Completes::choice, "fair,shortest,fifo"},
    {"user-max", 0, "GPUS", "GPUs of one user at once; none: no limit"},
    {"user-jobs", 0, "N", "running jobs of one user at once; none: no limit"},
    {"regions", 0, "A,B", "its work and data stay in these regions; any: everywhere"},
    {"pools", 0, "A,B", "its work and data stay in these pools; any: everywhere"},
};

// "2026-11-16 08:00", of what is written with seconds and zone.
std::string minute_text(const Json& at) {
  std::string text(at.str_or("?").substr(0, 16));
  if (text.size() == 16)
    text[10] = ' ';
  return text;
}

std::string gpus_text(std::int64_t milli) {
  return fmt::format("{:g}", static_cast<double>(milli) / 1000);
}

int cmd_reserve(const Parsed& p) {
  JobRequest q;
  for (const OptionSpec& option : reserve_options) {
    const std::string_view name = option.name;
    if (name == "from" || name == "for" || name == "until" || name == "name" || name == "project")
      continue;
    for (const std::string& value : p.all(name))
      if (auto set = set_option(q, name, value); !set)
        return report_usage(set.error());
  }
  if (q.spec.resources.gpus == 0 && !q.spec.resources.whole_node)
    return report_usage({Code::invalid, "reserve what?",
                         "say how many GPUs, from when and for how long: billow reserve --gpus 8 "
                         "--from 18:00 --for 4h"});
  const WallTime at = now();
  const auto from = parse_when(p.get("from", "now"), at);
  if (!from)
    return report_usage(Error(from.error()).in("--from"));
  WallTime until;
  if (p.has("until") == p.has("for"))
    return report_usage(p.has("for")
                            ? Error{Code::invalid, "--for and --until say the same thing twice",
                                    "leave one of them out"}
                            : Error{Code::invalid, "for how long?", "add --for 8h"});
  if (p.has("for")) {
    const auto span = parse_duration(p.get("for"));
    if (!span)
      return report_usage(Error(span.error()).in("--for"));
    until = *from + *span;
  } else {
    const auto end = parse_when(p.get("until"), at);
    if (!end)
      return report_usage(Error(end.error()).in("--until"));
    until = *end;
  }
  std::string body = "{\"name\":";
  append_json_string(body, p.get("name"));
  body += ",\"project\":";
  append_json_string(body, p.get("project"));
  body += fmt::format(
      ",\"nodes\":{},\"from_ns\":{},\"until_ns\":{},\"resources\":{},\"place\":{},\"node_labels\":{"
      "}}}",
      q.spec.nodes, from->ns, until.ns, wire::to_json_text(q.spec.resources),
      wire::to_json_text(q.spec.place), wire::to_json_text(q.spec.node_labels));
  auto client = connect(p, true);
  if (!client)
    return report(client.error());
  auto made = client->post("/v1/reservations", body);
  if (!made)
    return report(made.error());
  if (p.has("json")) {
    print_json(*made);
    return 0;
  }
  std::string where;
  for (const Json& place : (*made)["places"].items())
    where += (where.empty() ? "" : ", ") + std::string(place["node"].str_or("?"));
  print(fmt::format(
      "reservation {}: {} GPU{}, {} core{} and {} of memory on {} from {} until {} for {}, used or "
      "not\n",
      (*made)["id"].uint_or(0), gpus_text((*made)["gpu_milli"].int_or(0)),
      (*made)["gpu_milli"].int_or(0) == 1000 ? "" : "s", gpus_text((*made)["cpu_milli"].int_or(0)),
      (*made)["cpu_milli"].int_or(0) == 1000 ? "" : "s",
      format_bytes(static_cast<std::uint64_t>((*made)["mem_mib"].int_or(0)) << 20), where,
      (*made)["from"].str_or("?"), (*made)["until"].str_or("?"), (*made)["cost"].str_or("?")));
  if (const auto leave = (*made)["asked_to_leave"].items(); !leave.empty()) {
    std::string who;
    for (const Json& job : leave)
      who += fmt::format("{}{} ({})", who.empty() ? "" : ", ", job["job"].str_or("?"),
                         printable(job["user"].str_or("?")));
    say(fmt::format("note: {} spot job{} there now and will be asked to leave when it begins: {}",
                    leave.size(), leave.size() == 1 ? " runs" : "s run", who));
  }
  if (const auto others = (*made)["others_asked_to_leave"].uint_or(0); others > 0)
    say(fmt::format(
        "note: {} spot job{} of other projects there now and will be asked to leave when it begins",
        others, others == 1 ? " runs" : "s run"));
  // As much as one node of it has, so that what is printed can be run.
  const auto nodes =
      std::max<std::int64_t>(1, static_cast<std::int64_t>((*made)["places"].items().size()));
  say(fmt::format("run inside it: billow run --reservation {}{}{} -- …", (*made)["id"].uint_or(0),
                  nodes > 1 ? fmt::format(" --nodes {}", nodes) : "",
                  q.spec.resources.whole_node
                      ? " --whole-node"
                      : " --gpus " + gpus_text((*made)["gpu_milli"].int_or(0) / nodes)));
  return 0;
}

int reserve_list(const Parsed& p) {
  auto client = connect(p);
  if (!client)
    return report(client.error());
  auto answer = client->get("/v1/reservations");
  if (!answer)
    return report(answer.error());
  if (p.has("json")) {
    print_json(*answer);
    return 0;
  }
  Table table({{"ID", Table::Align::right},
               {"NAME"},
               {"PROJECT"},
               {"GPUS", Table::Align::right},
               {"USED", Table::Align::right, 0, 2},
               {"FROM (UTC)"},
               {"UNTIL (UTC)"},
               {"COST", Table::Align::right, 0, 1},
               {"STATE"},
               {"ON", Table::Align::left, 8}});
  for (const Json& r : (*answer)["reservations"].items()) {
    std::string where;
    for (const Json& place : r["places"].items())
      where += (where.empty() ? "" : ",") + std::string(place["node"].str_or("(gone)"));
    const std::string state(r["state"].str_or("?"));
    const std::string name(r["name"].str_or(""));
    table.row({fmt::format("{}", r["id"].uint_or(0)),
               name.empty() ? "-" : name,
               std::string(r["project"].str_or("?")),
               gpus_text(r["gpu_milli"].int_or(0)),
               gpus_text(r["used_milli"].int_or(0)),
               minute_text(r["from"]),
               minute_text(r["until"]),
               std::string(r["cost"].str_or("?")),
               {state, state == "active" ? Colour::green : Colour::none},
               where});
  }
  if (table.empty())
    say("nothing is reserved; billow reserve --gpus 8 --from 18:00 --for 4h");
  else
    print(table.text(look_at(STDOUT_FILENO)));
  return 0;
}

int reserve_calendar(const Parsed& p) {
  const auto days = parse_int(p.get("days", "7"), 1, 366);
  if (!days)
    return report_usage(Error(days.error()).in("--days"));
  auto client = connect(p);
  if (!client)
    return report(client.error());
  auto answer = client->get("/v1/reservations");
  if (!answer)
    return report(answer.error());
  if (p.has("json")) {
    print_json(*answer);
    return 0;
  }
  auto nodes = client->get("/v1/nodes");
  if (!nodes)
    return report(nodes.error());
  print(calendar_text((*nodes)["nodes"].items(), (*answer)["reservations"].items(), now(),
                      static_cast<int>(*days), look_at(STDOUT_FILENO)));
  return 0;
}

int reserve_cancel(const Parsed& p) {
  const auto id = one_operand(p, "reserve cancel", "reservation");
  if (!id)
    return report_usage(id.error());
  auto client = connect(p);
  if (!client)
    return report(client.error());
  auto answer = client->del("/v1/reservations/" + net::percent_encode(*id));
  if (!answer)
    return report(answer.error());
  if (p.has("json"))
    print_json(*answer);
  else
    print((*answer)["unused_nano_usd"].int_or(0) > 0
              ? fmt::format("reservation {} is cancelled; {} is owed for what it held unused\n",
                            *id, (*answer)["unused"].str_or("?"))
              : fmt::format("reservation {} is cancelled\n", *id));
  const auto named = [&](const char* member) {
    std::string who;
    for (const Json& job : (*answer)[member].items())
      who += " " + std::string(job.str_or("?"));
    return p.has("json") ? std::string() : who;
  };
  if (const std::string who = named("goes_on"); !who.empty())
    say(fmt::format(
        "note: what runs inside it goes on, and pays the price of on-demand work from now on:{}",
        who));
  if (const std::string who = named("waiting"); !who.empty())
    say(
        fmt::format("note: what waits or is suspended inside it does not start by itself any more; "
                    "at the price of on-demand work: billow resume --on-demand{}",
                    who));
  return 0;
}

// "8", "0.5", or "none" where there may be none.
Result<Json> gpus_or_none(std::string_view name, const std::string& text, bool may_be_none) {
  if (may_be_none && text == "none")
    return Json(-1);
  const auto milli = parse_milli(text);
  if (!milli)
    return pass(Error(milli.error()), fmt::format("--{} {}", name, text));
  return Json(*milli);
}

Json names_or_any(const std::string& text) {
  Json out = Json::array();
  if (text == "any")
    return out;
  for (const std::string& one : split(text, ','))
    if (!trim(one).empty())
      out.push(std::string(trim(one)));
  return out;
}

Result<Json> quota_body(const Parsed& p) {
  Json body = Json::object();
  if (p.has("guarantee"))
    body.set("guaranteed_milli", BILLOW_TRY(gpus_or_none("guarantee", p.get("guarantee"), false)));
  if (p.has("max"))
    body.set("limit_milli", BILLOW_TRY(gpus_or_none("max", p.get("max"), true)));
  if (p.has("user-max"))
    body.set("user_limit_milli", BILLOW_TRY(gpus_or_none("user-max", p.get("user-max"), true)));
  if (p.has("user-jobs")) {
    const std::string text = p.get("user-jobs");
    if (text == "none")
      body.set("user_running_max", -1);
    else
      body.set("user_running_max", BILLOW_TRY(parse_int(text, 0, 1'000'000)));
  }
  if (p.has("weight"))
    body.set("weight", BILLOW_TRY(parse_int(p.get("weight"), 1, 1'000'000)));
  if (p.has("borrow")) {
    const std::string text = p.get("borrow");
    if (text != "yes" && text != "no")
      return fail(Code::invalid, fmt::format("--borrow {}: yes or no", text));
    body.set("may_borrow", text == "yes");
  }
  if (p.has("policy")) {
    if (!enum_value<OrderPolicy>(p.get("policy")))
      return fail(Code::invalid,
                  fmt::format("--policy {}: there is no such policy", p.get("policy")),
                  "one of fair, shortest, fifo");
    body.set("policy", p.get("policy"));
  }
  if (p.has("regions"))
    body.set("regions", names_or_any(p.get("regions")));
  if (p.has("pools"))
    body.set("pools", names_or_any(p.get("pools")));
  if (body.members().empty())
    return fail(Code::invalid, "set what?",
                "such as: billow project set vision --guarantee 8 --max 32");
  return body;
}

int project_set(const Parsed& p) {
  const auto name = one_operand(p, "project set", "project");
  if (!name)
    return report_usage(name.error());
  const auto body = quota_body(p);
  if (!body)
    return report_usage(body.error());
  auto client = connect(p);
  if (!client)
    return report(client.error());
  auto answer = client->put("/v1/projects/" + net::percent_encode(*name), body->dump());
  if (!answer)
    return report(answer.error());
  if (p.has("json"))
    print_json(*answer);
  else
    print(quota_text(*answer) + "\n");
  return 0;
}

}  // namespace

std::string quota_text(const Json& project) {
  const auto limit = [&](const char* name) {
    return project[name].is_number() ? gpus_text(project[name].int_or(0)) : std::string("none");
  };
  std::string text =
      fmt::format("{}: guaranteed {} GPUs, at most {}, weight {}, policy {}",
                  project["name"].str_or("?"), gpus_text(project["guaranteed_milli"].int_or(0)),
                  limit("limit_milli"), project["weight"].int_or(0), project["policy"].str_or("?"));
  if (!project["may_borrow"].bool_or(true))
    text += ", does not borrow";
  if (project["user_limit_milli"].is_number())
    text += fmt::format(", {} GPUs a user", limit("user_limit_milli"));
  if (project["user_running_max"].is_number())
    text += fmt::format(", {} jobs a user", project["user_running_max"].int_or(0));
  for (const char* kind : {"regions", "pools"}) {
    std::vector<std::string> names;
    for (const Json& n : project[kind].items())
      names.emplace_back(n.str_or("?"));
    if (!names.empty())
      text += fmt::format(", only {} {}", kind, join(names, ", "));
  }
  return text;
}

void add_reserve_commands(CommandTable& table) {
  constexpr const char* group = "people and access";
  table.push_back(
      {.name = "project set",
       .summary = "what a project is guaranteed and held to, and how its jobs are ordered",
       .example =
           "billow project set vision --guarantee 8 --max 32 --weight 200\nbillow project set "
           "vision --policy shortest --user-jobs 20\nbillow project set medical --regions eu-1",
       .run = project_set,
       .usage = "PROJECT",
       .details = "A guarantee is given back on demand: what others borrowed of it is preempted. "
                  "Work that cannot give way (no --spot) borrows only what "
                  "nobody is guaranteed. With --policy shortest the shorter job goes first, by its "
                  "--time or by what earlier runs of the same command took; "
                  "nobody is passed for ever.",
       .options = {project_set_options},
       .operands = Operands::some,
       .group = group});
  constexpr const char* jobs = "reservations";
  table.push_back({.name = "reserve",
                   .summary = "keep GPUs free for a project, from then until then",
                   .example = "billow reserve --gpus 8 --from \"2026-11-16 08:00\" --for 8h --name "
                              "demo\nbillow run --reservation demo --gpus 8 -- python train.py",
                   .run = cmd_reserve,
                   .details =
                       "It is paid for at the reserved price, used or not; jobs inside it pay that "
                       "price for what they hold. Nothing that would still be running "
                       "then is started there in the meantime. When it ends, jobs that run inside "
                       "it go on at its price; those that still wait do not start by "
                       "themselves any more (`billow resume JOB --on-demand` lets them). See also "
                       "`billow reserve list`, `calendar`, `cancel`.",
                   .options = {reserve_options},
                   .group = jobs});
  table.push_back({.name = "reserve list",
                   .summary = "what is reserved, for whom and when",
                   .example = "billow reserve list",
                   .run = reserve_list,
                   .group = jobs});
  table.push_back({.name = "reserve calendar",
                   .summary = "the same as a calendar, by node",
                   .example = "billow reserve calendar --days 2",
                   .run = reserve_calendar,
                   .options = {calendar_options},
                   .group = jobs});
  table.push_back({.name = "reserve cancel",
                   .summary = "give a reservation up; what it held so far is paid",
                   .example = "billow reserve cancel 3",
                   .run = reserve_cancel,
                   .usage = "ID|NAME",
                   .operands = Operands::some,
                   .group = jobs});
}

}  // namespace billow::client
