#include "net/guard.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include <fmt/format.h>

#include "net/http/http.h"

namespace billow::net {
namespace {

using V4 = std::array<unsigned char, 4>;
using V6 = std::array<unsigned char, 16>;

constexpr AddressRange ranges[] = {
    {Family::v4, {169, 254, 0, 0}, 16},    // link-local (RFC 3927): AWS, Google, Azure, and others
    {Family::v4, {168, 63, 129, 16}, 32},  // Azure
    {Family::v4, {100, 100, 100, 200}, 32},      // Alibaba
    {Family::v4, {100, 96, 0, 96}, 32},          // Volcengine
    {Family::v4, {192, 0, 0, 192}, 32},          // Oracle (old)
    {Family::v6, {0xfe, 0x80, 0, 0}, 10},        // link-local
    {Family::v6, {0xfd, 0x00, 0x0e, 0xc2}, 32},  // AWS
    {Family::v6, {0xfd, 0x20, 0x00, 0xce}, 32},  // Google
    {Family::v6, {0xfd, 0x00, 0x00, 0xc1}, 32},  // Oracle
    {Family::v6, {0xfd, 0x00, 0x00, 0x42}, 32},  // Scaleway
    {Family::v6, {0xfd, 0x00, 0xa9, 0xfe}, 32},  // Akamai (Linode)
    {Family::v6, {0xfd, 0x00, 0x01, 0x00}, 32},  // Alibaba
};

std::uint32_t word(const unsigned char* bytes) {
  return static_cast<std::uint32_t>(bytes[0]) << 24 | static_cast<std::uint32_t>(bytes[1]) << 16 |
         static_cast<std::uint32_t>(bytes[2]) << 8 | static_cast<std::uint32_t>(bytes[3]);
}

bool in_cloud_range(Family family, const unsigned char* address) {
  return std::any_of(std::begin(ranges), std::end(ranges), [&](const AddressRange& range) {
    const int rest = 32 - range.bits;
    return range.family == family && word(address) >> rest == word(range.bytes) >> rest;
  });
}

bool is_clouds(const V4& a) {
  return in_cloud_range(Family::v4, a.data());
}

// Private and special-purpose addresses (RFC 6890).
bool is_private(const V4& a) {
  return a[0] == 0 || a[0] == 10 || a[0] == 127 || (a[0] == 172 && (a[1] & 0xf0) == 16) ||
         (a[0] == 192 && a[1] == 168) || (a[0] == 100 && (a[1] & 0xc0) == 64);
}

bool begins(const V6& a, std::initializer_list<unsigned char> with) {
  return std::equal(with.begin(), with.end(), a.begin());
}

V4 part(const V6& a, std::size_t one, std::size_t two, std::size_t three, std::size_t four) {
  return {a[one], a[two], a[three], a[four]};
}

bool is_mapped(const V6& a) {
  return begins(a, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff});
}

// True if the judge says so of an IPv4 address to which a gateway or a tunnel may translate this
// one. IPv4-mapped addresses are not translated: they are the same host.
template <class Judge>
bool any_translation(const V6& a, Judge judge) {
  const V4 last = part(a, 12, 13, 14, 15);
  if (begins(a, {0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0}))
    return judge(last);  // translated (RFC 2765)
  if (begins(a, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}) && last != V4{0, 0, 0, 1})
    return judge(last);  // compatible (RFC 4291), but for ::1
  if (begins(a, {0x00, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0}))
    return judge(last);  // NAT64 (RFC 6052)
  // Local NAT64 prefixes (RFC 8215): the position of the IPv4 address depends on an unknown prefix
  // length. Zeros are padding.
  const auto perhaps = [&](const V4& v4) {
    return v4[0] != 0 && judge(v4);
  };
  if (begins(a, {0x00, 0x64, 0xff, 0x9b, 0x00, 0x01}))
    return perhaps(part(a, 6, 7, 9, 10)) || perhaps(part(a, 7, 9, 10, 11)) ||
           perhaps(part(a, 9, 10, 11, 12)) || perhaps(last);
  if (begins(a, {0x20, 0x02}))
    return judge(part(a, 2, 3, 4, 5));  // 6to4 (RFC 3056)
  if (begins(a, {0x20, 0x01, 0, 0})) {
    // Teredo (RFC 4380): the server, and the client with inverted bits
    V4 client = last;
    for (unsigned char& c : client)
      c = static_cast<unsigned char>(~c);
    return judge(part(a, 4, 5, 6, 7)) || judge(client);
  }
  if ((a[8] & 0xfd) == 0 && a[9] == 0 && a[10] == 0x5e && a[11] == 0xfe)
    return judge(last);  // ISATAP (RFC 5214)
  return false;
}

bool is_clouds(const V6& a) {
  if (in_cloud_range(Family::v6, a.data()))
    return true;
  if (is_mapped(a))
    return is_clouds(part(a, 12, 13, 14, 15));
  return any_translation(a, [](const V4& v4) { return is_clouds(v4) || is_private(v4); });
}

bool is_inward(const V4& a) {
  if (is_clouds(a) || is_private(a) || a[0] >= 224)
    return true;  // 224 and above: multicast and reserved
  return (a[0] == 192 && a[1] == 0 && a[2] == 0) ||
         (a[0] == 198 && (a[1] & 0xfe) == 18);  // RFC 6890: protocol assignments, benchmarks
}

bool is_inward(const V6& a) {
  const bool site_local = a[0] == 0xfe && (a[1] & 0xc0) == 0xc0;  // fec0::/10 (RFC 3879)
  if (is_clouds(a) || (a[0] & 0xfe) == 0xfc || a[0] == 0xff || site_local)
    return true;  // fc00::/7 (RFC 4193), multicast
  if (is_mapped(a))
    return is_inward(part(a, 12, 13, 14, 15));
  return begins(a, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});  // ::, ::1, and IPv4-compatible addresses
}

template <class OnV4, class OnV6>
bool judge(const RawAddress& raw, OnV4 on_v4, OnV6 on_v6, bool otherwise) {
  sockaddr_storage address{};
  std::memcpy(&address, raw.bytes, std::min<std::size_t>(sizeof address, raw.length));
  if (address.ss_family == AF_INET) {
    V4 bytes;
    std::memcpy(bytes.data(), &reinterpret_cast<const sockaddr_in*>(&address)->sin_addr,
                bytes.size());
    return on_v4(bytes);
  }
  if (address.ss_family != AF_INET6)
    return otherwise;
  V6 bytes;
  std::memcpy(bytes.data(), &reinterpret_cast<const sockaddr_in6*>(&address)->sin6_addr,
              bytes.size());
  return on_v6(bytes);
}

// The addresses of this machine's interfaces, asked for each time because they change.
struct OwnAddresses {
  std::vector<V4> v4;
  std::vector<V6> v6;
  bool known = false;

  OwnAddresses() {
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0)
      return;
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned(list, &::freeifaddrs);
    known = true;
    for (const ifaddrs* one = list; one; one = one->ifa_next) {
      if (!one->ifa_addr)
        continue;
      if (one->ifa_addr->sa_family == AF_INET)
        std::memcpy(v4.emplace_back().data(),
                    &reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr, 4);
      if (one->ifa_addr->sa_family == AF_INET6)
        std::memcpy(v6.emplace_back().data(),
                    &reinterpret_cast<const sockaddr_in6*>(one->ifa_addr)->sin6_addr, 16);
    }
  }
  bool has(const V4& a) const { return std::find(v4.begin(), v4.end(), a) != v4.end(); }
  bool has(const V6& a) const {
    const auto has_v4 = [this](const V4& translated) {
      return has(translated);
    };
    return std::find(v6.begin(), v6.end(), a) != v6.end() ||
           (is_mapped(a) && has(part(a, 12, 13, 14, 15))) || any_translation(a, has_v4);
  }
};

}  // namespace

std::span<const AddressRange> cloud_ranges() {
  return ranges;
}

bool leads_to_the_machines_cloud(const RawAddress& raw) {
  return judge(
      raw, [](const V4& a) { return is_clouds(a); }, [](const V6& a) { return is_clouds(a); },
      false);
}

bool leads_inwards(const RawAddress& raw) {
  return judge(
      raw, [](const V4& a) { return is_inward(a); }, [](const V6& a) { return is_inward(a); },
      true);
}

bool leads_to_this_machine(const RawAddress& raw) {
  const OwnAddresses own;
  return !own.known || judge(
                           raw, [&](const V4& a) { return own.has(a); },
                           [&](const V6& a) { return own.has(a); }, true);
}

std::function<Status(const RawAddress&, const Address&)> only_outwards(
    std::vector<std::string> hosts) {
  return [hosts = std::move(hosts)](const RawAddress& address, const Address& named) -> Status {
    if ((!leads_inwards(address) && !leads_to_this_machine(address)) ||
        std::any_of(hosts.begin(), hosts.end(),
                    [&](const std::string& host) { return equal_nocase(host, named.host); }))
      return {};
    return fail(
        Code::forbidden,
        fmt::format("the webhook host {} is on this machine or its private networks", named.host),
        fmt::format("an admin can allow it: billow up --webhook-host {}", named.host));
  };
}

}  // namespace billow::net
