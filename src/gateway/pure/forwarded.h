// Where a request really comes from, if a trusted proxy passed it on: X-Forwarded-For, Forwarded
// (RFC 7239), or the header of the PROXY protocol, version 2, before the first byte.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "net/http/http.h"

namespace billow::gateway {

// Networks in CIDR form: "10.0.0.0/8", "fd00::/8", or a single address.
class Networks {
 public:
  static Result<Networks> parse(const std::vector<std::string>& texts);
  bool contains(std::string_view address) const;  // of text that is no address: false
  bool empty() const { return all_.empty(); }

 private:
  struct Network {
    std::array<unsigned char, 16> bytes{};
    unsigned bits = 0;
  };
  std::vector<Network> all_;
};

// The address part of a peer, "10.0.0.7:4711" or "[::1]:4711".
std::string_view address_of_peer(std::string_view peer);

// What trusted proxies say about the client of a request.
struct Client {
  std::string address;  // empty: they name none
  bool https = false;   // the client's connection to the first of them used TLS
};
// Proxies append what they see, so the chain is read from its end: the first address that is not a
// trusted proxy's is the client. What stands before it, the client may have invented. Most proxies
// write one of the two headers and pass the other on as the client sent it. If both are present and
// name different clients, nobody can tell which one the proxy wrote, so neither counts: the client
// is the proxy itself. https: all that say something about it must say so.
Client client_of(const net::Headers& headers, const Networks& trusted);

// The header of the PROXY protocol, versions 1 and 2.
struct ProxyHeader {
  std::size_t bytes = 0;  // of the header
  std::string peer;       // "203.0.113.7:4711"; empty: the proxy speaks for itself
};
inline constexpr std::string_view proxy_signature{"\r\n\r\n\0\r\nQUIT\n", 12};
inline constexpr std::string_view proxy_word = "PROXY ";  // what version 1 begins with
inline constexpr std::size_t proxy_header_bytes_max = 536;
// Whether the bytes begin like such a header.
inline bool begins_proxy_header(std::string_view data) {
  return data.starts_with(proxy_word) || data.starts_with(proxy_signature);
}
// Nothing: it is not complete or not valid.
std::optional<ProxyHeader> read_proxy_header(std::string_view data);

}  // namespace billow::gateway
