// The base of decisions: one struct over the state and the context, with one member per command,
// defined in the file of the command's concern (decide_jobs.cpp, decide_agents.cpp, …). Internal to
// this module.
#pragma once

#include "core/control/agent_tokens.h"
#include "core/control/decide/decide.h"

namespace billow::control {

using Events = std::vector<EventBody>;
using Decision = Result<Events>;

// A TaskEnded whose lease closes at a time that both clocks allow: not before it began, not in the
// future.
TaskEnded end_task(const State& state,
                   const Task& task,
                   ExitStatus exit,
                   TaskUsage usage,
                   WallTime ended_at,
                   const Context& context);

// One attempt of one rank at the chosen place, with the current price (or that of its reservation)
// written into it.
Task make_task(const State& state,
               const Job& job,
               TaskId id,
               std::uint32_t rank,
               std::uint32_t attempt,
               const sched::Placement& placement,
               const Context& context);

// The orders that follow from a scheduler's plan (suspend.cpp).
JobSuspending suspend_event(
    const Job& job, std::string reason, SuspendCause cause, SuspendMode mode, JobId for_job);
JobResuming resume_event(const State& state,
                         const Job& job,
                         const sched::Placement& placement,
                         const Context& context);

struct Decider {
  const State& state;
  const Context& context;

  // ---- jobs (decide_jobs.cpp)
  Result<ProjectId> project_for(const std::string& name, UserId user);
  Status check_priority(const JobSpec& spec, UserId user, ProjectId project);
  void submit_events(Events& events,
                     JobId first,
                     JobSpec spec,
                     const Environment& env,
                     ProjectId project,
                     UserId user,
                     std::uint32_t waiting_for,
                     std::string key,
                     TokenId agent = {});
  // How many of its dependencies have not ended yet; an error if one can never be met.
  Result<std::uint32_t> unmet_dependencies(const JobSpec& spec,
                                           const std::map<JobId, JobState>& finished);
  // The limit of an agent's submission; none: a person was asked.
  Result<std::optional<Commitment>> agent_limit(Events& events,
                                                const SubmitJob& c,
                                                const JobSpec& spec,
                                                ProjectId project) const;
  // The same of a schedule that fires; an error says why it does not.
  Result<std::optional<Commitment>> schedule_limit(const Schedule& schedule, NanoUsd taken) const;
  // The hard limit of what an agent token has submitted as `first`.
  void commit_events(Events& events, JobId first, TokenId agent, const Commitment& commitment);
  // Whether a person has approved this. If so, the approval is used up; otherwise a person is
  // asked.
  Result<bool> approved(Events& events, Approval ask) const;
  Decision operator()(const AskApproval& c);
  Decision operator()(const DecideApproval& c);
  void tick_agents(Events& events);
  Decision operator()(const SubmitJob& c);
  Decision operator()(const RestartRole& c);  // roles.cpp
  void stop_one(Events& events, const Job& job, const StopJob& c);
  Decision operator()(const StopJob& c);

  // ---- suspend and resume (suspend.cpp)
  void suspend_one(Events& events, const Job& job, const SuspendJob& c);
  Decision operator()(const SuspendJob& c);
  Decision operator()(const ResumeJob& c);
  void order_events(Events& events, const Task& task, const TaskStatus& status);

  // ---- endpoints (endpoints.cpp)
  Result<const Endpoint*> endpoint_named(const std::string& name);
  void forget_calls(Events& events);
  Decision operator()(const DeployEndpoint& c);
  Decision operator()(const JudgeRevision& c);
  Decision operator()(const ScaleEndpoint& c);
  Decision operator()(const RollbackEndpoint& c);
  Decision operator()(const DeleteEndpoint& c);
  Decision operator()(const SetEndpointKey& c);
  Decision operator()(const ChangeRelease& c);
  Decision operator()(const RecordKeyUses& c);
  Decision operator()(const RecordEndpointCounts& c);
  Decision operator()(const StartReplica& c);
  Decision operator()(const AcceptCall& c);
  Decision operator()(const EndCall& c);

  // ---- named things of projects (catalogue.cpp)
  // Pins the environment's content.
  Status check_surroundings(JobSpec& spec, ProjectId project, UserId user);
  Decision operator()(const SetSecret& c);
  Decision operator()(const RemoveSecret& c);
  Decision operator()(const ResealSecrets& c);
  Decision operator()(const SaveEnvironment& c);
  Decision operator()(const RemoveEnvironment& c);
  Decision operator()(const DeclareVolume& c);
  Decision operator()(const RemoveVolume& c);
  Decision operator()(const ImageFound& c);

  // ---- agents and their reports (decide_agents.cpp; GPUs in gpu_health.cpp)
  void report_events(Events& events, const Task& task, const TaskStatus& status);
  Decision operator()(const AgentReport& c);
  Decision operator()(const AgentHello& c);
  Decision operator()(const DrainGpu& c);
  Decision operator()(const DiskSeen& c);

  // ---- nodes that go away (node_gone.cpp)
  Decision operator()(const NodeReclaimed& c);
  Decision operator()(const DrainNode& c);
  Decision operator()(const NodeSilent& c);
  Decision operator()(const NodeFenced& c);
  Decision operator()(const RemoveNode& c);

  // ---- time and schedules (decide_time.cpp)
  Decision operator()(const Tick&);
  Decision operator()(const AddSchedule& c);
  Decision operator()(const RemoveSchedule& c);

  // ---- sharing: quotas and reservations (sharing.cpp), elastic gangs (elastic.cpp)
  Decision operator()(const SetProject& c);
  Decision operator()(const SetQuota& c);
  Decision operator()(const RemoveQuota& c);
  Decision operator()(const Reserve& c);
  Decision operator()(const CancelReservation& c);
  EventBody end_reservation(const Reservation& reservation,
                            WallTime to,
                            std::string reason,
                            TaskId lease) const;
  void end_reservations(Events& events, WallTime then) const;
  void tick_reservations(Events& events) const;
  void tick_elastic(Events& events) const;

  // ---- identity (decide_identity.cpp)
  Decision operator()(const StartHead& c);
  Decision operator()(const AddUser& c);
  Decision operator()(const AddProject& c);
  Decision operator()(const SetMember& c);
  Decision operator()(const SetDefaultProject& c);
  Decision operator()(const CreateToken& c);
  Decision operator()(const RevokeToken& c);
  Decision operator()(const SetUser& c);

  // ---- roles, and new secrets of tokens (decide_rights.cpp)
  Decision operator()(const SetRole& c);
  Decision operator()(const RemoveRole& c);
  Decision operator()(const RotateToken& c);
  Decision operator()(const RecordEntry& c) { return Events{c.entry}; }
  Decision operator()(const RecordDenied& c) { return Events{c.denied}; }

  // ---- which machines may be nodes (decide_join.cpp)
  Decision operator()(const OrderToken& c);
  Decision operator()(const JoinNode& c);
  void bind_credential(Events& events, const AgentHello& c);

  // ---- pools (decide_pools.cpp, pool_demand.cpp)
  Decision operator()(const AddPool& c);
  Decision operator()(const RemovePool& c);
  Decision operator()(const PoolSeen& c);
  bool machine_listed(const Pool& pool,
                      const Machine& machine,
                      const MachineSighting& seen,
                      const PoolSeen& list,
                      Events& events);
  bool machine_omitted(const Pool& pool,
                       const Machine& machine,
                       const PoolSeen& list,
                       Events& events);
  void provider_ended(const Pool& pool,
                      const Machine& machine,
                      const MachineSighting& seen,
                      const PoolSeen& list,
                      Events& events);
  Decision operator()(const OrderFailed& c);
  Decision operator()(const ReleaseMachine& c);
  Decision operator()(const SetOffers& c);
  Decision operator()(const OffersFailed& c);
  Decision operator()(const RetryPool& c);
  Decision operator()(const PlanPools& c);

  // ---- notices and labels (notices.cpp, labels.cpp)
  Result<NoticeTarget> own_target(UserId by, std::uint64_t id) const;
  Decision operator()(const AddNoticeTarget& c);
  Decision operator()(const ChangeNoticeTarget& c);
  Decision operator()(const ConfirmNoticeTarget& c);
  Decision operator()(const RemoveNoticeTarget& c);
  Decision operator()(const NoticeTick&);
  Decision operator()(const RecordNoticesSent& c);
  Decision operator()(const LabelJobs& c);

  // ---- the front door (front_door.cpp)
  Decision operator()(const SetModelRoute& c);
  Decision operator()(const SetDomain& c);
  Decision operator()(const SetRequestLimits& c);

  // ---- money (decide_money.cpp; MoneyTick in budgets.cpp)
  Decision operator()(const MoneyTick&);
  Decision operator()(const SetPrice& c);
  Decision operator()(const RemovePrice& c);
  Decision operator()(const SetBudget& c);
  Decision operator()(const RemoveBudget& c);
  Decision operator()(const MeterMarks& c);
  Decision operator()(const IdleReported& c);
  Decision operator()(const KeepAlive& c);
  Decision operator()(const SetIdlePolicy& c);
  Decision operator()(const SetIdleFloor& c);
  Decision operator()(const AddWebhook& c);
  Decision operator()(const RemoveWebhook& c);
  Decision operator()(const DeliveredWebhook& c);
  Decision operator()(const SetCommitment& c);
  Decision operator()(const RemoveCommitment& c);
  Decision operator()(const TagProject& c);
  Decision operator()(const CloseMonth& c);
  Decision operator()(const RecordBill& c);
};

// The reason of a drain begins like this if it came from a provider's reclaim notice. Such a drain
// ends when the machine boots again; a person's drain ends only when a person ends it.
inline constexpr std::string_view taken_away = "taken away: ";
// The same where its allocation is about to end.
inline constexpr std::string_view allocation_ends = "its allocation ends at ";
// A node's credentials, and the join tokens for its machine, are revoked when it is removed.
void revoke_credentials(const State& state, std::string_view node, Events& events);
// Whether machines of this pool could run the job.
bool could_run(const State& state, const Job& job, const Pool& pool);
// Whether any pool could order machines for the job.
bool some_pool_could_run(const State& state, const Job& job);
// The array that the job belongs to, or the job: what machines are ordered for. Zero: it has ended.
JobId kind_of_job(const State& state, JobId job);
// Whether the machine has all its nodes, or has waited long enough for them: until then it is not
// idle.
bool all_nodes_came(const State& state, const Machine& machine, WallTime now);
// Whether a node of this name belongs to the machine.
bool node_of_machine(std::string_view node, const Machine& machine);
// The machine that a node of this name belongs to; null: none that a pool has rented.
const Machine* machine_of(const State& state, std::string_view node);

}  // namespace billow::control
