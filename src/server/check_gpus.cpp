// check gpus: how fast the GPUs of this machine reach each other and its memory, by copies made
// here and now.
#include <fmt/format.h>
#include <unistd.h>

#include "client/frame/console.h"
#include "client/frame/server_commands.h"
#include "client/frame/table.h"
#include "gpu/peer_copy.h"

namespace billow::client {
namespace {

std::string rate_gb(std::int64_t mb_s) {
  return mb_s <= 0 ? "-" : fmt::format("{:.3g} GB/s", static_cast<double>(mb_s) / 1000);
}

int cmd_check_gpus(const Parsed& parsed) {
  const auto figures = measure_copies({});
  if (!figures)
    return report(figures.error());
  if (parsed.has("json")) {
    print_json(copies_json(*figures));
    return 0;
  }
  using Align = Table::Align;
  Table table({{"FROM"}, {"TO"}, {"RATE", Align::right}, {"WAY"}});
  for (const HostCopy& copy : figures->host) {
    table.row({"host", fmt::format("GPU {}", copy.gpu), rate_gb(copy.to_gpu_mb_s), "PCIe"});
    table.row({fmt::format("GPU {}", copy.gpu), "host", rate_gb(copy.from_gpu_mb_s), "PCIe"});
  }
  for (const PeerCopy& copy : figures->peers)
    table.row({fmt::format("GPU {}", copy.from), fmt::format("GPU {}", copy.to), rate_gb(copy.mb_s),
               copy.direct ? "direct" : "through the host"});
  if (table.empty())
    say("this machine has no GPU");
  else
    print(table.text(look_at(STDOUT_FILENO)));
  return 0;
}

}  // namespace

void add_gpu_check_commands(CommandTable& table) {
  table.push_back({.name = "check gpus",
                   .summary = "measure copies between the GPUs of this machine",
                   .example = "billow check gpus",
                   .run = cmd_check_gpus,
                   .group = "machines",
                   .talks_to_head = false});
}

}  // namespace billow::client
