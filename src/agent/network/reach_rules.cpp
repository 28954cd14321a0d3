#include "agent/network/reach_rules.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "net/guard.h"

namespace billow::agent {
namespace {

constexpr std::size_t name_servers_max = 3;  // as many as resolvers use

template <class Address>
net::RawAddress raw_of(const Address& address) {
  net::RawAddress raw;
  std::memcpy(raw.bytes, &address, sizeof address);
  raw.length = sizeof address;
  return raw;
}

}  // namespace

net::RawAddress Target::raw() const {
  if (address.v6) {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    std::memcpy(&v6.sin6_addr, address.bytes.data(), 16);
    return raw_of(v6);
  }
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  std::memcpy(&v4.sin_addr, address.bytes.data(), 4);
  return raw_of(v4);
}

Result<Target> target_of(const net::RawAddress& raw) {
  sockaddr_storage storage{};
  std::memcpy(&storage, raw.bytes, std::min<std::size_t>(sizeof storage, raw.length));
  Target out;
  if (storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
    out.address = {false, {}, 32};
    std::memcpy(out.address.bytes.data(), &v4.sin_addr, 4);
    out.port = ntohs(v4.sin_port);
    return out;
  }
  if (storage.ss_family != AF_INET6)
    return fail(Code::invalid, "neither an IPv4 nor an IPv6 address");
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
  const bool mapped = IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr);
  out.address = {!mapped, {}, mapped ? 32 : 128};
  std::memcpy(out.address.bytes.data(), v6.sin6_addr.s6_addr + (mapped ? 12 : 0), mapped ? 4 : 16);
  out.port = ntohs(v6.sin6_port);
  return out;
}

Result<ReachRules> ReachRules::create(std::vector<AddressBlock> allowed,
                                      std::vector<AddressBlock> name_servers) {
  return ReachRules(BILLOW_TRY(RouteNetlink::open()), std::move(allowed), std::move(name_servers));
}

bool ReachRules::permits(const Target& target) {
  const AddressBlock& address = target.address;
  if (target.port == name_server_port && std::ranges::count(name_servers_, address) > 0)
    return true;
  const net::RawAddress raw = target.raw();
  // By translation too (NAT64, 6to4), which the route does not show.
  if (net::leads_to_the_machines_cloud(raw) || net::leads_to_this_machine(raw))
    return false;
  if (net::leads_inwards(raw) && std::ranges::none_of(allowed_, [&](const AddressBlock& block) {
        return address.within(block);
      }))
    return false;
  const auto route = routes_.look_up(address.v6, address.bytes.data());
  return route && *route == RouteKind::elsewhere;
}

std::vector<AddressBlock> name_servers_in(std::string_view resolv_conf) {
  std::vector<AddressBlock> out;
  for (const std::string& line : split(resolv_conf, '\n')) {
    std::string words = line;
    std::ranges::replace(words, '\t', ' ');
    constexpr std::string_view word = "nameserver ";
    if (!words.starts_with(word))
      continue;
    const std::string_view text = trim(std::string_view(words).substr(word.size()));
    const auto address = AddressBlock::parse(text.substr(0, text.find(' ')));
    if (address && address->bits == (address->v6 ? 128 : 32) && out.size() < name_servers_max)
      out.push_back(*address);
  }
  return out;
}

}  // namespace billow::agent
