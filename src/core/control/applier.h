// The base of folding: one struct over the state and the event, with one member per kind of event,
// defined in the file of its concern (apply.cpp for jobs, apply_nodes.cpp, apply_identity.cpp, …).
// Internal to this module.
#pragma once

#include "base/check.h"
#include "core/control/state.h"

namespace billow::control {

// The part of a lease's payment that falls into the period of its reservation.
NanoUsd paid_inside(const Task& task, const Reservation& reservation);
// A lease of this task ends: if the task is inside a reservation that still lasts, its use is added
// to the reservation.
void count_used(const Task& task, WallTime lease_to, Reservation& reservation);

// Fills in what pools of version 0.1 lack: the capabilities of the two kinds it knew, and whether a
// pool is being removed.
void complete(Pool& pool);

struct Applier {
  State& state;
  const Event& event;

  Job& job(JobId id) {
    const auto found = state.jobs.find(id);
    BILLOW_CHECK(found != state.jobs.end(), "an event names a job that the state does not have");
    return found->second;
  }
  Task& task(TaskId id) {
    const auto found = state.tasks.find(id);
    BILLOW_CHECK(found != state.tasks.end(), "an event names a task that the state does not have");
    return found->second;
  }
  Node& node(NodeId id) {
    const auto found = state.nodes.find(id);
    BILLOW_CHECK(found != state.nodes.end(), "an event names a node that the state does not have");
    return found->second;
  }

  // ---- jobs (apply.cpp)
  void set_state(Job& j, JobState to);
  void leave_state(const Job& j);
  void release_environment(const std::string& digest, std::uint64_t uses);
  void operator()(const EnvironmentStored& e);
  void operator()(const JobsSubmitted& e);
  void operator()(const JobReady& e);
  void operator()(const DependencyMet& e);
  void operator()(const JobPlaced& e);
  void operator()(const TaskStarted& e);
  void operator()(const TaskEnded& e);
  void operator()(const JobStopping& e);
  void drop_tasks(Job& j);
  void operator()(const JobRequeued& e);
  void learn_duration(const Job& j);
  void operator()(const JobEnded& e);

  // ---- suspend and resume (suspend.cpp)
  void reshape(NodeId id);  // the memory that suspended jobs hold on it has changed
  void set_phase(Job& j, SuspendPhase phase);
  void operator()(const JobSuspending& e);
  void operator()(const TaskSuspended& e);
  void operator()(const SuspendFailed& e);
  void operator()(const SuspensionChanged& e);
  void operator()(const JobResuming& e);
  void operator()(const TaskResumed& e);
  void operator()(const TaskDeclared& e);
  void operator()(const JobCheckpointed& e);

  // ---- endpoints (endpoints.cpp)
  Endpoint& endpoint(const std::string& name);
  void drop_revision(Endpoint& e, std::size_t at);
  void replica_ended(const Job& j);
  void operator()(const EndpointDeployed& e);
  void operator()(const RevisionJudged& e);
  void operator()(const EndpointScaled& e);
  void operator()(const EndpointKeySet& e);
  void operator()(const EndpointDeleted& e);
  void operator()(const ReleaseChanged& e);
  void operator()(const ReleaseEnded& e);
  void operator()(const KeysUsed& e);
  void operator()(const EndpointsCounted& e);
  void operator()(const CallAccepted& e);
  void operator()(const CallEnded& e);
  void operator()(const CallsForgotten& e);

  // ---- the front door (decide/front_door.cpp)
  void close_front_door(const std::string& endpoint);  // what leads to an endpoint that is deleted
  void operator()(const ModelRouteSet& e);
  void operator()(const DomainSet& e);
  void operator()(const RequestLimitsSet& e);

  // ---- named things of projects (catalogue.cpp)
  void operator()(const SecretSet& e);
  void operator()(const SecretRemoved& e);
  void operator()(const SecretsResealed& e);
  void operator()(const EnvironmentSaved& e);
  void operator()(const SavedEnvironmentRemoved& e);
  void operator()(const VolumeDeclared& e);
  void operator()(const VolumeRemoved& e);
  void operator()(const JobImageFound& e);

  // ---- nodes (apply_nodes.cpp)
  void operator()(const NodeJoined& e);
  void operator()(const NodeOfferChanged& e);
  void operator()(const NodeReachable& e);
  void operator()(const NodeUnreachable& e);
  void operator()(const NodeDrained& e);
  void operator()(const GpuDrained& e);
  void operator()(const NodeRemoved& e);

  // ---- sharing (sharing.cpp, elastic.cpp)
  void operator()(const ProjectChanged& e);
  void operator()(const ReservationMade& e);
  void operator()(const ReservationMoved& e);
  void operator()(const ReservationEnded& e);
  void operator()(const ReservationLeft& e);
  void operator()(const TaskRerated& e);
  void operator()(const MemberReplaced& e);
  void operator()(const MembersRestarting& e);  // decide/roles.cpp

  // ---- identity and schedules (apply_identity.cpp)
  void operator()(const HeadStarted& e);
  void operator()(const UserAdded& e);
  void operator()(const ProjectAdded& e);
  void operator()(const MemberSet& e);
  void operator()(const DefaultProjectSet& e);
  void operator()(const TokenCreated& e);
  void operator()(const TokenRevoked& e);
  void operator()(const UserChanged& e);
  void operator()(const TokenBound& e);
  void operator()(const TokenUsed& e);
  void operator()(const TokenRotated& e);
  void operator()(const RoleSet& e);
  void operator()(const RoleRemoved& e);
  void operator()(const ApprovalAsked& e);
  void operator()(const ApprovalChanged& e);
  void operator()(const JobEntered&) {}
  void operator()(const AccessDenied&) {}
  void operator()(const ScheduleAdded& e);
  void operator()(const ScheduleRemoved& e);
  void operator()(const ScheduleFired& e);

  // ---- notices and labels (decide/notices.cpp, decide/labels.cpp)
  void operator()(const NoticeTargetSet& e);
  void operator()(const NoticeTargetRemoved& e);
  void operator()(const NoticeQueued& e);
  void operator()(const NoticesSent& e);
  void operator()(const JobsLabelled& e);

  // ---- pools (apply_pools.cpp)
  Machine& machine(const std::string& name);
  void note_work_on(NodeId node);         // its machine has become busy or idle
  void note_node_here(const Node& node);  // the first node of a machine
  void operator()(const PoolAdded& e);
  void operator()(const PoolRemoved& e);
  void operator()(const PoolDenied& e);
  void operator()(const MachineWanted& e);
  void operator()(const MachineSeen& e);
  void operator()(const MachineReleased& e);
  void operator()(const MachineGone& e);
  void operator()(const OfferRefused& e);
  void operator()(const PoolOffersSet& e);
  void operator()(const PoolRetried& e);
  void operator()(const PoolStopped& e);

  // ---- money (apply_money.cpp)
  void operator()(const PriceSet& e);
  void operator()(const PriceRemoved& e);
  void operator()(const NodePriceSet&) {}  // only the books use it
  void operator()(const BudgetSet& e);
  void operator()(const QuotaSet& e);
  void operator()(const QuotaRemoved& e);
  void operator()(const BudgetRemoved& e);
  void operator()(const BudgetWarned& e);
  void operator()(const JobHeld& e);
  void operator()(const MeterMarked&) {}
  void operator()(const DayClosed& e);
  void operator()(const MonthClosed& e);
  void operator()(const IdlePolicySet& e);
  void operator()(const IdleFloorSet& e);
  void operator()(const IdleWarned& e);
  void operator()(const IdleActed&) {}  // the action follows as a separate event
  void operator()(const KeptAlive& e);
  void operator()(const NodeReleased& e);
  void operator()(const WebhookAdded& e);
  void operator()(const WebhookRemoved& e);
  void operator()(const WebhookDelivered& e);
  void operator()(const CommitmentSet& e);
  void operator()(const CommitmentRemoved& e);
  void operator()(const ProjectTagged& e);
  void operator()(const BillImported&) {}  // kept by the journal
};

}  // namespace billow::control
