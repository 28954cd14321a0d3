// A secure shell in a job's place, for editors and file tools that speak nothing else: OpenSSH's
// sshd, one process per connection (inetd mode), as the job's user, in the job's control groups and
// namespaces, with a host key made for the task and one key that may enter. It listens nowhere: the
// connection comes through the tunnel that asked for it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "agent/isolate/users.h"
#include "agent/reach/tunnels.h"
#include "base/ids.h"
#include "base/ssh_key.h"

namespace billow::agent {

struct SshPlace {
  TaskId task;
  UserRecord user;
  bool other_user = false;  // than the agent's own
  int job_pid = 0;
  std::vector<std::string> cgroups;  // directories it enters
  std::vector<std::string> env;      // of the job, but for its secrets
  std::string cwd;
  std::string room;  // the job has another root: how its room is entered (container::Entry); empty:
                     // it has the node's
  bool no_network = false;  // the room has none
};

class SshDoors {
 public:
  explicit SshDoors(const std::string& directory);  // the agent's own
  // unsupported: there is no sshd on this node.
  Result<Tunnels::Door> open(const SshPlace& place, const std::string& authorized_key);
  bool ended(TaskId task);  // its keys go; what still runs for it is told to end. False: nobody was
                            // ever let in
  void reap();

 private:
  struct Running {
    TaskId task;
    int pid = 0;
    std::string dir;  // of this connection alone
  };
  std::string prefix_;
  std::map<TaskId, SshKey>
      keys_;  // of the host, which a task keeps for all its connections; only ever here in memory
  std::vector<Running> running_;
};

}  // namespace billow::agent
