// A gang whose command starts the other ranks itself, as mpirun does. The command runs on the first
// node alone. It starts what it needs elsewhere with `billow rsh HOST COMMAND`: `billow ranks` on
// that node runs it in the job's own task there, with its GPUs, limits and user, and it ends with
// the job. This needs neither SSH nor another open port: it uses the connections of the start
// barrier.
#pragma once

#include <string>
#include <vector>

#include "base/file.h"

namespace billow::client {

// Whether this command starts the other ranks: mpirun and similar programs, or any command with
// BILLOW_LAUNCH=first.
bool starts_the_others(const std::vector<std::string>& command);

struct GangShell {
  std::vector<std::string> names, addresses;  // of the nodes, by rank
  std::vector<Fd> nodes;                      // connections, by rank; none for the first
};
// On the first node: runs the command, passes its requests on, and returns its exit code.
int run_leading(const std::vector<std::string>& command, GangShell shell);
// On the others: carries out requests until the first node ends the gang.
int run_following(Fd first);

}  // namespace billow::client
