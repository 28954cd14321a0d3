// The facts of Billow. An event records what has happened and every decided figure (ids,
// placements, rates, costs), and never changes: replay only folds events, so a newer scheduler or
// price list cannot rewrite the past. Each event in the journal carries its time and who caused it.
#pragma once

#include <string>
#include <vector>

#include "base/ids.h"
#include "core/model/approval.h"
#include "core/model/catalogue.h"
#include "core/model/event_endpoints.h"
#include "core/model/event_jobs.h"
#include "core/model/event_money.h"
#include "core/model/event_pools.h"
#include "core/model/front_door.h"
#include "core/model/job.h"
#include "core/model/node.h"
#include "core/model/notice.h"
#include "core/model/one_of.h"
#include "core/model/permission.h"
#include "core/model/quota.h"
#include "core/model/reservation.h"

namespace billow {

struct HeadStarted {
  static constexpr const char* kind = "head_started";
  std::string version;
  Epoch epoch = 0;
  UserId by;  // who started it
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("version", s.version);
    v("epoch", s.epoch);
    v("by", s.by);
  }
};

// ---- identity
struct UserAdded {
  static constexpr const char* kind = "user_added";
  User user;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("user", s.user);
  }
};
struct ProjectAdded {
  static constexpr const char* kind = "project_added";
  Project project;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("project", s.project);
  }
};
struct MemberSet {
  static constexpr const char* kind = "member_set";
  ProjectId project;
  std::string user;
  std::optional<std::string> role;  // none: no longer a member
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("project", s.project);
    v("user", s.user);
    v("role", s.role);
  }
};
struct TokenCreated {
  static constexpr const char* kind = "token_created";
  Token token;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("token", s.token);
  }
};
struct TokenRevoked {
  static constexpr const char* kind = "token_revoked";
  TokenId token;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("token", s.token);
  }
};

struct UserChanged {
  static constexpr const char* kind = "user_changed";
  UserId user;
  std::string role = roles::member;
  UserState state = UserState::active;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("user", s.user);
    v("role", s.role);
    v("state", s.state);
  }
};
// Where the user's submissions go that name no project.
struct DefaultProjectSet {
  static constexpr const char* kind = "default_project_set";
  UserId user;
  ProjectId project;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("user", s.user);
    v("project", s.project);
  }
};
// A node's token speaks for this node from now on.
struct TokenBound {
  static constexpr const char* kind = "token_bound";
  TokenId token;
  std::string node;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("token", s.token);
    v("node", s.node);
  }
};
// A join token for one use was used by this node.
struct TokenUsed {
  static constexpr const char* kind = "token_used";
  TokenId token;
  std::string node;
  std::string key;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("token", s.token);
    v("node", s.node);
    v("key", s.key);
  }
};
// Somebody opened a shell, a terminal, a port or the files of a running job. Changes no state: it
// is recorded so that its owner and admins can see it.
struct JobEntered {
  static constexpr const char* kind = "job_entered";
  JobId job;
  UserId user;
  std::string how;   // "ssh", "port 8888", "attach", "cp in", "cp out"
  std::string peer;  // the address that the request came from
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("job", s.job);
    v("user", s.user);
    v("how", s.how);
    v("peer", s.peer);
  }
};
// Calls that were refused because of a wrong token or missing rights, gathered by address.
struct AccessDenied {
  static constexpr const char* kind = "access_denied";
  std::string peer;
  std::string user;  // empty: the token was not valid
  std::string what;  // the last call: "POST /v1/jobs"
  std::string reason;
  std::uint64_t count = 1;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("peer", s.peer);
    v("user", s.user);
    v("what", s.what);
    v("reason", s.reason);
    v("count", s.count);
  }
};

// ---- nodes
struct NodeJoined {
  static constexpr const char* kind = "node_joined";
  Node node;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("node", s.node);
  }
};
struct NodeOfferChanged {
  static constexpr const char* kind = "node_offer_changed";
  NodeId node;
  NodeOffer offer;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("node", s.node);
    v("offer", s.offer);
  }
};
struct NodeReachable {
  static constexpr const char* kind = "node_reachable";
  NodeId node;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("node", s.node);
  }
};
struct NodeUnreachable {
  static constexpr const char* kind = "node_unreachable";
  NodeId node;
  WallTime heard_at;  // billed time until which its tasks pay; none: until the event
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("node", s.node);
    v("heard_at_ns", s.heard_at);
  }
};
struct NodeDrained {
  static constexpr const char* kind = "node_drained";
  NodeId node;
  std::string reason;  // empty: takes work again
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("node", s.node);
    v("reason", s.reason);
  }
};
struct NodeRemoved {
  static constexpr const char* kind = "node_removed";
  NodeId node;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("node", s.node);
  }
};

// ---- schedules
struct ScheduleAdded {
  static constexpr const char* kind = "schedule_added";
  Schedule schedule;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("schedule", s.schedule);
  }
};
struct ScheduleRemoved {
  static constexpr const char* kind = "schedule_removed";
  ScheduleId schedule;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("schedule", s.schedule);
  }
};
// The JobsSubmitted right after it contains the created job. A zero job: the run was skipped, for
// the reason given.
struct ScheduleFired {
  static constexpr const char* kind = "schedule_fired";
  ScheduleId schedule;
  JobId job;
  WallTime next_at;
  std::string skipped;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("schedule", s.schedule);
    v("job", s.job);
    v("next_at_ns", s.next_at);
    v("skipped", s.skipped);
  }
};

// A card is taken out of service (with the reason) or takes jobs again (without). Jobs running on
// it continue.
struct GpuDrained {
  static constexpr const char* kind = "gpu_drained";
  NodeId node;
  std::int32_t gpu = 0;
  std::string reason;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("node", s.node);
    v("gpu", s.gpu);
    v("reason", s.reason);
  }
};
// A restart continues from here.
struct JobCheckpointed {
  static constexpr const char* kind = "job_checkpointed";
  JobId job;
  Checkpoint checkpoint;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("job", s.job);
    v("checkpoint", s.checkpoint);
  }
};

// ---- sharing
// Sets a project's weight and quota from now on.
struct ProjectChanged {
  static constexpr const char* kind = "project_changed";
  ProjectId project;
  std::uint32_t weight = 100;
  Quota quota;
  bool admins_enter = false;
  Isolation isolation = Isolation::plain;
  ContainerNetwork network = ContainerNetwork::none;
  std::vector<std::string> allow;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("project", s.project);
    v("weight", s.weight);
    v("quota", s.quota);
    v("admins_enter", s.admins_enter);
    v("isolation", s.isolation);
    v("network", s.network);
    v("allow", s.allow);
  }
};
struct QuotaSet {
  static constexpr const char* kind = "quota_set";
  HeadQuota quota;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("quota", s.quota);
  }
};
// The default applies again.
struct QuotaRemoved {
  static constexpr const char* kind = "quota_removed";
  QuotaKey quota;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("quota", s.quota);
  }
};
struct ReservationMade {
  static constexpr const char* kind = "reservation_made";
  Reservation reservation;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("reservation", s.reservation);
  }
};
// It has new places, because a node of the old ones is gone.
struct ReservationMoved {
  static constexpr const char* kind = "reservation_moved";
  ReservationId reservation;
  std::vector<ReservedPlace> places;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("reservation", s.reservation);
    v("places", s.places);
  }
};
// It expired or was cancelled. `unused` is the part that its jobs did not pay for, closed as a
// separate lease.
struct ReservationEnded {
  static constexpr const char* kind = "reservation_ended";
  ReservationId reservation;
  std::string reason;
  Task lease;  // its lease, from–to; its id is taken from the numbers of tasks
  NanoUsd unused;
  ProjectId project;  // who pays
  UserId user;
  // Thousandths of a GPU that its jobs did not use, averaged over its time.
  std::int64_t unused_milli = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("reservation", s.reservation);
    v("reason", s.reason);
    v("lease", s.lease);
    v("unused", s.unused);
    v("project", s.project);
    v("user", s.user);
    v("unused_milli", s.unused_milli);
  }
};
// A lost member of an elastic gang or of a group has a new place; the other members continued.
struct MemberReplaced {
  static constexpr const char* kind = "member_replaced";
  JobId job;
  Task task;  // of the same rank
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("job", s.job);
    v("task", s.task);
  }
};

// Members of a group are stopped and started again; the others continue.
struct MembersRestarting {
  static constexpr const char* kind = "members_restarting";
  JobId job;
  std::vector<TaskId> tasks;
  std::string reason;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("job", s.job);
    v("tasks", s.tasks);
    v("reason", s.reason);
  }
};

// A job of a reservation pays the on-demand price from now on: somebody asked for that while it
// waited inside, or it was still running when the reservation ended.
struct ReservationLeft {
  static constexpr const char* kind = "reservation_left";
  JobId job;
  std::string reason;  // for a running job: its price now, and why
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("job", s.job);
    v("reason", s.reason);
  }
};
// The price of a running task changes: its lease ends and the next begins.
struct TaskRerated {
  static constexpr const char* kind = "task_rerated";
  TaskId task;
  WallTime lease_to;
  NanoUsd cost;  // of the lease that ended
  Rate rate;     // of the one that begins
  PriceClass price_class = PriceClass::on_demand;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("task", s.task);
    v("lease_to_ns", s.lease_to);
    v("cost", s.cost);
    v("rate", s.rate);
    v("price_class", s.price_class);
  }
};

// The image that a job's container was created from on its node; a rerun uses exactly this one.
struct JobImageFound {
  static constexpr const char* kind = "job_image_found";
  JobId job;
  std::string digest;  // "sha256:…" of the manifest
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("job", s.job);
    v("digest", s.digest);
  }
};

// ---- approvals
struct ApprovalAsked {
  static constexpr const char* kind = "approval_asked";
  Approval approval;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("approval", s.approval);
  }
};
struct ApprovalChanged {
  static constexpr const char* kind = "approval_changed";
  std::uint64_t approval = 0;
  ApprovalState state = ApprovalState::denied;
  std::string by;  // the user who decided; empty: the agent took it up, or nobody answered
  WallTime expires_at;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("approval", s.approval);
    v("state", s.state);
    v("by", s.by);
    v("expires_at_ns", s.expires_at);
  }
};

// Every kind of event. A new one is added at the end.
struct EventKinds : Kinds<HeadStarted,
                          UserAdded,
                          ProjectAdded,
                          MemberSet,
                          TokenCreated,
                          TokenRevoked,
                          EnvironmentStored,
                          JobsSubmitted,
                          JobReady,
                          DependencyMet,
                          JobPlaced,
                          TaskStarted,
                          TaskEnded,
                          JobStopping,
                          JobRequeued,
                          JobEnded,
                          NodeJoined,
                          NodeOfferChanged,
                          NodeReachable,
                          NodeUnreachable,
                          NodeDrained,
                          NodeRemoved,
                          ScheduleAdded,
                          ScheduleRemoved,
                          ScheduleFired,
                          JobSuspending,
                          TaskSuspended,
                          SuspendFailed,
                          SuspensionChanged,
                          JobResuming,
                          TaskResumed,
                          TaskDeclared,
                          PoolAdded,
                          PoolRemoved,
                          PoolDenied,
                          MachineWanted,
                          MachineSeen,
                          MachineReleased,
                          MachineGone,
                          GpuDrained,
                          JobCheckpointed,
                          PriceSet,
                          PriceRemoved,
                          NodePriceSet,
                          BudgetSet,
                          BudgetRemoved,
                          BudgetWarned,
                          JobHeld,
                          MeterMarked,
                          DayClosed,
                          MonthClosed,
                          IdlePolicySet,
                          IdleFloorSet,
                          IdleWarned,
                          IdleActed,
                          KeptAlive,
                          NodeReleased,
                          WebhookAdded,
                          WebhookRemoved,
                          WebhookDelivered,
                          CommitmentSet,
                          CommitmentRemoved,
                          ProjectTagged,
                          BillImported,
                          ProjectChanged,
                          ReservationMade,
                          ReservationMoved,
                          ReservationEnded,
                          MemberReplaced,
                          EndpointDeployed,
                          RevisionJudged,
                          EndpointScaled,
                          EndpointKeySet,
                          EndpointDeleted,
                          CallAccepted,
                          CallEnded,
                          CallsForgotten,
                          SecretSet,
                          SecretRemoved,
                          EnvironmentSaved,
                          SavedEnvironmentRemoved,
                          VolumeDeclared,
                          VolumeRemoved,
                          ReservationLeft,
                          JobImageFound,
                          TaskRerated,
                          QuotaSet,
                          QuotaRemoved,
                          UserChanged,
                          TokenBound,
                          TokenUsed,
                          JobEntered,
                          AccessDenied,
                          OfferRefused,
                          PoolOffersSet,
                          PoolRetried,
                          DefaultProjectSet,
                          PoolStopped,
                          ApprovalAsked,
                          ApprovalChanged,
                          MembersRestarting,
                          RoleSet,
                          RoleRemoved,
                          TokenRotated,
                          SecretsResealed,
                          ReleaseChanged,
                          ReleaseEnded,
                          KeysUsed,
                          NoticeTargetSet,
                          NoticeTargetRemoved,
                          NoticeQueued,
                          NoticesSent,
                          JobsLabelled,
                          ModelRouteSet,
                          DomainSet,
                          RequestLimitsSet,
                          EndpointsCounted> {};
using EventBody = OneOf<EventKinds>;

struct Event {
  Seq seq = 0;
  WallTime at;
  WallTime billed;         // the same moment on the billing clock, which changes of the wall clock
                           // do not affect; 0: same as `at`
  std::string actor;       // "user:ana", "node:gpu-1", "head": who caused it
  std::string request_id;  // of the API call that caused it
  TokenId token;           // that the call was made with; 0: no API call
  std::string from;        // where the call came from: an address, or "unix:uid=1000"
  EventBody body;
  WallTime billed_at() const { return billed ? billed : at; }
};

}  // namespace billow
