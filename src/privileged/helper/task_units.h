// Tasks as units of systemd. What a process starts inherits the restrictions of its unit, and jobs
// must not have those of the helper. So systemd starts the supervisor of each task, in a unit that
// has none, and the new process fetches its descriptors from the helper (`take`). Only processes of
// root get them.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "agent/task/task_dir.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/ids.h"
#include "base/result.h"

namespace billow::privileged {

class TaskUnits {
 public:
  // `owner`: part of the units' names.
  TaskUnits(std::string owner, std::string socket)
      : owner_(std::move(owner)), socket_(std::move(socket)) {}

  // Returns the connection to the supervisor.
  Result<Fd> start(agent::NewTask task, Fd secrets, Fd redacted);
  struct Taken {
    std::string directory;
    std::vector<Fd> descriptors;  // of the supervisor: its connection and its lock, then these:
    bool secrets = false, redacted = false;
  };
  Result<Taken> take(TaskId task);
  // A unit that never took its descriptors will not: its task ends as one that never started.
  void give_up(SteadyTime now);

 private:
  struct Waiting {
    Taken taken;
    SteadyTime until;
  };
  std::string owner_, socket_;
  std::unordered_map<std::uint64_t, Waiting> waiting_;
};

// Runs in the unit: becomes the supervisor of the task. Returns only with the reason why not.
Status become_supervisor(const std::string& socket, TaskId task);

}  // namespace billow::privileged
