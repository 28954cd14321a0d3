#include "agent/isolate/network_guard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstddef>

#include "net/guard.h"

namespace billow::agent {
namespace {

constexpr int fp = BPF_REG_10;
constexpr std::uint16_t open_ports[] = {53, 123};  // names and time
using Jumps = std::vector<std::size_t>;

std::uint32_t first_word(const net::AddressRange& range) {
  return static_cast<std::uint32_t>(range.bytes[0]) << 24 |
         static_cast<std::uint32_t>(range.bytes[1]) << 16 |
         static_cast<std::uint32_t>(range.bytes[2]) << 8 |
         static_cast<std::uint32_t>(range.bytes[3]);
}

// Jumps if the 32 bits in r2, in host order, begin an address of one of the ranges.
void compare_ranges(BpfProgram& p, net::Family family, Jumps& found) {
  for (const net::AddressRange& range : net::cloud_ranges()) {
    if (range.family != family)
      continue;
    p.move(3, 2);
    p.shift_right(3, 32 - range.bits);
    found.push_back(p.jump_if32(BPF_JEQ, 3, first_word(range) >> (32 - range.bits)));
  }
}

// The same for a whole IPv6 address, of which `load` puts one of four words into a register. IPv4
// addresses in it (mapped, compatible and NAT64 ones) are compared as such.
template <class Load>
void compare_v6(BpfProgram& p, Load load, Jumps& found) {
  load(2, 0);
  p.to_host_order(2, 32);
  compare_ranges(p, net::Family::v6, found);
  Jumps other;
  const auto is_nat64 = p.jump_if32(BPF_JEQ, 2, 0x0064ff9b);
  other.push_back(p.jump_if32(BPF_JNE, 2, 0));
  p.land(is_nat64);
  load(3, 1);
  other.push_back(p.jump_if32(BPF_JNE, 3, 0));
  load(3, 2);
  const auto is_zero = p.jump_if32(BPF_JEQ, 3, 0);
  other.push_back(p.jump_if32(BPF_JNE, 3, htonl(0xffff)));
  p.land(is_zero);
  load(2, 3);
  p.to_host_order(2, 32);
  compare_ranges(p, net::Family::v4, found);
  p.land(other);
}

// Ends the program: 1 allows. Arrived at by `found`, the port in r4 (in network order) decides.
void decide_by_port(BpfProgram& p) {
  Jumps open;
  for (const std::uint16_t port : open_ports)
    open.push_back(p.jump_if32(BPF_JEQ, 4, htons(port)));
  p.leave_with(0);
  p.land(open);
  p.leave_with(1);
}

// For connect() and for sendto() without a connection.
BpfProgram address_program(bool v6) {
  BpfProgram p;
  Jumps found;
  p.move(6, 1);
  if (v6) {
    compare_v6(
        p,
        [&](int reg, int word) {
          p.load32(reg, 6, static_cast<int>(offsetof(bpf_sock_addr, user_ip6)) + 4 * word);
        },
        found);
  } else {
    p.load32(2, 6, offsetof(bpf_sock_addr, user_ip4));
    p.to_host_order(2, 32);
    compare_ranges(p, net::Family::v4, found);
  }
  p.leave_with(1);
  p.land(found);
  p.load32(4, 6, offsetof(bpf_sock_addr, user_port));
  decide_by_port(p);
  return p;
}

// For every packet: some kinds of sockets have no hook in their connect().
BpfProgram packet_program() {
  constexpr int header = -40, port = -48;  // on the stack
  BpfProgram p;
  Jumps allowed, denied, v4_found, v6_found;
  const auto load = [&](int bytes, int to) {  // from the offset in r2
    p.move(1, 6);
    p.move(3, fp);
    p.add(3, to);
    p.set(4, bytes);
    p.call(BPF_FUNC_skb_load_bytes);
  };
  const auto load_port = [&](int protocol_at) {  // from the offset in r7
    p.load8(2, fp, header + protocol_at);
    const auto tcp = p.jump_if32(BPF_JEQ, 2, IPPROTO_TCP);
    denied.push_back(p.jump_if32(BPF_JNE, 2, IPPROTO_UDP));
    p.land(tcp);
    p.move(2, 7);
    p.add(2, 2);
    load(2, port);
    denied.push_back(p.jump_if32(BPF_JNE, 0, 0));
    p.load16(4, fp, port);
  };
  p.move(6, 1);
  p.load32(8, 6, offsetof(__sk_buff, protocol));
  const auto is_v4 = p.jump_if32(BPF_JEQ, 8, htons(0x0800));
  allowed.push_back(p.jump_if32(BPF_JNE, 8, htons(0x86dd)));
  p.set(2, 0);
  load(40, header);
  allowed.push_back(p.jump_if32(BPF_JNE, 0, 0));
  compare_v6(
      p, [&](int reg, int word) { p.load32(reg, fp, header + 24 + 4 * word); }, v6_found);
  p.leave_with(1);
  p.land(v6_found);
  p.set(7, 40);
  load_port(6);
  const auto decide = p.jump();
  p.land(is_v4);
  p.set(2, 0);
  load(20, header);
  allowed.push_back(p.jump_if32(BPF_JNE, 0, 0));
  p.load32(2, fp, header + 16);
  p.to_host_order(2, 32);
  compare_ranges(p, net::Family::v4, v4_found);
  p.land(allowed);
  p.leave_with(1);
  p.land(v4_found);
  p.load8(7, fp, header);
  p.bits(7, 0xf);
  p.shift_left(7, 2);
  load_port(9);
  p.land(decide);
  decide_by_port(p);
  p.land(denied);
  p.leave_with(0);
  return p;
}

constexpr BpfKind kinds[] = {
    {BPF_PROG_TYPE_CGROUP_SOCK_ADDR, BPF_CGROUP_INET4_CONNECT, "billow_conn4"},
    {BPF_PROG_TYPE_CGROUP_SOCK_ADDR, BPF_CGROUP_INET6_CONNECT, "billow_conn6"},
    {BPF_PROG_TYPE_CGROUP_SOCK_ADDR, BPF_CGROUP_UDP4_SENDMSG, "billow_send4"},
    {BPF_PROG_TYPE_CGROUP_SOCK_ADDR, BPF_CGROUP_UDP6_SENDMSG, "billow_send6"},
    {BPF_PROG_TYPE_CGROUP_SKB, BPF_CGROUP_INET_EGRESS, "billow_guard"},
};

}  // namespace

Result<NetworkGuard> NetworkGuard::create() {
  NetworkGuard guard;
  for (const BpfKind& kind : kinds) {
    const bool packets = kind.type == BPF_PROG_TYPE_CGROUP_SKB;
    const bool v6 =
        kind.attach == BPF_CGROUP_INET6_CONNECT || kind.attach == BPF_CGROUP_UDP6_SENDMSG;
    guard.programs_.push_back(
        {kind, BILLOW_TRY(load_bpf(packets ? packet_program() : address_program(v6), kind))});
  }
  return guard;
}

Status NetworkGuard::attach(const std::string& path) const {
  const Fd cgroup(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!cgroup)
    return fail_errno("open " + path, errno);
  for (const Loaded& one : programs_)
    if (!find_bpf(cgroup.get(), one.kind))
      BILLOW_TRY_VOID(attach_bpf(cgroup.get(), one.program.get(), one.kind.attach));
  return {};
}

std::string describe_network_guard(bool groups) {
  const auto guard = NetworkGuard::create();
  if (groups && guard)
    return "metadata guard: jobs cannot reach the cloud's metadata service (BPF on their control "
           "groups)";
  return fmt::format(
      "metadata guard: not available ({}): jobs can reach the cloud's metadata service; block "
      "169.254.169.254 in the node's firewall",
      groups ? guard.error().message : "no writable cgroup v2");
}

}  // namespace billow::agent
