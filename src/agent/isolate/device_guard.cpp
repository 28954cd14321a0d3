#include "agent/isolate/device_guard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "agent/isolate/bpf.h"

namespace billow::agent {
namespace {

constexpr BpfKind kind = {BPF_PROG_TYPE_CGROUP_DEVICE, BPF_CGROUP_DEVICE, "billow_devices"};

BpfProgram denying_program(const std::vector<DeviceNumber>& denied) {
  BpfProgram p;
  std::vector<std::size_t> refused;
  p.load32(2, 1, offsetof(bpf_cgroup_dev_ctx, access_type));
  p.bits(2, 0xffff);  // the type; the kind of access is above it
  const auto other = p.jump_if32(BPF_JNE, 2, BPF_DEVCG_DEV_CHAR);
  p.load32(3, 1, offsetof(bpf_cgroup_dev_ctx, major));
  p.load32(4, 1, offsetof(bpf_cgroup_dev_ctx, minor));
  for (const DeviceNumber& device : denied) {
    const auto next = p.jump_if32(BPF_JNE, 3, device.major);
    refused.push_back(p.jump_if32(BPF_JEQ, 4, device.minor));
    p.land(next);
  }
  p.land(other);
  p.leave_with(1);
  p.land(refused);
  p.leave_with(0);
  return p;
}

}  // namespace

std::vector<DeviceNumber> device_numbers(const std::vector<std::string>& names) {
  std::vector<DeviceNumber> out;
  for (const std::string& name : names) {
    struct stat info {};
    if (::stat(("/dev/" + name).c_str(), &info) != 0 || !S_ISCHR(info.st_mode))
      continue;
    const DeviceNumber one{major(info.st_rdev), minor(info.st_rdev)};
    if (std::find(out.begin(), out.end(), one) == out.end())
      out.push_back(one);
  }
  return out;
}

Status deny_devices(const std::string& path, const std::vector<DeviceNumber>& denied) {
  if (denied.empty())
    return {};
  const Fd cgroup(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!cgroup)
    return fail_errno("open " + path, errno);
  const Fd program = BILLOW_TRY(load_bpf(denying_program(denied), kind));
  return attach_bpf(cgroup.get(), program.get(), kind.attach);
}

std::string describe_device_guard(bool groups, bool v1) {
  const auto program = load_bpf(denying_program({{0, 0}}), kind);
  if (groups && program)
    return "device control: jobs cannot open other jobs' GPUs (BPF on their control groups)";
  if (v1)
    return "device control: jobs cannot open other jobs' GPUs (the device controller of cgroup v1)";
  return fmt::format(
      "device control: not available ({}): only the private /dev keeps jobs from other GPUs",
      groups ? program.error().message : "no writable cgroup v2");
}

}  // namespace billow::agent
