// Egress: bytes that a task's processes send to public addresses, which providers bill.
//
// If a task has a v2 control group and the agent may load BPF, a program of about forty
// instructions counts every packet that the group sends, with its headers, like a provider does:
// every protocol, and sockets of any lifetime. The program survives the agent, and the next agent
// finds its count. Bytes that a socket sends after the task's last process has ended are not
// counted. Otherwise the sampler adds up the counts of TCP sockets (see sampler.h), which misses
// more. Nothing is estimated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/file.h"
#include "base/result.h"
#include "net/address.h"

namespace billow::agent {

// Whether bytes to this address leave the site: it is not loopback, private, link-local, shared
// (100.64/10) or multicast. Addresses are in network order; IPv4 may be mapped.
bool is_public(int family, const unsigned char* address);

// The same for a name or an address: true if any of its addresses is public. May block.
bool leaves_the_site(const net::Address& address);

class EgressCounter {
 public:
  // The counter of this group: the one that an earlier agent left, or a new one that starts at
  // zero.
  static Result<EgressCounter> attach(const std::string& cgroup);
  // Only an existing counter.
  static std::optional<EgressCounter> find(const std::string& cgroup);
  // Does not count bytes to this address, which is a machine of the installation.
  Status leave_out(int family, const unsigned char* address);

  std::int64_t bytes() const;
  bool found() const { return found_; }  // it existed and holds an earlier count

 private:
  Fd count_, inside_;
  bool found_ = false;
};

}  // namespace billow::agent
