// The inside of SchedIndex: derived structures that make a decision cost only what it touches.
//
// Jobs that ask for the same thing are folded twice. A PlacementClass is everything that decides
// where a task can go; a Kind is a class plus everything that decides when (project, user,
// priority, array, gang size). A pass over the queue walks kinds, and a class that found no free
// capacity is not tried again until the capacity changes. Nodes are folded into groups of identical
// nodes (groups.h); each class reads which groups changed since it last looked, so a decision costs
// the groups touched since, not the nodes.
//
// Everything here can be recomputed from IndexContents; check_invariants() does so.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/limits.h"
#include "core/sched/groups.h"
#include "core/sched/mig.h"
#include "core/sched/order.h"
#include "core/sched/pack.h"
#include "core/sched/plan.h"

namespace billow::sched {

struct GpuState {
  std::int32_t free_milli = 0;  // 0 if the card is unhealthy
  std::int32_t mig_compute_used = 0;
  std::uint32_t mig_used = 0;
  std::int64_t free_mem_mib = 0;
  bool operator==(const GpuState&) const = default;
};

struct NodeState {
  NodeShape shape;
  bool present = false;
  std::vector<GpuState> gpus;
  std::int64_t free_cpu_milli = 0;
  std::int64_t free_mem_mib = 0;
  std::int64_t free_disk_mib = 0;
  std::int64_t free_milli = 0;  // sum over usable cards
  std::int32_t tasks = 0;
  std::uint64_t shape_hash = 0;   // of everything but id and name
  std::uint64_t bare_hash = 0;    // …without labels, rack and switch
  std::uint64_t hash = 0;         // bare shape and free capacity, whichever card is free
  std::uint64_t type_marks = 0;   // mark_of() the types of its cards
  std::vector<JobId> jobs;        // on it, sorted; a job appears once per task
  std::vector<std::uint8_t> kin;  // per card: equal for cards that differ only in free capacity
  // Per card: how many suspended jobs must resume on it; empty: none on any.
  std::vector<std::uint8_t> awaited;
  std::vector<std::uint8_t> ranked;  // the cards in an order independent of their slots
  std::array<std::int32_t, 5> domain{-1, -1, -1, -1,
                                     -1};  // number of its place by Closeness; -1: unknown
  GroupSlot group = no_slot;
};

struct Kind;
struct QueuedJob {
  Kind* kind = nullptr;
  std::uint64_t order = 0;
  std::uint64_t rank = 0;  // place in its kind's queue: the order, or the expected duration
  WallTime submitted, eligible_at;
  Duration time_limit, expected, expected_max;
};

// Everything that decides where a task may go.
struct PlacementClass {
  Resources resources;
  Constraints constraints;
  std::vector<std::string> home_regions;  // the project's residency
  std::vector<std::string> home_pools;
  std::optional<MigProfile> mig;
  // Of a group: the class of each task, in order; tasks of one role share it.
  std::vector<std::shared_ptr<PlacementClass>> members;
  std::string key;
  std::uint64_t references = 0;
  struct Tried {  // results of one pass so far: a class without free capacity gets
                  // none later in the same pass
    std::uint64_t pass = 0;
    std::int32_t tasks = 0;    // this many tasks did not fit; 0: not tried
    struct Short {             // this many tasks that end by then did not fit beside holds
      std::int32_t tasks = 0;  // 0: not tried
      std::int64_t end_ns = 0;
    };
    std::array<Short, 3> shorter;  // jobs that do not yield to reservations, jobs that do, and
                                   // spot jobs, which also yield to jobs
  };
  mutable Tried tried;
  std::size_t learned_at = 0;    // probable position of its resources in `learned.recent`
  mutable CandidateOrder order;  // the groups of nodes by score; read through candidates()
};

using ReadyKey = std::pair<std::uint64_t, JobId>;  // rank, id
struct Kind {
  JobRequest proto;  // with the per-job fields empty
  PlacementClass* placement = nullptr;
  std::string key;
  std::set<ReadyKey> ready;
  std::uint64_t jobs = 0;  // ready or waiting to become eligible
};

// The order of kinds inside a project: by priority, then by their first job.
struct KindKey {
  std::int32_t priority_down = 0;  // negated
  std::uint64_t rank = 0;
  JobId first;
  Kind* kind = nullptr;
  WallTime submitted;  // of the first
  bool operator<(const KindKey& o) const {
    return std::tie(priority_down, rank, first) < std::tie(o.priority_down, o.rank, o.first);
  }
};

struct UserRunning {
  std::int64_t milli = 0;
  std::int32_t jobs = 0;
};
// The usage of one user of a project: decides between users in a fair project.
struct UserHad {
  Usage usage;
  std::int64_t rate_milli = 0;  // dominant milli of running jobs
};
struct ProjectState {
  ProjectSettings settings;
  Usage usage;
  std::int64_t rate_milli = 0;     // dominant milli of running jobs
  std::int64_t running_milli = 0;  // GPU milli of running jobs
  std::int64_t spot_milli = 0;     // …of these, spot jobs, which no guarantee covers
  std::int64_t firm_milli = 0;     // …of these, jobs that cannot be preempted
  std::int64_t covered_milli() const {
    return running_milli - spot_milli;
  }  // counts against the guarantee
  // What cannot be preempted beyond the guarantee.
  std::int64_t firm_borrowed_milli() const {
    return std::max<std::int64_t>(0, firm_milli - settings.guaranteed_milli);
  }
  std::set<KindKey> kinds;  // with ready jobs
  std::map<UserId, UserRunning> users;
  std::map<UserId, UserHad> had;
};

struct SchedIndex::Impl {
  SchedSettings settings;
  std::vector<NodeState> nodes;
  std::vector<Slot> free_slots;
  std::unordered_map<NodeId, Slot> slot_of;
  std::map<ProjectId, ProjectState> projects;
  std::int64_t guaranteed_milli = 0, firm_borrowed_milli = 0;  // of all projects
  std::unordered_map<JobId, QueuedJob> queued;
  std::unordered_map<JobId, RunningJob> running;
  // Running jobs by their known ends; jobs asked to leave at 0.
  std::set<std::pair<std::int64_t, JobId>> ending;
  std::map<JobId, std::int32_t> array_running;
  std::set<std::pair<std::int64_t, JobId>>
      sleeping;             // eligible_at ns, not yet in a kind's ready set
  std::set<JobId> repairs;  // running elastic jobs with a lost member
  std::map<std::uint64_t, std::map<NodeId, int>> spread_groups;  // replicas per node, by spread key
  std::map<ReservationId, Reservation> reservations;
  std::map<JobId, Sleeper> sleepers;
  std::unordered_map<std::string, std::unique_ptr<PlacementClass>> classes;
  std::unordered_map<std::string, std::unique_ptr<Kind>> kinds;
  std::vector<std::pair<Resources, double>> typical;  // as configured; empty: use `learned`
  Learned learned;
  std::int64_t total_milli = 0, total_cpu_milli = 0, total_mem_mib = 0;  // of present nodes
  struct CardCount {
    std::int64_t all = 0, healthy = 0;
    bool operator==(const CardCount&) const = default;
  };
  std::map<std::string, CardCount> cards;  // by type
  NodeGroups groups;
  // Labels that some class has asked for; others do not distinguish nodes.
  std::set<std::string> labels_asked;
  bool disk_asked = false;
  std::array<std::unordered_map<std::string, std::int32_t>, 5>
      domains;                       // numbers of places, by Closeness
  std::unique_ptr<PackModel> model;  // built from `typical` or `learned`; null: must be built
  std::uint64_t model_version = 0;
  std::uint64_t version = 1;                     // increases with every change
  std::int64_t yielding = 0;                     // running jobs that can be preempted
  std::int64_t movable = 0;                      // …and jobs that can continue elsewhere
  std::map<JobId, std::set<JobId>> leaving_for;  // waiting job → its victims
  std::set<JobId> moving;                        // leaving or queued again, to continue elsewhere
  std::uint64_t passes = 0;                      // counts planning passes and their parts
  std::uint64_t planned_version = 0;  // at this version the last plan found nothing to do…
  Plan planned;                       // …and this is that plan

  // Nodes
  NodeState* find(NodeId id);
  const NodeState* find(NodeId id) const { return const_cast<Impl*>(this)->find(id); }
  void node_changed(NodeState& node);
  void count_sleepers(NodeState& node);
  // Nodes that could run a task of the class if they were empty, and the largest number of them in
  // one domain of its closeness. A draining or unreachable node may come back, so it counts. Cached
  // until a node's shape changes.
  struct Capacity {
    std::int64_t nodes = 0, together = 0;
  };
  Capacity capacity_of(const PlacementClass& c);
  std::unordered_map<std::string, Capacity> capacities;
  void keep_capacity(const std::string& key, Capacity capacity);
  // Nodes that differ in these labels, or in free disk if it is asked for, are no longer alike.
  void ask_labels(const LabelMap& labels, bool disk);
  const PackModel& packing();  // rebuilt when first needed after a change
  const PackView& view_of(NodeGroup& group) {
    if (group.seen_by != model_version)
      look_at(group);
    return group.view;
  }
  void look_at(NodeGroup& group);
  void take(const Placement& placement, const JobRequest& request);  // the node's capacity shrinks
  void give(const Placement& placement, const JobRequest& request);

  // Queue
  void enqueue(const JobRequest& job);
  void dequeue(JobId id);
  ProjectState& project(ProjectId id);
  Kind* intern_kind(const JobRequest& job);
  void release_kind(Kind* kind);
  PlacementClass* intern_class(const JobRequest& job);
  void release_class(PlacementClass* placement);
  std::uint64_t rank_of(const JobRequest& job);
  void make_ready(JobId id, const QueuedJob& job);
  void make_unready(JobId id, const QueuedJob& job);
  void wake(WallTime now);  // moves sleeping jobs whose time has come
  JobRequest request_of(JobId id, const QueuedJob& job) const;

  // Accounts
  void accrue(Usage& usage, std::int64_t rate_milli, WallTime when) const;
  void accrue(const JobRequest& request, WallTime when);  // of its project and its user
  std::int64_t dominant_milli(const JobRequest& request) const;
  void account(const RunningJob& job, int sign);
  void note_end(JobId id, const RunningJob& job);  // …or that it was asked to leave
  void forget_end(JobId id, const RunningJob& job);
};

// The latest or probable end of a running job; zero: not known.
WallTime end_of(const RunningJob& job);
// Whether it can be preempted: for a guarantee, or for a reservation that begins.
inline bool gives_way(const JobRequest& job) {
  return job.spot || job.yields != Yields::never;
}
// Calls f(resources of a task, number of such tasks) for each kind of task of a job.
template <class F>
void each_part(const JobRequest& request, F f) {
  if (request.parts.empty())
    return f(request.resources, request.tasks);
  for (const RolePart& part : request.parts)
    f(part.resources, part.tasks);
}
// Counts queued tasks (learn.cpp). `hint`: where their kind probably is in `recent`; updated. True:
// `typical` has changed.
bool learn(Learned& learned, const Resources& resources, std::int64_t tasks, std::size_t& hint);
// The request of one task of a group alone; of other jobs, the request itself.
JobRequest member_request(const JobRequest& request, std::int32_t task);
// GPU thousandths a whole job holds.
std::int64_t gpu_milli_of(const JobRequest& request, const std::vector<Placement>& placements);
std::int64_t gpu_milli_of(const JobRequest& request);

// The same before placement: whole nodes count the GPUs of the largest of them.
std::int64_t asked_milli(const SchedIndex::Impl& index, const JobRequest& request);

// Whether the node may host the class at all, whatever is free: labels, location, pool, health. The
// first ignores the lists that name nodes, the second applies them.
bool allowed_place(const PlacementClass& c,
                   const NodeShape& shape);  // …whether or not it accepts jobs now
bool allowed_alike(const PlacementClass& c, const NodeState& node);
bool allowed_by_id(const PlacementClass& c, NodeId node);
bool allowed(const PlacementClass& c, const NodeState& node);
// The free capacity of a node.
struct FreeCapacity {
  std::vector<GpuState> gpus;
  std::int64_t cpu_milli = 0, mem_mib = 0;
  std::int32_t tasks = 0;
  std::int64_t disk_mib = 0;
};
FreeCapacity free_of(const NodeState& node);
// Adds (+1) or takes away (-1) what a placement holds.
void shift_free(FreeCapacity& free,
                const NodeShape& shape,
                const Placement& placement,
                const JobRequest& request,
                int sign);
std::optional<Placement> fit_free(const PlacementClass& c,
                                  const NodeState& node,
                                  const FreeCapacity& free);
// Where on the node the task would go, if it fits. `gpu`: the card for a single share; -1: the
// fullest card with enough free capacity.
std::optional<Placement> fit(const PlacementClass& c, const NodeState& node, std::int32_t gpu = -1);
// The cards that could hold one share (or MIG instance) of the class.
struct CardChoice {
  std::int32_t gpu = 0;
  Share share;
  std::int32_t mig_start = -1;
};
std::optional<CardChoice> card_fits(const PlacementClass& c,
                                    const GpuShape& card,
                                    const GpuState& state,
                                    std::int32_t gpu);
// The same on an empty node: whether it could ever fit.
std::optional<Placement> fit_empty(const PlacementClass& c, const NodeState& node);
// The free part of a card in thousandths: the smaller of compute and memory.
std::int32_t usable_on(std::int64_t memory_mib, std::int64_t free_milli, std::int64_t free_mem_mib);
// The share of a card with both numbers filled in: a number missing from the request follows the
// other in proportion. The compute part is never smaller than the memory part: a job that fills a
// card's memory keeps others off it, so it gets, pays for and counts in its quota the compute that
// nobody else could use.
Share effective_share(const Share& asked, std::int64_t memory_mib);
// …or nothing if that is not free. `memory_mib`: of the card.
std::optional<Share> share_of_card(const Share& asked,
                                   std::int64_t memory_mib,
                                   std::int64_t free_milli,
                                   std::int64_t free_mem_mib);
// The groups of nodes by the class's score, brought up to date.
CandidateOrder& candidates(SchedIndex::Impl& index, const PlacementClass& c);
// Where all tasks of the job would go now; empty if they do not fit.
std::vector<Placement> place(SchedIndex::Impl& index, const PlacementClass& c, std::int32_t tasks);
// The same for the members of a group, which may share nodes (place_roles.cpp).
std::vector<Placement> place_roles(SchedIndex::Impl& index, const PlacementClass& c);
// Whether all members of a group have a place together on the nodes if these were empty. Pools ask
// every second for each group that waits, so the answer is kept until a node's shape changes.
bool fit_together_when_empty(SchedIndex::Impl& index, const JobRequest& job);
// Places for one task of the class, the best first; of nodes that are alike, only one.
std::vector<Placement> options_for(SchedIndex::Impl& index,
                                   const PlacementClass& c,
                                   const std::function<bool(Slot)>& may_use);
const std::string& domain_name(const Place& place, Closeness level);
// A node for a new member of a running gang, near the others: in their domain if possible,
// elsewhere only if closeness is merely preferred.
std::optional<Placement> place_beside(SchedIndex::Impl& index,
                                      const JobRequest& request,
                                      const RunningJob& job,
                                      NodeId was);

// A class for a request that is not in the index (feasible, reservations).
PlacementClass class_of(const SchedIndex::Impl& index, const JobRequest& job);

}  // namespace billow::sched
