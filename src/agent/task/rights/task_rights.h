// What starting, finding and ending tasks takes that an ordinary account may not do. An agent that
// is root, or whose jobs run as itself, does it itself (own_rights). Any other agent asks the root
// helper of its node (helper_rights), which decides by itself who a job may run as and what it may
// not do (docs/adr/0029).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/isolate/cgroup.h"
#include "agent/isolate/sandbox.h"
#include "agent/isolate/secret_files.h"
#include "agent/isolate/users.h"
#include "agent/network/job_network.h"
#include "agent/task/launcher.h"
#include "agent/task/task_dir.h"
#include "core/wire/agent_v1.h"

namespace billow::agent {

class TaskRights {
 public:
  virtual ~TaskRights() = default;

  // Whether a helper has the rights, keeps the walls around jobs and gives them their directories.
  virtual bool of_helper() const { return false; }
  // Whether the job can start with these rights; an error names what it asks for in vain.
  virtual Status suffice_for(const wire::agent_v1::Start& start) const = 0;
  virtual Result<UserRecord> permitted(UserRecord user, bool allow_root) const = 0;
  // First, before anything else is made for the task. A helper makes its control groups, too.
  virtual Status reserve(TaskId task,
                         const UserRecord& user,
                         const CgroupLimits& limits,
                         bool needs_work_dir) = 0;
  // A directory of the user's, for the files that follow the job.
  virtual Result<std::string> make_work_dir(TaskId task, const UserRecord& user) = 0;
  // A /tmp of the task's own; empty: it has the node's.
  virtual Result<std::string> make_private_tmp(TaskId task, const UserRecord& user) = 0;
  virtual Result<std::vector<SecretFiles::Written>> write_secrets(
      const wire::agent_v1::Start& start, const UserRecord& user) = 0;

  struct Launch {
    TaskId task;
    const TaskSpec& spec;
    std::string meta;
    std::string secrets, redacted;  // as Launcher takes them
    const JobNetwork* network = nullptr;
    std::function<void()> made;  // called when its directory is there and nothing runs yet
  };
  // Code::conflict: it was started before.
  virtual Result<SupervisorLink> launch(const Launch& launch) = 0;
  virtual Result<SupervisorLink> connect(TaskId task, Duration patience) = 0;
  // Kills processes that the task left.
  virtual void end_leftovers(TaskId task, const TaskCgroup& group) = 0;
  // Removes its control groups; unavailable while a process in them has not ended yet.
  virtual Status release(TaskId task, const TaskCgroup& group) = 0;
  virtual Status record_end(TaskId task, const supervise::ExitRecord& record) = 0;
  virtual Status acknowledge(TaskId task) = 0;
  virtual Status forget(TaskId task) = 0;
  virtual void signal(TaskId task, int pid, int number) = 0;
  // Where the agent keeps its notes about a task: its plan, its meter, its last order.
  virtual std::string notes(TaskId task) const = 0;
};

// The agent's own.
struct OwnRights {
  TaskDirs& dirs;
  Launcher& launcher;
  const Cgroups& cgroups;
  const OwnPlace& work;
  const SecretFiles& secrets;
  std::string owner;  // in the keys of tasks
};
std::unique_ptr<TaskRights> own_rights(OwnRights rights);

// Those of the root helper that answers at `socket`.
struct HelperHello {
  std::string tasks, groups_owner;
  Sandbox sandbox;
};
struct HelperRights {
  HelperHello hello;
  std::unique_ptr<TaskRights> rights;
};
Result<HelperRights> helper_rights(const std::string& socket, const std::string& notes_dir);

}  // namespace billow::agent
