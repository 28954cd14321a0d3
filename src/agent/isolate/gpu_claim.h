// One agent per GPU of a machine, across all its users. An agent that gives out a GPU holds an
// abstract Unix socket with the GPU's number while it lives; the kernel frees it when the agent
// ends, however that happens. Others see who holds it and start no second agent on the same GPU.
//
// The claim is a courtesy between Billows, not a lock on the hardware: a user who wants to block
// others can claim a GPU without using it, and is then named in their error. Containers with their
// own network do not see each other's claims.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "net/loop.h"

namespace billow::agent {

struct GpuHolder {
  unsigned uid = 0;
  int pid = 0;
  std::string name;  // the account; "user 1000" if it has no name here
};
// The agent of any user that holds the GPU with this UUID; none: it is free, or on another network.
std::optional<GpuHolder> gpu_holder(const std::string& uuid);

// The claims of one agent, on its loop.
class GpuClaims {
 public:
  // An error names the other user who holds one of them. A GPU that another agent of the same user
  // holds stays with that one; this is not an error, because that user knows both agents.
  static Result<GpuClaims> take(net::Loop& loop, const std::vector<std::string>& uuids);

 private:
  std::vector<Fd> sockets_;
  std::vector<net::Watch> watches_;
};

}  // namespace billow::agent
