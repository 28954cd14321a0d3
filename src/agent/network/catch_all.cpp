#include "agent/network/catch_all.h"

#include <netinet/in.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "agent/isolate/bpf.h"

namespace billow::agent {
namespace {

constexpr int fp = BPF_REG_10, context = 6;
constexpr std::uint32_t connections_at = 0, packets_at = 1;  // in the map
constexpr std::uint32_t name_port = 53;

std::uint32_t word_of(const AddressBlock& address, std::size_t index) {
  std::uint32_t word = 0;
  std::memcpy(&word, address.bytes.data() + 4 * index, sizeof word);
  return word;
}

Result<Fd> make_map(const CatchAll& wanted) {
  bpf_attr attr{};
  attr.map_type = BPF_MAP_TYPE_SOCKMAP;
  attr.key_size = sizeof(std::uint32_t);
  attr.value_size = sizeof(std::uint64_t);
  attr.max_entries = 2;
  const long fd = bpf_call(BPF_MAP_CREATE, attr);
  if (fd < 0)
    return fail_errno("make a map of sockets in the kernel", errno);
  Fd map(static_cast<int>(fd));
  for (const auto& [key, socket] :
       {std::pair{connections_at, wanted.connections}, std::pair{packets_at, wanted.packets}}) {
    const std::uint64_t value = static_cast<std::uint64_t>(socket);
    bpf_attr put{};
    put.map_fd = static_cast<__u32>(map.get());
    put.key = bpf_address(&key);
    put.value = bpf_address(&value);
    if (bpf_call(BPF_MAP_UPDATE_ELEM, put) != 0)
      return fail_errno("put a socket into the kernel's map", errno);
  }
  return map;
}

using Jumps = std::vector<std::size_t>;

void load_v6_word(BpfProgram& p, int reg, int word) {
  p.load32(reg, context, static_cast<int>(offsetof(bpf_sk_lookup, local_ip6)) + 4 * word);
}

// Jumps if the packet is for port 53 of one of these name servers.
void compare_name_servers(BpfProgram& p, const CatchAll& wanted, bool v6, Jumps& caught) {
  Jumps other;
  p.load32(2, context, offsetof(bpf_sk_lookup, local_port));  // in host order
  other.push_back(p.jump_if32(BPF_JNE, 2, name_port));
  for (const AddressBlock& server : wanted.name_servers) {
    if (server.v6 != v6)
      continue;
    Jumps next;
    for (int word = 0; word < (v6 ? 4 : 1); ++word) {
      if (v6)
        load_v6_word(p, 2, word);
      else
        p.load32(2, context, offsetof(bpf_sk_lookup, local_ip4));
      next.push_back(p.jump_if32(BPF_JNE, 2, word_of(server, static_cast<std::size_t>(word))));
    }
    caught.push_back(p.jump());
    p.land(next);
  }
  p.land(other);
}

void judge_v4(BpfProgram& p, const CatchAll& wanted, Jumps& own) {
  p.load32(2, context, offsetof(bpf_sk_lookup, local_ip4));
  own.push_back(p.jump_if32(BPF_JEQ, 2, word_of(wanted.own_v4, 0)));
  p.to_host_order(2, 32);
  p.shift_right(2, 24);
  own.push_back(p.jump_if32(BPF_JEQ, 2, 127));
}

void judge_v6(BpfProgram& p, const CatchAll& wanted, Jumps& own) {
  for (const AddressBlock& mine :
       {wanted.own_v6, AddressBlock{true, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, 128}}) {
    Jumps next;
    for (int word = 0; word < 4; ++word) {
      load_v6_word(p, 2, word);
      next.push_back(p.jump_if32(BPF_JNE, 2, word_of(mine, static_cast<std::size_t>(word))));
    }
    own.push_back(p.jump());
    p.land(next);
  }
}

// Always lets the packet pass; a caught one has got its socket.
BpfProgram program(const CatchAll& wanted, int map) {
  constexpr int key = -4;  // on the stack
  BpfProgram p;
  Jumps own, caught;
  p.move(context, 1);
  p.load32(2, context, offsetof(bpf_sk_lookup, family));
  const auto is_v6 = p.jump_if32(BPF_JEQ, 2, AF_INET6);
  own.push_back(p.jump_if32(BPF_JNE, 2, AF_INET));
  compare_name_servers(p, wanted, false, caught);
  judge_v4(p, wanted, own);
  caught.push_back(p.jump());
  p.land(is_v6);
  compare_name_servers(p, wanted, true, caught);
  judge_v6(p, wanted, own);
  p.land(caught);
  p.load32(2, context, offsetof(bpf_sk_lookup, protocol));
  p.set(3, connections_at);
  const auto is_tcp = p.jump_if32(BPF_JEQ, 2, IPPROTO_TCP);
  p.set(3, packets_at);
  p.land(is_tcp);
  p.store32(fp, 3, key);
  p.map(1, map);
  p.move(2, fp);
  p.add(2, key);
  p.call(BPF_FUNC_map_lookup_elem);
  own.push_back(p.jump_if(BPF_JEQ, 0, 0));
  p.move(7, 0);
  p.move(1, context);
  p.move(2, 7);
  p.set(3, 0);
  p.call(BPF_FUNC_sk_assign);
  p.move(1, 7);
  p.call(BPF_FUNC_sk_release);
  p.land(own);
  p.leave_with(SK_PASS);
  return p;
}

}  // namespace

Result<Fd> catch_all(const CatchAll& wanted) {
  const Fd map = BILLOW_TRY(make_map(wanted));
  const Fd loaded = BILLOW_TRY(load_bpf(
      program(wanted, map.get()),
      {BPF_PROG_TYPE_SK_LOOKUP, static_cast<bpf_attach_type>(BPF_SK_LOOKUP), "billow_out"}));
  bpf_attr attr{};
  attr.link_create.prog_fd = static_cast<__u32>(loaded.get());
  attr.link_create.target_fd = static_cast<__u32>(wanted.network);
  attr.link_create.attach_type = BPF_SK_LOOKUP;
  const long link = bpf_call(BPF_LINK_CREATE, attr);
  if (link < 0)
    return fail_errno("attach a program to the job's network", errno);
  return Fd(static_cast<int>(link));
}

}  // namespace billow::agent
