// The network of a job with --network internet: a namespace with nothing but a loopback, in which
// every address that the job may reach is local and every other one is unreachable. Connections and
// packets to these addresses arrive at the sockets of an uplink (uplink.h), a process in the node's
// network. The namespace belongs to the node's root, so no capability inside the job's own user
// namespace can change it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/isolate/task_spec.h"
#include "base/file.h"
#include "base/result.h"
#include "core/model/address_block.h"

namespace billow::agent {

struct JobNetwork {
  Fd network;               // the namespace, for the job
  Fd life;                  // the uplink ends when the last copy of this is closed
  std::uint64_t inode = 0;  // of the namespace, by which it is recognized
  std::string address;      // in the project's network; empty: it is not part of one
};

struct InternetWish {
  std::vector<AddressBlock> allowed;
  std::string resolv_conf = "/etc/resolv.conf";
  Identity identity;                 // of the uplink
  std::vector<std::string> cgroups;  // and where it runs
  std::string program;               // billow
};
// Needs root, and a kernel with BPF; an error says what this node lacks.
Result<JobNetwork> make_internet(const InternetWish& wish);

// An error if this agent cannot make networks at all.
Status check_can_make_networks();
// A line for `billow doctor`: whether this machine can make such networks.
std::string describe_job_networks();

}  // namespace billow::agent
