// Where a job listens: the socket behind a port, if a process of the job has it. A node's loopback
// belongs to everybody on it, so a port is reached for a job's people only when it is the job's
// own.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace billow::agent {

struct Listener {
  sockaddr_in6 address{};  // to connect to; an IPv4 one is mapped
  bool v4 = false;
  int pid = 0;  // who has it
  int fd = -1;  // as which descriptor
  std::uint64_t inode = 0;
};

// One listening socket of a network.
struct ListeningSocket {
  sockaddr_in6 address{};  // the first four bytes of an IPv4 one's
  bool v4 = false;
  std::uint64_t inode = 0;
  std::uint16_t port() const { return ntohs(address.sin6_port); }
};
// All of the network that this process lives in, which is where a replica is called.
std::vector<ListeningSocket> listening_here();
// The sockets a process has, each with a descriptor of it.
std::map<std::uint64_t, int> sockets_of(int pid);

// not_found: no process of these listens on the port.
Result<Listener> find_listener(const std::vector<int>& pids, std::uint16_t port);

// Whether that process still has that socket: one look instead of one at every process of the job
// and every socket of the machine, for connections that come in bursts. While the job has it open,
// nobody else listens on its port.
bool still_listens(const Listener& listener);

// A socket on its way to the listener, in the network its process lives in. Not connected yet:
// writable when it is.
Result<Fd> begin_connect(const Listener& listener);

}  // namespace billow::agent
