// Keeps a job from the GPUs that it does not have: a BPF program on the task's v2 control group
// refuses to open their device files, whatever path or mount namespace they are reached through.
// Without v2, the device controller of v1 does (cgroup.h). The private /dev (sandbox.h) only hides
// them; this guard refuses them. Whatever runs for the job in its groups (hooks, SSH sessions) is
// under it; other processes of the same user are not.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace billow::agent {

struct DeviceNumber {
  unsigned major = 0, minor = 0;
  bool operator==(const DeviceNumber&) const = default;
};
// Of character devices, by names relative to /dev. Names that do not exist are left out.
std::vector<DeviceNumber> device_numbers(const std::vector<std::string>& names);

// Before the task's first process.
Status deny_devices(const std::string& cgroup, const std::vector<DeviceNumber>& denied);

// A line for `billow doctor`. `groups`: tasks have v2 control groups on this machine; `v1`: it has
// the device controller of v1.
std::string describe_device_guard(bool groups, bool v1);

}  // namespace billow::agent
