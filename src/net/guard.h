// Where whoever fetches for somebody else does not go: the services that a cloud has for its own
// machines (their credentials, their user data), by whatever form of address they can be written
// in.
#pragma once

#include "net/address.h"

namespace billow::net {

// Addresses of the link alone, the fixed ones that some clouds have elsewhere, and IPv6 addresses
// that a gateway or tunnel turns into such IPv4 ones. Of those that are turned also what is
// private: nobody has a reason to go there by a detour.
bool leads_to_the_machines_cloud(const RawAddress& address);
// The same, and all that is no address of the Internet's: this machine, its networks, and groups of
// hosts. For calls whose target somebody else has named, from a machine that is let in where they
// are not.
bool leads_inwards(const RawAddress& address);

}  // namespace billow::net
