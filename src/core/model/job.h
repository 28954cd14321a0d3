// Jobs and tasks as values. A JobSpec is the request and never changes; array elements share one.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/money.h"
#include "base/result.h"
#include "core/model/array_spec.h"
#include "core/model/money.h"
#include "core/model/place.h"
#include "core/model/share.h"
#include "core/model/states.h"
#include "core/model/surroundings.h"

namespace billow {

using Environment = std::map<std::string, std::string>;

// When a job may start after another: after its success, its end, or its failure.
enum class AfterKind { ok, any, failed };
BILLOW_ENUM_NAMES(AfterKind,
                  {AfterKind::ok, "ok"},
                  {AfterKind::any, "any"},
                  {AfterKind::failed, "failed"});
struct Dependency {
  JobId job;
  AfterKind kind = AfterKind::ok;
  bool operator==(const Dependency&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("job", s.job);
    v("kind", s.kind);
  }
};

// The options of a job that its agent needs for as long as the task runs: it keeps them in the
// task's directory.
struct TaskHooks {
  // Shell commands run as the job's user, before a suspend and after a resume.
  std::string suspend_hook;
  std::string resume_hook;
  Duration checkpoint_every;           // 0: never asks the job to checkpoint
  std::string checkpoint_cmd;          // how to ask: a shell command run as its user…
  std::int32_t checkpoint_signal = 0;  // …or a signal to the job
  std::string checkpoint_dir;          // a directory that every node sees

  bool operator==(const TaskHooks&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("suspend_hook", s.suspend_hook);
    v("resume_hook", s.resume_hook);
    v("checkpoint_every_ns", s.checkpoint_every);
    v("checkpoint_cmd", s.checkpoint_cmd);
    v("checkpoint_signal", s.checkpoint_signal);
    v("checkpoint_dir", s.checkpoint_dir);
  }
};

// The options of a job that the agent of its task carries out. JobSpec and the agent's `Start`
// share this struct, so an option added here reaches the agent without another line.
struct TaskOptions : TaskHooks {
  using FieldsBase = TaskHooks;
  std::vector<std::string> argv;
  std::string cwd;
  std::uint32_t procs = 1;  // processes of the command on each node, each with its rank
  Duration time_limit;      // 0: none
  bool pty = false;
  bool use_stdin = false;              // else the job reads from /dev/null
  std::uint16_t rows = 24, cols = 80;  // of the terminal, at start
  bool strict = false;  // a hard limit on a slice's compute, even while others leave theirs unused
  // The share is not enforced: the driver's time-slicing, for programs that cannot be gated.
  bool time_sliced = false;
  Surroundings surroundings;  // image, environment, volumes, secrets

  bool operator==(const TaskOptions&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("argv", s.argv);
    v("cwd", s.cwd);
    v("procs", s.procs);
    v("time_limit_ns", s.time_limit);
    v("pty", s.pty);
    v("use_stdin", s.use_stdin);
    v("rows", s.rows);
    v("cols", s.cols);
    v("strict", s.strict);
    v("time_sliced", s.time_sliced);
    TaskHooks::fields(s, v);
    v("surroundings", s.surroundings);
  }
};

// One role of a group: a job whose members run different commands on different hardware and start
// together (docs/adr/0021). What is not here (project, priority, place, time limit …) is the job's.
struct RoleSpec : TaskOptions {
  using FieldsBase = TaskOptions;
  std::string name;
  std::uint32_t count = 1;    // members
  Resources resources;        // of each member
  Environment env;            // in addition to the job's variables, or in place of them
  bool own_env = false;       // …in place of them, except those of Billow
  std::uint32_t retries = 0;  // of each member alone, while the others continue
  bool service = false;       // runs until the members of all other roles have ended

  bool operator==(const RoleSpec&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("count", s.count);
    TaskOptions::fields(s, v);
    v("resources", s.resources);
    v("env", s.env);
    v("own_env", s.own_env);
    v("retries", s.retries);
    v("service", s.service);
  }
};

struct JobSpec : TaskOptions {
  using FieldsBase = TaskOptions;
  std::string name;
  std::string env_digest;  // stored once per content, see EnvironmentStored
  Resources resources;     // per node; of a group: of its largest member
  // A gang of this many tasks, each on a node of its own; of a group: its members, which may share
  // nodes.
  std::uint32_t nodes = 1;
  std::vector<RoleSpec> roles;  // not empty: a group; its first members are those of the first role
  std::int32_t priority = 0;
  bool spot = false;
  std::uint32_t retries = 0;
  Duration retry_backoff = seconds(1);  // doubles per attempt, to an hour at most
  std::vector<Dependency> after;
  std::optional<ArraySpec> array;
  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> node_labels;  // required of the node: zone, rack, …
  PlaceWish place;
  ReservationId reservation;  // the job runs inside it, at its price
  bool elastic = false;       // a gang that continues when a member's node is lost, and gets a
                              // replacement
  // Not in TaskOptions: 0.1 gave it another default in `Start`, and a default is part of the
  // format.
  Duration stop_grace = seconds(10);
  bool rerun_if_lost = false;  // may restart although an earlier attempt may have had effects
  Suspendable suspendable = Suspendable::automatic;

  bool operator==(const JobSpec&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    TaskOptions::fields(s, v);
    v("env_digest", s.env_digest);
    v("resources", s.resources);
    v("nodes", s.nodes);
    v("roles", s.roles);
    v("priority", s.priority);
    v("spot", s.spot);
    v("retries", s.retries);
    v("retry_backoff_ns", s.retry_backoff);
    v("after", s.after);
    v("array", s.array);
    v("labels", s.labels);
    v("node_labels", s.node_labels);
    v("stop_grace_ns", s.stop_grace);
    v("rerun_if_lost", s.rerun_if_lost);
    v("suspendable", s.suspendable);
    v("place", s.place);
    v("reservation", s.reservation);
    v("elastic", s.elastic);
  }
};

// A member of a group by its rank. Only `role` is null in a job without roles.
struct GroupMember {
  const RoleSpec* role = nullptr;
  std::uint32_t index = 0;  // within its role
  std::uint32_t first = 0;  // rank of the role's first member
  std::size_t number = 0;   // of the role
};
GroupMember member_of(const JobSpec& spec, std::uint32_t rank);
// "trainer", or "rollout.2" if the role has several members; "rank 2" in a gang.
std::string member_name(const JobSpec& spec, std::uint32_t rank);
const Resources& resources_of(const JobSpec& spec, std::uint32_t rank);
// Each role as if it were a job without roles; of a job without roles, the job itself.
std::vector<JobSpec> parts_of(const JobSpec& spec);
// Calls f for the options of the job, then for those of each role.
template <class Spec, class F>
void each_options(Spec& spec, F f) {
  f(spec);
  for (auto& role : spec.roles)
    f(role);
}
// What a task of this rank runs: the options of its role, or of the job.
const TaskOptions& options_of(const JobSpec& spec, std::uint32_t rank);
// Thousandths of GPUs that all tasks together ask for.
std::int64_t asked_gpu_milli(const JobSpec& spec);

struct ExitStatus {
  ExitKind kind = ExitKind::exited;
  std::int32_t code = 0;
  std::int32_t signal = 0;
  std::string message;      // "exec python3: No such file or directory"
  bool port_taken = false;  // a replica could not bind its port because another process has it

  bool ok() const { return kind == ExitKind::exited && code == 0; }
  // The code that a shell would report: the exit code, 128 + signal, 127 for a command not found,
  // 124 for a time limit.
  int shell_code() const;
  std::string text() const;  // "exit code 3", "killed by SIGSEGV", "out of memory", …
  bool operator==(const ExitStatus&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("kind", s.kind);
    v("code", s.code);
    v("signal", s.signal);
    v("message", s.message);
    v("port_taken", s.port_taken);
  }
};

// Resource use of a task, as its supervisor measured it.
struct TaskUsage {
  std::int64_t cpu_user_ns = 0;
  std::int64_t cpu_system_ns = 0;
  std::int64_t rss_peak_kib = 0;
  std::int64_t log_bytes_lost = 0;
  TaskMeter meter;  // as its agent measured it
  bool operator==(const TaskUsage&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("cpu_user_ns", s.cpu_user_ns);
    v("cpu_system_ns", s.cpu_system_ns);
    v("rss_peak_kib", s.rss_peak_kib);
    v("log_bytes_lost", s.log_bytes_lost);
    v("meter", s.meter);
  }
};

struct GpuGrant {
  std::int32_t gpu = 0;  // index on the node
  Share share;
  std::int32_t mig_start = -1;  // first memory slice of a MIG instance; -1: none
  bool operator==(const GpuGrant&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("gpu", s.gpu);
    v("share", s.share);
    v("mig_start", s.mig_start);
  }
};

// One attempt of one rank of a job on one node, holding a lease from `lease_from` until `lease_to`
// (0: still held). A suspended task holds a lease of class `suspended`: of memory, not of GPUs;
// `gpus` then lists the GPUs that its image came from.
struct Task {
  TaskId id;
  JobId job;
  std::uint32_t rank = 0;
  std::uint32_t attempt = 0;
  NodeId node;
  std::string boot_id;  // of the node at placement: after a reboot the task cannot be alive
  TaskState state = TaskState::starting;
  std::vector<GpuGrant> gpus;
  std::int64_t cpu_milli = 0;
  std::int64_t mem_mib = 0;
  WallTime lease_from;
  WallTime lease_to;
  Rate rate;  // of one whole GPU when the lease began; zero for tasks without GPUs
  PriceClass price_class = PriceClass::on_demand;
  ReservationId reservation;  // inside which it was placed
  WallTime started_at;        // as reported by the agent
  ExitStatus exit;
  TaskUsage usage;
  bool never_began = false;        // ended, and certainly never ran (not merely never seen running)
  std::uint32_t lease_number = 0;  // a suspend or resume closes one lease and opens the next
  std::int64_t ram_mib = 0;    // suspended: node memory that holds its memory and that of its GPUs
  std::string unsuspendable;   // reported by its agent: why it cannot be suspended; empty: it can
  Duration suspended_for;      // total until it was last resumed
  std::uint32_t failures = 0;  // of a group's member: how often it failed and was replaced alone
  bool restarting = false;     // it is stopped to be started again, and the others continue
  std::int64_t disk_mib = 0;   // of its node's disk; kept while it is suspended

  bool holds_gpus() const {
    return state != TaskState::ended && price_class != PriceClass::suspended;
  }
  bool operator==(const Task&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("id", s.id);
    v("job", s.job);
    v("rank", s.rank);
    v("attempt", s.attempt);
    v("node", s.node);
    v("boot_id", s.boot_id);
    v("state", s.state);
    v("gpus", s.gpus);
    v("cpu_milli", s.cpu_milli);
    v("mem_mib", s.mem_mib);
    v("lease_from_ns", s.lease_from);
    v("lease_to_ns", s.lease_to);
    v("rate", s.rate);
    v("price_class", s.price_class);
    v("started_at_ns", s.started_at);
    v("exit", s.exit);
    v("usage", s.usage);
    v("never_began", s.never_began);
    v("lease_number", s.lease_number);
    v("ram_mib", s.ram_mib);
    v("unsuspendable", s.unsuspendable);
    v("reservation", s.reservation);
    v("suspended_for_ns", s.suspended_for);
    v("failures", s.failures);
    v("restarting", s.restarting);
    v("disk_mib", s.disk_mib);
  }
};

// The newest files from which a job can continue, kept where they outlive its node.
struct Checkpoint {
  std::string path;  // empty: there are none
  WallTime at;
  std::int64_t cost_ms = 0;  // time to write and keep them
  bool operator==(const Checkpoint&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("path", s.path);
    v("at_ns", s.at);
    v("cost_ms", s.cost_ms);
  }
};
// The checkpoint interval that minimises the time spent on checkpoints and on repeated work if a
// failure comes every `mtbf` on average (Young 1974, with Daly's correction of 2006).
Duration checkpoint_interval(Duration cost, Duration mtbf);

// One task as the agent knows it: from its memory or, after a restart, from the task's directory.
struct TaskStatus {
  TaskId task;
  TaskState state = TaskState::starting;
  WallTime started_at;
  WallTime ended_at;
  ExitStatus exit;  // when ended
  TaskUsage usage;
  std::uint64_t log_end = 0;  // logical end of its log so far
  bool never_began = false;   // ended, and no process was ever created for it
  std::uint32_t order = 0;   // the last suspend or resume order it received; the state and the next
                             // four lines are about it
  std::string order_error;   // why that order failed; the task is then unchanged
  WallTime order_at;         // when it was carried out
  std::int64_t ram_mib = 0;  // suspended: the node memory it holds
  std::string unsuspendable;  // why it cannot be suspended; empty: it can
  Checkpoint checkpoint;      // of its newest
  std::string waits_for;  // starting: what for, for people: "pulling python:3.12: 312 of 1,900 MB"
  std::string
      left_behind;  // ended, and the node is not as it was: "2 processes", "GPU 0 holds 4096 MiB"
  PortHolder port_holder = PortHolder::unsaid;  // of a replica's port
  std::uint64_t port_look = 0;                  // and the number of the last LookAtPort it answers
  bool operator==(const TaskStatus&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("task", s.task);
    v("state", s.state);
    v("started_at_ns", s.started_at);
    v("ended_at_ns", s.ended_at);
    v("exit", s.exit);
    v("usage", s.usage);
    v("log_end", s.log_end);
    v("never_began", s.never_began);
    v("order", s.order);
    v("order_error", s.order_error);
    v("order_at_ns", s.order_at);
    v("ram_mib", s.ram_mib);
    v("unsuspendable", s.unsuspendable);
    v("checkpoint", s.checkpoint);
    v("left_behind", s.left_behind);
    v("waits_for", s.waits_for);
    v("port_holder", s.port_holder);
    v("port_look", s.port_look);
  }
};

// The state of a job between running and suspended. Orders are numbered, so that a report is never
// mistaken for one about another order.
struct Suspension {
  SuspendPhase phase = SuspendPhase::none;
  SuspendCause cause = SuspendCause::none;
  SuspendMode mode = SuspendMode::warm;
  std::uint32_t order = 0;     // the last suspend or resume order issued
  bool resume_wanted = false;  // it resumes as soon as its GPUs are free
  WallTime since;              // of the phase
  bool operator==(const Suspension&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("phase", s.phase);
    v("cause", s.cause);
    v("mode", s.mode);
    v("order", s.order);
    v("resume_wanted", s.resume_wanted);
    v("since_ns", s.since);
  }
};

// How long a job will probably run, learned from similar runs. Zero runs: unknown.
struct Expectation {
  Duration likely;   // half of them took no longer
  Duration at_most;  // nine of ten took no longer
  std::uint32_t runs = 0;
  bool operator==(const Expectation&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("likely_ns", s.likely);
    v("at_most_ns", s.at_most);
    v("runs", s.runs);
  }
};

struct Job {
  JobId id;
  std::shared_ptr<const JobSpec> spec;
  ProjectId project;
  UserId user;
  TokenId agent;  // the agent token that submitted it and pays for it; 0: none
  JobState state = JobState::queued;
  JobId array;  // the array this is an element of
  std::uint64_t array_index = 0;
  WallTime submitted_at;
  WallTime started_at;  // of the first attempt
  WallTime ended_at;
  WallTime not_before;         // a retry's back-off
  std::uint32_t attempt = 0;   // attempts begun
  std::uint32_t failures = 0;  // of these, those that failed by their own fault and were retried;
                               // preempted and lost ones do not count
  std::uint32_t waiting_for = 0;         // unmet dependencies
  StopCause stopping = StopCause::none;  // why its tasks are being stopped, while they are
  bool stop_forced = false;              // without grace
  JobId gives_way_to;                    // preempted: the job that gets its capacity
  std::string reason;                    // why it is held, stopped or failed
  ExitStatus exit;
  NanoUsd cost;                     // of the leases closed so far
  std::vector<NanoUsd> role_costs;  // of a group: the same by role
  std::vector<TaskId> tasks;        // of the current attempt
  Suspension suspension;
  Checkpoint checkpoint;      // of any attempt
  Expectation expected;       // run time, as far as earlier runs predict it
  std::uint32_t repairs = 0;  // members replaced so far
  WallTime member_lost_at;  // since when a member is missing and not replaced, by the clock of the
                            // books, which nobody sets
  // On request it continues without the reservation in its spec, at the on-demand price.
  bool left_reservation = false;
  std::string image_digest;  // of the image that its last container was created from

  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("id", s.id);
    v("spec", s.spec);
    v("project", s.project);
    v("user", s.user);
    v("state", s.state);
    v("array", s.array);
    v("array_index", s.array_index);
    v("submitted_at_ns", s.submitted_at);
    v("started_at_ns", s.started_at);
    v("ended_at_ns", s.ended_at);
    v("not_before_ns", s.not_before);
    v("attempt", s.attempt);
    v("failures", s.failures);
    v("waiting_for", s.waiting_for);
    v("stopping", s.stopping);
    v("stop_forced", s.stop_forced);
    v("reason", s.reason);
    v("exit", s.exit);
    v("cost", s.cost);
    v("role_costs", s.role_costs);
    v("tasks", s.tasks);
    v("gives_way_to", s.gives_way_to);
    v("suspension", s.suspension);
    v("checkpoint", s.checkpoint);
    v("expected", s.expected);
    v("repairs", s.repairs);
    v("member_lost_at_ns", s.member_lost_at);
    v("left_reservation", s.left_reservation);
    v("image_digest", s.image_digest);
    v("agent", s.agent);
  }
};

}  // namespace billow
