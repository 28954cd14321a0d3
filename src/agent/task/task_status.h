// From the supervisor's exit record to the status that the head gets.
#pragma once

#include "core/agent/core.h"
#include "core/model/job.h"
#include "supervise/protocol.h"

namespace billow::agent {

TaskStatus status_of(TaskId task, const supervise::ExitRecord& record);
// The other way, for a task that ends before it began (effect::RecordEnd).
supervise::ExitRecord record_of(const TaskStatus& status);
// For a task whose supervisor died without a record.
TaskStatus lost_status(TaskId task, WallTime now, std::string message);

// Whether an engine such as Slurm may have caused this end: it signals every process of an
// allocation that it ends, the job's or its supervisor's first.
bool may_be_engines_doing(const ExitStatus& exit);

}  // namespace billow::agent
