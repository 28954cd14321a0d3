// Addresses that must not be reached on behalf of users (SSRF guard): the services that a cloud
// offers to its machines (credentials, user data), in every form such an address can be written.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "net/address.h"

namespace billow::net {

// The addresses at which clouds serve their machines: link-local ones, and the fixed addresses of
// some clouds. Only the first four bytes of an IPv6 address are used.
enum class Family { v4, v6 };
struct AddressRange {
  Family family = Family::v4;
  unsigned char bytes[4] = {};  // the address begins with these
  int bits = 32;                // as many of them as count
};
std::span<const AddressRange> cloud_ranges();

// True for link-local addresses, for the fixed metadata addresses of some clouds, and for IPv6
// addresses that a gateway or tunnel translates to such IPv4 addresses. Translated addresses of
// private networks count too: there is no legitimate reason to reach those through a translation.
bool leads_to_the_machines_cloud(const RawAddress& address);
// The same, and every address that is not on the public Internet: this machine, its networks, and
// multicast. For calls to targets that users named, from a machine with more access than they have.
bool leads_inwards(const RawAddress& address);
// True for the addresses of this machine's interfaces, public ones too, and for IPv6 addresses that
// are translated to them; also if the kernel does not tell its addresses. An address that a cloud
// or a router translates to this machine is not known here.
bool leads_to_this_machine(const RawAddress& address);
// For HttpClient::Options: refuses both kinds of addresses, unless they belong to one of these
// hosts.
std::function<Status(const RawAddress&, const Address& named)> only_outwards(
    std::vector<std::string> hosts);

}  // namespace billow::net
