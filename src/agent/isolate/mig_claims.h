// Which task has which MIG instance. The scheduler gives a task a place on a card; here it becomes
// the instance that exists there, else another free one of the same size. Where an administrator
// allowed it (`--allow-mig-changes`) an instance that does not exist is made, and taken down when
// its task has ended. Only what was made here is ever taken down: the file `mig-made` remembers it
// across a restart. An instance is given to one task at a time.
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
  // `backend` is null where instances may not be made. Those made before are hidden from the cards:
  // they come and go.
  MigClaims(GpuBackend* backend, std::string file, std::vector<GpuInfo>& cards);

  // Code::conflict where the card has no free instance of that size and none may be made, with what
  // to do.
  Result<std::string> claim(TaskId task, const GpuInfo& card, const GpuGrant& grant);
  void hold(TaskId task, const std::string& uuid) {
    held_[uuid] = task;
  }  // of a task that was found again
  void release(TaskId task);
  // Takes down what was made and nobody holds: after a restart, and what the driver would not let
  // go of before.
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
