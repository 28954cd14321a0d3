// Bytes that leave: what a task's processes send to public addresses, which is what providers bill
// as egress.
//
// Where a task has a v2 control group and the agent may load a program into the kernel, a program
// of some forty instructions on the group counts every packet the group sends: any protocol, any
// lifetime of a socket, with its headers, as a provider does. It stays when the agent dies, and the
// next agent finds it with its count; what a socket still sends after the task's last process is
// gone is not counted. Elsewhere the sampler adds up what TCP sockets say (see sampler.h), and
// misses more. Nothing is ever estimated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/file.h"
#include "base/result.h"
#include "net/address.h"

namespace billow::agent {

// Whether bytes to this address leave the site: it is neither of this machine, nor private,
// link-local, shared (100.64/10) or multicast. Addresses in network order; IPv4 counts in its
// mapped form too.
bool is_public(int family, const unsigned char* address);

// The same of a name, or a number: any of its addresses is public. May block.
bool leaves_the_site(const net::Address& address);

class EgressCounter {
 public:
  // The counter of this group: the one an earlier agent left, else a new one from zero.
  static Result<EgressCounter> attach(const std::string& cgroup);
  // Only one that is there.
  static std::optional<EgressCounter> find(const std::string& cgroup);
  // Of the installation's own machines: what is sent to them stays within.
  Status leave_out(int family, const unsigned char* address);

  std::int64_t bytes() const;
  bool found() const { return found_; }  // it was there already, and holds what was sent before

 private:
  Fd count_, inside_;
  bool found_ = false;
};

}  // namespace billow::agent
