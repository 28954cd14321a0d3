// The root helper of a node: what must be root, for an agent that is not. It answers requests of
// the agent's account and of nobody else (privileged/protocol.h), one after the other, and opens no
// connection itself.
//
// It trusts the agent with what jobs are: their commands, variables and output. It does not trust
// it with who they are: the node's policy says so, never root, never the agent's own account. And
// it touches only what it made itself: directories and control groups whose names it chooses, by
// the number of their task. So somebody who takes over an agent can run programs as accounts that
// the policy allows, without the right to gain privileges, and nothing else.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "agent/isolate/cgroup.h"
#include "agent/isolate/network_guard.h"
#include "agent/isolate/own_place.h"
#include "agent/isolate/sandbox.h"
#include "agent/isolate/users.h"
#include "agent/node/node_policy.h"
#include "agent/task/launcher.h"
#include "agent/task/task_dir.h"
#include "privileged/helper/task_units.h"
#include "privileged/protocol.h"
#include "process/spawn.h"

namespace billow::privileged {

class Helper {
 public:
  struct Options {
    std::string state_dir;    // root's own
    std::string policy_file;  // empty: the usual one
    std::string socket;       // on which it is asked
    unsigned agent_uid = 0, agent_gid = 0;
    bool units = false;  // systemd starts each task, as a unit of its own
  };
  struct Answer {
    Reply reply;
    std::vector<Fd> descriptors;
  };
  static Result<std::unique_ptr<Helper>> create(Options options);

  // Any message of any process that may connect.
  Answer answer(unsigned peer_uid, const Message& message);
  // Reaps what has ended and gives up what was never taken. Call it about once a second.
  void tick();
  unsigned agent_uid() const { return options_.agent_uid; }

 private:
  // A task between `prepare` and its start.
  struct Prepared {
    agent::UserRecord user;
    agent::TaskCgroup group;
    agent::NodeRules rules;
    std::string tmp;     // the job's /tmp; empty: the node's
    std::string memory;  // relative to memory_; empty: it has no secrets as files
  };
  Helper(Options options,
         agent::TaskDirs dirs,
         agent::Launcher launcher,
         agent::OwnPlace work,
         agent::OwnPlace memory,
         agent::Sandbox sandbox);

  Result<Answer> perform(const Request& request, const std::vector<Fd>& given);
  Reply hello();
  Result<Reply> prepare(const Request& request);
  Result<Reply> add_secret(const Request& request, const std::vector<Fd>& given);
  Result<Answer> start(const Request& request, const std::vector<Fd>& given);
  Result<Fd> launch(TaskId task,
                    const agent::TaskSpec& spec,
                    const std::string& meta,
                    std::string_view secrets,
                    std::string_view redacted);
  Status record(TaskId task, const std::vector<Fd>& given);
  Result<Reply> end(TaskId task);
  Status clear(TaskId task);
  Result<Reply> signal(const Request& request);

  // prepare.cpp
  Result<agent::UserRecord> permitted(std::uint32_t uid, const agent::NodePolicy& policy) const;
  Status guard(const Prepared& prepared) const;
  Status make_tmp(TaskId task, Prepared& prepared) const;
  Status close_devices(TaskId task, const agent::TaskSpec& spec, Prepared& prepared) const;
  Result<agent::TaskSpec> spec_of(const Order& order, const Prepared& prepared) const;

  Status not_running(TaskId task) const;
  void sweep();
  void remove_named(const agent::OwnPlace& place, const std::string& prefix);
  void remove_later(const agent::OwnPlace& place, const std::string& name);

  Options options_;
  std::string owner_;
  agent::TaskDirs dirs_;
  agent::Launcher launcher_;
  agent::OwnPlace work_, memory_;
  agent::Cgroups cgroups_;
  agent::Sandbox sandbox_;
  Result<agent::NetworkGuard> network_guard_;
  TaskUnits units_;
  std::unordered_map<std::uint64_t, Prepared> prepared_;
  std::vector<process::Child> removals_;
  bool removals_left_ = false;  // more than are removed at a time
};

}  // namespace billow::privileged
