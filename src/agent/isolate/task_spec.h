// What a task runs, as the agent sees it, and its file form for the supervisor
// (supervise/protocol.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/limits.h"
#include "base/result.h"
#include "core/model/surroundings.h"
#include "process/spawn.h"
#include "supervise/protocol.h"

namespace billow::agent {

struct TerminalSize {
  std::uint16_t rows = 24, columns = 80;
};
struct ResourceLimit {
  std::uint32_t resource = 0;  // RLIMIT_*
  std::uint64_t soft = 0, hard = 0;
};
// The user a job runs as. users.h makes it from a name.
using process::Identity;

struct TaskSpec {
  std::vector<std::string> argv;
  std::vector<std::string> env;  // "NAME=value": the job's whole environment
  std::string cwd = "/";
  std::optional<Identity> identity;
  std::uint32_t umask = 022;
  std::optional<TerminalSize> terminal;  // absent: pipes
  bool one_stream = false;               // stdout and stderr share a pipe, in the order written
  bool stdin_open = false;               // absent and no terminal: /dev/null
  std::uint64_t log_segment_bytes = limits::log_segment_bytes;
  std::uint32_t log_segments_max = limits::log_segments_max;
  Duration time_limit;    // 0: none
  SteadyTime paid_until;  // 0: none; CLOCK_BOOTTIME of this machine
  Duration stop_grace = limits::stop_grace_default;
  Duration leftover_grace = seconds(1);
  std::string cgroup_v2;
  std::vector<std::string> cgroups_v1;
  std::string cgroup_memory;
  std::string cgroup_freezer_v1;
  std::vector<std::string> hide_devices;  // relative to /dev
  std::vector<BoundVolume> binds;  // directories of the node, mounted where the job wants them
  bool user_namespace = false;
  std::string private_tmp;         // directory that is the job's /tmp; empty: the node's
  std::vector<std::string> shown;  // directories that are visible nevertheless
  bool private_proc = false;       // /proc hides processes that the job may not look into
  bool own_network = false;        // the launcher gives the supervisor a network namespace
  std::vector<ResourceLimit> resource_limits;
  std::optional<int> nice;
  std::optional<int> oom_score_adj;
  int die_with_pid = 0;  // the task ends with this process; 0: with none
  supervise::Subscription subscription = supervise::Subscription::notify;
  bool no_new_privs = false;
  std::uint32_t refused_calls = 0;  // CallRules of process/call_filter_linux.h, as bits
  std::string meta;                 // the agent's own notes, read back with meta_of_spec
};

// The bytes of `spec`. Refuses what the supervisor would refuse, with a message for the user.
Result<std::string> encode_spec(const TaskSpec& spec);
// Where and as whom a task runs, from the bytes of its spec: for work beside it, also after a
// restart of the agent.
struct TaskRecord {
  std::string cwd;
  std::optional<Identity> identity;
  std::vector<std::string> env;
  std::string meta;                                   // the agent's own notes
  std::string variable(std::string_view name) const;  // empty where it is not set
};
Result<TaskRecord> record_of_spec(const std::string& bytes);
// The notes in the bytes of a spec; empty if it has none or the bytes are damaged.
std::string meta_of_spec(std::string_view bytes);

}  // namespace billow::agent
