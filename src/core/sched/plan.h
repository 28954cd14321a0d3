// The scheduler's interface: an index kept by the core's `apply`, and pure questions about it.
//
//   SchedIndex  nodes, running and queued jobs, projects, reservations. Every mutator records a
//               fact that has already happened.
//   plan()      what should happen now. It changes nothing: the core turns decisions into events,
//               whose `apply` calls the mutators. PlanLimits bounds the work of a call; `more`
//               means that another call would find more.
//   explain()   why a queued job waits.
//   feasible()  whether the hardware could ever run a job; asked at submission.
//   could_run() the same of nodes that could be rented.
//
// The same calls on an equal index give the same answers. Answers do not depend on node names, ids
// or order, except to choose between nodes that are alike in every respect. One thread at a time
// uses an index (it contains caches).
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "core/sched/types.h"

namespace billow::sched {

struct SchedSettings {
  Duration usage_half_life = hours(24 * 7);  // of fair-share usage
  Duration starve_after = hours(24);  // after this a job moves to the front and no job passes it
  std::int32_t backfill_depth = 256;  // jobs of one kind examined behind a hold
  bool preemption = true;
  bool consolidation = true;

  bool operator==(const SchedSettings&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("usage_half_life", s.usage_half_life);
    v("starve_after", s.starve_after);
    v("backfill_depth", s.backfill_depth);
    v("preemption", s.preemption);
    v("consolidation", s.consolidation);
  }
};

struct Start {
  JobId job;
  std::vector<Placement> placements;  // one per task, in task order
  bool backfilled = false;            // starts before a job that waits for more
  bool operator==(const Start&) const = default;
};
// One lost member of a running elastic gang gets a new place.
struct Repair {
  JobId job;
  std::int32_t task_index = 0;
  Placement placement;
  bool operator==(const Repair&) const = default;
};
enum class PreemptCause { spot, reclaim, priority, reservation, consolidation };
struct Preempt {
  JobId victim;
  Yields mode = Yields::by_requeue;  // how it is expected to leave; carry_out decides
  PreemptCause cause = PreemptCause::priority;
  JobId for_job;  // gets the capacity; none for a reservation
  bool operator==(const Preempt&) const = default;
};
// The first job in line cannot start now; this is when and where it is expected to start.
struct Reserve {
  JobId job;
  WallTime expected_start;  // zero: not known
  std::vector<NodeId> nodes;
  bool operator==(const Reserve&) const = default;
};
struct Plan {
  std::vector<Start> starts;
  std::vector<Repair> repairs;
  std::vector<Preempt> preempts;
  std::vector<Reserve> reserves;
  bool more = false;  // the limits ended this plan early; ask again
  WallTime wake_at;   // time alone can change the answer, but not before this; zero: it cannot
  bool empty() const { return starts.empty() && repairs.empty() && preempts.empty(); }
  bool operator==(const Plan&) const = default;
};
struct PlanLimits {
  std::int32_t starts_max = 256;
  std::int32_t tries_max = 4096;  // kinds of job tried
  std::int32_t preempts_max = 4096;
};

enum class ReasonKind {
  held,  // not eligible yet, or not in the queue
  budget,
  project_limit,
  quota,  // over the guarantee and may not borrow
  user_limit,
  array_limit,
  residency,       // the project's allowed regions and pools have no free capacity
  infeasible,      // no hardware here could ever run it
  no_capacity,     // everything that could run it is in use
  fragmentation,   // enough is free in total, but not together
  topology,        // enough is free, but not close together
  reserved,        // the capacity is promised to a reservation
  waiting_behind,  // others come first
  preempting,      // victims are leaving to free capacity for it
  next,            // it starts with the next plan
};
const char* reason_name(ReasonKind kind);

struct Reason {
  ReasonKind kind = ReasonKind::no_capacity;
  std::string text;
  JobId behind;  // waiting_behind: the next job in line
  // quota: GPUs are guaranteed to other projects, so more nodes would help.
  bool by_guarantee = false;
  bool operator==(const Reason&) const = default;
};
struct Explanation {
  std::vector<Reason> reasons;  // the deciding one first
  WallTime earliest_start;      // as far as time limits and expectations tell; zero: not known
  std::string would_start_now;  // the smallest change that would start it now; may be empty
};

struct RunningJob {
  JobRequest request;
  std::vector<Placement> placements;  // a member without a node (NodeId 0) is lost or has ended
  WallTime started;
  std::int64_t dominant_milli = 0;  // for fair share: GPU thousandths of its dominant resource
  std::vector<std::int32_t> done;   // members that have ended normally and are not replaced
  bool leaving = false;  // asked to suspend, requeue or stop; its capacity is not free yet
  JobId leaving_for;
  bool operator==(const RunningJob&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("request", s.request);
    v("placements", s.placements);
    v("started", s.started);
    v("dominant_milli", s.dominant_milli);
    v("done", s.done);
    v("leaving", s.leaving);
    v("leaving_for", s.leaving_for);
  }
};

// Fair-share usage of a project, or of one user in it: GPU-milli-seconds (dominant resource),
// decayed to `as_of`.
struct Usage {
  ProjectId project;
  UserId user;  // 0: the whole project
  double milli_seconds = 0;
  WallTime as_of;
  bool operator==(const Usage&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("project", s.project);
    v("user", s.user);
    v("milli_seconds", s.milli_seconds);
    v("as_of", s.as_of);
  }
};

// The recent workload, from which placement learns what to keep capacity free for (learn.cpp). It
// changes only with queued jobs, by a fixed rule, so an index restored from a snapshot plans like
// the saved one.
struct Learned {
  struct Kind {
    Resources resources;
    double past = 0;    // tasks known before the current window, older ones counting for less
    double window = 0;  // …and in it
    bool operator==(const Kind&) const = default;
  };
  std::vector<Kind> recent;
  std::vector<std::pair<Resources, double>> typical;  // the input of the current model
  std::int64_t tasks = 0;                             // seen in all
  std::int64_t next_at = 16;                          // look at the window after so many
  bool operator==(const Learned&) const = default;
};

// A suspended job: it must resume on the GPUs that its memory came from. Other jobs are placed
// elsewhere if that is equally good.
struct Sleeper {
  JobId job;
  NodeId node;
  std::vector<std::int32_t> gpus;
  bool operator==(const Sleeper&) const = default;
};

// Everything an index holds, in a canonical order: for snapshots, rebuilding and comparing.
struct IndexContents {
  SchedSettings settings;
  std::vector<NodeShape> nodes;
  std::vector<ProjectSettings> projects;
  std::vector<Usage> usage;
  std::vector<RunningJob> running;
  std::vector<JobRequest> queued;
  std::vector<Reservation> reservations;
  std::vector<Sleeper> sleepers;
  std::vector<std::pair<Resources, double>> typical;
  Learned learned;
  bool operator==(const IndexContents&) const = default;
};

class SchedIndex {
 public:
  SchedIndex();
  explicit SchedIndex(SchedSettings settings);
  SchedIndex(SchedIndex&&) noexcept;
  SchedIndex& operator=(SchedIndex&&) noexcept;
  ~SchedIndex();
  static SchedIndex rebuild(const IndexContents& contents);

  void upsert_node(const NodeShape& node);  // running tasks on it stay
  void remove_node(NodeId node);  // jobs on it must have ended, or their members been lost
  void upsert_project(const ProjectSettings& project);
  void set_usage(const Usage& usage);  // restores a snapshot's

  void enqueue(const JobRequest& job);  // an existing id replaces the queued request
  void dequeue(JobId job);              // stopped or held; a missing job is no error
  // A queued job starts. Also restores running jobs from a snapshot (then it need not be queued).
  void started(JobId job, std::vector<Placement> placements, WallTime when);
  void restore_running(const RunningJob& job);
  // Frees the member's capacity. A lost member of an elastic job is replaced; one that has ended
  // normally is not.
  void member_lost(JobId job, std::int32_t task_index, WallTime when, bool replace = true);
  void member_replaced(JobId job,
                       std::int32_t task_index,
                       Placement placement);  // a Repair happened
  // A Preempt (or stop) is under way: the job's capacity will be free soon. A job that moves is
  // queued again (JobRequest::moves) and continues elsewhere.
  void leaving(JobId job, JobId for_job = {}, bool moves = false);
  void stays(JobId job);  // …or was called off
  // How long a running job will run in all, as far as jobs like it tell by now.
  void expected(JobId running, Duration likely, Duration at_most);
  // The job holds nothing any more: it ended, was requeued or suspended (enqueue it again for the
  // latter two).
  void ended(JobId job, WallTime when);

  void asleep(const Sleeper& sleeper);  // it is suspended, whether or not it is queued to resume
  void awake(JobId job);                // …no longer suspended; a missing job is no error

  void upsert_reservation(const Reservation& reservation);
  void remove_reservation(ReservationId reservation);
  void left_reservation(JobId running);  // it now holds its capacity outside of it
  // The typical workload with relative weights; placement keeps capacity free for it. By default it
  // is learned from queued jobs.
  void set_typical(std::vector<std::pair<Resources, double>> classes);

  std::size_t running_count() const;
  std::size_t queued_count() const;
  const RunningJob* running(JobId job) const;
  // By value, because it is stored folded with similar jobs.
  std::optional<JobRequest> queued(JobId job) const;
  const NodeShape* node(NodeId node) const;
  std::int64_t free_milli(NodeId node) const;  // idle thousandths of its healthy GPUs
  std::int64_t free_cpu_milli(NodeId node) const;
  std::int64_t free_mem_mib(NodeId node) const;
  std::int64_t free_disk_mib(NodeId node) const;
  const std::set<JobId>& waiting_for_members()
      const;  // elastic jobs with a lost member that has not been replaced
  double usage(ProjectId project,
               WallTime now) const;  // decayed GPU-milli-seconds, running work included
  std::int64_t running_milli(ProjectId project) const;

  IndexContents contents() const;
  // Equal in all recorded facts. The learned workload is only a hint and is not compared.
  bool equals(const SchedIndex& other) const;
  const Learned& learned() const;
  void set_learned(const Learned& learned);
  // Recomputes every derived number from the contents; the error names the first that differs.
  Status check_invariants() const;

  struct Impl;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

Plan plan(const SchedIndex& index, WallTime now, PlanLimits limits = {});
// Explains why a queued job waits. Advice on what would start it now is optional, because every
// change tried costs a plan.
enum class Advice { none, wanted };
Explanation explain(const SchedIndex& index,
                    JobId job,
                    WallTime now,
                    Advice advice = Advice::wanted);
// The explanation for a job that waits inside an ended reservation, or for an array with that many
// such elements.
Explanation reservation_over(JobId job, ReservationId reservation, std::size_t elements = 1);
// When the queued job will start if nothing new is submitted, simulated on a copy; zero: not known.
// Slower than explain().
WallTime forecast(const SchedIndex& index, JobId job, WallTime now);
Status feasible(const SchedIndex& index, const JobRequest& job);
// What a job would find if machines came: asked before they are rented (tally.cpp).
struct Growth {
  std::int64_t asked_milli = 0;  // of GPUs, by the job; at least what its request says
  std::int64_t more_milli = 0;   // GPUs that come; negative: that go
  std::int64_t firm_milli = 0;   // taken by other jobs of its project that do not give way
};
// Whether the guarantees of other projects would let the job start then.
bool beside_guarantees(const SchedIndex& index, const JobRequest& job, const Growth& growth);
// How much of it would be beyond the guarantee of its own project. 0: none, or it gives way.
std::int64_t borrowed_milli(const SchedIndex& index, const JobRequest& job, const Growth& growth);
// The same for a reservation, which does not give way to guarantees.
Status reservable(const SchedIndex& index, const JobRequest& job);
// For each of these nodes, which need not exist: whether it could run one task of the job if it
// were empty.
std::vector<bool> could_run(const SchedIndex& index,
                            const JobRequest& job,
                            const std::vector<NodeShape>& nodes);

// Nodes for an advance reservation of `tasks` × `resources` from–until, or the reason why no
// capacity is free then.
struct ReservationRequest {
  ProjectId project;
  Resources resources;
  std::int32_t tasks = 1;
  Constraints constraints;
  WallTime from, until;
  ReservationId instead_of;  // assume that this reservation gives up its places
};
Result<std::vector<Placement>> place_reservation(const SchedIndex& index,
                                                 const ReservationRequest& request,
                                                 WallTime now);

}  // namespace billow::sched
