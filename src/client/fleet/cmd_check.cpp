// Measures the links between GPUs and between nodes of a head. (`check gpus`, for this machine
// alone, is a command of the server.)
#include <fmt/format.h>
#include <unistd.h>

#include <set>

#include "base/text.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/table.h"

namespace billow::client {
namespace {

constexpr OptionSpec fabric_options[] = {
    {"node", 0, "NAME", "only these nodes", true, Completes::node},
    {"pool", 0, "NAME", "only the nodes of this pool"},
};
constexpr Duration patience = minutes(30);

// "391 of 450 GB/s": the slowest that was measured, of what the hardware should give. Both are
// thousandths of the unit.
std::string of_about(std::int64_t measured, std::int64_t expected, const char* unit) {
  if (measured <= 0)
    return "-";
  const auto number = [](std::int64_t thousandths) {
    return thousandths >= 100'000 ? fmt::format("{}", (thousandths + 500) / 1000)
                                  : fmt::format("{:.3g}", static_cast<double>(thousandths) / 1000);
  };
  return expected > 0 ? fmt::format("{} of {} {}", number(measured), number(expected), unit)
                      : fmt::format("{} {}", number(measured), unit);
}

// What is slow, what could not be measured, and what to do about it.
void show_findings(const Json& answer, bool measured, const Look& look) {
  std::set<std::string> failed;
  for (const Json& way : answer["ways"].items())
    if (const auto error = way["error"].str_or(""); !error.empty())
      failed.insert(
          fmt::format("from {} to {}: {}", way["from"].str_or("?"), way["to"].str_or("?"), error));
  bool slow = false;
  for (const Json& warning : answer["warnings"].items()) {
    const std::string text(warning.str_or(""));
    slow = slow || !failed.contains(text);
    print(painted(failed.contains(text) ? "not measured  " : "slow  ", Colour::yellow, look) +
          printable(text) + "\n");
  }
  if (slow)
    print(
        "jobs that would use a slow link are warned before they start; `billow drain NODE` keeps "
        "jobs away while you investigate\n");
  else if (!measured)
    print("no link was measured: see the remarks\n");
  else if (failed.empty())
    print(painted("ok", Colour::green, look) + "  all measured links are as fast as expected\n");
}

int cmd_check_fabric(const Parsed& parsed) {
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  Json body = Json::object();
  if (parsed.has("node")) {
    Json names = Json::array();
    for (const std::string& name : parsed.all("node"))
      names.push(name);
    body.set("nodes", std::move(names));
  }
  if (parsed.has("pool"))
    body.set("pool", parsed.get("pool"));
  if (!parsed.has("json"))
    say("measuring; this takes a few seconds per node");
  auto answer = client->call(net::Method::post, "/v1/fabric/check", body.dump(),
                             {{"Content-Type", "application/json"}}, patience);
  if (!answer)
    return report(answer.error());
  if (parsed.has("json")) {
    print_json(*answer);
    return 0;
  }
  const Look look = look_at(STDOUT_FILENO);
  Table nodes({{"NODE", Table::Align::left, 10},
               {"GPU TO GPU"},
               {"NETWORK"},
               {"LATENCY", Table::Align::right},
               {"REMARK", Table::Align::left, 12}});
  bool measured = false;
  for (const Json& node : (*answer)["nodes"].items()) {
    const std::int64_t latency = node["latency_us"].int_or(-1);
    std::string remark(node["why_not"].str_or(""));
    if (!remark.empty())
      remark = "GPUs not measured: " + remark;
    if (const auto ib = node["infiniband_mbit_s"].int_or(0); ib > 0)
      remark += fmt::format("{}InfiniBand port of {}", remark.empty() ? "" : "; ",
                            of_about(ib, 0, "Gbit/s"));
    nodes.row(
        {std::string(node["name"].str_or("?")),
         of_about(node["gpu_slowest_mb_s"].int_or(0), node["gpu_expected_mb_s"].int_or(0), "GB/s"),
         of_about(node["net_mbit_s"].int_or(0), node["net_expected_mbit_s"].int_or(0), "Gbit/s"),
         latency < 0 ? "-" : fmt::format("{} µs", latency),
         {remark, Colour::dim}});
    measured = measured || node["gpus_measured"].bool_or(false) || node["net_mbit_s"].is_number();
  }
  print(nodes.text(look));
  show_findings(*answer, measured, look);
  return 0;
}

}  // namespace

void add_check_commands(CommandTable& table) {
  table.push_back(
      {.name = "check fabric",
       .summary = "measure the bandwidth between GPUs and between nodes",
       .example = "billow check fabric\nbillow check fabric --pool fast",
       .run = cmd_check_fabric,
       .details = "Each idle node copies between its GPUs, and nodes send to each other in pairs "
                  "for one second, over ports that are open only during\nthe test. The results are "
                  "compared with the nominal rates of NVLink, PCIe and the network interfaces and "
                  "kept as labels of the nodes\n(fabric-net-mbit-s and others); jobs on several "
                  "GPUs or nodes are warned about slow links.",
       .options = {fabric_options},
       .group = "machines"});
}

}  // namespace billow::client
