// Sharing: reservations, and the guarantees and limits of projects.
#include <fmt/format.h>
#include <unistd.h>

#include <ctime>

#include "base/formats/utc.h"
#include "base/text.h"
#include "client/fleet/calendar.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/table.h"
#include "client/frame/values.h"
#include "client/frame/when.h"
#include "client/frame/zone.h"
#include "client/request/job_request.h"
#include "core/wire/codec.h"

namespace billow::client {
namespace {

constexpr OptionSpec reserve_options[] = {
    {"gpus", 'g', "N", "GPUs per node"},
    {"gpu-type", 0, "A,B", "any of these types"},
    {"nodes", 'N', "N", "number of nodes (default 1)"},
    {"whole-node", 0, nullptr, "reserve whole nodes: every GPU and core"},
    {"cpus", 'c', "N",
     "CPU cores per node (default: in proportion to the GPUs, less an eighth for jobs without "
     "GPUs)"},
    {"mem", 0, "SIZE", "memory per node (default: likewise)"},
    {"from", 0, "WHEN",
     "start in local time: now (default), +2h, 18:00, \"2026-11-16 18:00\"; in UTC with a Z: "
     "2026-11-16T18:00:00Z"},
    {"for", 0, "T", "length, e.g. 8h"},
    {"until", 0, "WHEN", "end, instead of --for"},
    {"name", 'n', "NAME", "name of the reservation, usable with --reservation"},
    {"project", 'p', "NAME", "project that pays and whose jobs may use it"},
    {"region", 0, "A,B", "only nodes in one of these regions"},
    {"zone", 0, "A,B", "only nodes in one of these zones"},
    {"pool", 0, "A,B", "only nodes of these pools"},
    {"fabric", 0, "A,B", "only nodes with this network"},
    {"placement-group", 0, "NAME", "only nodes of this placement group"},
    {"topology", 0, "LEVEL[:required]", "how close the nodes must be to each other"},
    {"node-label", 0, "K=V", "only nodes with this label", true},
};
constexpr OptionSpec calendar_options[] = {{"days", 0, "N", "days to show (default 7)"}};
constexpr OptionSpec project_set_options[] = {
    {"guarantee", 0, "GPUS", "GPUs that the project can always reclaim"},
    {"max", 0, "GPUS", "maximum number of GPUs in use; none: no limit"},
    {"weight", 0, "N", "weight of the project when projects compete for the rest"},
    {"borrow", 0, "YES|NO",
     "use idle GPUs of other projects beyond the guarantee: yes (default) or no", false,
     Completes::choice, "yes,no"},
    {"enter", 0, "owner|admins",
     "who may enter a job (ssh, attach, cp): its owner only (default), or admins too", false,
     Completes::choice, "owner,admins"},
    {"isolation", 0, "plain|strict",
     "strict: all its jobs run with --isolation strict; plain (default): those that ask for it",
     false, Completes::choice, "plain,strict"},
    {"network", 0, "none|project|internet",
     "with --isolation strict: widest --network its jobs may request (default none)", false,
     Completes::choice, "none,project,internet"},
    {"allow", 0, "A,B",
     "private networks its jobs with --network internet can reach, e.g. 10.1.0.0/16; none: no "
     "private network"},
    {"policy", 0, "POLICY",
     "order of its jobs: fair between users, fifo, or shortest (by known or learned duration)",
     false, Completes::choice, "fair,shortest,fifo"},
    {"user-max", 0, "GPUS", "maximum number of GPUs per user; none: no limit"},
    {"user-jobs", 0, "N", "maximum number of running jobs per user; none: no limit"},
    {"regions", 0, "A,B", "jobs and data stay in these regions; any: everywhere"},
    {"pools", 0, "A,B", "jobs and data stay in these pools; any: everywhere"},
};

std::string units_text(std::int64_t milli) {
  return fmt::format("{:g}", static_cast<double>(milli) / 1000);
}

struct Span {
  WallTime from, until;
};

Result<Span> span_of(const Parsed& p) {
  const WallTime at = now();
  Span span;
  const auto from = parse_when(p.get("from", "now"), at);
  if (!from)
    return pass(from.error(), "--from");
  span.from = *from;
  if (p.has("until") && p.has("for"))
    return fail(Code::invalid, "--for and --until exclude each other", "omit one of them");
  if (!p.has("until") && !p.has("for"))
    return fail(Code::invalid, "the length is missing", "add --for 8h");
  if (p.has("for")) {
    const auto length = duration_with_unit(p.get("for"));
    if (!length)
      return pass(length.error(), "--for");
    span.until = *from + *length;
    return span;
  }
  const auto until = parse_when(p.get("until"), at);
  if (!until)
    return pass(until.error(), "--until");
  span.until = *until;
  return span;
}

// The resources and places of the reservation, read like those of a job.
Result<JobRequest> resources_of(const Parsed& p) {
  JobRequest q;
  for (const OptionSpec& option : reserve_options) {
    const std::string_view name = option.name;
    if (name == "from" || name == "for" || name == "until" || name == "name" || name == "project")
      continue;
    for (const std::string& value : p.all(name))
      BILLOW_TRY_VOID(set_option(q, name, value));
  }
  if (q.spec.resources.gpus == 0 && !q.spec.resources.whole_node)
    return fail(
        Code::invalid, "nothing to reserve",
        "give the GPUs, the start and the length: billow reserve --gpus 8 --from 18:00 --for 4h");
  return q;
}

std::string reservation_body(const Parsed& p, const JobRequest& q, const Span& span) {
  std::string body = "{\"name\":";
  append_json_string(body, p.get("name"));
  body += ",\"project\":";
  append_json_string(body, p.get("project"));
  return body + fmt::format(
                    ",\"nodes\":{},\"from_ns\":{},\"until_ns\":{},\"resources\":{},\"place\":{},"
                    "\"node_labels\":{}}}",
                    q.spec.nodes, span.from.ns, span.until.ns, wire::to_json_text(q.spec.resources),
                    wire::to_json_text(q.spec.place), wire::to_json_text(q.spec.node_labels));
}

// Spot jobs that must leave when the reservation begins.
void warn_of_preemption(const Json& made) {
  if (const auto& leave = made["asked_to_leave"].items(); !leave.empty()) {
    std::string who;
    for (const Json& job : leave)
      who += fmt::format("{}{} ({})", who.empty() ? "" : ", ", job["job"].str_or("?"),
                         printable(job["user"].str_or("?")));
    say(fmt::format("note: {} spot job{} there now and will be preempted when it begins: {}",
                    leave.size(), leave.size() == 1 ? " runs" : "s run", who));
  }
  if (const auto others = made["others_asked_to_leave"].uint_or(0); others > 0)
    say(fmt::format(
        "note: {} spot job{} of other projects there now and will be preempted when it begins",
        others, others == 1 ? " runs" : "s run"));
}

void show_reservation(const Json& made, bool whole_node) {
  std::string where;
  for (const Json& place : made["places"].items())
    where += (where.empty() ? "" : ", ") + std::string(place["node"].str_or("?"));
  print(fmt::format(
      "reservation {}: {} GPU{}, {} core{} and {} of memory on {}; start: {}; end: "
      "{} (local time, {}); {} in total, used or not\n",
      made["id"].uint_or(0), units_text(made["gpu_milli"].int_or(0)),
      made["gpu_milli"].int_or(0) == 1000 ? "" : "s", units_text(made["cpu_milli"].int_or(0)),
      made["cpu_milli"].int_or(0) == 1000 ? "" : "s",
      format_bytes(static_cast<std::uint64_t>(made["mem_mib"].int_or(0)) << 20), where,
      time_text(made["from"], now(), "?"), time_text(made["until"], now(), "?"),
      zone_name(utc_or_zero(made["from"].str_or(""))), made["cost"].str_or("?")));
  warn_of_preemption(made);
  // As much as one node of it has, so that the printed command can be run.
  const auto nodes =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(made["places"].items().size()));
  say(fmt::format(
      "to use it: billow run --reservation {}{}{} -- …", made["id"].uint_or(0),
      nodes > 1 ? fmt::format(" --nodes {}", nodes) : "",
      whole_node ? " --whole-node" : " --gpus " + units_text(made["gpu_milli"].int_or(0) / nodes)));
}

int cmd_reserve(const Parsed& p) {
  const auto request = resources_of(p);
  if (!request)
    return report_usage(request.error());
  const auto span = span_of(p);
  if (!span)
    return report_usage(span.error());
  auto client = connect(p, true);
  if (!client)
    return report(client.error());
  const auto made = client->post("/v1/reservations", reservation_body(p, *request, *span));
  if (!made)
    return report(made.error());
  if (p.has("json"))
    print_json(*made);
  else
    show_reservation(*made, request->spec.resources.whole_node);
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
               {"FROM"},
               {"UNTIL"},
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
               units_text(r["gpu_milli"].int_or(0)),
               units_text(r["used_milli"].int_or(0)),
               time_text(r["from"], now(), "?"),
               time_text(r["until"], now(), "?"),
               std::string(r["cost"].str_or("?")),
               {state, state == "active" ? Colour::green : Colour::none},
               where});
  }
  if (table.empty())
    say("there are no reservations; make one: billow reserve --gpus 8 --from 18:00 --for 4h");
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
              ? fmt::format("cancelled reservation {}; {} is due for its unused time\n", *id,
                            (*answer)["unused"].str_or("?"))
              : fmt::format("cancelled reservation {}\n", *id));
  const auto named = [&](const char* member) {
    std::string who;
    for (const Json& job : (*answer)[member].items())
      who += " " + std::string(job.str_or("?"));
    return p.has("json") ? std::string() : who;
  };
  if (const std::string who = named("goes_on"); !who.empty())
    say(fmt::format("note: jobs running in it continue at the on-demand price:{}", who));
  if (const std::string who = named("waiting"); !who.empty())
    say(
        fmt::format("note: waiting and suspended jobs in it will not start; to start them at the "
                    "on-demand price: billow resume --on-demand{}",
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
  if (p.has("weight")) {
    const auto weight = parse_int(p.get("weight"), 1, 1'000'000);
    if (!weight)
      return pass(weight.error(), "--weight");
    body.set("weight", *weight);
  }
  if (p.has("borrow")) {
    const std::string text = p.get("borrow");
    if (text != "yes" && text != "no")
      return fail(Code::invalid, fmt::format("--borrow must be yes or no, not {}", text));
    body.set("may_borrow", text == "yes");
  }
  if (p.has("policy")) {
    if (!enum_value<OrderPolicy>(p.get("policy")))
      return fail(Code::invalid,
                  fmt::format("--policy must be fair, fifo or shortest, not {}", p.get("policy")));
    body.set("policy", p.get("policy"));
  }
  if (p.has("enter")) {
    const std::string text = p.get("enter");
    if (text != "owner" && text != "admins")
      return fail(Code::invalid, fmt::format("--enter must be owner or admins, not {}", text));
    body.set("admins_enter", text == "admins");
  }
  if (p.has("isolation")) {
    if (!enum_value<Isolation>(p.get("isolation")))
      return fail(Code::invalid,
                  fmt::format("--isolation must be plain or strict, not {}", p.get("isolation")));
    body.set("isolation", p.get("isolation"));
  }
  if (p.has("network")) {
    const auto network = enum_value<ContainerNetwork>(p.get("network"));
    if (!network || *network == ContainerNetwork::host)
      return fail(Code::invalid, fmt::format("--network must be none, project or internet, not {}",
                                             p.get("network")));
    body.set("network", p.get("network"));
  }
  if (p.has("allow"))
    body.set("allow", names_or_any(p.get("allow") == "none" ? "any" : p.get("allow")));
  if (p.has("regions"))
    body.set("regions", names_or_any(p.get("regions")));
  if (p.has("pools"))
    body.set("pools", names_or_any(p.get("pools")));
  if (body.members().empty())
    return fail(Code::invalid, "nothing to set",
                "for example: billow project set vision --guarantee 8 --max 32");
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
    return project[name].is_number() ? units_text(project[name].int_or(0)) : std::string("none");
  };
  std::string text =
      fmt::format("{}: guaranteed {} GPUs, at most {}, weight {}, policy {}",
                  project["name"].str_or("?"), units_text(project["guaranteed_milli"].int_or(0)),
                  limit("limit_milli"), project["weight"].int_or(0), project["policy"].str_or("?"));
  if (!project["may_borrow"].bool_or(true))
    text += ", does not borrow";
  if (project["admins_enter"].bool_or(false))
    text += ", admins may enter jobs";
  if (project["isolation"].str_or("") == "strict")
    text += fmt::format(", strict isolation, network {}", project["network"].str_or("none"));
  for (const Json& block : project["allow"].items())
    text += fmt::format(", may reach {}", block.str_or(""));
  if (project["user_limit_milli"].is_number())
    text += fmt::format(", {} GPUs per user", limit("user_limit_milli"));
  if (project["user_running_max"].is_number())
    text += fmt::format(", {} jobs per user", project["user_running_max"].int_or(0));
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
       .summary = "set a project's guarantee, limits and job order",
       .example =
           "billow project set vision --guarantee 8 --max 32 --weight 200\nbillow project set "
           "vision --policy shortest --user-jobs 20\nbillow project set medical --regions eu-1",
       .run = project_set,
       .usage = "PROJECT",
       .details =
           "When the project needs its guarantee, jobs of other projects on those GPUs are "
           "preempted. Jobs without --spot can use only GPUs not guaranteed to another project, "
           "because they cannot be preempted. With --policy shortest, shorter jobs start first, by "
           "their --time or by earlier runs of the same command; no job waits indefinitely.",
       .options = {project_set_options},
       .operands = Operands::some,
       .group = group});
  constexpr const char* jobs = "reservations";
  table.push_back(
      {.name = "reserve",
       .summary = "reserve GPUs for a project for a fixed period",
       .example = "billow reserve --gpus 8 --from \"2026-11-16 08:00\" --for 8h --name "
                  "demo\nbillow run --reservation demo --gpus 8 -- python train.py",
       .run = cmd_reserve,
       .details = "The project pays the reserved price for the whole period, used or not; jobs in "
                  "the reservation pay that price for what they use. Until it begins, no job that "
                  "would overlap it is started on its GPUs. When it ends, running jobs continue at "
                  "the on-demand price; waiting jobs do not start (`billow resume JOB --on-demand` "
                  "starts them). Times are local. See also `billow reserve list`, `calendar` and "
                  "`cancel`.",
       .options = {reserve_options},
       .group = jobs});
  table.push_back({.name = "reserve list",
                   .summary = "list reservations",
                   .example = "billow reserve list",
                   .run = reserve_list,
                   .group = jobs});
  table.push_back({.name = "reserve calendar",
                   .summary = "show reservations as a calendar, by node",
                   .example = "billow reserve calendar --days 2",
                   .run = reserve_calendar,
                   .options = {calendar_options},
                   .group = jobs});
  table.push_back({.name = "reserve cancel",
                   .summary = "cancel a reservation; its past time is charged",
                   .example = "billow reserve cancel 3",
                   .run = reserve_cancel,
                   .usage = "ID|NAME",
                   .operands = Operands::some,
                   .group = jobs});
}

}  // namespace billow::client
