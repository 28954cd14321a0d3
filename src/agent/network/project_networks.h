// The networks of jobs with --network project: the jobs of one project on this node share a switch.
// A switch is a bridge in a network namespace of its own, in which nothing else is: no address, no
// process, no way to the node. Each job has a device on it, with an address and a name.
//
// The supervisors of the jobs hold the switch's namespace open, so it lasts as long as one of its
// jobs, whatever becomes of the agent; a new agent finds it again through them.
#pragma once

#include <map>
#include <string>

#include "agent/network/job_network.h"
#include "base/ids.h"
#include "base/result.h"

namespace billow::agent {

// In the job's environment: its address in its project's network.
inline constexpr const char* job_address_variable = "BILLOW_JOB_ADDRESS";

class ProjectNetworks {
 public:
  struct Member {
    std::string project;
    std::string name;  // other jobs find it by this name, and by job-NUMBER
    std::uint64_t job = 0;
    std::string address;  // empty: the next free one
  };
  // Needs root; an error says what this node lacks. The job's address is in the result.
  Result<JobNetwork> join(TaskId task, Member member);
  // A task of an earlier agent, whose supervisor has this process id.
  void adopt(TaskId task, Member member, int supervisor);
  void ended(TaskId task) { members_.erase(task); }
  // The content of /etc/hosts for the jobs of a project.
  std::string hosts(const std::string& project) const;

 private:
  struct Joined {
    Member member;
    Fd network;  // of the switch
  };
  const Joined* of_project(const std::string& project) const;
  std::string free_address(const std::string& project) const;

  std::map<TaskId, Joined> members_;
};

}  // namespace billow::agent
