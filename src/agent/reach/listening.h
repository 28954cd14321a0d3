// Finds the socket that listens on a port, if a process of the job owns it, and connects to it. All
// jobs of a node share its loopback device, so a tunnel may only lead to a socket that belongs to
// the job.
//
// A job chooses what its processes are and do: pids are used again, threads change their network
// namespace, sockets listen on addresses of other machines (IP_FREEBIND). So the process and the
// namespace are held by descriptors, and the namespace's own table says at which address the socket
// listens. A connection starts in that namespace and cannot leave it: its device is the loopback
// one, and its own address is the one it connects to, which the kernel refuses unless the namespace
// has that address.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "process/aside.h"

namespace billow::agent {

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

// A socket of a process that listens on a port.
struct Listener {
  ListeningSocket socket;  // its address is one to connect to
  int pid = 0;
  int fd = -1;  // the process's descriptor
  Fd process;   // pidfd: the process is still the one that was checked
  Fd network;   // the socket's network namespace; empty: the agent's own
};

struct FindListener {
  std::function<std::vector<int>()> processes;  // the job's, read anew at each call
  std::uint16_t port = 0;
};
// not_found: none of these processes listens on the port.
Result<Listener> find_listener(const FindListener& wish);

// Whether that process still has that socket. Much cheaper than find_listener, for bursts of
// connections: while the job has the socket open, no other process listens on its port.
bool still_listens(const Listener& listener);
// Whether that descriptor of a process is that socket.
bool has_socket(int pid, int fd, std::uint64_t inode);

// The user whose connection it is, to firewalls that look at the owner of a socket. Used by an
// agent of root alone.
using ConnectAs = process::Aside::User;
// Starts to connect to the listener. The socket becomes writable when it is connected. forbidden:
// it listens on an address that is not the machine's own, or one at which clouds serve their
// machines.
Result<Fd> begin_connect(const Listener& listener, const ConnectAs& as);

}  // namespace billow::agent
