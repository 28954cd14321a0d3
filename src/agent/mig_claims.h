// Which task has which MIG instance. The scheduler gives a task a part of a card by the card's geometry; here it becomes one of the
// instances that exist: the one at that place, else another free one of the same size. An instance is given to one task at a time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "gpu/device.h"
#include "model/job.h"

namespace billow::agent {

class MigClaims {
 public:
  // Code::conflict where the card has no free instance of that size, with what to do.
  Result<std::string> claim(TaskId task, const GpuInfo& card, const GpuGrant& grant);
  void hold(TaskId task, const std::string& uuid) { held_[uuid] = task; }  // of a task that was found again
  void release(TaskId task) { std::erase_if(held_, [&](const auto& entry) { return entry.second == task; }); }

 private:
  std::map<std::string, TaskId> held_;
};

}  // namespace billow::agent
