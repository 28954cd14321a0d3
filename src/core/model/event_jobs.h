// Events of jobs and their tasks: submitted, placed, started, suspended, resumed, ended.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "core/model/job.h"

namespace billow {

// ---- jobs
// An environment is kept once per content; jobs name it by digest.
struct EnvironmentStored {
  static constexpr const char* kind = "environment_stored";
  std::string digest;
  Environment env;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("digest", s.digest);
    v("env", s.env);
  }
};
// One job, or an array: then `first` is the array's number and its elements follow it.
struct JobsSubmitted {
  static constexpr const char* kind = "jobs_submitted";
  JobId first;
  std::uint64_t count = 1;  // numbers taken, including the array's
  std::shared_ptr<const JobSpec> spec;
  ProjectId project;
  UserId user;
  std::uint32_t waiting_for = 0;  // unmet dependencies: held until they are met
  std::string idempotency_key;    // already scoped to its user
  Expectation expected;           // run time of each, learned from similar runs
  TokenId agent;                  // the agent token that submitted them; 0: none
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("first", s.first);
    v("count", s.count);
    v("spec", s.spec);
    v("project", s.project);
    v("user", s.user);
    v("waiting_for", s.waiting_for);
    v("idempotency_key", s.idempotency_key);
    v("expected", s.expected);
    v("agent", s.agent);
  }
};
// Labels of jobs and arrays were set or removed. Those that have ended are named too; their rows
// are written with the event.
struct JobsLabelled {
  static constexpr const char* kind = "jobs_labelled";
  std::vector<JobId> jobs;  // an array stands for its elements
  std::map<std::string, std::string> set;
  std::vector<std::string> remove;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("jobs", s.jobs);
    v("set", s.set);
    v("remove", s.remove);
  }
};
// Nothing holds it any longer: it enters the queue.
struct JobReady {
  static constexpr const char* kind = "job_ready";
  JobId job;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("job", s.job);
  }
};
// One of its dependencies is met; others may remain.
struct DependencyMet {
  static constexpr const char* kind = "dependency_met";
  JobId job;
  JobId on;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("job", s.job);
    v("on", s.on);
  }
};
// Every task of the next attempt is placed; their leases begin.
struct JobPlaced {
  static constexpr const char* kind = "job_placed";
  JobId job;
  std::vector<Task> tasks;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("job", s.job);
    v("tasks", s.tasks);
  }
};
struct TaskStarted {
  static constexpr const char* kind = "task_started";
  TaskId task;
  WallTime at;
  // On the billing clock: it is charged from here on, because it was placed long before its process
  // began (a lost order, an image that was pulled). Zero: from its placement on.
  WallTime lease_from;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("task", s.task);
    v("at_ns", s.at);
    v("lease_from_ns", s.lease_from);
  }
};
// The task has ended, and its lease with it.
struct TaskEnded {
  static constexpr const char* kind = "task_ended";
  TaskId task;
  ExitStatus exit;
  TaskUsage usage;
  WallTime lease_to;
  NanoUsd cost;  // of the lease
  bool never_began = false;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("task", s.task);
    v("exit", s.exit);
    v("usage", s.usage);
    v("lease_to_ns", s.lease_to);
    v("cost", s.cost);
    v("never_began", s.never_began);
  }
};
// Its live tasks are being ended.
struct JobStopping {
  static constexpr const char* kind = "job_stopping";
  JobId job;
  std::string reason;
  StopCause cause = StopCause::request;
  bool force = false;  // without grace
  JobId for_job;       // preempted: the job that gets its capacity
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("job", s.job);
    v("reason", s.reason);
    v("cause", s.cause);
    v("force", s.force);
    v("for_job", s.for_job);
  }
};
// The attempt has ended and another follows.
struct JobRequeued {
  static constexpr const char* kind = "job_requeued";
  JobId job;
  WallTime not_before;
  std::string reason;
  bool failed = false;  // by its own fault: counts as a retry
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("job", s.job);
    v("not_before_ns", s.not_before);
    v("reason", s.reason);
    v("failed", s.failed);
  }
};
struct JobEnded {
  static constexpr const char* kind = "job_ended";
  JobId job;
  JobState state = JobState::succeeded;
  ExitStatus exit;
  std::string reason;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("job", s.job);
    v("state", s.state);
    v("exit", s.exit);
    v("reason", s.reason);
  }
};

// ---- suspend and resume
// Ordered to suspend; it keeps its GPUs until TaskSuspended.
struct JobSuspending {
  static constexpr const char* kind = "job_suspending";
  JobId job;
  std::string reason;
  SuspendCause cause = SuspendCause::request;
  SuspendMode mode = SuspendMode::warm;
  bool resume_wanted = false;  // as soon as capacity is free again
  JobId for_job;               // preempted: the job that gets its capacity
  std::uint32_t order = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("job", s.job);
    v("reason", s.reason);
    v("cause", s.cause);
    v("mode", s.mode);
    v("resume_wanted", s.resume_wanted);
    v("for_job", s.for_job);
    v("order", s.order);
  }
};
// Its memory is kept and its GPUs are free: their lease is closed and a lease of memory begins. Its
// job is suspended.
struct TaskSuspended {
  static constexpr const char* kind = "task_suspended";
  TaskId task;
  WallTime lease_to;
  NanoUsd cost;  // of the lease that ended
  Rate rate;     // of the one that begins, per GiB of memory
  std::int64_t ram_mib = 0;
  std::string resume_failed;  // a resume failed and left it suspended: why
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("task", s.task);
    v("lease_to_ns", s.lease_to);
    v("cost", s.cost);
    v("rate", s.rate);
    v("ram_mib", s.ram_mib);
    v("resume_failed", s.resume_failed);
  }
};
// It could not be suspended and continues to run.
struct SuspendFailed {
  static constexpr const char* kind = "suspend_failed";
  JobId job;
  SuspendCause cause = SuspendCause::request;
  std::string reason;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("job", s.job);
    v("cause", s.cause);
    v("reason", s.reason);
  }
};
// For a job that is suspended or about to be: why, and whether it resumes when capacity is free.
struct SuspensionChanged {
  static constexpr const char* kind = "suspension_changed";
  JobId job;
  SuspendCause cause = SuspendCause::request;
  std::string reason;
  bool resume_wanted = false;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("job", s.job);
    v("cause", s.cause);
    v("reason", s.reason);
    v("resume_wanted", s.resume_wanted);
  }
};
// It has GPUs again: the lease of memory is closed and one of GPUs begins.
struct JobResuming {
  static constexpr const char* kind = "job_resuming";
  JobId job;
  TaskId task;
  std::vector<GpuGrant> gpus;
  std::int64_t cpu_milli = 0;
  std::int64_t mem_mib = 0;
  WallTime lease_to;  // end of the memory lease and start of the other
  NanoUsd cost;       // of the lease of memory
  Rate rate;
  PriceClass price_class = PriceClass::on_demand;
  std::uint32_t order = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("job", s.job);
    v("task", s.task);
    v("gpus", s.gpus);
    v("cpu_milli", s.cpu_milli);
    v("mem_mib", s.mem_mib);
    v("lease_to_ns", s.lease_to);
    v("cost", s.cost);
    v("rate", s.rate);
    v("price_class", s.price_class);
    v("order", s.order);
  }
};
struct TaskResumed {
  static constexpr const char* kind = "task_resumed";
  TaskId task;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("task", s.task);
  }
};
// Its agent's finding whether it can be suspended.
struct TaskDeclared {
  static constexpr const char* kind = "task_declared";
  TaskId task;
  std::string unsuspendable;  // empty: it can be suspended
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("task", s.task);
    v("unsuspendable", s.unsuspendable);
  }
};

}  // namespace billow
