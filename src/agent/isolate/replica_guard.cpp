#include "agent/isolate/replica_guard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "agent/isolate/bpf.h"
#include "process/gateway_group.h"

namespace billow::agent {
namespace {

constexpr BpfKind kind = {BPF_PROG_TYPE_CGROUP_SKB, BPF_CGROUP_INET_INGRESS, "billow_replica"};
constexpr int fp = BPF_REG_10;
constexpr std::uint32_t loopback_device = 1;  // in every network namespace
// A priority beyond those that everybody may give a socket (up to 6) or get by its type of service
// (up to 15): it takes CAP_NET_ADMIN or CAP_NET_RAW in the node's own network. The loopback device
// has no queue, so it changes nothing else.
constexpr std::uint32_t agents_priority = 0x62770001;
// Units that start a gateway of their own, or a head with one.
constexpr const char* gateway_units[] = {"billow-gateway.service", "billow-head.service"};

constexpr int header = -40, sender = -80, own_group = -88;  // on the stack

using Jumps = std::vector<std::size_t>;

void load_packet(BpfProgram& p, int bytes, int to, Jumps& denied) {  // from the offset in r2
  p.move(1, 6);
  p.move(3, fp);
  p.add(3, to);
  p.set(4, bytes);
  p.call(BPF_FUNC_skb_load_bytes);
  denied.push_back(p.jump_if(BPF_JNE, 0, 0));
}

// From the ports at the offset in r2 and the addresses in the header, the addresses of the socket
// that sent the packet, as a packet to it would have them. Leaves the socket in r0.
void find_sender(BpfProgram& p, int source_at, int address_words, Jumps& denied) {
  const int words = address_words;
  const int ports = sender + 8 * words;
  load_packet(p, 4, ports, denied);
  for (int word = 0; word < words; ++word) {
    p.load32(2, fp, header + source_at + 4 * (words + word));
    p.store32(fp, 2, sender + 4 * word);
    p.load32(2, fp, header + source_at + 4 * word);
    p.store32(fp, 2, sender + 4 * (words + word));
  }
  p.load16(2, fp, ports);
  p.load16(3, fp, ports + 2);
  p.store16(fp, 3, ports);
  p.store16(fp, 2, ports + 2);
  p.move(1, 6);
  p.move(2, fp);
  p.add(2, sender);
  p.set(3, 8 * words + 4);
  p.set(4, -1);  // in this network namespace
  p.set(5, 0);
  p.call(BPF_FUNC_sk_lookup_tcp);
}

// r6: the packet, r7: the socket that it has arrived for.
BpfProgram judging_program(std::uint16_t port, const std::vector<std::uint64_t>& callers) {
  BpfProgram p;
  Jumps allowed, denied;
  p.move(6, 1);
  p.load64(7, 6, offsetof(__sk_buff, sk));
  allowed.push_back(p.jump_if(BPF_JEQ, 7, 0));
  p.load32(2, 7, offsetof(bpf_sock, state));
  allowed.push_back(p.jump_if32(BPF_JNE, 2, BPF_TCP_LISTEN));
  p.load32(2, 7, offsetof(bpf_sock, src_port));
  allowed.push_back(p.jump_if32(BPF_JNE, 2, port));
  p.load32(2, 6, offsetof(__sk_buff, ifindex));
  allowed.push_back(p.jump_if32(BPF_JNE, 2, loopback_device));
  p.move(1, 7);
  p.call(BPF_FUNC_sk_fullsock);
  denied.push_back(p.jump_if(BPF_JEQ, 0, 0));
  p.move(1, 0);
  p.call(BPF_FUNC_sk_cgroup_id);
  p.store64(fp, 0, own_group);
  p.load32(8, 6, offsetof(__sk_buff, protocol));
  const auto is_v4 = p.jump_if32(BPF_JEQ, 8, htons(0x0800));
  denied.push_back(p.jump_if32(BPF_JNE, 8, htons(0x86dd)));
  p.set(2, 0);
  load_packet(p, 40, header, denied);
  p.load8(2, fp, header + 6);
  denied.push_back(p.jump_if32(BPF_JNE, 2, IPPROTO_TCP));
  p.set(2, 40);
  find_sender(p, 8, 4, denied);
  const auto judge = p.jump();
  p.land(is_v4);
  p.set(2, 0);
  load_packet(p, 20, header, denied);
  p.load8(2, fp, header);
  p.bits(2, 0xf);
  p.shift_left(2, 2);
  find_sender(p, 12, 1, denied);
  p.land(judge);
  denied.push_back(p.jump_if(BPF_JEQ, 0, 0));
  p.move(7, 0);
  p.load32(8, 7, offsetof(bpf_sock, priority));
  p.move(1, 7);
  p.call(BPF_FUNC_sk_cgroup_id);
  p.move(9, 0);
  p.move(1, 7);
  p.call(BPF_FUNC_sk_release);
  allowed.push_back(p.jump_if32(BPF_JEQ, 8, agents_priority));
  p.load64(2, fp, own_group);
  allowed.push_back(p.jump_if_same(9, 2));
  for (const std::uint64_t group : callers) {
    p.set64(2, group);
    allowed.push_back(p.jump_if_same(9, 2));
  }
  p.land(denied);
  p.leave_with(0);
  p.land(allowed);
  p.leave_with(1);
  return p;
}

Result<Fd> open_group(const std::string& path) {
  Fd group(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!group)
    return fail_errno("open " + path, errno);
  return group;
}

// A control group's number is its inode.
void add_group(const std::string& path, std::vector<std::uint64_t>& out) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0)
    out.push_back(info.st_ino);
}

}  // namespace

std::vector<std::uint64_t> gateway_groups() {
  std::vector<std::uint64_t> out;
  if (const auto group = process::gateway_group())
    add_group(*group, out);
  for (const char* unit : gateway_units)
    add_group(fmt::format("{}/system.slice/{}", process::cgroup_v2_mount(), unit), out);
  return out;
}

Status close_replica(const std::string& path,
                     std::uint16_t port,
                     const std::vector<std::uint64_t>& callers) {
  const Fd cgroup = BILLOW_TRY(open_group(path));
  std::vector<std::uint64_t> all = callers;
  add_group(path, all);  // hooks and SSH sessions of the job, when a container has a group below
  const Fd before = find_bpf(cgroup.get(), kind);
  const Fd program = BILLOW_TRY(load_bpf(judging_program(port, all), kind));
  BILLOW_TRY_VOID(attach_bpf(cgroup.get(), program.get(), kind.attach));
  return before ? detach_bpf(cgroup.get(), before.get(), kind.attach) : Status();
}

bool replica_closed(const std::string& path) {
  const auto cgroup = open_group(path);
  return cgroup && find_bpf(cgroup->get(), kind);
}

void pass_replica_guard(int socket) {
  (void)::setsockopt(socket, SOL_SOCKET, SO_PRIORITY, &agents_priority, sizeof agents_priority);
}

std::string describe_replica_guard(bool groups) {
  const auto program = load_bpf(judging_program(1, {1}), kind);
  if (groups && program)
    return "replica guard: only gateways reach the replicas of endpoints from this machine (BPF on "
           "their control groups)";
  return fmt::format(
      "replica guard: not available ({}): a replica answers every account and job of this machine",
      groups ? program.error().message : "no writable cgroup v2");
}

}  // namespace billow::agent
