// Secrets that a job wants as files: in memory (a tmpfs), in a directory of the task that only the
// job's user can enter, gone with the task. A file that is wanted at a path of the job's own choice
// lies there too, and is shown at that path by whoever makes the job's room or mounts. Where a task
// ended while no agent was there, its directory goes when the next agent begins.
#pragma once

#include <string>
#include <vector>

#include "agent/isolate/users.h"
#include "base/ids.h"
#include "base/result.h"
#include "core/model/surroundings.h"

namespace billow::agent {

class SecretFiles {
 public:
  // `directory` is the agent's own, in memory (`place`). `owner` tells this agent's tasks from
  // another's on this machine, in the names that agents before this one gave them.
  SecretFiles(std::string directory, const std::string& owner);
  static std::string place();

  struct Written {
    std::string name;    // of the secret
    std::string file;    // where it lies…
    std::string wanted;  // …and where the job asked for it; empty: wherever NAME_FILE says
    std::string variable() const;  // "NAME_FILE"
    std::string directory() const { return file.substr(0, file.rfind('/')); }
    std::string wanted_directory() const { return wanted.substr(0, wanted.rfind('/')); }
  };
  // Those that are variables are left alone. `wishes` and `secrets` go side by side. What is wanted
  // in one directory lies in one directory.
  Result<std::vector<Written>> write(TaskId task,
                                     const std::vector<SecretWish>& wishes,
                                     const std::vector<GivenSecret>& secrets,
                                     const UserRecord& user) const;
  std::string path(TaskId task, const std::string& secret) const;
  // As `--secret NAME:file` asks for it: anywhere. In an image that is where the path says.
  static std::string usual_place(const std::string& secret) { return "/run/secrets/" + secret; }
  void remove(TaskId task) const;
  void remove_others(const std::vector<TaskId>& live) const;

 private:
  std::string path(TaskId task) const;
  std::string prefix_;      // "/dev/shm/billow-…/secrets-"
  std::string old_prefix_;  // "/dev/shm/billow-secrets-OWNER-"
};

}  // namespace billow::agent
