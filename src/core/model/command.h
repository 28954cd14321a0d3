// What the core can be asked. A command is a wish plus the facts that the pure core cannot look up
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
  std::map<JobId, JobState> finished;  // of the dependencies that have left the state
};
struct StopJob {
  JobId job;  // a job, an array, or an element
  std::string reason;
  bool force = false;  // without grace
};
struct AgentHello {
  NodeOffer offer;
  std::vector<TaskStatus> tasks;  // every one the agent still has, ended ones included
  TokenId credential;             // what it showed; zero: the shell vouches for it
};
struct AgentReport {
  NodeId node;
  TaskStatus status;
};
// The shell has heard nothing from it for limits::agent_unreachable_after.
struct NodeSilent {
  NodeId node;
};
// It has been silent for so long that its agent has fenced itself.
struct NodeFenced {
  NodeId node;
};
struct DrainNode {
  NodeId node;
  std::string reason;    // empty: undrain
  bool reclaim = false;  // the machine goes away: what can go on elsewhere is told to leave
};
// By a person, or by the head for a card whose health fell; then `fault_at` says when, and a
// person's later word stands.
struct DrainGpu {
  NodeId node;
  std::int32_t gpu = 0;
  std::string reason;  // empty: it takes work again
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
  Role role = Role::member;
};
struct AddProject {
  std::string name;
  std::uint32_t weight = 100;
};
// What is not given stays as it is.
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
  std::optional<Role> role;
};
struct CreateToken {
  std::string name;
  std::string hash;
  std::string user;
  TokenScope scope = TokenScope::full;
  std::string project;
  Duration life;  // 0: never expires
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
  std::string admin;  // the first user, made with a default project when there is none
  std::string admin_token_hash;
  std::string node_token_hash;  // of this machine's agent
  std::string token_suffix;     // of their names, where several heads share a store
};

struct SuspendJob {
  JobId job;  // a job, an array, or an element
  std::string reason;
  SuspendCause cause = SuspendCause::request;
  SuspendMode mode = SuspendMode::warm;
};
struct ResumeJob {
  JobId job;
  bool on_demand =
      false;  // what waits inside a reservation leaves it, for the price of on-demand work
};

// A machine wants to join: its credential is made, and one it had before is worthless.
struct IssueCredential {
  std::string node;
  std::string hash;
  UserId user;  // who let it join
  PoolId pool;
  bool replaces_node =
      false;  // the node may be known already (a pool's machine that is asked for again)
};

// Its engine takes the node away soon: nothing new starts there, and what runs there goes back into
// the queue.
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
// What one look into a pool's engine showed: all machines under our name.
struct PoolSeen {
  PoolId pool;
  std::vector<MachineSighting> machines;
  WallTime looked_at;  // when the look began: what was wanted later may be missing from it
};
// The engine refused to make this machine.
struct OrderFailed {
  std::string machine;
  std::string reason;
};
struct ReleaseMachine {
  std::string machine;
  std::string reason;
};
// Looks at the queue, the machines and the clock: what to ask for, what to give back.
struct PlanPools {};

// ---- money
// Time has passed: budgets are looked at, days closed, idle nodes given back. Apart from Tick
// because it looks at every lease.
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
  NodeId node;  // of the agent that says so
  Duration lasts;
  std::string reason;
};
struct SetIdlePolicy {
  std::string project;  // empty: of every project without its own
  std::optional<IdlePolicy> policy;
};
struct SetIdleFloor {
  IdleFloor floor;
};
struct AddWebhook {
  std::string url;
  std::vector<std::string> kinds;
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
  NanoUsd cost, charge;  // what the reports say it came to
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
// To a revision that served before; zero: the last one before what serves.
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
};
struct StartReplica {
  std::string endpoint;
  std::uint32_t revision = 0;
  std::uint16_t port = 0;
  bool spot = false;
  std::string region = {};  // of those its endpoint is served in; empty: any of them
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
                            IssueCredential,
                            AddPool,
                            RemovePool,
                            PoolSeen,
                            OrderFailed,
                            ReleaseMachine,
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
                            ImageFound> {};
using Command = OneOf<CommandKinds>;

}  // namespace billow
