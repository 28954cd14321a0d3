// Quotas: how much of the head's capacity one user or project may use, so that nobody can exhaust
// it for all others. (GPUs are shared by `Quota` in place.h.)
#pragma once

#include <cstdint>

#include "base/enums.h"

namespace billow {

namespace limits {
inline constexpr std::int64_t user_objects_max = 1'000;
inline constexpr std::int64_t project_objects_max = 10'000;
// How far users other than admins of the installation may change the priority of their jobs, which
// applies to the jobs of all projects.
inline constexpr std::int32_t priority_members_max = 1000;
inline constexpr std::int64_t task_log_bytes = 128 << 20;
inline constexpr std::int64_t task_log_bytes_min = 1 << 20;
inline constexpr std::int64_t task_log_bytes_max = std::int64_t{64} << 30;
inline constexpr std::int64_t kept_log_bytes = std::int64_t{10} << 30;
}  // namespace limits

enum class QuotaScope { user, project };
BILLOW_ENUM_NAMES(QuotaScope, {QuotaScope::user, "user"}, {QuotaScope::project, "project"});

enum class QuotaKind {
  queued_jobs,     // jobs that have not ended, each element of an array counted
  spec_bytes,      // texts of their descriptions and variables
  file_bytes,      // uploaded files; of a user only
  connections,     // to the head, at a time; of a user only
  requests_per_s,  // to the head, on average; of a user only
  objects,   // tokens, schedules, endpoints and their keys, reservations, secrets, environments
  priority,  // the highest priority that members of a project may give their jobs
  task_log_bytes,  // output kept of one task: the newest; of a project only
  kept_log_bytes,  // logs of ended tasks that the head keeps, compressed; of a project only
};
BILLOW_ENUM_NAMES(QuotaKind,
                  {QuotaKind::queued_jobs, "queued-jobs"},
                  {QuotaKind::spec_bytes, "spec-bytes"},
                  {QuotaKind::file_bytes, "file-bytes"},
                  {QuotaKind::connections, "connections"},
                  {QuotaKind::requests_per_s, "requests-per-s"},
                  {QuotaKind::objects, "objects"},
                  {QuotaKind::priority, "priority"},
                  {QuotaKind::task_log_bytes, "task-log-bytes"},
                  {QuotaKind::kept_log_bytes, "kept-log-bytes"});

struct QuotaKey {
  QuotaScope scope = QuotaScope::user;
  std::uint64_t of = 0;  // UserId or ProjectId; 0: all users or projects without their own quota
  QuotaKind kind = QuotaKind::queued_jobs;
  auto operator<=>(const QuotaKey&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("scope", s.scope);
    v("of", s.of);
    v("kind", s.kind);
  }
};

struct HeadQuota {
  QuotaKey key;
  std::int64_t limit = -1;  // -1: none
  bool operator==(const HeadQuota&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("key", s.key);
    v("limit", s.limit);
  }
};

}  // namespace billow
