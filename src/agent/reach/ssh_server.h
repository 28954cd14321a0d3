// SSH access to a running job, for editors and file tools that need it: OpenSSH's sshd, one process
// per connection (inetd mode), as the job's user, in the job's control groups and namespaces, with
// a host key made for the task and one key that may log in. It does not listen: the connection
// comes through the tunnel that asked for it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "agent/isolate/job_place.h"
#include "agent/isolate/tree_removal.h"
#include "agent/isolate/users.h"
#include "agent/reach/tunnels.h"
#include "base/ids.h"
#include "net/ssh_key.h"
#include "process/spawn.h"

namespace billow::agent {

struct SshPlace {
  TaskId task;
  UserRecord user;
  JobPlace place;           // without an identity, the user is the agent's own
  bool no_network = false;  // the job's container has no network
  bool other_user() const { return place.identity.has_value(); }
};

class SshServers {
 public:
  SshServers(TreeRemoval& removal, const std::string& directory);  // the agent's own
  // unsupported: this node has no sshd.
  Result<Tunnels::Target> open(const SshPlace& place, const std::string& authorized_key);
  // Forgets the task's keys and terminates its connections. False: it never had one.
  bool ended(TaskId task);
  void reap();

 private:
  struct Running {
    TaskId task;
    process::Child sshd;
    std::string dir;  // of this connection alone
  };
  void remove(const std::string& dir);
  TreeRemoval& removal_;
  std::string prefix_;
  // Host keys. A task keeps its key for all its connections; keys are only held in memory.
  std::map<TaskId, SshKey> keys_;
  std::vector<Running> running_;
};

}  // namespace billow::agent
