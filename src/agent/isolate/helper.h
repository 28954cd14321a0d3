// A program of Billow that the agent runs as a job's user, to fetch and unpack what the job needs.
// It reports on its standard output, line by line.
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
  std::vector<std::string> cgroups;  // directories of the control groups in which it runs
  int input = -1;                    // its standard input; -1: none
  std::function<void(std::string_view line)> line;
  std::shared_ptr<std::atomic<bool>> cancelled;  // when set, it is killed
  std::string what;    // what it works on, for errors: "image docker.io/x"
  Duration quiet_max;  // killed after this long without a line or a change of `progress`
  Duration within;     // killed after this long in any case
  // Counts work that it does not report itself; may be missing.
  std::function<std::uint64_t()> progress;
};
// Blocks until it has ended and returns its exit code; timed_out if it took too long. All its
// descendants end with it, and it ends with the agent.
Result<int> run_helper(const Helper& helper);

}  // namespace billow::agent
