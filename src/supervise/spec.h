// Reads a task's spec in place: strings stay in the bytes of the file, and the caller provides the
// arrays of pointers. The decoder trusts nothing: every length is checked, every string must end in
// NUL, and every number must be in range.
#pragma once

#include <cstddef>
#include <cstdint>

#include "supervise/protocol.h"

namespace billow::supervise {

struct SpecRlimit {
  std::uint32_t resource;
  std::uint64_t soft, hard;
};

inline constexpr std::size_t spec_groups_max = 1024;
inline constexpr std::size_t spec_rlimits_max = 16;
inline constexpr std::size_t spec_cgroups_v1_max = 16;

struct Spec {
  const char** argv;          // NULL-terminated
  const char** env;           // NULL-terminated
  const char** hide_devices;  // NULL-terminated
  const char** binds;         // NULL-terminated
  const char** shown;         // NULL-terminated
  std::uint32_t argv_count, env_count, hide_count, binds_count, shown_count;
  const char* cwd;
  bool has_uid, has_gid, has_groups;
  std::uint32_t uid, gid;
  std::uint32_t groups[spec_groups_max];
  std::uint32_t groups_count;
  std::uint32_t umask;
  bool pty;
  std::uint16_t rows, columns;
  bool stdin_open;
  bool one_stream;  // stdout and stderr share a pipe
  std::uint64_t log_segment_bytes;
  std::uint32_t log_segments_max;
  std::int64_t time_limit_ns, paid_until_boot_ns, stop_grace_ns, leftover_grace_ns;
  const char* cgroup_v2;
  const char* cgroups_v1[spec_cgroups_v1_max];
  std::uint32_t cgroups_v1_count;
  const char* cgroup_memory;
  const char* private_tmp;  // null: the node's
  const char* cgroup_freezer_v1;
  bool user_namespace, no_new_privs, own_network, private_proc;
  SpecRlimit rlimits[spec_rlimits_max];
  std::uint32_t rlimits_count;
  std::int32_t nice;
  bool has_nice;
  std::int32_t die_with_pid;
  std::uint32_t subscription;
  std::int32_t oom_score_adj;
  bool has_oom_score_adj;
  std::uint32_t refused_calls;
};

// How many pointers decode_spec may need for a file of that size.
constexpr std::size_t spec_pointers_needed(std::size_t file_bytes) {
  return file_bytes / (sizeof(SpecEntry) + 1) + 5;
}

// Null if well-formed; otherwise what is wrong, as a constant text. `data` must outlive `out`.
const char* decode_spec(const char* data,
                        std::size_t bytes,
                        const char** pointers,
                        std::size_t pointers_count,
                        Spec* out);

}  // namespace billow::supervise
