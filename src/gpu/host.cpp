#include "gpu/host.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include <fmt/format.h>

#include "base/file.h"
#include "base/text.h"

namespace billow {
namespace {

constexpr int numa_nodes_max = 256;
constexpr std::size_t proc_file_bytes_max = 8 << 20;

std::string read_trimmed(const std::string& path) {
  const auto text = read_file(path, proc_file_bytes_max);
  return text ? std::string(trim(*text)) : std::string();
}

// The number after "Name:" in a file of such lines, converted from KiB to MiB.
std::optional<std::int64_t> memory_line(std::string_view text, std::string_view name) {
  for (const std::string& line : split(text, '\n')) {
    const auto at = line.find(name);
    if (at == std::string::npos)
      continue;
    const auto digits = line.find_first_of("0123456789", at + name.size());
    if (digits == std::string::npos)
      continue;
    return std::atoll(line.c_str() + digits) / 1024;
  }
  return std::nullopt;
}

std::string os_name(const std::string& root) {
  for (const std::string& line : split(read_trimmed(root + "/etc/os-release"), '\n')) {
    constexpr std::string_view key = "PRETTY_NAME=";
    if (!line.starts_with(key))
      continue;
    std::string name = line.substr(key.size());
    std::erase(name, '"');
    return name;
  }
  return "";
}

std::string cpu_model(const std::string& root) {
  for (const std::string& line : split(read_trimmed(root + "/proc/cpuinfo"), '\n')) {
    if (!line.starts_with("model name"))
      continue;
    if (const auto colon = line.find(':'); colon != std::string::npos)
      return std::string(trim(std::string_view(line).substr(colon + 1)));
  }
  return "";
}

std::vector<NumaNode> numa_nodes(const std::string& root) {
  std::vector<NumaNode> nodes;
  for (int id = 0; id < numa_nodes_max; ++id) {
    const std::string folder = fmt::format("{}/sys/devices/system/node/node{}", root, id);
    if (!file_exists(folder + "/cpulist"))
      continue;
    NumaNode node;
    node.id = id;
    node.cpus = read_trimmed(folder + "/cpulist");
    node.cpu_count = count_cpu_list(node.cpus);
    node.memory_mib = memory_line(read_trimmed(folder + "/meminfo"), "MemTotal:").value_or(0);
    nodes.push_back(std::move(node));
  }
  return nodes;
}

// This process's cgroup v2 directory, if the unified hierarchy is mounted.
std::string cgroup_folder(const std::string& root) {
  for (const std::string& line : split(read_trimmed(root + "/proc/self/cgroup"), '\n')) {
    if (line.starts_with("0::/"))
      return root + "/sys/fs/cgroup" + (line == "0::/" ? "" : line.substr(3));
  }
  return "";
}

void apply_cgroup_limits(const std::string& root, HostInfo& host) {
  const std::string top = root + "/sys/fs/cgroup";
  // A limit on any parent directory applies too.
  for (std::string folder = cgroup_folder(root); folder.size() >= top.size() && !folder.empty();) {
    const auto quota = split(read_trimmed(folder + "/cpu.max"), ' ');
    if (quota.size() == 2) {
      const auto limit = parse_int(quota[0], 1, INT64_MAX),
                 period = parse_int(quota[1], 1, INT64_MAX);
      if (limit && period)
        host.cpus_usable = std::min<std::int32_t>(
            host.cpus_usable, static_cast<std::int32_t>((*limit + *period - 1) / *period));
    }
    if (const auto limit = parse_int(read_trimmed(folder + "/memory.max"), 1, INT64_MAX)) {
      host.memory_usable_mib = std::min(host.memory_usable_mib, *limit >> 20);
    }
    if (folder == top)
      break;
    folder.resize(folder.rfind('/'));
  }
}

}  // namespace

std::int32_t count_cpu_list(std::string_view list) {
  std::int32_t count = 0;
  for (const std::string& part : split(trim(list), ',')) {
    const auto ends = split(part, '-');
    const auto first = parse_int(trim(ends.front()), 0, 1 << 20),
               last = parse_int(trim(ends.back()), 0, 1 << 20);
    if (first && last && ends.size() <= 2 && *last >= *first)
      count += static_cast<std::int32_t>(*last - *first + 1);
  }
  return count;
}

Result<HostInfo> read_host(const std::string& root) {
  HostInfo host;
  utsname names{};
  if (uname(&names) == 0) {
    host.hostname = names.nodename;
    host.kernel = names.release;
    host.arch = names.machine;
  }
  host.os = os_name(root);
  host.boot_id = read_trimmed(root + "/proc/sys/kernel/random/boot_id");
  host.cpu_model = cpu_model(root);
  host.cpus = count_cpu_list(read_trimmed(root + "/sys/devices/system/cpu/online"));
  if (host.cpus == 0 && root.empty())
    host.cpus = static_cast<std::int32_t>(sysconf(_SC_NPROCESSORS_ONLN));
  if (host.cpus <= 0)
    return fail(Code::unsupported, "cannot tell how many processors there are",
                "mount /sys, or run outside of the container that hides it");
  host.cpus_usable = host.cpus;
  cpu_set_t allowed;
  if (root.empty() && sched_getaffinity(0, sizeof allowed, &allowed) == 0)
    host.cpus_usable = std::min(host.cpus, static_cast<std::int32_t>(CPU_COUNT(&allowed)));

  const auto memory = memory_line(read_trimmed(root + "/proc/meminfo"), "MemTotal:");
  if (!memory)
    return fail(Code::unsupported, "cannot read the size of the memory from /proc/meminfo",
                "mount /proc");
  host.memory_mib = host.memory_usable_mib = *memory;
  apply_cgroup_limits(root, host);
  host.numa = numa_nodes(root);
  return host;
}

Result<HostLoad> read_host_load(const std::string& root) {
  const auto available = memory_line(read_trimmed(root + "/proc/meminfo"), "MemAvailable:");
  if (!available)
    return fail(Code::unsupported, "cannot read the available memory from /proc/meminfo",
                "mount /proc");
  return HostLoad{*available, std::atof(read_trimmed(root + "/proc/loadavg").c_str())};
}

}  // namespace billow
