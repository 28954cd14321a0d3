// Keeps jobs from the services that a cloud offers to its machines (net/guard.h has the list): they
// hand out the machine's credentials and user data to every process that asks.
//
// BPF programs on the task's v2 control group refuse to connect or send to these addresses at once,
// and drop packets to them whatever socket they come from. Name resolution and time (ports 53 and
// 123) stay open, because several clouds serve them at the same addresses. The programs survive the
// agent. A job of root could remove them.
#pragma once

#include <string>
#include <vector>

#include "agent/isolate/bpf.h"
#include "base/result.h"

namespace billow::agent {

class NetworkGuard {
 public:
  // Loads the programs; an error says why this machine cannot.
  static Result<NetworkGuard> create();
  // Before the task's first process. A group that has the programs is left as it is.
  Status attach(const std::string& cgroup) const;

 private:
  struct Loaded {
    BpfKind kind;
    Fd program;
  };
  std::vector<Loaded> programs_;
};

// A line for `billow doctor`. `groups`: tasks have v2 control groups on this machine.
std::string describe_network_guard(bool groups);

}  // namespace billow::agent
