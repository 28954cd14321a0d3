// A gang whose command starts the others itself, as mpirun does: the command runs on the first node
// alone, and the other nodes' launchers
// (`billow ranks`) start what it asks for with `billow rsh HOST COMMAND`, in their own tasks: with
// their GPUs, limits and user, and ended with the job. No secure shell and no open port beyond the
// start barrier's, whose connections are kept for this.
#pragma once

#include <string>
#include <vector>

#include "base/file.h"

namespace billow::client {

// Whether this command is one that starts the others: mpirun and its like, or whatever runs with
// BILLOW_LAUNCH=first.
bool starts_the_others(const std::vector<std::string>& command);

struct GangShell {
  std::vector<std::string> names, addresses;  // of the nodes, by rank
  std::vector<Fd> nodes;                      // connections, by rank; none for the first
};
// On the first node: runs the command, passes requests on. The command's exit code.
int run_leading(const std::vector<std::string>& command, GangShell shell);
// On the others: carries requests out until the first node says that it is over.
int run_following(Fd first);

}  // namespace billow::client
