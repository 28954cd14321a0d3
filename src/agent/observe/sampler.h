// Samples what the tasks of this node do: /proc, the kernel's socket tables, and one sample of each
// card. Runs on a worker, because a driver may take its time; its input is plain values.
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
  std::string cgroup;  // empty: it has none
  std::vector<GpuGrant> gpus;
  std::uint64_t output_bytes = 0;
  SteadyTime last_input;         // 0: none
  std::optional<Egress> egress;  // the kernel's count; none: it is added up from sockets here
  bool born_here = false;        // started by this agent, so none of its traffic was counted before
  std::int64_t tunnelled = 0;    // bytes sent through tunnels, which no other count includes
};

struct Sampled {
  std::map<std::uint32_t, GpuSample> cards;
  std::vector<std::pair<TaskId, TaskSample>> tasks;
};

// Bytes and connections of TCP sockets, as the kernel counts them. Empty if it does not report
// them.
struct SocketUse {
  std::int64_t rx_bytes = 0, tx_bytes = 0;
  std::uint64_t cookie = 0;  // unique since the machine started
  bool established = false;
  bool leaves = false;  // connected to a public address
};
struct Sockets {
  std::map<std::uint64_t, SocketUse> held;  // by inode
  // By cookie: closed by their processes, but the kernel still sends.
  std::map<std::uint64_t, SocketUse> closed;
};
Sockets tcp_sockets();

// If the driver has no energy counter, the energy is integrated from the power.
class Sampler {
 public:
  Sampler(GpuBackend* backend, std::vector<GpuInfo> gpus)
      : backend_(backend), gpus_(std::move(gpus)) {}
  Sampled look(const std::vector<WatchedTask>& tasks, SteadyTime now);

 private:
  std::map<std::uint32_t, GpuSample> look_at_cards(const std::map<std::size_t, int>& holders);
  void add_network(const WatchedTask& task,
                   const std::vector<int>& pids,
                   const Sockets& sockets,
                   TaskSample& sample);
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
  // Bytes by socket (the kernel's cookie): a closed socket keeps its count, and one that still
  // sends after its process closed it is counted on. Sockets that live for less than two seconds
  // and protocols other than TCP are missed.
  struct Traffic {
    std::map<std::uint64_t, std::int64_t> sent;
    std::int64_t total = 0;
  };
  std::map<TaskId, Traffic> traffic_;
};

// The inodes of the sockets that these processes hold.
std::vector<std::uint64_t> socket_inodes(const std::vector<int>& pids,
                                         const std::string& proc = "/proc");

}  // namespace billow::agent
