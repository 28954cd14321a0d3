// Lets only gateways connect to the ports of replicas. All accounts and jobs of a node share its
// loopback device, so without it each of them could call a replica past the gateway, its keys and
// its limits.
//
// A BPF program on the task's v2 control group judges packets that arrive for the listening socket
// of the replica's port; established connections only pass three instructions. A packet that comes
// from this machine is dropped unless the socket that sent it belongs to a control group of
// gateways, to the replica itself or to this agent. The kernel has recorded the control group when
// that socket was created, and only root can change it. Packets from other machines pass: gateways
// there are not known here, so the network's firewall decides about them.
//
// The program survives the agent. Root on the node could remove it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace billow::agent {

// The numbers of the control groups whose processes may call this machine's replicas.
std::vector<std::uint64_t> gateway_groups();
// Before the task's first process, or in place of the program that the group has.
Status close_replica(const std::string& cgroup,
                     std::uint16_t port,
                     const std::vector<std::uint64_t>& callers);
bool replica_closed(const std::string& cgroup);
// Lets a socket of this agent pass, before it connects. It has no effect without root's rights,
// without which nothing is closed either.
void pass_replica_guard(int socket);

// A line for `billow doctor`. `groups`: tasks have v2 control groups on this machine.
std::string describe_replica_guard(bool groups);

}  // namespace billow::agent
