// The user a job runs as. A job of a user who is not root never runs as root: neither by name, nor
// by uid 0 under another name.
#pragma once

#include <string>

#include "agent/isolate/task_spec.h"
#include "base/ids.h"
#include "base/result.h"

namespace billow::agent {

struct UserRecord {
  std::string name, home, shell;
  Identity identity;
};

// The account of that name on this machine, with its groups.
Result<UserRecord> look_up_user(const std::string& name);
Result<UserRecord> look_up_uid(std::uint32_t uid);
// "1000:100": a user and a group, other than root's, that need no account.
Result<UserRecord> user_by_numbers(std::string_view text);
// The account this process runs as.
Result<UserRecord> current_user();

// The identity a job runs with. An empty name means the agent's own user. `allow_root`: the job's
// owner is root or an administrator of this machine; otherwise uid 0 is refused. An agent that is
// not root can only run jobs as itself.
struct JobUser {
  std::string unix_user;
  bool allow_root = false;
};
Result<UserRecord> resolve_job_user(const JobUser& user);
// This user, if this agent can and may run jobs as it.
Result<UserRecord> permitted_user(UserRecord record, bool allow_root);

// The user for confined jobs of this account's owner. If the agent is root, it is a number of its
// own from the range of container_user(): always the same for one account, and nobody's account.
// Otherwise it is the agent's own account, and only namespaces keep the job apart from it.
Result<UserRecord> confined_user(const std::string& account);

// The unprivileged user of this machine that is root in a container of root's task: from the range
// of "billow" in /etc/subuid and /etc/subgid, otherwise from the end of the range that systemd sets
// aside for containers. Tasks that run at the same time have different ones.
Identity container_user(TaskId task);

}  // namespace billow::agent
