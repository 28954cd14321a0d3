// The two life cycles of Billow. A job is what a user asked for; a task is one attempt of it on one
// node. They are enums with exhaustive switches, so only these states can be stored, sent or shown.
#pragma once

#include "base/enums.h"

namespace billow {

enum class JobState {
  held,       // waits for a dependency, a back-off, a budget or a person; not in the queue
  queued,     // waits for capacity
  running,    // every task has been placed, none has ended
  suspended,  // its memory is kept, its GPUs are released
  succeeded,
  failed,
  stopped,  // by a person, a budget or a policy
  lost,     // its node disappeared and the job may not be restarted
};
enum class TaskState {
  starting,  // placed; the agent has not confirmed yet that it runs
  running,
  suspending,
  suspended,
  resuming,
  stopping,
  unreachable,  // its node does not answer; it keeps its lease
  ended,
};

BILLOW_ENUM_NAMES(JobState,
                  {JobState::held, "held"},
                  {JobState::queued, "queued"},
                  {JobState::running, "running"},
                  {JobState::suspended, "suspended"},
                  {JobState::succeeded, "succeeded"},
                  {JobState::failed, "failed"},
                  {JobState::stopped, "stopped"},
                  {JobState::lost, "lost"});
BILLOW_ENUM_NAMES(TaskState,
                  {TaskState::starting, "starting"},
                  {TaskState::running, "running"},
                  {TaskState::suspending, "suspending"},
                  {TaskState::suspended, "suspended"},
                  {TaskState::resuming, "resuming"},
                  {TaskState::stopping, "stopping"},
                  {TaskState::unreachable, "unreachable"},
                  {TaskState::ended, "ended"});

constexpr bool is_final(JobState state) {
  switch (state) {
    case JobState::held:
    case JobState::queued:
    case JobState::running:
    case JobState::suspended:
      return false;
    case JobState::succeeded:
    case JobState::failed:
    case JobState::stopped:
    case JobState::lost:
      return true;
  }
  return true;
}

// How a process tree ended.
enum class ExitKind {
  exited,       // with an exit code
  signaled,     // by a signal that Billow did not send
  oom,          // killed by the kernel or its memory limit
  timed_out,    // its time limit
  stopped,      // on request
  exec_failed,  // it never started: no such command, no permission
  unpaid,       // its paid time ran out while the head was unreachable
  lost,         // its end was not observed: the node or its supervisor died
  idle,         // its node stopped it: it was idle and no head was reachable to decide
};
BILLOW_ENUM_NAMES(ExitKind,
                  {ExitKind::exited, "exited"},
                  {ExitKind::signaled, "signaled"},
                  {ExitKind::oom, "oom"},
                  {ExitKind::timed_out, "timed_out"},
                  {ExitKind::stopped, "stopped"},
                  {ExitKind::exec_failed, "exec_failed"},
                  {ExitKind::unpaid, "unpaid"},
                  {ExitKind::lost, "lost"},
                  {ExitKind::idle, "idle"});

// Why live tasks are being stopped; it decides what happens to the job afterwards.
enum class StopCause {
  none,
  request,      // a person or a policy: the job ends `stopped`
  rank_failed,  // another rank of its gang failed: the attempt counts as failed
  preempted,    // another job needs its capacity: back into the queue
  moved,        // the same, but it continues elsewhere from its checkpoint: capacity there is kept
  served,       // of a group: only services are left, and what they served has ended
};
BILLOW_ENUM_NAMES(StopCause,
                  {StopCause::none, "none"},
                  {StopCause::request, "request"},
                  {StopCause::rank_failed, "rank_failed"},
                  {StopCause::preempted, "preempted"},
                  {StopCause::moved, "moved"},
                  {StopCause::served, "served"});

// Why a job is suspended or being suspended. It decides who resumes it: a preempted job resumes
// automatically when capacity is free, the others on request.
enum class SuspendCause { none, request, preempted, idle, budget };
BILLOW_ENUM_NAMES(SuspendCause,
                  {SuspendCause::none, "none"},
                  {SuspendCause::request, "request"},
                  {SuspendCause::preempted, "preempted"},
                  {SuspendCause::idle, "idle"},
                  {SuspendCause::budget, "budget"});
// warm: the process keeps its context on the GPU (a few hundred MiB) and resumes fastest; cold: it
// holds nothing on the GPU.
enum class SuspendMode { warm, cold };
BILLOW_ENUM_NAMES(SuspendMode, {SuspendMode::warm, "warm"}, {SuspendMode::cold, "cold"});
enum class SuspendPhase {
  none,
  suspending,  // ordered; it holds its GPUs until its agent reports otherwise
  suspended,
  resuming,  // it has its GPUs again; its agent has not confirmed yet that it runs
};
BILLOW_ENUM_NAMES(SuspendPhase,
                  {SuspendPhase::none, "none"},
                  {SuspendPhase::suspending, "suspending"},
                  {SuspendPhase::suspended, "suspended"},
                  {SuspendPhase::resuming, "resuming"});
// Which process listens on the port of a replica, as the agent of its node sees it. A gateway calls
// a replica only if it is the task.
enum class PortHolder {
  unsaid,  // an agent of an earlier version, which does not check, or a task without a port
  nobody,
  task,   // a process of the task, and no other
  other,  // another process: its answers are not the replica's
};
BILLOW_ENUM_NAMES(PortHolder,
                  {PortHolder::unsaid, "unsaid"},
                  {PortHolder::nobody, "nobody"},
                  {PortHolder::task, "task"},
                  {PortHolder::other, "other"});
// Whether a job is prepared for a fast suspend: `automatic` prepares slices and spot jobs, but not
// jobs with dedicated GPUs.
enum class Suspendable { automatic, yes, no };
BILLOW_ENUM_NAMES(Suspendable,
                  {Suspendable::automatic, "auto"},
                  {Suspendable::yes, "yes"},
                  {Suspendable::no, "no"});

// What a token may be used for, in addition to the role of its user.
enum class TokenScope {
  full,     // everything its user may do
  read,     // read only
  submit,   // jobs of its project only
  node,     // an agent's credential: speaks only for its node
  join,     // lets machines join: each gets its own credential; nothing else
  gateway,  // a gateway: it is sent the endpoints and asks for replicas, nothing else
  agent,    // a program that acts for its user: its own jobs of one project, within AgentLimits
};
BILLOW_ENUM_NAMES(TokenScope,
                  {TokenScope::full, "full"},
                  {TokenScope::read, "read"},
                  {TokenScope::submit, "submit"},
                  {TokenScope::node, "node"},
                  {TokenScope::join, "join"},
                  {TokenScope::gateway, "gateway"},
                  {TokenScope::agent, "agent"});

// A disabled user can do nothing until an admin enables it again. A removed one stays known only
// because its jobs and bills name it.
enum class UserState { active, disabled, removed };
BILLOW_ENUM_NAMES(UserState,
                  {UserState::active, "active"},
                  {UserState::disabled, "disabled"},
                  {UserState::removed, "removed"});

enum class PriceClass { on_demand, spot, reserved, suspended };
BILLOW_ENUM_NAMES(PriceClass,
                  {PriceClass::on_demand, "on-demand"},
                  {PriceClass::spot, "spot"},
                  {PriceClass::reserved, "reserved"},
                  {PriceClass::suspended, "suspended"});

}  // namespace billow
