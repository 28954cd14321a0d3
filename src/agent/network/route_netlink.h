// The few requests to the kernel's routing (rtnetlink) that jobs' networks need. A connection works
// on the network namespace in which it was made.
#pragma once

#include <cstdint>
#include <string>

#include "base/file.h"
#include "base/result.h"
#include "core/model/address_block.h"

namespace billow::agent {

enum class RouteKind { here, unreachable, elsewhere };

class RouteNetlink {
 public:
  static Result<RouteNetlink> open();

  // The number of a device; 0: there is none of this name.
  static int device(const std::string& name);
  Status set_up(int device);
  Status add_bridge(const std::string& name);
  // Two devices joined like the ends of a cable, of which the other is in another namespace.
  struct Peer {
    std::string name;
    int network = -1;
  };
  Status add_pair(const std::string& name, const Peer& peer);
  Status set_master(int device, int bridge);
  Status add_address(int device, const AddressBlock& address);
  // here: addresses of this block are this machine's own, with `source` as the other end's address
  // if it is given. unreachable: sending there is an error.
  Status add_route(RouteKind kind,
                   const AddressBlock& block,
                   int device,
                   const AddressBlock* source);
  // How a packet to this address would go. `bytes`: 4 or 16.
  Result<RouteKind> look_up(bool v6, const unsigned char* bytes);

 private:
  explicit RouteNetlink(Fd fd) : fd_(std::move(fd)) {}
  Result<std::string> ask(std::string request);

  Fd fd_;
  std::uint32_t sequence_ = 0;
};

}  // namespace billow::agent
