// Hands all connections and packets that a job sends to other machines to two sockets, one for
// connections and one for packets, whatever the port. In the job's network the foreign addresses
// count as local, so the kernel looks for a socket there; a BPF program (sk_lookup, Linux 5.9)
// answers that look-up.
#pragma once

#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "core/model/address_block.h"

namespace billow::agent {

struct CatchAll {
  int network = -1;                    // the namespace
  int connections = -1, packets = -1;  // listening, and for packets; both for IPv4 and IPv6
  // The job's own addresses, whose ports are the job's, besides the loopback.
  AddressBlock own_v4, own_v6;
  // Name servers at loopback addresses: of these, port 53 is caught nevertheless.
  std::vector<AddressBlock> name_servers;
};
// While the descriptor is open, the program is in place.
Result<Fd> catch_all(const CatchAll& wanted);

}  // namespace billow::agent
