// Which task holds which MIG instance. The scheduler gives a task a position on a card. The task
// gets the instance that exists there, or another free one of the same size. If an administrator
// allowed it (`--allow-mig-changes`), a missing instance is created, and destroyed when its task
// has ended. Only instances created here are destroyed: the file `mig-made` lists them across
// restarts. An instance has one task at a time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "core/model/job.h"
#include "gpu/backend.h"

namespace billow::agent {

class MigClaims {
 public:
  MigClaims() = default;
  // `backend` is null if instances may not be created. Instances created earlier are hidden from
  // the cards, because they are temporary.
  MigClaims(GpuBackend* backend, std::string file, std::vector<GpuInfo>& cards);

  // Code::conflict, with a hint, if the card has no free instance of that size and none may be
  // created.
  Result<std::string> claim(TaskId task, const GpuInfo& card, const GpuGrant& grant);
  void hold(TaskId task, const std::string& uuid) {
    held_[uuid] = task;
  }  // of a task that was found again
  void release(TaskId task);
  // Destroys created instances that no task holds: after a restart, and those that the driver
  // refused to destroy before.
  void sweep();

 private:
  struct Made {
    std::uint32_t gpu = 0, instance = 0;
  };
  Result<std::string> make(const GpuInfo& card, const GpuGrant& grant);
  void save() const;

  GpuBackend* backend_ = nullptr;
  std::string file_;
  std::map<std::string, TaskId> held_;  // by the instance's UUID
  std::map<std::string, Made> made_;
};

}  // namespace billow::agent
