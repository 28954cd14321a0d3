// Which addresses a job with the network `internet` reaches: public ones, allowed blocks of private
// networks, and the node's name servers on port 53. Never the node itself by any of its addresses,
// link-local addresses, or a cloud's metadata service, in whatever form they are written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agent/network/route_netlink.h"
#include "base/result.h"
#include "core/model/address_block.h"
#include "net/address.h"

namespace billow::agent {

// An address with a port. IPv4 addresses are never kept in their IPv6 form.
struct Target {
  AddressBlock address;  // a single one
  std::uint16_t port = 0;
  net::RawAddress raw() const;
  bool operator==(const Target&) const = default;
};
Result<Target> target_of(const net::RawAddress& raw);

class ReachRules {
 public:
  // Made in the node's network, about which it asks the kernel for every address.
  static Result<ReachRules> create(std::vector<AddressBlock> allowed,
                                   std::vector<AddressBlock> name_servers);
  bool permits(const Target& target);

 private:
  ReachRules(RouteNetlink routes,
             std::vector<AddressBlock> allowed,
             std::vector<AddressBlock> name_servers)
      : routes_(std::move(routes)),
        allowed_(std::move(allowed)),
        name_servers_(std::move(name_servers)) {}

  RouteNetlink routes_;
  std::vector<AddressBlock> allowed_, name_servers_;
};

// The name servers in the text of a resolv.conf, without those that need an interface's name.
std::vector<AddressBlock> name_servers_in(std::string_view resolv_conf);

inline constexpr std::uint16_t name_server_port = 53;

}  // namespace billow::agent
