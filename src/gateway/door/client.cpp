// Who is at the other end of a request: the peer of its connection, or the client that a trusted
// proxy names.
#include <netinet/in.h>
#include <sys/socket.h>

#include "gateway/proxy.h"
#include "net/sockets.h"

namespace billow::gateway {
namespace {

bool is_loopback(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET)
    return (ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24) == 127;
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

bool same_host(const sockaddr_storage& a, const sockaddr_storage& b) {
  if (a.ss_family != b.ss_family)
    return false;
  if (a.ss_family == AF_INET)
    return reinterpret_cast<const sockaddr_in&>(a).sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in&>(b).sin_addr.s_addr;
  return IN6_ARE_ADDR_EQUAL(&reinterpret_cast<const sockaddr_in6&>(a).sin6_addr,
                            &reinterpret_cast<const sockaddr_in6&>(b).sin6_addr);
}

}  // namespace

void Front::find_client() {
  client_.clear();
  https_ = false;
  const Networks& trusted = proxy_.options().trusted;
  if (trusted.empty() || !trusted.contains(address_of_peer(peer_)))
    return;
  const Client client = client_of(head_.headers, trusted);
  https_ = client.https;
  if (client.address.empty())
    return;
  const bool v6 = client.address.find(':') != std::string::npos;
  client_ = v6 ? "[" + client.address + "]:0" : client.address + ":0";
}

std::optional<unsigned> Front::local_user() const {
  for (const char* passed_on :
       {"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"})
    if (head_.headers.has(passed_on))
      return std::nullopt;
  return unix_uid_ ? unix_uid_ : far_end().user(client_fd(), peer_);
}

bool Front::on_this_machine() const {
  return far_end().is_here(client_fd());
}

std::optional<unsigned> FarEnd::user(int fd, const std::string& peer) {
  if (user_)
    return *user_;
  std::optional<unsigned> uid;
  if (net::peer_of(fd, uid) == peer)  // no proxy has named the client (PROXY protocol)
    user_ = net::sockets::loopback_peer_uid(fd);
  else
    user_ = std::optional<unsigned>();
  return *user_;
}

bool FarEnd::is_here(int fd) {
  if (is_here_)
    return *is_here_;
  sockaddr_storage here{}, there{};
  socklen_t here_size = sizeof here, there_size = sizeof there;
  is_here_ = ::getsockname(fd, reinterpret_cast<sockaddr*>(&here), &here_size) == 0 &&
             ::getpeername(fd, reinterpret_cast<sockaddr*>(&there), &there_size) == 0 &&
             (here.ss_family == AF_UNIX || is_loopback(here) || same_host(here, there));
  return *is_here_;
}

}  // namespace billow::gateway
