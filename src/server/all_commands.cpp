// The whole program: a client's commands and the server's, each beside those of its group.
#include <algorithm>
#include <string_view>

#include "client/frame/server_commands.h"

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
  add_join_commands(table);
  add_install_commands(table);
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

}  // namespace billow::client
