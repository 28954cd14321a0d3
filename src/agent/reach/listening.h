// Finds the socket that listens on a port, if a process of the job owns it. All jobs of a node
// share its loopback device, so a tunnel may only lead to a socket that belongs to the job.
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
  sockaddr_in6 address{};  // to connect to; IPv4 is mapped
  bool v4 = false;
  int pid = 0;  // the process that owns it
  int fd = -1;  // its descriptor there
  std::uint64_t inode = 0;
};

// One listening socket of a network namespace.
struct ListeningSocket {
  sockaddr_in6 address{};  // an IPv4 address is in the first four bytes
  bool v4 = false;
  std::uint64_t inode = 0;
  std::uint16_t port() const { return ntohs(address.sin6_port); }
};
// All listening sockets in the agent's network namespace, where gateways call replicas.
std::vector<ListeningSocket> listening_here();
// The sockets of a process by inode, each with one of its descriptors.
std::map<std::uint64_t, int> sockets_of(int pid);

// not_found: none of these processes listens on the port.
Result<Listener> find_listener(const std::vector<int>& pids, std::uint16_t port);

// Whether that process still has that socket. Much cheaper than find_listener, for bursts of
// connections: while the job has the socket open, no other process listens on its port.
bool still_listens(const Listener& listener);

// Starts to connect to the listener, in its process's network namespace. The socket becomes
// writable when it is connected.
Result<Fd> begin_connect(const Listener& listener);

}  // namespace billow::agent
