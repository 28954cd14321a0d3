#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>

#include "net/sockets.h"

namespace billow::net::sockets {
namespace {

// An address and port as the kernel's socket tables have them: IPv4 also where a socket shows it as
// an IPv6 address.
struct Name {
  unsigned char family = AF_UNSPEC;
  __be32 address[4] = {};
  __be16 port = 0;
};
Name name_of(const sockaddr_storage& at) {
  Name out;
  if (at.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(at);
    out = {AF_INET, {v4.sin_addr.s_addr}, v4.sin_port};
  } else if (at.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(at);
    out.family = IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) ? AF_INET : AF_INET6;
    const std::size_t skipped = out.family == AF_INET ? 12 : 0;
    std::memcpy(out.address, v6.sin6_addr.s6_addr + skipped, 16 - skipped);
    out.port = v6.sin6_port;
  }
  return out;
}

bool within_machine(const Name& name) {
  if (name.family == AF_INET)
    return (ntohl(name.address[0]) >> 24) == 127;
  in6_addr v6{};
  std::memcpy(&v6, name.address, sizeof v6);
  return name.family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace

// Asks the kernel for exactly the socket at the other end, which costs the same however many there
// are; reading /proc/net/tcp would cost more the harder somebody attacks.
std::optional<unsigned> loopback_peer_uid(int fd) {
  sockaddr_storage own{}, other{};
  socklen_t own_bytes = sizeof own, other_bytes = sizeof other;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_bytes) != 0 ||
      ::getpeername(fd, reinterpret_cast<sockaddr*>(&other), &other_bytes) != 0)
    return std::nullopt;
  const Name here = name_of(own), there = name_of(other);
  // A machine may call itself by any of its addresses; then both ends have the same one.
  if (here.family != there.family ||
      (!within_machine(there) &&
       std::memcmp(here.address, there.address, sizeof here.address) != 0))
    return std::nullopt;
  static thread_local const Fd netlink(
      ::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  struct {
    nlmsghdr header;
    inet_diag_req_v2 request;
  } ask{};
  ask.header = {sizeof ask, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 0, 0};
  ask.request.sdiag_family = there.family;
  ask.request.sdiag_protocol = IPPROTO_TCP;
  ask.request.idiag_states = ~0u;
  ask.request.id.idiag_sport = there.port;
  ask.request.id.idiag_dport = here.port;
  std::memcpy(ask.request.id.idiag_src, there.address, sizeof there.address);
  std::memcpy(ask.request.id.idiag_dst, here.address, sizeof here.address);
  ask.request.id.idiag_cookie[0] = ask.request.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  if (!netlink || ::send(netlink.get(), &ask, sizeof ask, 0) != static_cast<ssize_t>(sizeof ask))
    return std::nullopt;
  alignas(nlmsghdr) char buffer[4096];
  // The kernel answers within send().
  const ssize_t n = ::recv(netlink.get(), buffer, sizeof buffer, MSG_DONTWAIT);
  const auto* header = reinterpret_cast<const nlmsghdr*>(buffer);
  if (n < static_cast<ssize_t>(NLMSG_LENGTH(sizeof(inet_diag_msg))) ||
      header->nlmsg_type != SOCK_DIAG_BY_FAMILY)
    return std::nullopt;
  const auto* found = static_cast<const inet_diag_msg*>(NLMSG_DATA(header));
  if (found->id.idiag_sport != there.port || found->id.idiag_dport != here.port)
    return std::nullopt;
  // A socket that its process has closed belongs to nobody, and is shown as root's.
  if (found->idiag_inode == 0)
    return std::nullopt;
  return found->idiag_uid;
}

Fd make(int family) {
  return Fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}
Fd accept_one(int listening) {
  return Fd(::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

std::optional<unsigned> peer_uid(int fd) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    return std::nullopt;
  return credentials.uid;
}

void set_patience(int fd, int idle_s, int interval_s, int count, int unanswered_ms) {
  const auto set = [fd](int option, int value) {
    ::setsockopt(fd, IPPROTO_TCP, option, &value, sizeof value);
  };
  set(TCP_KEEPIDLE, idle_s);
  set(TCP_KEEPINTVL, interval_s);
  set(TCP_KEEPCNT, count);
  set(TCP_USER_TIMEOUT, unanswered_ms);
}

short peer_ended_event() {
  return POLLRDHUP;
}

}  // namespace billow::net::sockets
