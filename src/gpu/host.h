// The node besides its GPUs: processors, memory, identity. Read from /proc and /sys, through a root
// prefix so that tests can simulate another machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace billow {

struct NumaNode {
  std::int32_t id = 0;
  std::string cpus;  // the kernel's notation: "0-15,32-47"
  std::int32_t cpu_count = 0;
  std::int64_t memory_mib = 0;
  bool operator==(const NumaNode&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("id", s.id);
    v("cpus", s.cpus);
    v("cpu_count", s.cpu_count);
    v("memory_mib", s.memory_mib);
  }
};

struct HostInfo {
  std::string hostname;
  std::string kernel;            // "6.1.0-28-amd64"
  std::string arch;              // "x86_64", "aarch64"
  std::string os;                // "Debian GNU/Linux 12 (bookworm)"
  std::string boot_id;           // changes with every boot: a lease of another boot has ended
  std::string cpu_model;         // empty if the kernel does not report it
  std::int32_t cpus = 0;         // online
  std::int32_t cpus_usable = 0;  // available to this process: affinity and cgroup quota, rounded up
  std::int64_t memory_mib = 0;
  std::int64_t memory_usable_mib = 0;  // less if a cgroup limits this process
  std::vector<NumaNode> numa;
  bool operator==(const HostInfo&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("hostname", s.hostname);
    v("kernel", s.kernel);
    v("arch", s.arch);
    v("os", s.os);
    v("boot_id", s.boot_id);
    v("cpu_model", s.cpu_model);
    v("cpus", s.cpus);
    v("cpus_usable", s.cpus_usable);
    v("memory_mib", s.memory_mib);
    v("memory_usable_mib", s.memory_usable_mib);
    v("numa", s.numa);
  }
};

// Unreadable values stay empty or zero, except processors and memory: without them there is no node
// to offer.
Result<HostInfo> read_host(const std::string& root = "");

struct HostLoad {
  std::int64_t memory_available_mib = 0;
  double load_1m = 0;
};
Result<HostLoad> read_host_load(const std::string& root = "");

// "0-3,8" → 5.
std::int32_t count_cpu_list(std::string_view list);

}  // namespace billow
