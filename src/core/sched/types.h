// The scheduler's values: what a node offers, what a job asks for, where its tasks go. They are
// plain data, so the head's core, `billow simulate` and the tests pass the scheduler the same
// values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "core/model/place.h"
#include "core/model/share.h"

namespace billow::sched {

using LabelMap = std::map<std::string, std::string>;

// An existing instance on a card: "1g.10gb" from memory slice 6.
struct MigPlace {
  std::string profile;
  std::int32_t start = 0;

  bool operator==(const MigPlace&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("profile", s.profile);
    v("start", s.start);
  }
};

struct GpuShape {
  std::string type;  // normalised: "H100", "A100-40"
  std::int64_t memory_mib = 0;
  std::int32_t nvlink_domain =
      0;  // GPUs of one node with the same number reach each other over NVLink
  bool healthy = true;
  bool mig_enabled = false;  // offers MIG instances only
  bool mig_any = true;       // new instances can be created in free capacity; otherwise only
                             // existing ones are assigned
  std::vector<MigPlace> mig_places;

  bool operator==(const GpuShape&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("type", s.type);
    v("memory_mib", s.memory_mib);
    v("nvlink_domain", s.nvlink_domain);
    v("healthy", s.healthy);
    v("mig_enabled", s.mig_enabled);
    v("mig_any", s.mig_any);
    v("mig_places", s.mig_places);
  }
};

// The location of a node, outermost first. Empty means unknown: for a job that requires closeness,
// two unknown locations are never equal.
struct Place {
  std::string region, zone, rack, switch_name, placement_group;
  std::string fabric;  // "infiniband", "roce", "efa", "tcp"

  bool operator==(const Place&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("region", s.region);
    v("zone", s.zone);
    v("rack", s.rack);
    v("switch", s.switch_name);
    v("placement_group", s.placement_group);
    v("fabric", s.fabric);
  }
};

enum class NodeUse {
  schedulable,
  draining,     // running jobs may end; nothing new starts
  unreachable,  // its leases remain; nothing new starts
};

struct NodeShape {
  NodeId id;
  std::string name;
  std::string pool;
  std::vector<GpuShape> gpus;
  std::int64_t cpu_milli = 0;
  std::int64_t mem_mib = 0;
  Place place;
  LabelMap labels;
  NodeUse use = NodeUse::schedulable;
  bool spot = false;  // the provider may reclaim this node
  // Price of the node; among equally good nodes the cheaper one is taken.
  std::int64_t nano_usd_per_s = 0;
  std::int64_t disk_mib = 0;
  bool leaves = false;  // it is draining for good: its machine ends soon

  bool operator==(const NodeShape&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("id", s.id);
    v("name", s.name);
    v("pool", s.pool);
    v("gpus", s.gpus);
    v("cpu_milli", s.cpu_milli);
    v("mem_mib", s.mem_mib);
    v("place", s.place);
    v("labels", s.labels);
    v("use", s.use);
    v("spot", s.spot);
    v("nano_usd_per_s", s.nano_usd_per_s);
    v("disk_mib", s.disk_mib);
    v("leaves", s.leaves);
  }
};

// Restrictions on where a job may run, beyond its resources. Empty lists allow everything.
struct Constraints {
  std::vector<std::string> regions, zones, fabrics;
  std::vector<std::string> pools;
  std::vector<NodeId> only_nodes;   // of a suspended image, or named by the user
  std::vector<NodeId> avoid_nodes;  // a retry runs elsewhere
  // Of the one node: the cards that a suspended image came from.
  std::vector<std::int32_t> only_gpus;
  LabelMap labels;  // all of them must match
  std::string placement_group;
  Closeness close = Closeness::zone;
  bool close_required = false;   // false: preferred
  bool nvlink_required = false;  // the GPUs of one task share an NVLink domain
  Spread spread = Spread::pack;
  std::uint64_t spread_key = 0;  // replicas of one endpoint share a non-zero key and are spread

  bool operator==(const Constraints&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("regions", s.regions);
    v("zones", s.zones);
    v("fabrics", s.fabrics);
    v("pools", s.pools);
    v("only_nodes", s.only_nodes);
    v("avoid_nodes", s.avoid_nodes);
    v("only_gpus", s.only_gpus);
    v("labels", s.labels);
    v("placement_group", s.placement_group);
    v("close", s.close);
    v("close_required", s.close_required);
    v("nvlink_required", s.nvlink_required);
    v("spread", s.spread);
    v("spread_key", s.spread_key);
  }
};

enum class Yields { never, by_suspend, by_requeue };  // how a running job can be preempted

// The members of one role of a group. They are placed one by one and may share nodes with each
// other and with members of other roles.
struct RolePart {
  std::string name = {};
  Resources resources = {};  // of each member
  std::int32_t tasks = 1;

  bool operator==(const RolePart&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("resources", s.resources);
    v("tasks", s.tasks);
  }
};

// One queued job (or one element of an array). The core enqueues it when its dependencies are met.
struct JobRequest {
  JobId id;
  ProjectId project;
  UserId user;
  std::int32_t priority = 0;  // higher first
  WallTime submitted;
  std::uint64_t order = 0;  // submit order; equal priority starts in this order
  Resources resources;      // of each task
  std::int32_t tasks = 1;   // one per node; all start or none
  std::vector<RolePart> parts =
      {};  // of a group: its tasks in order; `resources` are of its largest
  Constraints constraints;
  Duration time_limit;    // 0: none
  Duration expected;      // how long it probably runs; 0: unknown
  Duration expected_max;  // …and hardly ever longer
  bool spot = false;
  Yields yields = Yields::never;
  Duration moves_after;  // after this run time it can continue elsewhere from a checkpoint,
                         // so it may be moved to make space for a larger job; 0: never
  Duration run_min;      // after a start it is not preempted for this long
  JobId array;           // the array this is an element of
  std::int32_t array_running_max = 0;  // of its array at once; 0: no limit
  bool elastic = false;                // a lost member is replaced without restarting the others
  WallTime eligible_at;                // not before (retry back-off, --begin)
  ReservationId reservation;           // runs inside this advance reservation
  bool moves = false;  // it was asked to continue elsewhere; capacity is kept for it until
                       // it has started there

  bool operator==(const JobRequest&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("id", s.id);
    v("project", s.project);
    v("user", s.user);
    v("priority", s.priority);
    v("submitted", s.submitted);
    v("order", s.order);
    v("resources", s.resources);
    v("tasks", s.tasks);
    v("parts", s.parts);
    v("constraints", s.constraints);
    v("time_limit", s.time_limit);
    v("expected", s.expected);
    v("expected_max", s.expected_max);
    v("spot", s.spot);
    v("yields", s.yields);
    v("moves_after", s.moves_after);
    v("run_min", s.run_min);
    v("array", s.array);
    v("array_running_max", s.array_running_max);
    v("elastic", s.elastic);
    v("eligible_at", s.eligible_at);
    v("reservation", s.reservation);
    v("moves", s.moves);
  }
};

struct GpuShare {
  std::int32_t gpu = 0;         // index into the node's gpus
  Share share;                  // both numbers filled in
  std::int32_t mig_start = -1;  // first memory slice of a MIG instance; -1: none

  bool operator==(const GpuShare&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("gpu", s.gpu);
    v("share", s.share);
    v("mig_start", s.mig_start);
  }
};

// What one task holds on one node.
struct Placement {
  NodeId node;  // 0: it holds nothing any more
  std::vector<GpuShare> gpus;
  std::int64_t cpu_milli = 0;
  std::int64_t mem_mib = 0;
  NodeId was = {};  // where a task that holds nothing any more was
  std::int64_t disk_mib = 0;

  bool operator==(const Placement&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("node", s.node);
    v("gpus", s.gpus);
    v("cpu_milli", s.cpu_milli);
    v("mem_mib", s.mem_mib);
    v("was", s.was);
    v("disk_mib", s.disk_mib);
  }
};

struct ProjectSettings {
  ProjectId id;
  std::string name;
  std::int64_t weight = 100;           // of fair share
  std::int64_t guaranteed_milli = 0;   // thousandths of a GPU it can always claim back
  std::int64_t limit_milli = -1;       // of all its running jobs; -1: none
  std::int64_t user_limit_milli = -1;  // of one user's running jobs in this project
  std::int32_t user_running_max = -1;  // jobs of one user at once
  bool may_borrow = true;              // beyond the guarantee, while others leave capacity idle
  bool budget_exhausted = false;       // none of its jobs starts
  OrderPolicy policy = OrderPolicy::fair;
  std::vector<std::string> regions;  // data residency: its jobs stay in these; empty: anywhere
  std::vector<std::string> pools;

  bool operator==(const ProjectSettings&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("id", s.id);
    v("name", s.name);
    v("weight", s.weight);
    v("guaranteed_milli", s.guaranteed_milli);
    v("limit_milli", s.limit_milli);
    v("user_limit_milli", s.user_limit_milli);
    v("user_running_max", s.user_running_max);
    v("may_borrow", s.may_borrow);
    v("budget_exhausted", s.budget_exhausted);
    v("policy", s.policy);
    v("regions", s.regions);
    v("pools", s.pools);
  }
};

// Capacity kept for a project from–until, on nodes chosen when the reservation was made.
struct Reservation {
  ReservationId id;
  ProjectId project;
  WallTime from, until;
  std::vector<Placement> placements;

  bool operator==(const Reservation&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("id", s.id);
    v("project", s.project);
    v("from", s.from);
    v("until", s.until);
    v("placements", s.placements);
  }
};

}  // namespace billow::sched
