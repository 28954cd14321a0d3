// Watches which process owns the ports of replicas. All jobs of a node share its ports: a neighbour
// that binds the port that a replica is about to use, or has just lost, would get its health checks
// and its calls. So the agent reports whether the sockets on the port belong to the task, and a
// gateway calls a replica only if they do.
//
// Guarantees
// - Only sockets that a connection from the gateway can reach count (the kernel prefers a specific
//   address to "any"). All of them must belong to the task, because sockets of one Unix user can
//   share a port.
// - Another owner is reported only after a second check a moment later, because the first check can
//   miss a process that was just created.
// - Until the task listens for the first time it is checked at growing intervals, from 2 ms. Then
//   its own sockets are checked every 25 ms, all sockets of the machine every 100 ms, and both on
//   request.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/reach/listening.h"
#include "base/clock.h"
#include "base/ids.h"
#include "core/model/states.h"
#include "net/address.h"

namespace billow::agent {

// The address by which a gateway reaches this node's ports: 127.0.0.1, or one unknown to the agent.
enum class Reach { loopback, unknown };
Reach reach_of(const net::Address& head);  // for an agent that dials the head at this address

// The inodes of the sockets among which the kernel chooses for a connection to that port.
std::vector<std::uint64_t> answering(const std::vector<ListeningSocket>& sockets,
                                     std::uint16_t port,
                                     Reach reach);

class PortWatch {
 public:
  struct Sources {
    std::function<std::vector<ListeningSocket>()> sockets;
    std::function<std::vector<int>(TaskId)> processes;
    std::function<std::map<std::uint64_t, int>(int pid)> sockets_of;
    std::function<Reach()> reach;
  };
  struct Seen {
    TaskId task;
    PortHolder holder = PortHolder::nobody;
    // Where the task listens instead, for people; empty: nowhere, or on its port. None: not looked
    // at this time.
    std::optional<std::string> astray = {};
  };
  PortWatch() : PortWatch({listening_here, {}, agent::sockets_of, {}}) {}
  explicit PortWatch(Sources sources) : sources_(std::move(sources)) {}
  void set_processes(std::function<std::vector<int>(TaskId)> fn) {
    sources_.processes = std::move(fn);
  }
  void set_reach(std::function<Reach()> fn) { sources_.reach = std::move(fn); }

  void add(TaskId task, std::uint16_t port, SteadyTime now);
  void remove(TaskId task) { ports_.erase(task); }
  bool watches(TaskId task) const { return ports_.contains(task); }
  std::uint16_t port_of(TaskId task) const;
  // Checks the tasks that are due.
  std::vector<Seen> look(SteadyTime now);
  // Checks one task now. A foreign socket that no second check has confirmed counts as nobody's.
  PortHolder look_at(TaskId task, SteadyTime now);
  // For a task that has ended: it never had its port, and another process has it now.
  bool was_taken(TaskId task) const;
  std::optional<SteadyTime> next() const;  // when the next task is due

 private:
  struct Port {
    std::uint16_t number = 0;
    SteadyTime since;
    SteadyTime due;
    bool had_it = false, has_it = false;
    SteadyTime all_due;  // when all sockets of the machine must be checked again
    // The task's sockets at the last check: process and descriptor, by inode.
    std::map<std::uint64_t, std::pair<int, int>> own;
    std::set<std::uint64_t> ever_own;  // inodes that were the task's
    SteadyTime strange_since;          // since when a foreign socket exists; 0: none
    SteadyTime astray_due;             // when to look where else the task listens
  };
  std::string where_instead(TaskId task,
                            const Port& port,
                            const std::vector<ListeningSocket>& sockets) const;
  PortHolder judge(TaskId task,
                   Port& port,
                   const std::vector<ListeningSocket>& sockets,
                   SteadyTime now);
  bool all_own(TaskId task, Port& port, const std::vector<std::uint64_t>& inodes);
  static bool still_has(const Port& port, std::uint64_t inode);

  Sources sources_;
  std::map<TaskId, Port> ports_;
};

}  // namespace billow::agent
