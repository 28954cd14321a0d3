// The commands of the core. A command is a request plus the facts that the pure core cannot look up
// itself (secrets made by the shell, the ends of jobs that have left the state); `decide` turns it
// into events or an error.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/model/event.h"
#include "core/model/pool.h"

namespace billow {

struct SubmitJob {
  JobSpec spec;
  Environment env;
  std::string project;  // name; empty: the user's default
  UserId user;
  std::string idempotency_key;
  std::map<JobId, JobState> finished;  // dependencies that have left the state
  TokenId agent;                       // the agent token that asks; 0: none
  std::string digest;                  // of the request: what an approval is for
};
struct StopJob {
  JobId job;  // a job, an array, or an element
  std::string reason;
  bool force = false;  // without grace
  // Waiting elements of an array that are stopped at once; the caller asks again for the others.
  // 0: all of them.
  std::uint64_t elements_max = 0;
};
struct LabelJobs {
  std::vector<JobId> jobs;   // live jobs and arrays
  std::vector<JobId> ended;  // those whose rows are written with the event
  std::map<std::string, std::string> set;
  std::vector<std::string> remove;
};
struct AgentHello {
  NodeOffer offer;
  std::vector<TaskStatus> tasks;  // all that the agent still has, including ended ones
  TokenId credential;             // what it authenticated with; zero: the shell vouches for it
};
struct AgentReport {
  NodeId node;
  TaskStatus status;
};
// The shell has heard nothing from it for limits::agent_unreachable_after.
struct NodeSilent {
  NodeId node;
  Duration silent = {};  // since it was last heard from
};
// It has been silent for so long that its agent has fenced itself.
struct NodeFenced {
  NodeId node;
};
struct DrainNode {
  NodeId node;
  std::string reason;    // empty: undrain
  bool reclaim = false;  // the machine goes away: jobs that can continue elsewhere leave
};
// By a person, or by the head for a card that became unhealthy; then `fault_at` is the time, and a
// later decision of a person takes precedence.
struct DrainGpu {
  NodeId node;
  std::int32_t gpu = 0;
  std::string reason;  // empty: it takes jobs again
  WallTime fault_at;
};
struct RemoveNode {
  NodeId node;
};
// Time has passed: release back-offs, fire schedules.
struct Tick {};
struct AddUser {
  std::string name;
  std::string unix_name;
  std::string role = roles::member;
  UserId by;  // the admin who asks; 0: the head itself
  bool service = false;
};
enum class JobsOfUser { stop, keep };
BILLOW_ENUM_NAMES(JobsOfUser, {JobsOfUser::stop, "stop"}, {JobsOfUser::keep, "keep"});
// What is not given stays as it is. A user that is disabled or removed loses all tokens.
struct SetUser {
  std::string name;
  std::optional<std::string> role;
  std::optional<UserState> state;
  JobsOfUser jobs = JobsOfUser::stop;  // of a user that is disabled or removed
  UserId by = {};                      // who asks; 0: the head itself
};
// By the user: where submissions go that name no project.
struct SetDefaultProject {
  UserId user;
  std::string project;
};
struct AddProject {
  std::string name;
  std::uint32_t weight = 100;
};
// Members that are absent stay unchanged.
struct SetProject {
  std::string name;
  std::optional<std::uint32_t> weight;
  std::optional<std::int64_t> guaranteed_milli;
  std::optional<std::int64_t> limit_milli;  // -1: none
  std::optional<std::int64_t> user_limit_milli;
  std::optional<std::int32_t> user_running_max;
  std::optional<bool> may_borrow;
  std::optional<OrderPolicy> policy;
  std::optional<std::vector<std::string>> regions, pools;
  std::optional<bool> admins_enter;
  std::optional<Isolation> isolation;
  std::optional<ContainerNetwork> network;
  std::optional<std::vector<std::string>> allow;
};
// By an admin. RemoveQuota: the default applies again.
struct SetQuota {
  HeadQuota quota;
};
struct RemoveQuota {
  QuotaKey quota;
};
struct Reserve {
  std::string name;  // may be empty
  std::string project;
  UserId user;
  Resources resources;  // per node
  std::uint32_t nodes = 1;
  PlaceWish place;
  std::map<std::string, std::string> node_labels;
  WallTime from, until;
};
struct CancelReservation {
  ReservationId reservation;
  std::string reason;
};
struct SetMember {
  std::string project;
  std::string user;
  std::optional<std::string> role;
  UserId by = {};  // who asks; 0: the head itself
};
struct CreateToken {
  std::string name;
  std::string hash;
  std::string user;
  TokenScope scope = TokenScope::full;
  std::string project;
  Duration life;        // 0: never expires
  std::string node;     // for scopes node and join: the node or machine that it is for
  bool once = false;    // for scope join
  std::string made_by;  // the user who creates it for another
  TokenId parent;       // the token that it is created with
  AgentLimits agent;    // for scope agent
};
struct RevokeToken {
  TokenId token;
};
struct AddSchedule {
  std::string name;
  std::string cron;
  SubmitJob job;
};
struct RemoveSchedule {
  ScheduleId schedule;
};
struct StartHead {
  std::string version;
  Epoch epoch = 0;
  std::string admin;  // the first user, created with a default project if there is none
  std::string admin_token_hash;
  std::string node_token_hash;          // of this machine's agent
  std::string token_suffix;             // of their names, where several heads share a store
  std::string gateway_token_hash = {};  // of this machine's gateway
};

struct SuspendJob {
  JobId job;  // a job, an array, or an element
  std::string reason;
  SuspendCause cause = SuspendCause::request;
  SuspendMode mode = SuspendMode::warm;
};
struct ResumeJob {
  JobId job;
  // Jobs waiting inside the reservation leave it and pay the on-demand price.
  bool on_demand = false;
};

// Stops the members of one role of a running group and starts them again.
struct RestartRole {
  JobId job;
  std::string role;  // "rollout", or "rollout.2" for one member
  std::string reason;
};

// A pool orders a machine: it gets a join token for one use. If it has an earlier one, the first
// that is used ends the other.
struct OrderToken {
  std::string machine;
  std::string hash;
  UserId user;
  PoolId pool;
  Duration life;
};
// A machine joins with a join token. From now on its key is its credential. Repeated by the same
// machine (same token, name and key) it succeeds again, because the answer may have been lost.
struct JoinNode {
  TokenId token;
  std::string node;
  std::string key;  // public, Ed25519
};

// Somebody enters a running job, or was refused: recorded, nothing else.
struct RecordEntry {
  JobEntered entry;
};
struct RecordDenied {
  AccessDenied denied;
};

// The provider takes the node away soon: nothing new starts there, and its running jobs are
// requeued.
struct NodeReclaimed {
  NodeId node;
  std::string reason;
};

// ---- pools
struct AddPool {
  Pool pool;
};
struct RemovePool {
  std::string name;
};
// The result of listing a pool's machines at the provider: all under our name.
struct PoolSeen {
  PoolId pool;
  std::vector<MachineSighting> machines;
  WallTime looked_at;  // when the listing began: machines ordered later may be missing from it
  // How long ago machines have ended, as far as that is known without their provider's word: since
  // when lists have lacked them without a break, or since it accepted their end. The wall clock may
  // be set meanwhile. They are billed until then, however long it takes to be sure.
  std::map<std::string, Duration> missing_for = {};
};
// The provider refused to create this machine.
struct OrderFailed {
  std::string machine;
  std::string reason;
  RefusalKind kind = RefusalKind::capacity;
};
// What an agent sees of its disk (renting/disk.h).
struct DiskSeen {
  NodeId node;
  std::int64_t free_mib = 0;
};
struct ReleaseMachine {
  std::string machine;
  std::string reason;
};
// What the provider rents at present. Replaces the pool's offers.
struct SetOffers {
  PoolId pool;
  std::vector<MachineOffer> offers;
};
// The provider did not say what it rents.
struct OffersFailed {
  PoolId pool;
  std::string reason;
};
// Forgets what the provider refused: somebody has changed its settings.
struct RetryPool {
  std::string name;
};
// Decides from the queue, the machines and the clock what to order and what to release.
struct PlanPools {};

// ---- money
// Time has passed: checks budgets, closes days, releases idle nodes. Separate from Tick because it
// visits every lease.
struct MoneyTick {};
struct SetPrice {
  PriceRule rule;
};
struct RemovePrice {
  std::string of;
};
struct SetBudget {
  Budget budget;
  NanoUsd spent;  // in its period, by leases that have left the state
};
struct RemoveBudget {
  BudgetKey budget;
};
struct MeterMarks {
  NodeId node;
  std::vector<TaskMark> marks;
};
struct IdleReported {
  NodeId node;
  TaskId task;
  IdleState state = IdleState::idle;
  IdleAction action = IdleAction::warn;
  std::string text;
};
struct KeepAlive {
  JobId job;  // or, from an agent, its task
  TaskId task;
  NodeId node;  // of the reporting agent
  Duration lasts;
  std::string reason;
};
struct SetIdlePolicy {
  std::string project;  // empty: every project without its own policy
  std::optional<IdlePolicy> policy;
};
struct SetIdleFloor {
  IdleFloor floor;
};
struct AddWebhook {
  std::string url;
  std::vector<std::string> kinds;
  UserId by;
};
struct RemoveWebhook {
  std::uint64_t webhook = 0;
};
struct DeliveredWebhook {
  std::uint64_t webhook = 0;
  Seq through = 0;
};
struct SetCommitment {
  CommitmentTerms commitment;
};
struct RemoveCommitment {
  std::string name;
};
struct TagProject {
  std::string project, key, value;
};
struct CloseMonth {
  std::string month;
  NanoUsd cost, charge;  // the totals in the reports
};
struct RecordBill {
  BillImported bill;
};

// ---- endpoints
struct DeployEndpoint {
  std::string name;
  JobSpec spec;
  Environment env;
  std::string project;
  UserId user;
  EndpointPolicy policy;
  TokenId agent;  // the agent token that asks; 0: none
  ReleasePlan release = {};
};
// Changes the plan of a canary, or lets it take over.
struct ChangeRelease {
  std::string endpoint;
  std::optional<std::uint32_t> traffic = {};  // thousandths
  bool promote = false;
};
struct JudgeRevision {
  std::string endpoint;
  std::uint32_t revision = 0;
  bool healthy = false;
  std::string reason;
  JobId job;  // the replica that failed it
};
struct ScaleEndpoint {
  std::string endpoint;
  std::optional<std::uint32_t> min, max, concurrency;
};
// To a revision that has served before; zero: ends a canary, else the last one before the current.
struct RollbackEndpoint {
  std::string endpoint;
  std::uint32_t revision = 0;
};
struct DeleteEndpoint {
  std::string endpoint;
};
struct SetEndpointKey {
  std::string endpoint;
  std::string name;
  std::string hash;  // empty: the key of that name is removed
  ProjectId project = {};
  WallTime expires_at = {};
  std::vector<KeyLimit> limits = {};
};
// Reported by a gateway.
struct RecordKeyUses {
  std::vector<KeyUse> uses;
};
// Reported by a gateway.
struct RecordEndpointCounts {
  std::vector<EndpointCount> counts;
};
struct StartReplica {
  std::string endpoint;
  std::uint32_t revision = 0;
  std::uint16_t port = 0;
  bool spot = false;
  std::string region = {};  // one of the endpoint's regions; empty: any of them
};
struct AcceptCall {
  AsyncCall call;
};
struct EndCall {
  AsyncCall call;  // its end: state, status, answer, reason
};

// From the node of one of its tasks.
struct ImageFound {
  TaskId task;
  std::string digest;
};

// ---- approvals of what agent tokens ask for
// The same request again takes up its approval, if a person has granted it.
struct AskApproval {
  Approval approval;  // its number and times are set by the core
};
struct DecideApproval {
  std::uint64_t approval = 0;
  ApprovalState to = ApprovalState::denied;
  std::string by;
};

struct CommandKinds : Kinds<StartHead,
                            SubmitJob,
                            StopJob,
                            AgentHello,
                            AgentReport,
                            NodeSilent,
                            NodeFenced,
                            DrainNode,
                            RemoveNode,
                            Tick,
                            AddUser,
                            AddProject,
                            SetMember,
                            CreateToken,
                            RevokeToken,
                            AddSchedule,
                            RemoveSchedule,
                            SuspendJob,
                            ResumeJob,
                            OrderToken,
                            JoinNode,
                            SetUser,
                            RecordEntry,
                            RecordDenied,
                            AddPool,
                            RemovePool,
                            PoolSeen,
                            OrderFailed,
                            ReleaseMachine,
                            DiskSeen,
                            PlanPools,
                            NodeReclaimed,
                            DrainGpu,
                            MoneyTick,
                            SetPrice,
                            RemovePrice,
                            SetBudget,
                            RemoveBudget,
                            MeterMarks,
                            IdleReported,
                            KeepAlive,
                            SetIdlePolicy,
                            SetIdleFloor,
                            AddWebhook,
                            RemoveWebhook,
                            DeliveredWebhook,
                            SetCommitment,
                            RemoveCommitment,
                            TagProject,
                            CloseMonth,
                            RecordBill,
                            SetProject,
                            Reserve,
                            CancelReservation,
                            DeployEndpoint,
                            JudgeRevision,
                            ScaleEndpoint,
                            RollbackEndpoint,
                            DeleteEndpoint,
                            SetEndpointKey,
                            StartReplica,
                            AcceptCall,
                            EndCall,
                            SetSecret,
                            RemoveSecret,
                            SaveEnvironment,
                            RemoveEnvironment,
                            DeclareVolume,
                            RemoveVolume,
                            ImageFound,
                            SetQuota,
                            RemoveQuota,
                            SetOffers,
                            OffersFailed,
                            RetryPool,
                            SetDefaultProject,
                            AskApproval,
                            DecideApproval,
                            RestartRole,
                            SetRole,
                            RemoveRole,
                            RotateToken,
                            ResealSecrets,
                            ChangeRelease,
                            RecordKeyUses,
                            AddNoticeTarget,
                            ChangeNoticeTarget,
                            ConfirmNoticeTarget,
                            RemoveNoticeTarget,
                            NoticeTick,
                            RecordNoticesSent,
                            LabelJobs,
                            SetModelRoute,
                            SetDomain,
                            SetRequestLimits,
                            RecordEndpointCounts> {};
using Command = OneOf<CommandKinds>;

}  // namespace billow
