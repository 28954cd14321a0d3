// gateways: which gateways serve the head's endpoints.
#include <fmt/format.h>
#include <unistd.h>

#include "base/formats/utc.h"
#include "base/text.h"
#include "client/endpoints/endpoints.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/table.h"
#include "client/frame/when.h"

namespace billow::client {
namespace {

// Why it is as it is, for a person on call.
std::string gateway_remark(const Json& g) {
  std::string out;
  const auto add = [&](const std::string& text) {
    out += (out.empty() ? "" : ", ") + text;
  };
  if (g["state"].str_or("") == "gone")
    add(fmt::format("last seen {}", time_text(g["last_seen_at"], now(), "?")));
  else if (!g["steers"].bool_or(false))
    add("passes requests on to the first of its region");
  if (g["own"].bool_or(false))
    add("started by the head");
  if (const auto left = g["handed_over"].uint_or(0); left > 0)
    add(fmt::format("its predecessor ends {} request{}", left, left == 1 ? "" : "s"));
  return out;
}

int cmd_gateways(const Parsed& parsed) {
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  auto answer = client->get("/v1/gateways");
  if (!answer)
    return report(answer.error());
  if (parsed.has("json")) {
    print_json(*answer);
    return 0;
  }
  using Align = Table::Align;
  Table table({{"GATEWAY", Align::left, 10},
               {"STATE"},
               {"REGION", Align::left, 0, 3},
               {"HOST", Align::left, 0, 4},
               {"ADDRESS", Align::left, 12},
               {"CONNECTED", Align::right},
               {"THREADS", Align::right, 0, 2},
               {"CLIENTS", Align::right},
               {"REQ/S", Align::right},
               {"REQUESTS", Align::right, 0, 5},
               {"VERSION", Align::left, 0, 1},
               {"REMARK", Align::left, 12}});
  const WallTime at = now();
  for (const Json& g : (*answer)["gateways"].items()) {
    std::vector<std::string> addresses;
    for (const Json& address : g["addresses"].items())
      addresses.emplace_back(printable(address.str_or("")));
    const std::string_view state = g["state"].str_or("?");
    const bool gone = state == "gone";
    const WallTime since = utc_or_zero(g["connected_at"].str_or(""));
    table.row({printable(g["name"].str_or("?")),
               {std::string(state), gone                 ? Colour::red
                                    : state == "leaving" ? Colour::yellow
                                                         : Colour::green},
               g["region"].str_or("").empty() ? "-" : printable(g["region"].str_or("")),
               g["host"].str_or("").empty() ? "-" : printable(g["host"].str_or("")),
               addresses.empty() ? "-" : join(addresses, " "),
               gone || !since ? "-" : format_duration(at - since),
               g["loops"].uint_or(0) == 0 ? "?" : fmt::format("{}", g["loops"].uint_or(0)),
               fmt::format("{}", g["connections"].uint_or(0)),
               fmt::format("{:g}", g["requests_per_s"].double_or(0)),
               fmt::format("{}", g["requests"].uint_or(0)),
               g["version"].str_or("").empty() ? "?" : printable(g["version"].str_or("")),
               {gateway_remark(g), Colour::dim}});
  }
  if (table.empty())
    say("no gateway is connected; `billow up` starts one with the first endpoint");
  else
    print(table.text(look_at(STDOUT_FILENO)));
  return 0;
}

}  // namespace

std::string gateway_share_text(const Json& g) {
  const auto region = g["region"].str_or("");
  return fmt::format("   gateway  {}{} at {}{}: {} replicas ready, {} in flight, {} requests\n",
                     printable(g["name"].str_or("?")),
                     region.empty() ? "" : fmt::format(" ({})", printable(region)),
                     printable(g["address"].str_or("?")),
                     g["state"].str_or("") == "leaving" ? ", leaving" : "", g["ready"].uint_or(0),
                     g["in_flight"].uint_or(0), g["requests"].uint_or(0));
}

void add_gateway_list_commands(CommandTable& table) {
  table.push_back({.name = "gateways",
                   .summary = "list gateways with their addresses and load",
                   .example = "billow gateways\nbillow gateways --json",
                   .run = cmd_gateways,
                   .details = "Lists connected gateways and, as long as the head was not "
                              "restarted, those that disconnected in the last 24 hours.",
                   .group = "endpoints"});
}

}  // namespace billow::client
