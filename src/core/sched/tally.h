// Usage of projects, users and arrays, including what the pass has started so far: whose turn it
// is, and who may start more.
#pragma once

#include <map>

#include "core/sched/index.h"

namespace billow::sched {

class Tally {
 public:
  Tally(const SchedIndex::Impl& index, WallTime now);

  // Usage over weight: the project with the least usage comes first; in a fair project, the user
  // with the least.
  double share_of(const ProjectState& project) const;
  double share_of(const ProjectState& project, UserId user) const;
  // Only a fair project distinguishes its users by usage.
  static UserId part_of(const ProjectState& project, const Kind& kind);
  int tier_down(const ProjectState& project, const Kind& kind) const;
  // Whether the limits of project, user and array, and the guarantees of other projects, allow one
  // more job of the kind.
  bool within_limits(const Kind& kind) const;
  void started(const JobRequest& proto, const std::vector<Placement>& placements);

 private:
  struct Started {
    std::int64_t dominant = 0, gpu = 0, covered = 0, firm = 0;
  };
  const Started& of(ProjectId id) const;
  double had(Usage usage, std::int64_t rate_milli, std::int64_t more_milli) const;

  const SchedIndex::Impl& index_;
  WallTime now_;
  std::map<ProjectId, Started> started_;
  std::map<std::pair<ProjectId, UserId>, UserRunning> started_user_;
  std::map<std::pair<ProjectId, UserId>, std::int64_t> started_dominant_;
  std::map<JobId, std::int32_t> started_array_;
  std::int64_t guaranteed_ = 0, firm_borrowed_ = 0;
};

}  // namespace billow::sched
