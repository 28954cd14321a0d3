// Inside of SchedIndex: the derived structures that make a decision cost what it touches.
//
// Jobs that ask for the same thing are folded twice. A PlacementClass is everything that decides
// where a task can go; a Kind is a class plus everything that decides when (project, user,
// priority, array, gang size). A pass over the queue walks kinds, and a class that found no free
// capacity is not tried again before the capacity changed. Nodes are folded too, into groups of
// likes (groups.h); each class reads which groups came up since it last looked, so a decision costs
// the groups touched since, not the nodes.
//
// Everything here can be recomputed from IndexContents; check_invariants() does so.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
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
  std::int32_t free_milli = 0;  // 0 where the card is not healthy
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
  std::int64_t free_milli = 0;  // sum over usable cards
  std::int32_t tasks = 0;
  std::uint64_t shape_hash = 0;  // of everything but id and name
  std::uint64_t bare_hash = 0;   // …less labels, rack and switch
  std::uint64_t hash = 0;        // bare shape and what is free, whichever card it is free on
  std::vector<JobId> jobs;       // on it, sorted; a job appears once per task
  std::vector<std::uint8_t>
      kin;  // per card: equal where the cards are the same but for what is free on them
  std::vector<std::uint8_t>
      awaited;  // per card: how many suspended jobs must come back to it; empty: none to any
  std::vector<std::uint8_t>
      ranked;  // the cards in an order that does not depend on where they are plugged in
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
  std::string key;
  std::uint64_t references = 0;
  struct Tried {  // by one pass, as far as it got: what found no free capacity finds none later in
                  // it
    std::uint64_t pass = 0;
    std::int32_t tasks = 0;    // so many found none; 0: not tried
    struct Short {             // and so many that end by then found none beside what is held
      std::int32_t tasks = 0;  // 0: not tried
      std::int64_t end_ns = 0;
    };
    std::array<Short, 3> shorter;  // those that do not give way to reservations, those that do, and
                                   // spot, which also gives way to jobs
  };
  mutable Tried tried;
  std::size_t learned_at = 0;    // where `learned.recent` probably has its resources
  mutable CandidateOrder order;  // the groups of nodes by score; read through candidates()
};

using ReadyKey = std::pair<std::uint64_t, JobId>;  // rank, id
struct Kind {
  JobRequest proto;  // the per-job fields blank
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
// What one user of a project has had of it: decides between users where the project shares fairly.
struct UserHad {
  Usage usage;
  std::int64_t rate_milli = 0;  // dominant milli of what runs
};
struct ProjectState {
  ProjectSettings settings;
  Usage usage;
  std::int64_t rate_milli = 0;     // dominant milli of what runs
  std::int64_t running_milli = 0;  // GPU milli of what runs
  std::int64_t spot_milli = 0;     // …of it what is spot, which no guarantee covers
  std::int64_t firm_milli = 0;     // …of it what cannot be asked to give way
  std::int64_t covered_milli() const {
    return running_milli - spot_milli;
  }                         // what counts against the guarantee
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
  std::unordered_map<JobId, QueuedJob> queued;
  std::unordered_map<JobId, RunningJob> running;
  std::set<std::pair<std::int64_t, JobId>>
      ending;  // running jobs by when they end, as far as is known; those told to leave at 0
  std::map<JobId, std::int32_t> array_running;
  std::set<std::pair<std::int64_t, JobId>>
      sleeping;             // eligible_at ns, not yet in a kind's ready set
  std::set<JobId> repairs;  // running elastic jobs with a lost member
  std::map<std::uint64_t, std::map<NodeId, int>> spread_groups;  // replicas per node, by spread key
  std::map<ReservationId, Reservation> reservations;
  std::map<JobId, Sleeper> sleepers;
  std::unordered_map<std::string, std::unique_ptr<PlacementClass>> classes;
  std::unordered_map<std::string, std::unique_ptr<Kind>> kinds;
  std::vector<std::pair<Resources, double>> typical;  // given; empty: what `learned` says
  Learned learned;
  std::int64_t total_milli = 0, total_cpu_milli = 0, total_mem_mib = 0;  // of present nodes
  NodeGroups groups;
  std::set<std::string> labels_asked;  // names some class has asked for; others do not part nodes
  std::array<std::unordered_map<std::string, std::int32_t>, 5>
      domains;                       // numbers of places, by Closeness
  std::unique_ptr<PackModel> model;  // made from `typical` or what was learned; null: to be made
  std::uint64_t model_version = 0;
  std::uint64_t version = 1;                     // of anything
  std::int64_t yielding = 0;                     // running jobs that could be asked to give way
  std::int64_t movable = 0;                      // …and to go on elsewhere
  std::map<JobId, std::set<JobId>> leaving_for;  // who waits for whose capacity
  std::set<JobId> moving;             // told to leave, or queued again, and to go on elsewhere
  std::uint64_t passes = 0;           // numbers of planning passes, and of parts of them
  std::uint64_t planned_version = 0;  // the last plan found nothing to do at this version…
  Plan planned;                       // …and this is that plan

  // Nodes
  NodeState* find(NodeId id);
  const NodeState* find(NodeId id) const { return const_cast<Impl*>(this)->find(id); }
  void node_changed(NodeState& node);
  void count_sleepers(NodeState& node);
  // Nodes that could run a task of the class were nothing else there, and the most of them in one
  // place of its closeness. A node that drains or is away may come back, so it counts. Remembered
  // until a node's shape changes.
  struct Capacity {
    std::int64_t nodes = 0, together = 0;
  };
  Capacity capacity_of(const PlacementClass& c);
  std::unordered_map<std::string, Capacity> capacities;
  void ask_labels(const LabelMap& labels);  // nodes that differ in these are not alike from now on
  const PackModel& packing();               // made when first needed after a change
  const PackView& view_of(NodeGroup& group);
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
  void wake(WallTime now);  // sleeping jobs whose time has come
  JobRequest request_of(JobId id, const QueuedJob& job) const;

  // Accounts
  void accrue(Usage& usage, std::int64_t rate_milli, WallTime when) const;
  void accrue(const JobRequest& request, WallTime when);  // of its project and its user
  std::int64_t dominant_milli(const JobRequest& request) const;
  void account(const RunningJob& job, int sign);
  void note_end(JobId id, const RunningJob& job);  // …or that it is told to leave
  void forget_end(JobId id, const RunningJob& job);
};

// When a running job ends at the latest, or probably; zero: not known.
WallTime end_of(const RunningJob& job);
// Whether it can be asked to leave: for an owner, for a reservation that begins.
inline bool gives_way(const JobRequest& job) {
  return job.spot || job.yields != Yields::never;
}
// GPU thousandths a whole job holds.
std::int64_t gpu_milli_of(const JobRequest& request, const std::vector<Placement>& placements);
std::int64_t gpu_milli_of(const JobRequest& request);

// The same before it is placed: of whole nodes, as many GPUs as the largest of them have.
std::int64_t asked_milli(const SchedIndex::Impl& index, const JobRequest& request);

// Whether the node may host the class at all, whatever is free: labels, place, pool, health of the
// node; without the lists that name nodes, and with them.
bool allowed_place(const PlacementClass& c,
                   const NodeShape& shape);  // …whether or not it takes work now
bool allowed_alike(const PlacementClass& c, const NodeState& node);
bool allowed_by_id(const PlacementClass& c, NodeId node);
bool allowed(const PlacementClass& c, const NodeState& node);
// What a node has left, apart from what it is.
struct FreeCapacity {
  std::vector<GpuState> gpus;
  std::int64_t cpu_milli = 0, mem_mib = 0;
  std::int32_t tasks = 0;
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
// Where on the node the task would go, or nothing. `gpu`: the card to take for a single share; -1:
// the fullest that has free capacity.
std::optional<Placement> fit(const PlacementClass& c, const NodeState& node, std::int32_t gpu = -1);
// The cards that alone could hold one share (or MIG instance) of the class.
struct CardChoice {
  std::int32_t gpu = 0;
  Share share;
  std::int32_t mig_start = -1;
};
std::optional<CardChoice> card_fits(const PlacementClass& c,
                                    const GpuShape& card,
                                    const GpuState& state,
                                    std::int32_t gpu);
// The same on the node with nothing running: whether it could ever.
std::optional<Placement> fit_empty(const PlacementClass& c, const NodeState& node);
// What a card has left, in thousandths, by whichever of compute and memory is scarcer.
std::int32_t usable_on(const GpuShape& card, std::int64_t free_milli, std::int64_t free_mem_mib);
// The groups of nodes by the class's score, brought up to date.
CandidateOrder& candidates(SchedIndex::Impl& index, const PlacementClass& c);
// Where all tasks of the job would go now; empty when they cannot.
std::vector<Placement> place(SchedIndex::Impl& index, const PlacementClass& c, std::int32_t tasks);
const std::string& domain_name(const Place& place, Closeness level);
// A node for a new member of a running gang, near the others: in their domain where there is one,
// elsewhere only if nearness is a wish.
std::optional<Placement> place_beside(SchedIndex::Impl& index,
                                      const JobRequest& request,
                                      const RunningJob& job);

// A class for a request that is not in the index (feasible, reservations).
PlacementClass class_of(const SchedIndex::Impl& index, const JobRequest& job);

}  // namespace billow::sched
