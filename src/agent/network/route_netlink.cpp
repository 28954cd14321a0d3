#include "agent/network/route_netlink.h"

#include <fmt/format.h>
#include <linux/if_addr.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace billow::agent {
namespace {

// A request: its head, the head of its kind, and attributes.
class Request {
 public:
  template <class Head>
  Request(std::uint16_t type, int flags, const Head& head) {
    nlmsghdr message{};
    message.nlmsg_type = type;
    message.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
    bytes_.append(reinterpret_cast<const char*>(&message), sizeof message);
    bytes_.append(reinterpret_cast<const char*>(&head), sizeof head);
    pad();
  }
  void add(int type, const void* data, std::size_t size) {
    const rtattr head{static_cast<unsigned short>(RTA_LENGTH(size)),
                      static_cast<unsigned short>(type)};
    bytes_.append(reinterpret_cast<const char*>(&head), sizeof head);
    if (size > 0)
      bytes_.append(static_cast<const char*>(data), size);
    pad();
  }
  void add(int type, int value) { add(type, &value, sizeof value); }
  void add_address(int type, const AddressBlock& address) {
    add(type, address.bytes.data(), address.v6 ? 16 : 4);
  }
  void add(int type, const std::string& text) { add(type, text.c_str(), text.size() + 1); }
  // An attribute that holds others.
  std::size_t begin(int type) {
    const std::size_t at = bytes_.size();
    add(type, nullptr, 0);
    return at;
  }
  void end(std::size_t begun) {
    const auto length = static_cast<unsigned short>(bytes_.size() - begun);
    std::memcpy(bytes_.data() + begun, &length, sizeof length);
  }
  template <class Head>
  void head(const Head& head) {
    bytes_.append(reinterpret_cast<const char*>(&head), sizeof head);
    pad();
  }
  std::string take() && { return std::move(bytes_); }

 private:
  void pad() { bytes_.resize(NLMSG_ALIGN(bytes_.size())); }
  std::string bytes_;
};

unsigned char family_of(bool v6) {
  return v6 ? AF_INET6 : AF_INET;
}

}  // namespace

Result<RouteNetlink> RouteNetlink::open() {
  Fd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!fd)
    return fail_errno("ask the kernel about networks", errno);
  return RouteNetlink(std::move(fd));
}

int RouteNetlink::device(const std::string& name) {
  return static_cast<int>(::if_nametoindex(name.c_str()));
}

// The answer without its head; empty if the kernel only agreed.
Result<std::string> RouteNetlink::ask(std::string request) {
  nlmsghdr head{};
  std::memcpy(&head, request.data(), sizeof head);
  head.nlmsg_len = static_cast<std::uint32_t>(request.size());
  head.nlmsg_seq = ++sequence_;
  std::memcpy(request.data(), &head, sizeof head);
  if (::send(fd_.get(), request.data(), request.size(), 0) != static_cast<ssize_t>(request.size()))
    return fail_errno("ask the kernel about networks", errno);
  char answer[8192];
  for (;;) {
    const ssize_t n = ::recv(fd_.get(), answer, sizeof answer, 0);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < static_cast<ssize_t>(sizeof head))
      return fail_errno("the kernel's answer about networks", n < 0 ? errno : EPROTO);
    std::memcpy(&head, answer, sizeof head);
    if (head.nlmsg_seq != sequence_)
      continue;
    const std::size_t size = static_cast<std::size_t>(n) - sizeof head;
    if (head.nlmsg_type != NLMSG_ERROR)
      return std::string(answer + sizeof head, size);
    nlmsgerr error{};
    std::memcpy(&error, answer + sizeof head, std::min(size, sizeof error));
    if (error.error != 0)
      return fail_errno("change the job's network", -error.error);
    return std::string();
  }
}

Status RouteNetlink::set_up(int device) {
  ifinfomsg head{};
  head.ifi_index = device;
  head.ifi_flags = head.ifi_change = IFF_UP;
  BILLOW_TRY(ask(Request(RTM_NEWLINK, NLM_F_ACK, head).take()));
  return {};
}

Status RouteNetlink::add_bridge(const std::string& name) {
  Request request(RTM_NEWLINK, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, ifinfomsg{});
  request.add(IFLA_IFNAME, name);
  const auto kind = request.begin(IFLA_LINKINFO);
  request.add(IFLA_INFO_KIND, std::string("bridge"));
  request.end(kind);
  BILLOW_TRY(ask(std::move(request).take()));
  return {};
}

Status RouteNetlink::add_pair(const std::string& name, const Peer& peer) {
  Request request(RTM_NEWLINK, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, ifinfomsg{});
  request.add(IFLA_IFNAME, name);
  const auto kind = request.begin(IFLA_LINKINFO);
  request.add(IFLA_INFO_KIND, std::string("veth"));
  const auto data = request.begin(IFLA_INFO_DATA), other = request.begin(VETH_INFO_PEER);
  request.head(ifinfomsg{});
  request.add(IFLA_IFNAME, peer.name);
  request.add(IFLA_NET_NS_FD, peer.network);
  request.end(other);
  request.end(data);
  request.end(kind);
  BILLOW_TRY(ask(std::move(request).take()));
  return {};
}

Status RouteNetlink::set_master(int device, int bridge) {
  ifinfomsg head{};
  head.ifi_index = device;
  Request request(RTM_NEWLINK, NLM_F_ACK, head);
  request.add(IFLA_MASTER, bridge);
  BILLOW_TRY(ask(std::move(request).take()));
  return {};
}

Status RouteNetlink::add_address(int device, const AddressBlock& address) {
  ifaddrmsg head{};
  head.ifa_family = family_of(address.v6);
  head.ifa_prefixlen = static_cast<unsigned char>(address.bits);
  head.ifa_index = static_cast<unsigned>(device);
  head.ifa_flags = IFA_F_NODAD;
  Request request(RTM_NEWADDR, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE, head);
  request.add_address(IFA_LOCAL, address);
  request.add_address(IFA_ADDRESS, address);
  BILLOW_TRY(ask(std::move(request).take()));
  return {};
}

// All in the table that is searched first: there the longest block decides, whatever its kind.
Status RouteNetlink::add_route(RouteKind kind,
                               const AddressBlock& block,
                               int device,
                               const AddressBlock* source) {
  rtmsg head{};
  head.rtm_family = family_of(block.v6);
  head.rtm_dst_len = static_cast<unsigned char>(block.bits);
  head.rtm_table = RT_TABLE_LOCAL;
  head.rtm_protocol = RTPROT_STATIC;
  head.rtm_scope = kind == RouteKind::here ? RT_SCOPE_HOST : RT_SCOPE_UNIVERSE;
  head.rtm_type = kind == RouteKind::here ? RTN_LOCAL : RTN_UNREACHABLE;
  Request request(RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE, head);
  request.add_address(RTA_DST, block);
  if (kind == RouteKind::here || block.v6)
    request.add(RTA_OIF, device);
  if (kind == RouteKind::here && source)
    request.add_address(RTA_PREFSRC, *source);
  BILLOW_TRY(ask(std::move(request).take()));
  return {};
}

Result<RouteKind> RouteNetlink::look_up(bool v6, const unsigned char* bytes) {
  rtmsg head{};
  head.rtm_family = family_of(v6);
  head.rtm_dst_len = v6 ? 128 : 32;
  Request request(RTM_GETROUTE, 0, head);
  request.add(RTA_DST, bytes, v6 ? 16 : 4);
  const auto answer = ask(std::move(request).take());
  if (!answer)
    return RouteKind::unreachable;  // the kernel says so by an error
  rtmsg route{};
  if (answer->size() < sizeof route)
    return fail(Code::internal, "the kernel's answer about a route is too short");
  std::memcpy(&route, answer->data(), sizeof route);
  switch (route.rtm_type) {
    case RTN_UNICAST:
      return RouteKind::elsewhere;
    case RTN_UNREACHABLE:
    case RTN_BLACKHOLE:
    case RTN_PROHIBIT:
      return RouteKind::unreachable;
    default:
      return RouteKind::here;
  }
}

}  // namespace billow::agent
