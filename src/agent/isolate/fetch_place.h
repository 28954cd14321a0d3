// Where the programs run that fetch an image or an environment for a task. They run as the job's
// user, with that user's settings, and talk to servers that the user named: so they are confined
// like a job, in control groups with limits and without access to the cloud's metadata service.
#pragma once

#include <string>
#include <vector>

#include "agent/isolate/cgroup.h"
#include "agent/isolate/network_guard.h"
#include "base/result.h"

namespace billow::agent {

class FetchPlace {
 public:
  // `guard` may be null. On a machine without control groups the place has none.
  static Result<FetchPlace> create(const Cgroups& cgroups, TaskId task, const NetworkGuard* guard);
  FetchPlace(FetchPlace&& other) noexcept;
  FetchPlace& operator=(FetchPlace&&) = delete;
  // Kills what is left in the groups and removes them.
  ~FetchPlace();

  // The directories of the groups.
  std::vector<std::string> groups() const;

 private:
  FetchPlace(const Cgroups& cgroups, TaskCgroup group)
      : cgroups_(&cgroups), group_(std::move(group)) {}

  const Cgroups* cgroups_;
  TaskCgroup group_;
};

}  // namespace billow::agent
