#include "core/model/job.h"

#include <cmath>

#include <fmt/format.h>

namespace billow {
namespace {

// Tasks run on Linux, so clients on any system show Linux signal names.
const char* linux_signal_name(std::int32_t number) {
  constexpr const char* names[] = {
      "",     "HUP",  "INT",  "QUIT", "ILL",    "TRAP",   "ABRT",  "BUS",  "FPE",  "KILL", "USR1",
      "SEGV", "USR2", "PIPE", "ALRM", "TERM",   "STKFLT", "CHLD",  "CONT", "STOP", "TSTP", "TTIN",
      "TTOU", "URG",  "XCPU", "XFSZ", "VTALRM", "PROF",   "WINCH", "POLL", "PWR",  "SYS"};
  return number > 0 && number < static_cast<std::int32_t>(std::size(names)) ? names[number] : "";
}

}  // namespace

GroupMember member_of(const JobSpec& spec, std::uint32_t rank) {
  std::uint32_t first = 0;
  for (const RoleSpec& role : spec.roles) {
    if (rank < first + role.count)
      return {&role, rank - first, first, static_cast<std::size_t>(&role - spec.roles.data())};
    first += role.count;
  }
  return {nullptr, rank, 0, 0};
}

std::string member_name(const JobSpec& spec, std::uint32_t rank) {
  const GroupMember member = member_of(spec, rank);
  // Output is numbered by process, and so is this.
  if (!member.role && spec.procs > 1)
    return fmt::format("ranks {} to {}", rank * spec.procs, (rank + 1) * spec.procs - 1);
  if (!member.role)
    return fmt::format("rank {}", rank);
  return member.role->count == 1 ? member.role->name
                                 : fmt::format("{}.{}", member.role->name, member.index);
}

const Resources& resources_of(const JobSpec& spec, std::uint32_t rank) {
  const GroupMember member = member_of(spec, rank);
  return member.role ? member.role->resources : spec.resources;
}

const TaskOptions& options_of(const JobSpec& spec, std::uint32_t rank) {
  const GroupMember member = member_of(spec, rank);
  return member.role ? static_cast<const TaskOptions&>(*member.role) : spec;
}

std::vector<JobSpec> parts_of(const JobSpec& spec) {
  if (spec.roles.empty())
    return {spec};
  std::vector<JobSpec> parts;
  for (const RoleSpec& role : spec.roles) {
    JobSpec part = spec;
    part.roles.clear();
    static_cast<TaskOptions&>(part) = role;
    part.resources = role.resources;
    part.nodes = role.count;
    part.retries = role.retries;
    parts.push_back(std::move(part));
  }
  return parts;
}

std::int64_t asked_gpu_milli(const JobSpec& spec) {
  const auto milli = [](const Resources& r, std::uint32_t tasks) {
    return std::int64_t{r.gpus} * r.share.milli * tasks;
  };
  if (spec.roles.empty())
    return milli(spec.resources, spec.nodes);
  std::int64_t sum = 0;
  for (const RoleSpec& role : spec.roles)
    sum += milli(role.resources, role.count);
  return sum;
}

int ExitStatus::shell_code() const {
  switch (kind) {
    case ExitKind::exited:
    case ExitKind::exec_failed:
      return code;
    case ExitKind::signaled:
      return 128 + signal;
    case ExitKind::oom:
      return 137;
    case ExitKind::timed_out:
      return 124;
    case ExitKind::stopped:
      return signal ? 128 + signal : 143;
    case ExitKind::unpaid:
    case ExitKind::idle:
      return 143;
    case ExitKind::lost:
      return 125;
  }
  return 125;
}

std::string ExitStatus::text() const {
  if (port_taken && !message.empty())
    return message;
  const std::string name = linux_signal_name(signal);
  switch (kind) {
    case ExitKind::exited:
      return code == 0 ? "done" : fmt::format("exit code {}", code);
    case ExitKind::signaled:
      return !name.empty() ? fmt::format("killed by SIG{}", name)
                           : fmt::format("killed by signal {}", signal);
    case ExitKind::oom:
      return "out of memory";
    case ExitKind::timed_out:
      return "time limit reached";
    case ExitKind::stopped:
      return message.empty() ? "stopped" : "stopped: " + message;
    case ExitKind::exec_failed:
      return message.empty() ? "could not be started" : message;
    case ExitKind::unpaid:
      return "paid time ran out";
    case ExitKind::idle:
      return "stopped: " + (message.empty() ? std::string("it was idle") : message);
    case ExitKind::lost:
      return message.empty() ? "lost" : "lost: " + message;
  }
  return "lost";
}

Duration checkpoint_interval(Duration cost, Duration mtbf) {
  const double c = cost.seconds(), m = mtbf.seconds();
  if (c <= 0 || m <= 0)
    return {};
  if (c >= 2 * m)
    return mtbf;  // beyond this no interval helps: the next failure comes before a
                  // checkpoint pays off
  const double young = std::sqrt(2 * c * m), ratio = c / (2 * m);
  return milliseconds(
      static_cast<std::int64_t>((young * (1 + std::sqrt(ratio) / 3 + ratio / 9) - c) * 1000));
}

}  // namespace billow
