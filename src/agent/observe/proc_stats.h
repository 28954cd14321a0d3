// What a task's processes use right now, read from /proc: cheap enough for a sample every second.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace billow::agent {

struct ProcessUsage {
  std::int64_t cpu_ns = 0;  // of the processes alive now and of the children they waited for
  std::int64_t rss_bytes = 0;
  std::int64_t io_read_bytes = 0,
               io_write_bytes = 0;  // through system calls; 0 where not permitted
  std::int32_t processes = 0, threads = 0;
};

// Every process, once, so that many tasks can be looked up from one walk of /proc.
class ProcessTable {
 public:
  static ProcessTable read(const std::string& proc = "/proc");
  // The descendants of a process, without itself: give it a supervisor's pid.
  std::vector<int> descendants(int pid) const;
  std::size_t size() const { return by_parent_.size(); }

 private:
  std::vector<std::pair<int, int>> by_parent_;  // (parent, pid), sorted
};

ProcessUsage usage_of(const std::vector<int>& pids, const std::string& proc = "/proc");
// The pids a cgroup directory lists; empty where it cannot be read.
std::vector<int> cgroup_pids(const std::string& directory);
// Processes whose environment says NAME=value: what a dead supervisor left behind.
std::vector<int> pids_with_environment(const std::string& assignment,
                                       const std::string& proc = "/proc");

// Ends what a dead supervisor left of its task: whatever its cgroups list or has this assignment in
// its environment. Walks all of /proc, so for lost tasks only. The number of processes signalled;
// call again until it is 0.
std::size_t kill_leftovers(const std::string& assignment,
                           const std::vector<std::string>& cgroup_directories);

}  // namespace billow::agent
