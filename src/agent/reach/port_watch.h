// Who has the ports of replicas. A node's ports belong to everybody on it: a neighbour that binds
// the one a replica is about to use, or has just lost, would be asked its health and given its
// calls. So the agent says whether the sockets that answer there are the task's own, and a gateway
// calls a replica only where they are.
//
// What holds
// - Of the sockets on a port those count that a connection from the gateway comes to (the kernel
// prefers an address to "any"); all of them
//   must be of the task: sockets of one Unix user can share a port.
// - Somebody else is named only when a second look, a moment later, still finds them: a process
// that has just been made may be missing
//   from the first look's list.
// - Until its first listener a task is looked at ever more seldom, from every 2 ms; then every 25
// ms whether it still has its sockets, which
//   is one look at each of them, every 100 ms at all the sockets of the machine, and when asked.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/reach/listening.h"
#include "base/clock.h"
#include "base/ids.h"
#include "core/model/states.h"
#include "net/address.h"

namespace billow::agent {

// At which address a gateway comes to this node's ports: 127.0.0.1, or one that is not known here.
enum class Reach { loopback, unknown };
Reach reach_of(const net::Address& head);  // as an agent that dials the head there is known to it

// The sockets, by inode, of which the kernel takes one for a connection to that port.
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
  // Looks at those whose time has come; what it sees of each of them.
  std::vector<Seen> look(SteadyTime now);
  // Looks at one at once. Doubt is not held against it: somebody else's socket that no second look
  // has confirmed counts as nobody's.
  PortHolder look_at(TaskId task, SteadyTime now);
  // Of a task that has ended: it never had its port, and somebody has it now.
  bool was_taken(TaskId task) const;
  std::optional<SteadyTime> next() const;  // when `look` has something to do

 private:
  struct Port {
    std::uint16_t number = 0;
    SteadyTime since;
    SteadyTime due;
    bool had_it = false, has_it = false;
    SteadyTime all_due;  // when its own sockets are not enough to look at
    std::map<std::uint64_t, std::pair<int, int>>
        own;                   // sockets of the task as found last: process and descriptor
    SteadyTime strange_since;  // 0: nobody else's socket was there
  };
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
