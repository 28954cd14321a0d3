// Addresses to listen on and endpoints to connect to, as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace billow::net {

// "127.0.0.1:7070", "[::1]:0", "localhost:7070", "unix:/run/billow.sock".
struct Address {
  std::string host;  // empty for a Unix socket
  std::uint16_t port = 0;
  std::string unix_path;  // empty for TCP
  bool is_unix() const { return !unix_path.empty(); }
  bool is_loopback() const;  // also a Unix socket: nothing leaves this machine
  std::string text() const;
  bool operator==(const Address&) const = default;
};
Result<Address> parse_address(std::string_view text);

// The server a client connects to: "http://127.0.0.1:7070", "https://head.example:7443",
// "unix:/run/billow.sock", or an address.
struct Endpoint {
  Address address;
  bool tls = false;
  std::string text() const;
  std::string host_header() const;
  bool operator==(const Endpoint&) const = default;
};
Result<Endpoint> parse_endpoint(std::string_view text);
// "https://host:port/path?query" → endpoint and target.
struct Url {
  Endpoint endpoint;
  std::string target;
};
Result<Url> parse_url(std::string_view text);

// A socket address as bytes, so that this header needs no socket header.
struct RawAddress {
  alignas(8) char bytes[128];
  unsigned length = 0;
};
// All addresses of a host. May block on a name server unless the host is numeric; with
// `numeric_only` other names are an error.
Result<std::vector<RawAddress>> resolve(const Address& address, bool numeric_only = false);
// A non-blocking listening socket. An address in use is Code::conflict. Unix sockets are created
// with mode 0600.
struct Listener {
  Fd fd;
  Address bound;  // with the port the system chose
};
Result<Listener> listen_on(const Address& address);
// Starts a non-blocking connect; the socket becomes writable when it completes. connect_error()
// then returns the result.
Result<Fd> start_connect(const RawAddress& address);
bool is_ip(const std::string& host);  // an IPv4 or IPv6 address, not a name
int connect_error(int fd);
std::string peer_of(int fd, std::optional<unsigned>& unix_uid);
// The part of a peer's address ("10.0.0.7:4711") that one sender cannot change at will: an IPv4
// address, or the first half of an IPv6 address, of which one machine commonly has all of the rest.
std::string network_of_peer(std::string_view peer);
// Sends small answers at once and detects a vanished peer (power, cable) within about a minute.
// Accepted sockets inherit these options from the listening one.
void tune_tcp(int fd);

}  // namespace billow::net
