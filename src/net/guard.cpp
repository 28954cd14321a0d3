#include "net/guard.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>

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
    {Family::v4, {192, 0, 0, 192}, 32},          // Oracle (old)
    {Family::v6, {0xfe, 0x80, 0, 0}, 10},        // link-local
    {Family::v6, {0xfd, 0x00, 0x0e, 0xc2}, 32},  // AWS
    {Family::v6, {0xfd, 0x20, 0x00, 0xce}, 32},  // Google
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

bool is_clouds(const V6& a) {
  const auto at = [&](std::size_t one, std::size_t two, std::size_t three, std::size_t four) {
    return V4{a[one], a[two], a[three], a[four]};
  };
  const auto turned = [](const V4& v4) {
    return is_clouds(v4) || is_private(v4);
  };
  if (in_cloud_range(Family::v6, a.data()))
    return true;
  const bool zero8 = std::all_of(a.begin(), a.begin() + 8, [](unsigned char c) { return c == 0; });
  // IPv4-mapped: the same host, judged by its IPv4 address.
  if (zero8 && begins(a, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}))
    return is_clouds(at(12, 13, 14, 15));
  if (zero8 && a[8] == 0xff && a[9] == 0xff && a[10] == 0 && a[11] == 0)
    return turned(at(12, 13, 14, 15));  // translated (RFC 2765)
  if (zero8 && a[8] == 0 && a[9] == 0 && a[10] == 0 && a[11] == 0 &&
      at(12, 13, 14, 15) != V4{0, 0, 0, 1})
    return turned(at(12, 13, 14, 15));  // compatible (RFC 4291), but for ::1
  if (begins(a, {0x00, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0}))
    return turned(at(12, 13, 14, 15));  // NAT64 (RFC 6052)
  // Local NAT64 prefixes (RFC 8215): the position of the IPv4 address depends on an unknown prefix
  // length. Zeros are padding.
  const auto perhaps = [&](const V4& v4) {
    return v4[0] != 0 && turned(v4);
  };
  if (begins(a, {0x00, 0x64, 0xff, 0x9b, 0x00, 0x01}))
    return perhaps(at(6, 7, 9, 10)) || perhaps(at(7, 9, 10, 11)) || perhaps(at(9, 10, 11, 12)) ||
           perhaps(at(12, 13, 14, 15));
  if (begins(a, {0x20, 0x02}))
    return turned(at(2, 3, 4, 5));  // 6to4 (RFC 3056)
  if (begins(a, {0x20, 0x01, 0,
                 0})) {  // Teredo (RFC 4380): the server, and the client with inverted bits
    const auto flip = [](unsigned char c) {
      return static_cast<unsigned char>(~c);
    };
    return turned(at(4, 5, 6, 7)) || turned({flip(a[12]), flip(a[13]), flip(a[14]), flip(a[15])});
  }
  if ((a[8] & 0xfd) == 0 && a[9] == 0 && a[10] == 0x5e && a[11] == 0xfe)
    return turned(at(12, 13, 14, 15));  // ISATAP (RFC 5214)
  return false;
}

bool is_inward(const V4& a) {
  if (is_clouds(a) || is_private(a) || a[0] >= 224)
    return true;  // 224 and above: multicast and reserved
  return (a[0] == 192 && a[1] == 0 && a[2] == 0) ||
         (a[0] == 198 && (a[1] & 0xfe) == 18);  // RFC 6890: protocol assignments, benchmarks
}

bool is_inward(const V6& a) {
  if (is_clouds(a) || (a[0] & 0xfe) == 0xfc || a[0] == 0xff || begins(a, {0xfe, 0xc0}))
    return true;  // site-local (RFC 4193, 3879), multicast
  if (begins(a, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}))
    return is_inward(V4{a[12], a[13], a[14], a[15]});
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

std::function<Status(const RawAddress&, const Address&)> only_outwards(
    std::vector<std::string> hosts) {
  return [hosts = std::move(hosts)](const RawAddress& address, const Address& named) -> Status {
    if (!leads_inwards(address) ||
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
