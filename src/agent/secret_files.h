// Secrets that a job wants as files: in memory (a tmpfs), in a directory of the task that only the job's user can enter, gone with the
// task. Where a task ended while no agent was there, its directory goes when the next agent begins.
#pragma once

#include <string>
#include <vector>

#include "agent/users.h"
#include "base/ids.h"
#include "base/result.h"
#include "model/surroundings.h"

namespace billow::agent {

class SecretFiles {
 public:
  explicit SecretFiles(const std::string& owner);  // what tells this agent's tasks from another's on this machine

  // "NAME_FILE=path" for each that is a file. Those that are variables are left alone. `wishes` and `secrets` go side by side.
  Result<std::vector<std::string>> write(TaskId task, const std::vector<SecretWish>& wishes, const std::vector<GivenSecret>& secrets, const UserRecord& user) const;
  std::string path(TaskId task, const std::string& secret) const;
  void remove(TaskId task) const;
  void remove_others(const std::vector<TaskId>& live) const;

 private:
  std::string path(TaskId task) const;
  std::string prefix_;  // "/dev/shm/billow-secrets-OWNER-"
};

}  // namespace billow::agent
