// The installation as a whole: status, nodes, drain, undrain, events.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "base/text.h"
#include "client/fleet/event_line.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/table.h"
#include "net/http/sse.h"

namespace billow::client {
namespace {

constexpr OptionSpec node_options[] = {{"gpus", 'g', nullptr, "one row per GPU"}};
constexpr OptionSpec drain_options[] = {{"reason", 0, "TEXT", "reason to record"},
                                        {"gpu", 0, "N", "only this GPU of the node"},
                                        {"reclaim", 0, nullptr,
                                         "the machine is being reclaimed: its jobs write a last "
                                         "checkpoint and return to the queue"}};
constexpr OptionSpec cordon_options[] = {{"reason", 0, "TEXT", "reason to record"}};
constexpr OptionSpec undrain_options[] = {
    {"gpu", 0, "N", "only this GPU of the node; its past faults no longer count"}};
constexpr OptionSpec event_options[] = {
    {"follow", 'f', nullptr, "follow new events"},
    {"after", 0, "SEQ", "only events after this number"},
    {"limit", 0, "N", "show at most this many (default 100)"},
};
constexpr Duration away_max = minutes(10);

int cmd_status(const Parsed& parsed) {
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  auto s = client->get("/v1/status");
  if (!s)
    return report(s.error());
  if (parsed.has("json")) {
    print_json(*s);
    return 0;
  }
  const Json& status = *s;
  const Look look = look_at(STDOUT_FILENO);
  std::string addresses;
  for (const Json& address : status["addresses"].items())
    addresses += (addresses.empty() ? "" : ", ") + std::string(address.str_or(""));
  const bool ready = status["ready"].bool_or(true);
  std::string text = fmt::format(
      "{}  billow {}, up {}, pid {}\n",
      painted(ready ? "ready" : "not ready yet", ready ? Colour::green : Colour::yellow, look),
      status["version"].str_or("?"), age(status["started_at"], now()), status["pid"].int_or(0));
  text += fmt::format("  nodes  {} ready of {}\n   GPUs  {} free of {}\n",
                      status.at("nodes", "ready").int_or(0), status.at("nodes", "total").int_or(0),
                      status.at("gpus", "free").double_or(0), status.at("gpus", "total").int_or(0));
  if (const auto instances = status.at("mig", "instances").int_or(0); instances > 0)
    text += fmt::format("    MIG  {} of {} instance{} in use; see `billow nodes -g`\n",
                        status.at("mig", "held").int_or(0), instances, instances == 1 ? "" : "s");
  const Json& jobs = status["jobs"];
  text += fmt::format("   jobs  {} running, {} queued, {} held\n", jobs["running"].int_or(0),
                      jobs["queued"].int_or(0), jobs["held"].int_or(0));
  text += fmt::format("    you  {} ({}{}{})\n", status.at("you", "user").str_or("?"),
                      status.at("you", "role").str_or("?"),
                      status.at("you", "project").str_or("").empty() ? "" : ", project ",
                      status.at("you", "project").str_or(""));
  text += fmt::format("   data  {}\n    API  {}\n", status["data_dir"].str_or("?"),
                      addresses.empty() ? client->where() : addresses);
  if (status["store"].str_or("ok") != "ok")
    text += painted("   disk  almost full: new jobs may be refused; free some space\n", Colour::red,
                    look);
  print(text);
  return 0;
}

std::string gpus_of_node(const Json& node) {
  std::vector<std::pair<std::string, int>> counts;
  for (const Json& gpu : node["gpus"].items()) {
    const std::string type(gpu["type"].str_or("?"));
    auto it =
        std::find_if(counts.begin(), counts.end(), [&](const auto& c) { return c.first == type; });
    if (it == counts.end())
      counts.emplace_back(type, 1);
    else
      ++it->second;
  }
  std::string out;
  for (const auto& [type, count] : counts)
    out += fmt::format("{}{}×{}", out.empty() ? "" : ", ", count, type);
  return out.empty() ? "-" : out;
}

// "1g.10gb@0 job 12, 2g.20gb@2 free": the MIG instances of a card, by the memory slice they begin
// at.
std::string instances_of(const Json& gpu) {
  std::string out;
  for (const Json& i : gpu["mig_instances"].items())
    out += fmt::format("{}{}@{} {}", out.empty() ? "" : ", ", i["profile"].str_or("?"),
                       i["start"].int_or(0),
                       i["job"].is_number() ? fmt::format("job {}", i["job"].uint_or(0)) : "free");
  if (gpu["mig_any"].bool_or(false))
    out += out.empty() ? "MIG, created on demand" : ", more on demand";
  return out;
}

// "2 of 7 MIG instances held" of a node, or nothing where none of its cards is cut.
std::string instances_held(const Json& node) {
  int all = 0, held = 0;
  for (const Json& gpu : node["gpus"].items())
    for (const Json& i : gpu["mig_instances"].items()) {
      ++all;
      held += i["job"].is_number() ? 1 : 0;
    }
  return all ? fmt::format("{} of {} MIG instance{} in use", held, all, all == 1 ? "" : "s") : "";
}

// "images 12.3 GiB, at most 100 GiB for each user": what container images take on a node's disk;
// nothing where there are none.
std::string images_on(const Json& node, bool with_limit) {
  const Json& images = node["images"];
  if (images["bytes"].int_or(0) <= 0)
    return {};
  std::string out = "images " + format_bytes(images["bytes"].uint_or(0));
  if (with_limit && images["bytes_max_per_user"].int_or(0) > 0)
    out +=
        fmt::format(", at most {} per user", format_bytes(images["bytes_max_per_user"].uint_or(0)));
  return out;
}

double used_gpus(const Json& node) {
  double used = 0;
  for (const Json& gpu : node["gpus"].items())
    used += static_cast<double>(gpu["used_milli"].int_or(0)) / 1000;
  return used;
}

Table nodes_table(const std::vector<Json>& nodes) {
  using Align = Table::Align;
  Table table({{"NODE", Align::left, 10},
               {"STATE"},
               {"GPUS", Align::left, 10},
               {"USED", Align::right},
               {"CPUS", Align::right},
               {"MEMORY", Align::right},
               {"REMARK", Align::left, 12}});
  for (const Json& node : nodes) {
    const std::string_view state = node["state"].str_or("?");
    std::string remark(node["reason"].str_or(""));
    if (const std::string mig = instances_held(node); !mig.empty())
      remark += (remark.empty() ? "" : ", ") + mig;
    if (const std::string images = images_on(node, false); !images.empty())
      remark += (remark.empty() ? "" : ", ") + images;
    if (node["simulated"].bool_or(false))
      remark += remark.empty() ? "simulated" : ", simulated";
    for (const Json& gpu : node["gpus"].items())
      if (const auto ill = gpu["unhealthy"].str_or(""); !ill.empty())
        remark +=
            fmt::format("{}GPU {}: {}", remark.empty() ? "" : ", ", gpu["index"].int_or(0), ill);
    table.row({std::string(node["name"].str_or("?")),
               {std::string(state), colour_of_state(state)},
               gpus_of_node(node),
               fmt::format("{:g}", used_gpus(node)),
               fmt::format("{:g}", static_cast<double>(node["cpu_milli"].int_or(0)) / 1000),
               mebibytes(node["mem_mib"].int_or(0)),
               {remark, Colour::dim}});
  }
  return table;
}

Table gpus_table(const std::vector<Json>& nodes) {
  using Align = Table::Align;
  Table table({{"NODE", Align::left, 10},
               {"GPU", Align::right},
               {"TYPE"},
               {"SHARE", Align::right},
               {"BUSY", Align::right},
               {"MEMORY", Align::right},
               {"POWER", Align::right},
               {"TEMP", Align::right},
               {"JOBS", Align::left, 8}});
  for (const Json& node : nodes)
    for (const Json& gpu : node["gpus"].items()) {
      std::string jobs;
      for (const Json& job : gpu["jobs"].items())
        jobs += (jobs.empty() ? "" : ",") +
                (job.is_string() ? job.as_string() : fmt::format("{}", job.uint_or(0)));
      // For a GPU cut into MIG instances, show which job holds which instance. An unhealthy one
      // still shows its jobs.
      if (const std::string mig = instances_of(gpu); !mig.empty())
        jobs = mig;
      if (const auto ill = gpu["unhealthy"].str_or(""); !ill.empty())
        jobs = fmt::format("{}{}{}", jobs, jobs.empty() ? "" : "; ", ill);
      const bool ill = !gpu["unhealthy"].str_or("").empty();
      const std::int64_t busy = gpu["util_pct"].int_or(-1), used = gpu["mem_used_mib"].int_or(0);
      table.row(
          {std::string(node["name"].str_or("?")), fmt::format("{}", gpu["index"].int_or(0)),
           std::string(gpu["type"].str_or("?")),
           fmt::format("{:g}", static_cast<double>(gpu["used_milli"].int_or(0)) / 1000),
           busy < 0 ? "-" : fmt::format("{}%", busy),
           fmt::format("{} / {}", used > 0 ? mebibytes(used) : "0",
                       mebibytes(gpu["mem_mib"].int_or(0))),
           gpu["power_w"].is_number() ? fmt::format("{:.0f} W", gpu["power_w"].double_or(0)) : "-",
           gpu["temperature_c"].int_or(0) > 0 ? fmt::format("{} °C", gpu["temperature_c"].int_or(0))
                                              : "-",
           ill ? Table::Cell(jobs, Colour::red) : Table::Cell(jobs)});
    }
  return table;
}

int cmd_nodes(const Parsed& parsed) {
  if (parsed.operands.size() > 1)
    return report_usage(
        {Code::invalid, "nodes accepts one name at most", "for example: billow nodes box1"});
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  std::vector<Json> nodes;
  if (parsed.operands.empty()) {
    auto answer = client->get("/v1/nodes");
    if (!answer)
      return report(answer.error());
    if (parsed.has("json")) {
      print_json(*answer);
      return 0;
    }
    nodes = answer->is_array() ? answer->items() : (*answer)["nodes"].items();
  } else {
    auto answer = client->get("/v1/nodes/" + net::percent_encode(parsed.operands[0]));
    if (!answer)
      return report(answer.error());
    if (parsed.has("json")) {
      print_json(*answer);
      return 0;
    }
    nodes = {std::move(*answer)};
  }
  const Look look = look_at(STDOUT_FILENO);
  const Table table = parsed.has("gpus") ? gpus_table(nodes) : nodes_table(nodes);
  if (table.empty())
    say(parsed.has("gpus") && !nodes.empty() ? "no node has a GPU" : "no node has joined yet");
  else
    print(table.text(look));
  if (!parsed.operands.empty() && !parsed.has("gpus"))
    if (const Table gpus = gpus_table(nodes); !gpus.empty())
      print("\n" + gpus.text(look));
  if (const std::string images = parsed.operands.empty() || parsed.has("gpus")
                                     ? std::string()
                                     : images_on(nodes.front(), true);
      !images.empty())
    print("\n" + images + "\n");
  return 0;
}

int drain_or_undrain(const Parsed& parsed, const char* verb) {
  const auto name = one_operand(parsed, verb, "node");
  if (!name)
    return report_usage(name.error());
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  std::string what = *name;
  std::string path = fmt::format("/v1/nodes/{}/{}", net::percent_encode(*name), verb);
  if (parsed.has("gpu")) {
    const auto gpu = parse_int(parsed.get("gpu"), 0, 1023);
    if (!gpu)
      return report_usage(Error(gpu.error()).in("--gpu"));
    what = fmt::format("GPU {} of {}", *gpu, *name);
    path = fmt::format("/v1/nodes/{}/gpus/{}/{}", net::percent_encode(*name), *gpu, verb);
  }
  const bool drain = std::string_view(verb) == "drain", reclaim = drain && parsed.has("reclaim");
  if (reclaim && parsed.has("gpu"))
    return report_usage({Code::invalid, "--reclaim applies to a whole machine", "omit --gpu"});
  Json body = Json::object({{"reason", parsed.get("reason", "drained by request")}});
  if (reclaim)
    body.set("reclaim", true);
  auto node = client->post(path, body.dump());
  if (!node)
    return report(node.error());
  if (parsed.has("json"))
    print_json(*node);
  else
    print(drain ? fmt::format("{} takes no new jobs; {}\n", what,
                              reclaim ? "its jobs return to the queue" : "running jobs continue")
                : fmt::format("{} takes new jobs again\n", what));
  return 0;
}

void print_event(const Json& e, bool json, EventNames& names) {
  if (json)
    return print(e.dump() + "\n");
  const std::string line = event_line(e, names, now());
  const Look look = look_at(STDOUT_FILENO);
  print((look.terminal && look.columns ? clipped(line, look.columns) : line) + "\n");
}

// Follows events. After the head restarts, it reconnects and continues after the last number seen.
int follow_events(Client& client, std::uint64_t after, bool json, EventNames& names) {
  std::optional<SteadyTime> away_since;
  for (;;) {
    net::SseParser parser([&](const net::SseEvent& event) {
      const auto parsed = parse_json(event.data);
      if (!parsed)
        return;
      after = std::max(after, (*parsed)["seq"].uint_or(after));
      print_event(*parsed, json, names);
    });
    const auto status = client.stream(
        with_query("/v1/events", {{"follow", "1"}, {"after", fmt::format("{}", after)}}),
        [&](std::string_view data) {
          away_since.reset();
          return parser.feed(data).has_value();
        });
    if (!status && !is_away(status.error()))
      return report(status.error());
    const SteadyTime now = system_clock().steady();
    if (!away_since)
      away_since = now;
    if (now - *away_since > away_max)
      return report(status ? Error{Code::unavailable, "the head keeps closing the stream", ""}
                           : status.error());
    ::poll(nullptr, 0, 100);
    (void)client.find_again();
  }
}

int cmd_events(const Parsed& parsed) {
  auto after = parse_int(parsed.get("after", "0"), 0, INT64_MAX);
  if (!after)
    return report_usage(Error(after.error()).in("--after"));
  const auto limit = parse_int(parsed.get("limit", "100"), 1, 100'000);
  if (!limit)
    return report_usage(Error(limit.error()).in("--limit"));
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  // Without a starting point, show the newest events.
  if (!parsed.has("after")) {
    auto status = client->get("/v1/status");
    if (!status)
      return report(status.error());
    *after =
        std::max<std::int64_t>(0, static_cast<std::int64_t>((*status)["seq"].uint_or(0)) - *limit);
  }
  auto page = client->get(with_query(
      "/v1/events", {{"after", fmt::format("{}", *after)}, {"limit", fmt::format("{}", *limit)}}));
  if (!page)
    return report(page.error());
  const bool json = parsed.has("json");
  if (json && !parsed.has("follow")) {
    print_json(*page);
    return 0;
  }
  EventNames names = json ? EventNames{} : names_for_events(*client);
  std::uint64_t last = static_cast<std::uint64_t>(*after);
  for (const Json& event : (*page)["events"].items()) {
    print_event(event, json, names);
    last = std::max(last, event["seq"].uint_or(0));
  }
  return parsed.has("follow") ? follow_events(*client, last, json, names) : 0;
}

}  // namespace

void add_cluster_commands(CommandTable& table) {
  table.push_back({.name = "status",
                   .summary = "show the head's state, nodes and jobs",
                   .example = "billow status",
                   .run = cmd_status,
                   .group = "machines"});
  table.push_back({.name = "nodes",
                   .summary = "list nodes and the use of their GPUs",
                   .example = "billow nodes\nbillow nodes --gpus",
                   .run = cmd_nodes,
                   .usage = "[NODE]",
                   .options = {node_options},
                   .operands = Operands::some,
                   .completes = Completes::node,
                   .group = "machines"});
  table.push_back({.name = "drain",
                   .summary = "start no new jobs on a node",
                   .example = "billow drain box1 --reason \"new power supply\"",
                   .run = [](const Parsed& p) { return drain_or_undrain(p, "drain"); },
                   .usage = "NODE",
                   .options = {drain_options},
                   .operands = Operands::some,
                   .completes = Completes::node,
                   .group = "machines"});
  table.push_back({.name = "undrain",
                   .summary = "let a drained node accept jobs again",
                   .example = "billow undrain box1\nbillow undrain box1 --gpu 3",
                   .run = [](const Parsed& p) { return drain_or_undrain(p, "undrain"); },
                   .usage = "NODE",
                   .options = {undrain_options},
                   .operands = Operands::some,
                   .completes = Completes::node,
                   .group = "machines"});
  // The same by the names other schedulers use.
  table.push_back({.name = "cordon",
                   .summary = "start no new jobs on a node (same as drain)",
                   .example = "billow cordon box1 --reason \"new power supply\"",
                   .run = [](const Parsed& p) { return drain_or_undrain(p, "drain"); },
                   .usage = "NODE",
                   .options = {cordon_options},
                   .operands = Operands::some,
                   .completes = Completes::node,
                   .group = "machines"});
  table.push_back({.name = "uncordon",
                   .summary = "let a drained node accept jobs again (same as undrain)",
                   .example = "billow uncordon box1",
                   .run = [](const Parsed& p) { return drain_or_undrain(p, "undrain"); },
                   .usage = "NODE",
                   .operands = Operands::some,
                   .completes = Completes::node,
                   .group = "machines"});
  table.push_back({.name = "events",
                   .summary = "show what happened and who caused it",
                   .example = "billow events -f\nbillow events --after 1200 --json",
                   .run = cmd_events,
                   .details = "Prints one line per event; --json prints every field.",
                   .options = {event_options},
                   .group = "machines"});
}

}  // namespace billow::client
