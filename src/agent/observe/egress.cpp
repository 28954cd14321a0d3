#include "agent/observe/egress.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <netinet/in.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <vector>

namespace billow::agent {
namespace {

constexpr char program_name[] = "billow_egress";
constexpr std::uint32_t inside_max = 4096;  // addresses left out

long bpf(int command, bpf_attr& attr) {
  return ::syscall(SYS_bpf, command, &attr, sizeof attr);
}
std::uint64_t address_of(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p);
}

// ---- an assembler for the few BPF instructions used here
struct Program {
  std::vector<bpf_insn> code;
  std::vector<std::size_t> to_out;  // jumps that leave the packet uncounted

  void put(int op, int dst, int src, int off, std::int32_t imm) {
    bpf_insn insn{};
    insn.code = static_cast<__u8>(op);
    insn.dst_reg = static_cast<__u8>(dst) & 0xf;
    insn.src_reg = static_cast<__u8>(src) & 0xf;
    insn.off = static_cast<__s16>(off);
    insn.imm = imm;
    code.push_back(insn);
  }
  void move(int dst, int src) { put(BPF_ALU64 | BPF_MOV | BPF_X, dst, src, 0, 0); }
  void set(int dst, std::int32_t value) { put(BPF_ALU64 | BPF_MOV | BPF_K, dst, 0, 0, value); }
  void add(int dst, std::int32_t value) { put(BPF_ALU64 | BPF_ADD | BPF_K, dst, 0, 0, value); }
  void shift_right(int dst, std::int32_t bits) {
    put(BPF_ALU64 | BPF_RSH | BPF_K, dst, 0, 0, bits);
  }
  void load32(int dst, int src, int off) { put(BPF_LDX | BPF_MEM | BPF_W, dst, src, off, 0); }
  void load64(int dst, int src, int off) { put(BPF_LDX | BPF_MEM | BPF_DW, dst, src, off, 0); }
  void call(int helper) { put(BPF_JMP | BPF_CALL, 0, 0, 0, helper); }
  void map(int dst, int fd) {
    put(BPF_LD | BPF_DW | BPF_IMM, dst, BPF_PSEUDO_MAP_FD, 0, fd);
    put(0, 0, 0, 0, 0);
  }
  void to_host_order(int dst, int bits) { put(BPF_ALU | BPF_END | BPF_TO_BE, dst, 0, 0, bits); }
  std::size_t jump_if(int op, int dst, std::int32_t value) {
    put(BPF_JMP | op | BPF_K, dst, 0, 0, value);
    return code.size() - 1;
  }
  void out_if(int op, int dst, std::int32_t value) { to_out.push_back(jump_if(op, dst, value)); }
  void land(std::size_t jump) { code[jump].off = static_cast<__s16>(code.size() - jump - 1); }
};

// Counts one packet of the group. r6: packet, r7: its length; fp-16: the destination as a mapped
// IPv6 address.
Program counting_program(int count, int inside) {
  constexpr int fp = BPF_REG_10;
  Program p;
  p.move(6, 1);
  p.load32(7, 6, offsetof(__sk_buff, len));
  p.load32(8, 6, offsetof(__sk_buff, protocol));
  const auto is_v4 = p.jump_if(BPF_JEQ, 8, htons(0x0800));
  p.out_if(BPF_JNE, 8, htons(0x86dd));
  const auto load_destination = [&](int header_offset, int to, int bytes) {
    p.move(1, 6);
    p.set(2, header_offset);
    p.move(3, fp);
    p.add(3, to);
    p.set(4, bytes);
    p.call(BPF_FUNC_skb_load_bytes);
    p.out_if(BPF_JNE, 0, 0);
  };
  // IPv6: not ::/64 (unspecified, loopback), fc00::/7, fe80::/10, ff00::/8.
  load_destination(24, -16, 16);
  p.load64(2, fp, -16);
  p.out_if(BPF_JEQ, 2, 0);
  p.to_host_order(2, 64);
  const auto top = [&](int bits, std::int32_t value) {
    p.move(3, 2);
    p.shift_right(3, 64 - bits);
    p.out_if(BPF_JEQ, 3, value);
  };
  top(7, 0xfc >> 1);
  top(10, 0xfe80 >> 6);
  top(8, 0xff);
  p.put(BPF_JMP | BPF_JA, 0, 0, 0, 0);
  const auto counted = p.code.size() - 1;
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
    p.out_if(op, 3, value);
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
  p.out_if(BPF_JNE, 0, 0);
  p.put(BPF_ST | BPF_MEM | BPF_W, fp, 0, -20, 0);
  p.map(1, count);
  p.move(2, fp);
  p.add(2, -20);
  p.call(BPF_FUNC_map_lookup_elem);
  p.out_if(BPF_JEQ, 0, 0);
  p.put(BPF_STX | BPF_ATOMIC | BPF_DW, 0, 7, 0, BPF_ADD);
  for (const std::size_t jump : p.to_out)
    p.land(jump);
  p.set(0, 1);  // every packet is let through
  p.put(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
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
  const long fd = bpf(BPF_MAP_CREATE, attr);
  if (fd < 0)
    return fail_errno("create a BPF map", errno);
  return Fd(static_cast<int>(fd));
}

Fd by_id(int command, std::uint32_t id) {
  bpf_attr attr{};
  attr.prog_id = id;  // map_id is the same field of the union
  const long fd = bpf(command, attr);
  return Fd(fd < 0 ? -1 : static_cast<int>(fd));
}

template <class Info>
bool info_of(int fd, Info& info) {
  bpf_attr attr{};
  attr.info.bpf_fd = static_cast<__u32>(fd);
  attr.info.info_len = sizeof info;
  attr.info.info = address_of(&info);
  return bpf(BPF_OBJ_GET_INFO_BY_FD, attr) == 0;
}

// The maps of the program that an earlier agent attached: the array holds the count, the hash the
// addresses that are not counted.
bool find_maps(int cgroup, Fd& count, Fd& inside) {
  std::array<std::uint32_t, 64> programs{};
  bpf_attr attr{};
  attr.query.target_fd = static_cast<__u32>(cgroup);
  attr.query.attach_type = BPF_CGROUP_INET_EGRESS;
  attr.query.prog_ids = address_of(programs.data());
  attr.query.prog_cnt = programs.size();
  if (bpf(BPF_PROG_QUERY, attr) != 0)
    return false;
  for (std::uint32_t i = 0; i < attr.query.prog_cnt && i < programs.size(); ++i) {
    const Fd program = by_id(BPF_PROG_GET_FD_BY_ID, programs[i]);
    bpf_prog_info info{};
    std::array<std::uint32_t, 8> maps{};
    info.nr_map_ids = maps.size();
    info.map_ids = address_of(maps.data());
    if (!program || !info_of(program.get(), info) ||
        std::strncmp(info.name, program_name, sizeof info.name) != 0)
      continue;
    for (std::uint32_t m = 0; m < info.nr_map_ids && m < maps.size(); ++m) {
      Fd map = by_id(BPF_MAP_GET_FD_BY_ID, maps[m]);
      bpf_map_info about{};
      if (!map || !info_of(map.get(), about))
        continue;
      if (about.type == BPF_MAP_TYPE_ARRAY)
        count = std::move(map);
      else if (about.type == BPF_MAP_TYPE_HASH)
        inside = std::move(map);
    }
    return static_cast<bool>(count) && static_cast<bool>(inside);
  }
  return false;
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
  const Program program = counting_program(out.count_.get(), out.inside_.get());
  bpf_attr load{};
  load.prog_type = BPF_PROG_TYPE_CGROUP_SKB;
  load.expected_attach_type = BPF_CGROUP_INET_EGRESS;
  load.insns = address_of(program.code.data());
  load.insn_cnt = static_cast<__u32>(program.code.size());
  load.license = address_of("Apache-2.0");  // it uses no helper that requires the GPL
  std::strncpy(load.prog_name, program_name, sizeof load.prog_name - 1);
  const long fd = bpf(BPF_PROG_LOAD, load);
  if (fd < 0)
    return fail_errno("load the egress counter into the kernel", errno);
  const Fd loaded(static_cast<int>(fd));
  bpf_attr attach{};
  attach.target_fd = static_cast<__u32>(cgroup.get());
  attach.attach_bpf_fd = static_cast<__u32>(loaded.get());
  attach.attach_type = BPF_CGROUP_INET_EGRESS;
  attach.attach_flags = BPF_F_ALLOW_MULTI;  // keeps programs of the job and of systemd
  if (bpf(BPF_PROG_ATTACH, attach) != 0)
    return fail_errno("attach the egress counter to " + path, errno);
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
  attr.key = address_of(key.data());
  attr.value = address_of(&yes);
  if (bpf(BPF_MAP_UPDATE_ELEM, attr) != 0)
    return fail_errno("exclude an address from the egress count", errno);
  return {};
}

std::int64_t EgressCounter::bytes() const {
  const std::uint32_t key = 0;
  std::uint64_t value = 0;
  bpf_attr attr{};
  attr.map_fd = static_cast<__u32>(count_.get());
  attr.key = address_of(&key);
  attr.value = address_of(&value);
  return bpf(BPF_MAP_LOOKUP_ELEM, attr) == 0 ? static_cast<std::int64_t>(value) : 0;
}

}  // namespace billow::agent
