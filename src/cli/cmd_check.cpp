// Measuring the ways between GPUs and between nodes of a head. (`check gpus`, which looks at this machine alone, is a command of the server.)
#include <fmt/format.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/cmd_check.h"
#include "cli/console.h"
#include "cli/table.h"

namespace billow::cli {
namespace {

constexpr OptionSpec fabric_options[] = {
    {"node", 0, "NAME", "only this node, or these", true, Completes::node},
    {"pool", 0, "NAME", "only the nodes of this pool"},
};
constexpr Duration patience = minutes(30);

std::string rate_gb(std::int64_t mb_s) { return mb_s <= 0 ? "-" : fmt::format("{:.3g} GB/s", static_cast<double>(mb_s) / 1000); }
std::string rate_gbit(std::int64_t mbit_s) { return mbit_s <= 0 ? "-" : fmt::format("{:.3g} Gbit/s", static_cast<double>(mbit_s) / 1000); }

int cmd_check_fabric(const Parsed& parsed) {
  auto client = connect(parsed);
  if (!client) return report(client.error());
  Json body = Json::object();
  if (parsed.has("node")) {
    Json names = Json::array();
    for (const std::string& name : parsed.all("node")) names.push(name);
    body.set("nodes", std::move(names));
  }
  if (parsed.has("pool")) body.set("pool", parsed.get("pool"));
  if (!parsed.has("json")) say("measuring; this takes a few seconds a node");
  auto answer = client->call(net::Method::post, "/v1/fabric/check", body.dump(), {{"Content-Type", "application/json"}}, patience);
  if (!answer) return report(answer.error());
  if (parsed.has("json")) {
    print_json(*answer);
    return 0;
  }
  using Align = Table::Align;
  const Look look = look_at(STDOUT_FILENO);
  Table nodes({{"NODE", Align::left, 10}, {"GPU TO GPU", Align::right}, {"SHOULD BE", Align::right}, {"NETWORK", Align::right}, {"SHOULD BE", Align::right}, {"LATENCY", Align::right}, {"REMARK", Align::left, 12}});
  for (const Json& node : (*answer)["nodes"].items()) {
    const std::int64_t latency = node["latency_us"].int_or(-1);
    std::string remark(node["why_not"].str_or(""));
    if (const auto ib = node["infiniband_mbit_s"].int_or(0); ib > 0) remark += fmt::format("{}InfiniBand {}", remark.empty() ? "" : "; ", rate_gbit(ib));
    nodes.row({std::string(node["name"].str_or("?")), rate_gb(node["gpu_slowest_mb_s"].int_or(0)), rate_gb(node["gpu_expected_mb_s"].int_or(0)), rate_gbit(node["net_mbit_s"].int_or(0)),
               rate_gbit(node["net_expected_mbit_s"].int_or(0)), latency < 0 ? "-" : fmt::format("{} µs", latency), {remark, Colour::dim}});
  }
  print(nodes.text(look));
  const auto& warnings = (*answer)["warnings"].items();
  for (const Json& warning : warnings) print(painted("slow  ", Colour::yellow, look) + printable(warning.str_or("")) + "\n");
  if (warnings.empty()) print(painted("ok", Colour::green, look) + "  everything measured is as fast as it should be\n");
  return 0;
}

}  // namespace

void add_check_commands(CommandTable& table) {
  table.push_back({.name = "check fabric",
                   .summary = "measure how fast GPUs reach each other, and nodes one another",
                   .example = "billow check fabric\nbillow check fabric --pool fast",
                   .run = cmd_check_fabric,
                   .details = "Every idle node copies between its GPUs, and nodes send to each other in pairs, a second each, over ports that are open for that\n"
                              "time only. The figures are compared with what NVLink, PCIe and the network interfaces should give, and stay with the nodes as\n"
                              "labels (fabric-net-mbit-s and others); jobs over several GPUs or nodes are warned where they are slow.",
                   .options = {fabric_options},
                   .group = "machines"});
}

}  // namespace billow::cli
