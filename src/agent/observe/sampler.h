// What the tasks of this node do right now, read from the machine: /proc, the kernel's socket
// tables, and one look at each card. Runs on a worker, because a driver may take its time; what it
// needs of the tasks comes in as plain values.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/agent/watch.h"
#include "core/model/job.h"
#include "gpu/backend.h"

namespace billow::agent {

// A live task as the sampler needs it.
struct WatchedTask {
  TaskId task;
  int pid = 0;         // of the job's first process
  std::string cgroup;  // where it has one of its own
  std::vector<GpuGrant> gpus;
  std::uint64_t output_bytes = 0;
  SteadyTime last_input;  // 0: none
  std::optional<Egress>
      egress;              // where the kernel counts it; else it is added up from sockets here
  bool born_here = false;  // started by this agent: nothing of its traffic was counted before
  std::int64_t tunnelled =
      0;  // what left through tunnels, which is neither in the kernel's count nor in its sockets'
};

struct Sampled {
  std::map<std::uint32_t, GpuSample> cards;
  std::vector<std::pair<TaskId, TaskSample>> tasks;
};

// Bytes and connections of TCP sockets, from the kernel's own accounts. Empty where it does not
// tell.
struct SocketUse {
  std::int64_t rx_bytes = 0, tx_bytes = 0;
  std::uint64_t cookie = 0;  // of no other socket since the machine started
  bool established = false;
  bool leaves = false;  // to a public address
};
struct Sockets {
  std::map<std::uint64_t, SocketUse> held;  // by inode
  std::map<std::uint64_t, SocketUse>
      closed;  // by cookie: their processes have let go, the kernel still sends
};
Sockets tcp_sockets();

// Energy of a card whose driver has no counter is added up from its power.
class Sampler {
 public:
  Sampler(GpuBackend* backend, std::vector<GpuInfo> gpus)
      : backend_(backend), gpus_(std::move(gpus)) {}
  Sampled look(const std::vector<WatchedTask>& tasks, SteadyTime now);

 private:
  std::int64_t energy_mj(const GpuSample& sample, SteadyTime now);
  std::int64_t sent(const WatchedTask& task,
                    const std::vector<std::uint64_t>& inodes,
                    const Sockets& sockets);

  GpuBackend* backend_;
  std::vector<GpuInfo> gpus_;
  struct Integral {
    SteadyTime at;
    double mj = 0;
  };
  std::map<std::uint32_t, Integral> integrals_;
  // Bytes by socket (the kernel's cookie), so that one that closes takes nothing back, and one that
  // drains after its process closed it still counts. What never shows in a look is missed: sockets
  // that live for less than two seconds, and every protocol but TCP.
  struct Traffic {
    std::map<std::uint64_t, std::int64_t> sent;
    std::int64_t total = 0;
  };
  std::map<TaskId, Traffic> traffic_;
};

// The inodes of the sockets these processes hold.
std::vector<std::uint64_t> socket_inodes(const std::vector<int>& pids,
                                         const std::string& proc = "/proc");

}  // namespace billow::agent
