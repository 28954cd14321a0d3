// A program of Billow's own that the agent runs as a job's user to bring what the job needs, and
// what it says line by line.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/isolate/task_spec.h"
#include "base/clock.h"
#include "base/result.h"

namespace billow::agent {

struct Helper {
  std::vector<std::string> argv;     // argv[0] is a path
  std::vector<std::string> env;      // NAME=value
  std::optional<Identity> identity;  // none: as the agent
  int input = -1;                    // its standard input; -1: none
  std::function<void(std::string_view line)> line;
  std::shared_ptr<std::atomic<bool>> cancelled;  // set by anybody: it is killed
  std::string what;                              // it does, for a message: "image docker.io/x"
  Duration quiet_max;  // without a line, or a change of `progress`, for so long it is killed
  Duration within;     // and after so long in any case
  std::function<std::uint64_t()>
      progress;  // of what it does and does not tell by itself; may be missing
};
// Blocks until it has ended, and gives its exit code; timed_out where it took too long. Ends with
// the agent.
Result<int> run_helper(const Helper& helper);

}  // namespace billow::agent
