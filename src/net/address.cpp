#include "net/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include <fmt/format.h>

#include "base/limits.h"
#include "base/text.h"
#include "net/sockets.h"

namespace billow::net {
namespace {

static_assert(sizeof(sockaddr_storage) <= sizeof(RawAddress::bytes));

const sockaddr* raw(const RawAddress& a) {
  return reinterpret_cast<const sockaddr*>(a.bytes);
}

RawAddress raw_of(const sockaddr* address, socklen_t length) {
  RawAddress out{};
  std::memcpy(out.bytes, address, length);
  out.length = length;
  return out;
}

std::string text_of(const sockaddr_storage& storage) {
  char host[INET6_ADDRSTRLEN] = "";
  if (storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
    inet_ntop(AF_INET, &v4.sin_addr, host, sizeof host);
    return fmt::format("{}:{}", host, ntohs(v4.sin_port));
  }
  if (storage.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
    inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof host);
    return fmt::format("[{}]:{}", host, ntohs(v6.sin6_port));
  }
  return "unknown";
}

Result<RawAddress> raw_unix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return fail(Code::invalid,
                fmt::format("the socket path {} is longer than {} bytes", path,
                            sizeof address.sun_path - 1),
                "use a shorter data directory");
  std::memcpy(address.sun_path, path.data(), path.size());
  return raw_of(reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

std::unexpected<Error> taken(const Address& address) {
  return fail(Code::conflict,
              fmt::format("{} is already in use by another process", address.text()),
              "stop that process, or choose another address with --listen");
}

// A socket file without a listener is left over from a dead process and is removed. One that
// answers is in use.
Status clear_stale_socket(const Address& address, const RawAddress& where) {
  struct stat info;
  if (::lstat(address.unix_path.c_str(), &info) != 0)
    return {};
  if (!S_ISSOCK(info.st_mode))
    return fail(Code::conflict, fmt::format("{} exists and is not a socket", address.unix_path),
                "choose another path");
  Fd probe = sockets::make(AF_UNIX);
  if (!probe)
    return fail_errno("cannot create a socket", errno);
  if (::connect(probe.get(), raw(where), where.length) == 0 || errno == EAGAIN)
    return taken(address);
  if (errno == ECONNREFUSED)
    ::unlink(address.unix_path.c_str());
  return {};
}

}  // namespace

std::string Address::text() const {
  if (is_unix())
    return "unix:" + unix_path;
  return host.find(':') == host.npos ? fmt::format("{}:{}", host, port)
                                     : fmt::format("[{}]:{}", host, port);
}

bool Address::is_loopback() const {
  const bool numbers = host.find_first_not_of("0123456789.") == std::string::npos;
  return is_unix() || (numbers && host.starts_with("127.")) || host == "localhost" || host == "::1";
}

Result<Address> parse_address(std::string_view text) {
  const auto wrong = [&](std::string_view why) {
    return fail(Code::invalid, fmt::format("\"{}\" is not an address: {}", text, why),
                "use 127.0.0.1:7070, [::1]:7070 or unix:/path");
  };
  if (text.starts_with("unix:")) {
    const auto path = text.substr(5);
    if (path.empty() || path.find('\0') != path.npos)
      return wrong("the socket path is empty");
    return Address{.unix_path = std::string(path)};
  }
  Address out;
  std::string_view port;
  if (text.starts_with('[')) {
    const auto close = text.find("]:");
    if (close == text.npos)
      return wrong("an IPv6 address needs [brackets] and a port");
    out.host = text.substr(1, close - 1);
    port = text.substr(close + 2);
  } else {
    const auto colon = text.find(':');
    if (colon == text.npos || text.find(':', colon + 1) != text.npos)
      return wrong("it needs a host and a port");
    out.host = text.substr(0, colon);
    port = text.substr(colon + 1);
  }
  if (out.host.empty())
    return wrong("the host is missing");
  const auto number = parse_int(port, 0, 65535);
  if (!number)
    return wrong("the port is not a number up to 65535");
  out.port = static_cast<std::uint16_t>(*number);
  return out;
}

std::string Endpoint::text() const {
  return address.is_unix() ? address.text() : (tls ? "https://" : "http://") + address.text();
}
std::string Endpoint::host_header() const {
  if (address.is_unix())
    return "localhost";
  const bool usual = address.port == (tls ? 443 : 80);
  const std::string text = address.text();
  return usual ? text.substr(0, text.rfind(':')) : text;
}

Result<Url> parse_url(std::string_view text) {
  Url out;
  if (text.starts_with("unix:")) {
    out.endpoint.address = BILLOW_TRY(parse_address(text));
    out.target = "/";
    return out;
  }
  std::string_view rest = text;
  std::uint16_t usual_port = 80;
  if (starts_with_nocase(rest, "http://")) {
    rest.remove_prefix(7);
  } else if (starts_with_nocase(rest, "https://")) {
    rest.remove_prefix(8);
    out.endpoint.tls = true;
    usual_port = 443;
  } else if (rest.find("://") != rest.npos) {
    return fail(Code::invalid, fmt::format("\"{}\" has an unsupported scheme", text),
                "use http://, https:// or unix:/path");
  } else {
    usual_port = 0;
  }
  const auto slash = std::min(rest.find_first_of("/?"), rest.size());
  std::string authority(rest.substr(0, slash));
  out.target = rest.substr(slash);
  if (out.target.empty() || out.target[0] == '?')
    out.target.insert(0, "/");
  const bool has_port = authority.rfind(':') != std::string::npos && authority.back() != ']';
  if (!has_port && usual_port != 0)
    authority += fmt::format(":{}", usual_port);
  out.endpoint.address = BILLOW_TRY(parse_address(authority));
  for (char c : text)
    if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f)
      return fail(Code::invalid, "the URL contains a space or a control character");
  return out;
}

Result<Endpoint> parse_endpoint(std::string_view text) {
  auto url = BILLOW_TRY(parse_url(text));
  if (url.target != "/")
    return fail(Code::invalid,
                fmt::format("\"{}\" has a path; only a host and a port are allowed", text));
  return url.endpoint;
}

Result<std::vector<RawAddress>> resolve(const Address& address, bool numeric_only) {
  if (address.is_unix())
    return std::vector<RawAddress>{BILLOW_TRY(raw_unix(address.unix_path))};
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (numeric_only ? AI_NUMERICHOST : 0);
  addrinfo* list = nullptr;
  const int rc =
      ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &list);
  if (rc != 0)
    return fail(Code::unavailable,
                fmt::format("cannot find the host {}: {}", address.host, ::gai_strerror(rc)),
                "check the name and the network");
  std::vector<RawAddress> out;
  for (const addrinfo* at = list; at; at = at->ai_next)
    out.push_back(raw_of(at->ai_addr, at->ai_addrlen));
  ::freeaddrinfo(list);
  return out;
}

Result<Listener> listen_on(const Address& address) {
  const auto candidates = BILLOW_TRY(resolve(address));
  if (candidates.empty())
    return fail(Code::invalid, fmt::format("the host {} has no address", address.host));
  const RawAddress& where = candidates.front();
  if (address.is_unix())
    BILLOW_TRY_VOID(clear_stale_socket(address, where));
  Fd fd = sockets::make(raw(where)->sa_family);
  if (!fd)
    return fail_errno("cannot create a socket", errno);
  const int on = 1;
  if (!address.is_unix()) {
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    tune_tcp(fd.get());
  }
  // On Linux bind() gives the file this mode, so it is never accessible to others, not even
  // briefly.
  if (address.is_unix())
    ::fchmod(fd.get(), 0600);
  if (::bind(fd.get(), raw(where), where.length) != 0) {
    const int error = errno;
    if (error == EADDRINUSE)
      return taken(address);
    auto failed = fail_errno(fmt::format("cannot listen on {}", address.text()), error);
    return failed;
  }
  if (address.is_unix())
    ::chmod(address.unix_path.c_str(), 0600);
  if (::listen(fd.get(), SOMAXCONN) != 0)
    return errno == EADDRINUSE
               ? taken(address)
               : fail_errno(fmt::format("cannot listen on {}", address.text()), errno);
  Listener out{std::move(fd), address};
  if (!address.is_unix()) {
    sockaddr_storage bound{};
    socklen_t length = sizeof bound;
    ::getsockname(out.fd.get(), reinterpret_cast<sockaddr*>(&bound), &length);
    out.bound = BILLOW_TRY(parse_address(text_of(bound)));
  }
  return out;
}

Result<Fd> start_connect(const RawAddress& address) {
  Fd fd = sockets::make(raw(address)->sa_family);
  if (!fd)
    return fail_errno("cannot create a socket", errno);
  if (raw(address)->sa_family != AF_UNIX)
    tune_tcp(fd.get());
  if (::connect(fd.get(), raw(address), address.length) != 0 && errno != EINPROGRESS) {
    const int error = errno;
    return fail(Code::unavailable, std::string(::strerror(error)));
  }
  return fd;
}

bool is_ip(const std::string& host) {
  unsigned char buffer[16];
  return ::inet_pton(AF_INET, host.c_str(), buffer) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), buffer) == 1;
}

int connect_error(int fd) {
  int error = 0;
  socklen_t length = sizeof error;
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

std::string peer_of(int fd, std::optional<unsigned>& unix_uid) {
  sockaddr_storage peer{};
  socklen_t length = sizeof peer;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0)
    return "unknown";
  if (peer.ss_family != AF_UNIX)
    return text_of(peer);
  unix_uid = sockets::peer_uid(fd);
  return unix_uid ? fmt::format("unix:uid={}", *unix_uid) : "unix";
}

std::string network_of_peer(std::string_view peer) {
  const auto colon = peer.rfind(':');
  if (!peer.starts_with('[') || colon == std::string_view::npos)
    return std::string(peer.substr(0, colon));
  std::string host(peer.substr(1, peer.find(']') - 1));
  in6_addr v6{};
  if (inet_pton(AF_INET6, host.c_str(), &v6) != 1)
    return host;
  if (IN6_IS_ADDR_V4MAPPED(&v6))
    return host.substr(host.rfind(':') + 1);
  if (IN6_IS_ADDR_LOOPBACK(&v6))
    return host;
  std::fill(v6.s6_addr + 8, v6.s6_addr + 16, 0);
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, &v6, text, sizeof text);
  return fmt::format("{}/64", text);
}

void tune_tcp(int fd) {
  const auto set = [fd](int level, int option, int value) {
    ::setsockopt(fd, level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  sockets::set_patience(fd, 30, 10, 3, static_cast<int>(limits::http_write_stall_timeout.ms()));
}

}  // namespace billow::net
