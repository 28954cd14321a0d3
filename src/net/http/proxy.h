// Connections through a proxy (CONNECT, RFC 9110 9.3.6), for machines without another way out. The
// variable BILLOW_PROXY ("http://10.0.0.2:3128") names it for the whole process. TLS goes through
// it unseen. This machine itself and its provider's metadata are reached directly.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/address.h"

namespace billow::net {

inline constexpr const char* proxy_variable = "BILLOW_PROXY";

// "http://host:port"; none other is understood.
Result<Address> parse_proxy(std::string_view url);
// The proxy on the way to this endpoint; none: there is none.
std::optional<Address> proxy_for(const Endpoint& endpoint);

std::string connect_request(const Endpoint& endpoint);
// The length of the proxy's answer; 0: more is to come. An error: it refuses.
Result<std::size_t> connect_answer(std::string_view bytes, const Address& proxy);
// Reads the answer from a socket without taking what follows it. False: more is to come.
Result<bool> take_connect_answer(int fd, const Address& proxy);

}  // namespace billow::net
