// Inside of SchedIndex: the derived structures that make a decision cost what it touches.
//
// Jobs that ask for the same thing are folded twice. A PlacementClass is everything that decides where a task can go; a Kind is
// a class plus everything that decides when (project, user, priority, array, gang size). A pass over the queue walks kinds, and
// a class that found no room is not tried again before the room changed. Every change of a node goes into a log; each class
// reads the log from where it last stood, so a decision costs the nodes that changed since, not all of them.
//
// Everything here can be recomputed from IndexContents; check_invariants() does so.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/limits.h"
#include "sched/mig.h"
#include "sched/order.h"
#include "sched/pack.h"
#include "sched/plan.h"

namespace billow::sched {

struct GpuState {
  std::int32_t free_milli = 0;        // 0 where the card is not healthy
  std::int32_t mig_compute_used = 0;
  std::uint32_t mig_used = 0;
  std::int64_t free_mem_mib = 0;
};

struct NodeState {
  NodeShape shape;
  bool present = false;
  std::vector<GpuState> gpus;
  std::int64_t free_cpu_milli = 0;
  std::int64_t free_mem_mib = 0;
  std::int64_t free_milli = 0;        // sum over usable cards
  std::int32_t tasks = 0;
  std::uint64_t shape_hash = 0;       // of everything but id and name
  std::uint64_t hash = 0;             // shape and what is free: equal nodes are interchangeable
  std::vector<JobId> jobs;            // on it, sorted; a job appears once per task
  PackNode pack;                      // what the score sees
  double fragment = 0;                // of `pack`, by the model of `fragment_model`
  std::uint64_t fragment_model = 0;
};

struct Kind;
struct QueuedJob {
  Kind* kind = nullptr;
  std::uint64_t order = 0;
  std::uint64_t rank = 0;             // place in its kind's queue: the order, or the expected duration
  WallTime submitted, eligible_at;
  Duration time_limit, expected;
};

// Everything that decides where a task may go.
struct PlacementClass {
  Resources resources;
  Constraints constraints;
  std::vector<std::string> home_regions;  // the project's residency
  std::vector<PoolId> home_pools;
  std::optional<MigProfile> mig;
  std::string key;
  std::uint64_t references = 0;
  std::uint64_t jobs = 0;             // queued and running, for the typical workload
  mutable CandidateOrder order;       // its nodes by score; read through candidates()
};

using ReadyKey = std::pair<std::uint64_t, JobId>;  // rank, id
struct Kind {
  JobRequest proto;                   // the per-job fields blank
  PlacementClass* placement = nullptr;
  std::string key;
  std::set<ReadyKey> ready;
  std::uint64_t jobs = 0;             // ready or waiting to become eligible
};

// The order of kinds inside a project: by priority, then by their first job.
struct KindKey {
  std::int32_t priority_down = 0;     // negated
  std::uint64_t rank = 0;
  JobId first;
  Kind* kind = nullptr;
  bool operator<(const KindKey& o) const {
    return std::tie(priority_down, rank, first) < std::tie(o.priority_down, o.rank, o.first);
  }
};

struct UserRunning {
  std::int64_t milli = 0;
  std::int32_t jobs = 0;
};
struct ProjectState {
  ProjectSettings settings;
  Usage usage;
  std::int64_t rate_milli = 0;        // dominant milli of what runs
  std::int64_t running_milli = 0;     // GPU milli of what runs
  std::int64_t spot_milli = 0;        // …of it what is spot, which no guarantee covers
  std::int64_t firm_milli = 0;        // …of it what cannot be asked to give way
  std::int64_t covered_milli() const { return running_milli - spot_milli; }  // what counts against the guarantee
  std::set<KindKey> kinds;            // with ready jobs
  std::map<UserId, UserRunning> users;
};

struct SchedIndex::Impl {
  SchedSettings settings;
  std::vector<NodeState> nodes;
  std::vector<Slot> free_slots;
  std::unordered_map<NodeId, Slot> slot_of;
  std::map<ProjectId, ProjectState> projects;
  std::unordered_map<JobId, QueuedJob> queued;
  std::unordered_map<JobId, RunningJob> running;
  std::map<JobId, std::int32_t> array_running;
  std::set<std::pair<std::int64_t, JobId>> sleeping;   // eligible_at ns, not yet in a kind's ready set
  std::set<JobId> repairs;                             // running elastic jobs with a lost member
  std::map<std::uint64_t, std::map<NodeId, int>> spread_groups;  // replicas per node, by spread key
  std::map<ReservationId, Reservation> reservations;
  std::unordered_map<std::string, std::unique_ptr<PlacementClass>> classes;
  std::unordered_map<std::string, std::unique_ptr<Kind>> kinds;
  std::vector<std::pair<Resources, double>> typical;   // given; empty: what `learned` says
  Learned learned;
  std::int64_t total_milli = 0, total_cpu_milli = 0, total_mem_mib = 0;  // of present nodes
  std::vector<Slot> log;                               // nodes that changed, in order; position = log_base + index
  std::uint64_t log_base = 1;
  std::unique_ptr<PackModel> model;                    // made from `typical` or what was learned; null: to be made
  std::uint64_t model_version = 0;
  std::uint64_t version = 1;                           // of anything
  std::int64_t yielding = 0;                           // running jobs that could be asked to give way
  std::map<JobId, std::set<JobId>> leaving_for;        // who waits for whose room
  std::uint64_t planned_version = 0;                   // the last plan found nothing to do at this version…
  Plan planned;                                        // …and this is that plan

  // Nodes
  NodeState* find(NodeId id);
  const NodeState* find(NodeId id) const { return const_cast<Impl*>(this)->find(id); }
  void node_changed(NodeState& node);
  std::uint64_t log_position() const { return log_base + log.size(); }
  const PackModel& packing();                          // made when first needed after a change
  double fragment_of(NodeState& node);
  void take(const Placement& placement, const JobRequest& request);   // the node's room shrinks
  void give(const Placement& placement, const JobRequest& request);

  // Queue
  ProjectState& project(ProjectId id);
  Kind* intern_kind(const JobRequest& job);
  void release_kind(Kind* kind);
  PlacementClass* intern_class(const JobRequest& job);
  void release_class(PlacementClass* placement);
  std::uint64_t rank_of(const JobRequest& job);
  void make_ready(JobId id, const QueuedJob& job);
  void make_unready(JobId id, const QueuedJob& job);
  void wake(WallTime now);                             // sleeping jobs whose time has come
  JobRequest request_of(JobId id, const QueuedJob& job) const;

  // Accounts
  void accrue(ProjectState& project, WallTime when) const;
  std::int64_t dominant_milli(const JobRequest& request) const;
  void account(const RunningJob& job, int sign);
};

// GPU thousandths a whole job holds.
std::int64_t gpu_milli_of(const JobRequest& request, const std::vector<Placement>& placements);
std::int64_t gpu_milli_of(const JobRequest& request);

// Whether the node may host the class at all, whatever is free: labels, place, pool, health of the node.
bool allowed(const PlacementClass& c, const NodeState& node);
// What a node has left, apart from what it is.
struct Room {
  std::vector<GpuState> gpus;
  std::int64_t cpu_milli = 0, mem_mib = 0;
  std::int32_t tasks = 0;
};
Room room_of(const NodeState& node);
// Adds (+1) or takes away (-1) what a placement holds.
void shift_room(Room& room, const NodeShape& shape, const Placement& placement, const JobRequest& request, int sign);
std::optional<Placement> fit_room(const PlacementClass& c, const NodeState& node, const Room& room);
// Where on the node the task would go, or nothing. `gpu`: the card to take for a single share; -1: the fullest that has room.
std::optional<Placement> fit(const PlacementClass& c, const NodeState& node, std::int32_t gpu = -1);
// The cards that alone could hold one share (or MIG instance) of the class.
struct CardChoice {
  std::int32_t gpu = 0;
  Share share;
  std::int32_t mig_start = -1;
};
std::size_t cards_that_fit(const PlacementClass& c, const NodeState& node, std::array<CardChoice, limits::gpus_per_node_max>& out);
// The same on the node with nothing running: whether it could ever.
std::optional<Placement> fit_empty(const PlacementClass& c, const NodeState& node);
// The class's nodes by score, brought up to date with the log.
const CandidateOrder& candidates(SchedIndex::Impl& index, const PlacementClass& c);
// Where all tasks of the job would go now; empty when they cannot.
std::vector<Placement> place(SchedIndex::Impl& index, const PlacementClass& c, std::int32_t tasks);
const std::string& domain_name(const Place& place, Closeness level);

// A class for a request that is not in the index (feasible, reservations).
PlacementClass class_of(const SchedIndex::Impl& index, const JobRequest& job);

}  // namespace billow::sched
