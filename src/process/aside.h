// Runs a function on a thread of its own, as another user or in another network namespace: cheaper
// than a process, for the few things that a single thread can change about itself.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "base/result.h"

namespace billow::process {

struct Aside {
  int network = -1;  // descriptor of the network namespace to enter; -1: stay in ours
  // The owner of files and sockets that the function makes, and whose rights to files it has. The
  // thread's other users stay ours: otherwise that user could send signals to it.
  struct User {
    std::uint32_t uid = 0, gid = 0;
  };
  std::optional<User> user;
};
// Blocks until the function has returned.
Status run_aside(const Aside& aside, const std::function<Status()>& work);

}  // namespace billow::process
