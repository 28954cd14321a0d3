// Small BPF programs for a task's v2 control group: an assembler for the few instructions that are
// used here, loading and attaching. The kernel keeps an attached program until the group is
// removed, whatever becomes of the agent.
#pragma once

#include <linux/bpf.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace billow::agent {

long bpf_call(int command, bpf_attr& attr);
inline std::uint64_t bpf_address(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p);
}

struct BpfProgram {
  std::vector<bpf_insn> code;

  void put(int op, int dst, int src, int off, std::int32_t imm);
  void move(int dst, int src) { put(BPF_ALU64 | BPF_MOV | BPF_X, dst, src, 0, 0); }
  void set(int dst, std::int32_t value) { put(BPF_ALU64 | BPF_MOV | BPF_K, dst, 0, 0, value); }
  // NOLINTNEXTLINE(misc-redundant-expression): two of the three parts are 0
  void add(int dst, std::int32_t value) { put(BPF_ALU64 | BPF_ADD | BPF_K, dst, 0, 0, value); }
  void bits(int dst, std::int32_t mask) { put(BPF_ALU64 | BPF_AND | BPF_K, dst, 0, 0, mask); }
  void shift_right(int dst, std::int32_t by) { put(BPF_ALU64 | BPF_RSH | BPF_K, dst, 0, 0, by); }
  void shift_left(int dst, std::int32_t by) { put(BPF_ALU64 | BPF_LSH | BPF_K, dst, 0, 0, by); }
  void load8(int dst, int src, int off) { put(BPF_LDX | BPF_MEM | BPF_B, dst, src, off, 0); }
  void load16(int dst, int src, int off) { put(BPF_LDX | BPF_MEM | BPF_H, dst, src, off, 0); }
  void load32(int dst, int src, int off) { put(BPF_LDX | BPF_MEM | BPF_W, dst, src, off, 0); }
  void load64(int dst, int src, int off) { put(BPF_LDX | BPF_MEM | BPF_DW, dst, src, off, 0); }
  void store32(int dst, int src, int off) { put(BPF_STX | BPF_MEM | BPF_W, dst, src, off, 0); }
  void store16(int dst, int src, int off) { put(BPF_STX | BPF_MEM | BPF_H, dst, src, off, 0); }
  void store64(int dst, int src, int off) { put(BPF_STX | BPF_MEM | BPF_DW, dst, src, off, 0); }
  void set64(int dst, std::uint64_t value);
  void call(int helper) { put(BPF_JMP | BPF_CALL, 0, 0, 0, helper); }
  void map(int dst, int fd);
  void to_host_order(int dst, int width) { put(BPF_ALU | BPF_END | BPF_TO_BE, dst, 0, 0, width); }
  // Returns the jump, for land(). The 32-bit form compares the lower half of the register.
  std::size_t jump_if(int op, int dst, std::int32_t value);
  std::size_t jump_if32(int op, int dst, std::uint32_t value);
  std::size_t jump_if_same(int one, int other);
  std::size_t jump();
  void land(std::size_t jump) { code[jump].off = static_cast<__s16>(code.size() - jump - 1); }
  void land(const std::vector<std::size_t>& jumps);
  void leave_with(std::int32_t result);
};

struct BpfKind {
  bpf_prog_type type;
  bpf_attach_type attach;
  const char* name;  // 15 characters at most
};
Result<Fd> load_bpf(const BpfProgram& program, const BpfKind& kind);
// Attached beside the programs of others (the job's, systemd's): all of them must agree.
Status attach_bpf(int cgroup, int program, bpf_attach_type attach);
Status detach_bpf(int cgroup, int program, bpf_attach_type attach);
// A program of this name that is already attached; none: an empty descriptor.
Fd find_bpf(int cgroup, const BpfKind& kind);

template <class Info>
bool bpf_info_of(int fd, Info& info) {
  bpf_attr attr{};
  attr.info.bpf_fd = static_cast<__u32>(fd);
  attr.info.info_len = sizeof info;
  attr.info.info = bpf_address(&info);
  return bpf_call(BPF_OBJ_GET_INFO_BY_FD, attr) == 0;
}
Fd bpf_by_id(int command, std::uint32_t id);

}  // namespace billow::agent
