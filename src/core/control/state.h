// Everything the head knows about live things. Only `apply` changes it, by folding events. Finished
// jobs leave it (their rows are in the store), so its size is bounded by the live jobs, the users
// and the machines.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "core/control/dependents.h"
#include "core/control/durations.h"
#include "core/control/money_state.h"
#include "core/model/command.h"
#include "core/model/event.h"
#include "core/sched/plan.h"

namespace billow::control {

// An array with live elements. Its elements are jobs, numbered from id + 1.
struct ArrayState {
  JobId id;
  std::shared_ptr<const JobSpec> spec;
  ProjectId project;
  UserId user;
  WallTime submitted_at;
  std::uint64_t count = 0;
  std::uint64_t left = 0;  // elements not ended
  std::uint64_t running = 0;
  std::uint64_t succeeded = 0;
  std::uint64_t stopped = 0;
  std::int32_t worst_code = 0;  // the first non-zero exit code, in the order of ending
  NanoUsd cost;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("id", s.id);
    v("spec", s.spec);
    v("project", s.project);
    v("user", s.user);
    v("submitted_at_ns", s.submitted_at);
    v("count", s.count);
    v("left", s.left);
    v("running", s.running);
    v("succeeded", s.succeeded);
    v("worst_code", s.worst_code);
    v("cost", s.cost);
    v("stopped", s.stopped);
  }
  // The state of an array whose elements have all ended: the worst of theirs.
  JobState ended_as() const {
    if (succeeded == count)
      return JobState::succeeded;
    return succeeded + stopped == count ? JobState::stopped : JobState::failed;
  }
};

struct StoredEnvironment {
  std::shared_ptr<const Environment> env;
  std::uint64_t uses = 0;  // live jobs and schedules that name it
};

struct IdempotencyKey {
  std::string key;
  JobId first;
  WallTime at;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("key", s.key);
    v("first", s.first);
    v("at_ns", s.at);
  }
};

// A job that `apply` has just taken out of the state. The shell writes its row in the same
// transaction as the event.
struct FinishedJob {
  Job job;
  std::vector<Task> tasks;
};
struct FinishedArray {
  ArrayState array;
  WallTime ended_at;
};

// What a user or a project holds of the head (quotas.h).
struct Holding {
  std::uint64_t jobs = 0;
  std::uint64_t spec_bytes = 0;
  // Variables of jobs, by digest: how many use them. The same ones count once.
  std::map<std::string, std::uint64_t> environments;
  bool operator==(const Holding&) const = default;
};

struct State {
  Seq seq = 0;      // of the last event applied
  WallTime at;      // its time: recorded time never runs backwards, even over restarts
  WallTime billed;  // the same on the billing clock
  Epoch epoch = 0;
  std::uint64_t next_job = 1, next_task = 1, next_node = 1, next_user = 1, next_project = 1,
                next_token = 1, next_schedule = 1;
  std::uint64_t next_pool = 1, next_machine = 1;
  std::uint64_t next_reservation = 1;

  std::map<JobId, Job> jobs;  // ordered: listings page through it by number
  std::map<JobId, ArrayState> arrays;
  std::unordered_map<TaskId, Task> tasks;
  std::map<NodeId, Node> nodes;
  std::map<UserId, User> users;
  std::map<ProjectId, Project> projects;
  std::map<TokenId, Token> tokens;
  std::map<ScheduleId, Schedule> schedules;
  std::map<PoolId, Pool> pools;
  std::map<std::string, Machine> machines;  // by name
  std::deque<MachineBill> machine_bills;    // of machines that have ended, oldest first
  std::map<ReservationId, Reservation> reservations;
  Durations durations;  // how long earlier jobs ran
  std::map<std::string, Endpoint> endpoints;
  std::set<KeyUse, ByKeyUse> key_uses;     // of the last days
  std::map<std::string, AsyncCall> calls;  // waiting, and those whose answers are kept
  std::unordered_map<std::string, StoredEnvironment> environments;
  std::map<std::pair<ProjectId, std::string>, Secret> secrets;
  std::map<std::pair<ProjectId, std::string>, SavedEnvironment> saved_environments;
  std::map<std::string, Volume> volumes;
  std::deque<IdempotencyKey> idempotency;       // oldest first
  std::map<QuotaKey, std::int64_t> quotas;      // set by admins; -1: no limit
  std::map<std::uint64_t, Approval> approvals;  // open ones, and those decided last
  std::uint64_t next_approval = 1;
  std::map<std::string, CustomRole> roles;  // made by admins
  Money money;
  NoticeBook notices;
  FrontDoor front_door;

  // Derived: rebuilt from the above by `rebuild_derived`, kept up to date by `apply`.
  sched::SchedIndex index;
  std::map<NodeId, std::set<TaskId>> tasks_on;           // live ones
  Dependents dependents;                                 // which jobs wait for a job or array
  std::set<std::pair<std::int64_t, JobId>> backing_off;  // not_before, job
  std::set<std::pair<std::int64_t, ReservationId>> reservation_ends;  // until, which
  std::unordered_map<std::string, TokenId> token_by_hash;
  std::unordered_map<std::string, JobId> job_by_key;
  std::map<std::string, std::set<JobId>>
      replicas;  // live ones, by endpoint; also of one just deleted
  std::map<TokenId, std::set<JobId>> agent_jobs;  // live ones, by the agent token that pays
  std::map<JobState, std::uint64_t> count;        // live jobs by state
  std::map<UserId, Holding> held_by_user;
  std::map<ProjectId, Holding> held_by_project;

  // Output of the last `apply` calls, taken by the shell; not part of the state.
  std::vector<FinishedJob> finished_jobs;
  std::vector<FinishedArray> finished_arrays;

  const Job* find_job(JobId id) const;
  const Task* find_task(TaskId id) const;
  const User* user_by_name(std::string_view name) const;
  const Project* project_by_name(std::string_view name) const;
  const Node* node_by_name(std::string_view name) const;
  const Environment& environment(const std::string& digest) const;  // empty if there is none
};

// Folds one event into the state. Total: an event that was decided against an equal state always
// applies.
void apply(State& state, const Event& event);

// The state as JSON text, and back. `restore(image(s))` equals `s`; a snapshot is this text.
std::string image(const State& state);
Result<State> restore(std::string_view image);

// Checks the invariants after every event; an error names the first that is broken. For tests and
// the simulator.
Status check_invariants(const State& state);

// A job and a node as the scheduler sees them. A suspended job is pinned to the node that holds its
// memory, and that node offers less memory to others.
sched::JobRequest request_of(const State& state, const Job& job);
sched::NodeShape shape_of(const State& state, const Node& node);
sched::Place place_of(const sched::LabelMap& labels);
// The state of a live task by its job's orders, once its node answers again.
TaskState state_by_orders(const Job& job, const Task& task);
// The pool that the node came from, or the value of its label `pool`.
std::string pool_name(const State& state, const Node& node);
sched::Constraints constraints_of(const PlaceWish& wish);
sched::ProjectSettings settings_of(const Project& project);
// Where a suspended job must resume.
sched::Sleeper sleeper_of(const State& state, const Job& job);
// The reservation in which the job runs or waits; null: none, or it has ended.
const Reservation* reservation_of(const State& state, const Job& job);
sched::Reservation reserved_of(const Reservation& reservation);

}  // namespace billow::control
