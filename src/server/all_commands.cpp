// The whole program: a client's commands and the server's, each beside those of its group.
#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "api/api.h"
#include "client/frame/server_commands.h"
#include "gpu/backend.h"

namespace billow::client {

CommandTable server_commands() {
  CommandTable table;
  add_head_commands(table);
  add_doctor_commands(table);
  add_store_commands(table);
  add_rank_commands(table);
  add_gang_shell_commands(table);
  add_stage_commands(table);
  add_box_commands(table);
  add_uplink_commands(table);
  add_privileged_commands(table);
  add_smi_commands(table);
  add_join_commands(table);
  add_install_commands(table);
  add_installation_commands(table);
  add_gpu_check_commands(table);
  add_image_commands(table);
  add_gateway_commands(table);
  add_simulate_commands(table);
  return table;
}

CommandTable all_commands() {
  CommandTable table = client_commands();
  table.reserve(160);
  for (CommandSpec& command : server_commands()) {
    const auto same = [&](const char* group) {
      return [group](const CommandSpec& c) {
        return std::string_view(c.group) == group;
      };
    };
    auto at = std::find_if(table.rbegin(), table.rend(), same(command.group)).base();
    // A group of the server's own comes before what is about the program itself.
    if (at == table.begin())
      at = std::find_if(table.begin(), table.end(), same("other"));
    table.insert(at, std::move(command));
  }
  return table;
}

bool can_start_head() {
  return true;
}

std::string rights_page() {
  return api::rights_page();
}

Status machine_has_gpus() {
  GpuBackendOptions options;
  const char* sim = std::getenv("BILLOW_SIM");
  options.sim = sim ? sim : "";
  const auto backend = GpuBackend::open(options);
  if (backend && (*backend)->count() > 0)
    return {};
  // A driver that does not work is a fault to repair, not a machine without GPUs.
  if (!backend && backend.error().code != Code::unsupported)
    return pass(backend.error());
  return fail(Code::infeasible,
              "this machine has no NVIDIA GPU that its driver reports; nothing was started",
              "choose one:\n"
              "  try it with simulated GPUs:  billow up --background --sim 8xH100\n"
              "  use your team's GPUs:        billow login https://HEAD:7070\n"
              "  rent GPUs:                   billow up --background, then billow cloud add aws\n"
              "  if it has GPUs:              billow doctor");
}

}  // namespace billow::client
