#include "agent/isolate/bpf.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace billow::agent {

long bpf_call(int command, bpf_attr& attr) {
  return ::syscall(SYS_bpf, command, &attr, sizeof attr);
}

void BpfProgram::put(int op, int dst, int src, int off, std::int32_t imm) {
  bpf_insn insn{};
  insn.code = static_cast<__u8>(op);
  insn.dst_reg = static_cast<__u8>(dst) & 0xf;
  insn.src_reg = static_cast<__u8>(src) & 0xf;
  insn.off = static_cast<__s16>(off);
  insn.imm = imm;
  code.push_back(insn);
}

void BpfProgram::map(int dst, int fd) {
  // NOLINTNEXTLINE(misc-redundant-expression): two of the three parts are 0
  put(BPF_LD | BPF_DW | BPF_IMM, dst, BPF_PSEUDO_MAP_FD, 0, fd);
  put(0, 0, 0, 0, 0);
}

std::size_t BpfProgram::jump_if(int op, int dst, std::int32_t value) {
  put(BPF_JMP | op | BPF_K, dst, 0, 0, value);
  return code.size() - 1;
}

std::size_t BpfProgram::jump_if32(int op, int dst, std::uint32_t value) {
  put(BPF_JMP32 | op | BPF_K, dst, 0, 0, static_cast<std::int32_t>(value));
  return code.size() - 1;
}

void BpfProgram::set64(int dst, std::uint64_t value) {
  put(BPF_LD | BPF_DW | BPF_IMM, dst, 0, 0, static_cast<std::int32_t>(value));
  put(0, 0, 0, 0, static_cast<std::int32_t>(value >> 32));
}

std::size_t BpfProgram::jump_if_same(int one, int other) {
  put(BPF_JMP | BPF_JEQ | BPF_X, one, other, 0, 0);
  return code.size() - 1;
}

std::size_t BpfProgram::jump() {
  put(BPF_JMP | BPF_JA, 0, 0, 0, 0);
  return code.size() - 1;
}

void BpfProgram::land(const std::vector<std::size_t>& jumps) {
  for (const std::size_t one : jumps)
    land(one);
}

void BpfProgram::leave_with(std::int32_t result) {
  set(0, result);
  put(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
}

Result<Fd> load_bpf(const BpfProgram& program, const BpfKind& kind) {
  bpf_attr load{};
  load.prog_type = kind.type;
  load.expected_attach_type = kind.attach;
  load.insns = bpf_address(program.code.data());
  load.insn_cnt = static_cast<__u32>(program.code.size());
  load.license = bpf_address("Apache-2.0");  // no program here uses a helper that requires the GPL
  std::strncpy(load.prog_name, kind.name, sizeof load.prog_name - 1);
  const long fd = bpf_call(BPF_PROG_LOAD, load);
  if (fd < 0)
    return fail_errno(fmt::format("load {} into the kernel", kind.name), errno);
  return Fd(static_cast<int>(fd));
}

Status attach_bpf(int cgroup, int program, bpf_attach_type attach) {
  bpf_attr attr{};
  attr.target_fd = static_cast<__u32>(cgroup);
  attr.attach_bpf_fd = static_cast<__u32>(program);
  attr.attach_type = attach;
  attr.attach_flags = BPF_F_ALLOW_MULTI;
  if (bpf_call(BPF_PROG_ATTACH, attr) != 0)
    return fail_errno("attach a program to a control group", errno);
  return {};
}

Status detach_bpf(int cgroup, int program, bpf_attach_type attach) {
  bpf_attr attr{};
  attr.target_fd = static_cast<__u32>(cgroup);
  attr.attach_bpf_fd = static_cast<__u32>(program);
  attr.attach_type = attach;
  if (bpf_call(BPF_PROG_DETACH, attr) != 0)
    return fail_errno("detach a program from a control group", errno);
  return {};
}

Fd bpf_by_id(int command, std::uint32_t id) {
  bpf_attr attr{};
  attr.prog_id = id;  // map_id is the same field of the union
  const long fd = bpf_call(command, attr);
  return Fd(fd < 0 ? -1 : static_cast<int>(fd));
}

Fd find_bpf(int cgroup, const BpfKind& kind) {
  std::array<std::uint32_t, 64> programs{};
  bpf_attr attr{};
  attr.query.target_fd = static_cast<__u32>(cgroup);
  attr.query.attach_type = kind.attach;
  attr.query.prog_ids = bpf_address(programs.data());
  attr.query.prog_cnt = programs.size();
  if (bpf_call(BPF_PROG_QUERY, attr) != 0)
    return Fd();
  for (std::uint32_t i = 0; i < attr.query.prog_cnt && i < programs.size(); ++i) {
    Fd program = bpf_by_id(BPF_PROG_GET_FD_BY_ID, programs[i]);
    bpf_prog_info info{};
    if (program && bpf_info_of(program.get(), info) &&
        std::strncmp(info.name, kind.name, sizeof info.name) == 0)
      return program;
  }
  return Fd();
}

}  // namespace billow::agent
