// The names of the server's commands, for a client that was built without them: it can say where
// they are to be found. A test holds the list against the commands themselves.
#include "client/frame/commands.h"

namespace billow::client {

std::vector<std::string> server_command_names() {
  return {"up",
          "down",
          "doctor",
          "agent",
          "join",
          "gateway",
          "check gpus",
          "env create",
          "store migrate",
          "store backup",
          "store restore",
          "store verify",
          "simulate jobs",
          "simulate openb",
          "simulate prefixes",
          "simulate replay",
          "simulate endpoints",
          "ranks",
          "rsh",
          "stage",
          "box",
          "uplink",
          "privileged",
          "nvidia-smi",
          "install kubernetes",
          "upgrade",
          "uninstall"};
}

std::string server_command(const std::vector<std::string>& words) {
  if (words.empty())
    return {};
  for (const std::string& name : server_command_names()) {
    const auto space = name.find(' ');
    if (words[0] != name.substr(0, space))
      continue;
    if (space == std::string::npos || (words.size() > 1 && words[1] == name.substr(space + 1)))
      return name;
  }
  // `billow simulate` alone: every command of that name is the server's.
  for (const char* group : {"store", "simulate", "install"})
    if (words[0] == group)
      return group;
  return {};
}

}  // namespace billow::client
