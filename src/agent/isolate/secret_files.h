// What a task has in memory. Secrets that a job gets as files: in memory (a tmpfs), in a directory
// of the task that only the job's user can enter, removed with the task. A file that the job wants
// at another path lies there too, and is mounted at that path. The directory of a task that ended
// while no agent ran is removed when the next agent starts.
#pragma once

#include <string>
#include <vector>

#include "agent/isolate/own_place.h"
#include "agent/isolate/tree_removal.h"
#include "agent/isolate/users.h"
#include "base/ids.h"
#include "base/result.h"
#include "core/model/surroundings.h"

namespace billow::agent {

class SecretFiles {
 public:
  // `directory` is the agent's own, in memory (`place`). `owner` distinguishes this agent's tasks
  // from another agent's in the names that older agents used. With `key`, a secret of the agent,
  // nobody can guess the names of a task's directories, and the agent's cannot be listed: other
  // jobs of the same account do not find them.
  SecretFiles(TreeRemoval& removal,
              const std::string& directory,
              const std::string& owner,
              std::string key = {});
  static std::string place();

  struct Written {
    std::string name;              // of the secret
    std::string file;              // its path in memory
    std::string wanted;            // the path the job asked for; empty: the one in NAME_FILE
    std::string variable() const;  // "NAME_FILE"
    std::string directory() const { return file.substr(0, file.rfind('/')); }
    std::string wanted_directory() const { return wanted.substr(0, wanted.rfind('/')); }
  };
  // Skips secrets that are variables. `wishes` and `secrets` have the same order. Files wanted in
  // one directory are written to one directory.
  Result<std::vector<Written>> write(TaskId task,
                                     const std::vector<SecretWish>& wishes,
                                     const std::vector<GivenSecret>& secrets,
                                     const UserRecord& user) const;
  std::string path(TaskId task, const std::string& secret) const;
  // Where `--secret NAME:file` puts a secret in an image.
  static std::string usual_place(const std::string& secret) { return "/run/secrets/" + secret; }
  // The /dev/shm that the containers of a task share; removed with the task.
  Result<std::string> make_shared_memory(const OwnPlace& memory,
                                         TaskId task,
                                         const UserRecord& user) const;
  // In the background (tree_removal.h): the job's user can write there.
  void remove(TaskId task) const;
  void remove_others(const std::vector<TaskId>& live) const;

 private:
  std::string path(TaskId task) const;
  std::string name(TaskId task, const char* purpose) const;  // "12-1f0a…"
  void remove(const std::string& path) const;
  TreeRemoval& removal_;
  std::string prefix_;      // "/dev/shm/billow-…/secrets-"
  std::string old_prefix_;  // "/dev/shm/billow-secrets-OWNER-"
  std::string shm_prefix_;  // "/dev/shm/billow-…/shm-"
  std::string key_;
};

}  // namespace billow::agent
