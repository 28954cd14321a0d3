// What a task's processes use now, read from /proc: cheap enough for one sample per second.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace billow::agent {

struct ProcessUsage {
  std::int64_t cpu_ns = 0;  // of live processes and of the children they have waited for
  std::int64_t rss_bytes = 0;
  std::int64_t io_read_bytes = 0,
               io_write_bytes = 0;  // through system calls; 0 if not permitted
  std::int32_t processes = 0, threads = 0;
};

// All processes, so that many tasks can be looked up after one walk of /proc.
class ProcessTable {
 public:
  static ProcessTable read(const std::string& proc = "/proc");
  // The descendants of a process (usually a supervisor), without the process itself.
  std::vector<int> descendants(int pid) const;
  std::size_t size() const { return by_parent_.size(); }

 private:
  std::vector<std::pair<int, int>> by_parent_;  // (parent, pid), sorted
};

ProcessUsage usage_of(const std::vector<int>& pids, const std::string& proc = "/proc");
// The pids that a cgroup directory lists; empty if it cannot be read.
std::vector<int> cgroup_pids(const std::string& directory);
// Processes whose environment contains NAME=value: finds what a dead supervisor left behind.
std::vector<int> pids_with_environment(const std::string& assignment,
                                       const std::string& proc = "/proc");

// Kills what a dead supervisor left of its task: every process that its cgroups list or that has
// this assignment in its environment. Walks all of /proc, so use it for lost tasks only. Returns
// the number of processes signalled; call it again until it is 0.
std::size_t kill_leftovers(const std::string& assignment,
                           const std::vector<std::string>& cgroup_directories);

}  // namespace billow::agent
