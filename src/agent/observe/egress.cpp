#include "agent/observe/egress.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <vector>

#include "agent/isolate/bpf.h"

namespace billow::agent {
namespace {

constexpr std::uint32_t inside_max = 4096;  // addresses left out

constexpr int fp = BPF_REG_10;
constexpr BpfKind counting = {BPF_PROG_TYPE_CGROUP_SKB, BPF_CGROUP_INET_EGRESS, "billow_egress"};

// Counts one packet of the group. r6: packet, r7: its length; fp-16: the destination as a mapped
// IPv6 address.
BpfProgram counting_program(int count, int inside) {
  BpfProgram p;
  std::vector<std::size_t> to_out;  // jumps that leave the packet uncounted
  const auto out_if = [&](int op, int dst, std::int32_t value) {
    to_out.push_back(p.jump_if(op, dst, value));
  };
  p.move(6, 1);
  p.load32(7, 6, offsetof(__sk_buff, len));
  p.load32(8, 6, offsetof(__sk_buff, protocol));
  const auto is_v4 = p.jump_if(BPF_JEQ, 8, htons(0x0800));
  out_if(BPF_JNE, 8, htons(0x86dd));
  const auto load_destination = [&](int header_offset, int to, int bytes) {
    p.move(1, 6);
    p.set(2, header_offset);
    p.move(3, fp);
    p.add(3, to);
    p.set(4, bytes);
    p.call(BPF_FUNC_skb_load_bytes);
    out_if(BPF_JNE, 0, 0);
  };
  // IPv6: not ::/64 (unspecified, loopback), fc00::/7, fe80::/10, ff00::/8.
  load_destination(24, -16, 16);
  p.load64(2, fp, -16);
  out_if(BPF_JEQ, 2, 0);
  p.to_host_order(2, 64);
  const auto top = [&](int bits, std::int32_t value) {
    p.move(3, 2);
    p.shift_right(3, 64 - bits);
    out_if(BPF_JEQ, 3, value);
  };
  top(7, 0xfc >> 1);
  top(10, 0xfe80 >> 6);
  top(8, 0xff);
  const auto counted = p.jump();
  // IPv4: not 0/8, 10/8, 127/8, 100.64/10, 169.254/16, 172.16/12, 192.168/16, 224/4 or above.
  p.land(is_v4);
  p.put(BPF_ST | BPF_MEM | BPF_DW, fp, 0, -16, 0);
  p.put(BPF_ST | BPF_MEM | BPF_W, fp, 0, -8, static_cast<std::int32_t>(htonl(0xffff)));
  load_destination(16, -4, 4);
  p.load32(2, fp, -4);
  p.to_host_order(2, 32);
  const auto top4 = [&](int bits, std::int32_t value, int op = BPF_JEQ) {
    p.move(3, 2);
    p.shift_right(3, 32 - bits);
    out_if(op, 3, value);
  };
  for (const int first : {0, 10, 127})
    top4(8, first);
  top4(8, 224, BPF_JGE);
  top4(10, 100 << 2 | 1);
  top4(16, 169 << 8 | 254);
  top4(12, 172 << 4 | 1);
  top4(16, 192 << 8 | 168);
  p.land(counted);
  p.map(1, inside);
  p.move(2, fp);
  p.add(2, -16);
  p.call(BPF_FUNC_map_lookup_elem);
  out_if(BPF_JNE, 0, 0);
  p.put(BPF_ST | BPF_MEM | BPF_W, fp, 0, -20, 0);
  p.map(1, count);
  p.move(2, fp);
  p.add(2, -20);
  p.call(BPF_FUNC_map_lookup_elem);
  out_if(BPF_JEQ, 0, 0);
  p.put(BPF_STX | BPF_ATOMIC | BPF_DW, 0, 7, 0, BPF_ADD);
  p.land(to_out);
  p.leave_with(1);  // every packet is let through
  return p;
}

Result<Fd> make_map(bpf_map_type type,
                    std::uint32_t key,
                    std::uint32_t value,
                    std::uint32_t entries,
                    const char* name) {
  bpf_attr attr{};
  attr.map_type = type;
  attr.key_size = key;
  attr.value_size = value;
  attr.max_entries = entries;
  std::strncpy(attr.map_name, name, sizeof attr.map_name - 1);
  const long fd = bpf_call(BPF_MAP_CREATE, attr);
  if (fd < 0)
    return fail_errno("create a BPF map", errno);
  return Fd(static_cast<int>(fd));
}

// The maps of the program that an earlier agent attached: the array holds the count, the hash the
// addresses that are not counted.
bool find_maps(int cgroup, Fd& count, Fd& inside) {
  const Fd program = find_bpf(cgroup, counting);
  bpf_prog_info info{};
  std::array<std::uint32_t, 8> maps{};
  info.nr_map_ids = maps.size();
  info.map_ids = bpf_address(maps.data());
  if (!program || !bpf_info_of(program.get(), info))
    return false;
  for (std::uint32_t m = 0; m < info.nr_map_ids && m < maps.size(); ++m) {
    Fd map = bpf_by_id(BPF_MAP_GET_FD_BY_ID, maps[m]);
    bpf_map_info about{};
    if (!map || !bpf_info_of(map.get(), about))
      continue;
    if (about.type == BPF_MAP_TYPE_ARRAY)
      count = std::move(map);
    else if (about.type == BPF_MAP_TYPE_HASH)
      inside = std::move(map);
  }
  return static_cast<bool>(count) && static_cast<bool>(inside);
}

}  // namespace

bool is_public(int family, const unsigned char* address) {
  const unsigned char* v4 = address;
  if (family == AF_INET6) {
    constexpr unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    constexpr unsigned char zeros[8] = {};
    if (std::memcmp(address, mapped, sizeof mapped) != 0)
      return std::memcmp(address, zeros, sizeof zeros) != 0 && (address[0] & 0xfe) != 0xfc &&
             !(address[0] == 0xfe && (address[1] & 0xc0) == 0x80) && address[0] != 0xff;
    v4 = address + 12;
  }
  return v4[0] != 0 && v4[0] != 10 && v4[0] != 127 && v4[0] < 224 &&
         !(v4[0] == 100 && (v4[1] & 0xc0) == 64) && !(v4[0] == 169 && v4[1] == 254) &&
         !(v4[0] == 172 && (v4[1] & 0xf0) == 16) && !(v4[0] == 192 && v4[1] == 168);
}

bool leaves_the_site(const net::Address& address) {
  if (address.is_unix())
    return false;
  const auto found = net::resolve(address);
  for (const net::RawAddress& raw : found ? *found : std::vector<net::RawAddress>()) {
    sockaddr_storage one{};
    std::memcpy(&one, raw.bytes, std::min<std::size_t>(sizeof one, raw.length));
    const auto* bytes = one.ss_family == AF_INET
                            ? reinterpret_cast<const unsigned char*>(
                                  &reinterpret_cast<const sockaddr_in*>(&one)->sin_addr)
                            : reinterpret_cast<const sockaddr_in6*>(&one)->sin6_addr.s6_addr;
    if ((one.ss_family == AF_INET || one.ss_family == AF_INET6) && is_public(one.ss_family, bytes))
      return true;
  }
  return false;
}

std::optional<EgressCounter> EgressCounter::find(const std::string& path) {
  EgressCounter out;
  const Fd cgroup(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!cgroup || !find_maps(cgroup.get(), out.count_, out.inside_))
    return std::nullopt;
  out.found_ = true;
  return out;
}

Result<EgressCounter> EgressCounter::attach(const std::string& path) {
  if (auto there = find(path))
    return std::move(*there);
  EgressCounter out;
  const Fd cgroup(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!cgroup)
    return fail_errno("open " + path, errno);
  out.count_ = BILLOW_TRY(make_map(BPF_MAP_TYPE_ARRAY, 4, 8, 1, "billow_sent"));
  out.inside_ = BILLOW_TRY(make_map(BPF_MAP_TYPE_HASH, 16, 1, inside_max, "billow_inside"));
  const Fd loaded =
      BILLOW_TRY(load_bpf(counting_program(out.count_.get(), out.inside_.get()), counting));
  BILLOW_TRY_VOID(attach_bpf(cgroup.get(), loaded.get(), counting.attach));
  return out;
}

Status EgressCounter::leave_out(int family, const unsigned char* address) {
  std::array<unsigned char, 16> key{};
  if (family == AF_INET6) {
    std::memcpy(key.data(), address, 16);
  } else {
    key[10] = key[11] = 0xff;
    std::memcpy(key.data() + 12, address, 4);
  }
  const unsigned char yes = 1;
  bpf_attr attr{};
  attr.map_fd = static_cast<__u32>(inside_.get());
  attr.key = bpf_address(key.data());
  attr.value = bpf_address(&yes);
  if (bpf_call(BPF_MAP_UPDATE_ELEM, attr) != 0)
    return fail_errno("exclude an address from the egress count", errno);
  return {};
}

std::int64_t EgressCounter::bytes() const {
  const std::uint32_t key = 0;
  std::uint64_t value = 0;
  bpf_attr attr{};
  attr.map_fd = static_cast<__u32>(count_.get());
  attr.key = bpf_address(&key);
  attr.value = bpf_address(&value);
  return bpf_call(BPF_MAP_LOOKUP_ELEM, attr) == 0 ? static_cast<std::int64_t>(value) : 0;
}

}  // namespace billow::agent
