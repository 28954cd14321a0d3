// The agent's logic, pure: messages, task events and the time go in; effects come out. It touches
// no clock, file, process or socket, so the fault simulator runs exactly this code.
//
// Guarantees:
// - A task id is started at most once. A repeated `start` only repeats the report; a `stop` that
//   overtakes its `start` ends the task before it began.
// - A head with a lower epoch is refused. A higher epoch is stored on disk (Remember) before any of
//   its orders is carried out: effects are carried out in order.
// - A change of a task is reported until the head acknowledges it; later changes replace earlier
//   unacknowledged ones. After a reconnect `hello` lists every task whose end the head has not
//   acknowledged.
// - The head numbers its orders to suspend and resume. An order is carried out only if its number
//   is higher than the last and the task is running or suspended; its number and outcome are then
//   part of the task's status.
// - An ended task's directory is kept until its end is acknowledged, and then for its retention.
// - A live task that the head does not know is stopped. Without a head for longer than the
//   self-fence, only tasks marked fenced are stopped. A task whose paid time has passed is stopped.
//   The task's supervisor also knows both deadlines in advance and is updated when they move: it
//   enforces them while no agent runs.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/limits.h"
#include "base/result.h"
#include "core/agent/watch.h"
#include "core/model/job.h"
#include "core/wire/agent_v1.h"

namespace billow::agent {

// A visitor made of one function for each alternative.
template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

struct Now {
  WallTime wall;
  SteadyTime steady;  // CLOCK_BOOTTIME: deadlines also pass while the machine sleeps
};

// Why the agent stops a task; travels through the supervisor into the exit record's stop_reason.
enum class StopReason : std::uint32_t {
  request = 0,
  unpaid = 1,
  fenced = 2,
  disowned = 3,
  idle = 4,
  greedy = 5,
  port_taken = 6,
  disk = 7
};

// What must survive a restart of the agent, beside the task directories.
struct Memory {
  Epoch epoch = 0;
  std::uint64_t report_numbers_used_below = 1;  // reserved in blocks
  bool bills = false;                           // as the head last said
  bool operator==(const Memory&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("epoch", s.epoch);
    v("report_numbers_used_below", s.report_numbers_used_below);
    v("bills", s.bills);
  }
};

// ---- effects
namespace effect {
struct Remember {
  Memory memory;
};  // durable before the next effect
// Answered with Started or Ended. The supervisor ends the task at `ends_at` (0: never) unless the
// time is changed before.
struct StartTask {
  wire::agent_v1::Start start;
  SteadyTime paid_until;
  SteadyTime ends_at;
};
struct RecordEnd {
  TaskStatus status;
};  // create its directory as ended, so that it can never start
struct StopTask {
  TaskId task;
  Duration grace;
  StopReason reason;
};  // a negative grace means the one the task was started with
struct SignalTask {
  TaskId task;
  int number;
};
struct InputTask {
  TaskId task;
  bool eof;
  std::string bytes;
  std::int64_t offset = -1;
};
struct ResizeTask {
  TaskId task;
  std::uint16_t rows, cols;
};
struct SuspendTask {
  TaskId task;
  std::uint32_t order;
  SuspendMode mode;
};  // answered with Suspended
struct ResumeTask {
  TaskId task;
  std::uint32_t order;
  std::vector<GpuGrant> gpus;
};  // answered with Resumed
struct SetEndsAt {
  TaskId task;
  SteadyTime ends_at;
};  // 0: no limit
struct AcknowledgeTask {
  TaskId task;
};  // the head has its end: mark its directory
struct RemoveTask {
  TaskId task;
};  // its retention is over: remove its directory
struct ReadLog {
  wire::agent_v1::LogRead read;
};
struct CancelLog {
  std::uint64_t subscription;
};
struct Send {
  wire::agent_v1::FromAgent message;
};
struct Disconnect {
  std::string why;
};  // dial again later
struct LookAtPort {
  TaskId task;
  std::uint64_t number;
};  // answered with PortSeen
struct SaveMeter {
  TaskId task;
  TaskMeter meter;
  SteadyTime at;
};  // stored beside its directory, so that a restart keeps the usage
struct GiveBack {
  std::string why;
};  // the machine costs money: release it, then end
struct EndSelf {};
}  // namespace effect
using Effect = std::variant<effect::Remember,
                            effect::StartTask,
                            effect::RecordEnd,
                            effect::StopTask,
                            effect::SignalTask,
                            effect::InputTask,
                            effect::ResizeTask,
                            effect::SuspendTask,
                            effect::ResumeTask,
                            effect::SetEndsAt,
                            effect::AcknowledgeTask,
                            effect::RemoveTask,
                            effect::ReadLog,
                            effect::CancelLog,
                            effect::LookAtPort,
                            effect::Send,
                            effect::Disconnect,
                            effect::SaveMeter,
                            effect::GiveBack,
                            effect::EndSelf>;
using Effects = std::vector<Effect>;

// ---- events from the shell
namespace task_event {
struct Started {
  TaskId task;
  WallTime at;
};
// The answers to orders. With an error, the order was not carried out and the task is unchanged.
struct Suspended {
  TaskId task;
  std::uint32_t order;
  std::int64_t ram_mib;
  std::string error;
};
struct Resumed {
  TaskId task;
  std::uint32_t order;
  std::string error;
};
// Why the task cannot be suspended; empty: it can be.
struct Declared {
  TaskId task;
  std::string unsuspendable;
};
struct Checkpointed {
  TaskId task;
  Checkpoint checkpoint;
};
struct LogAdvanced {
  TaskId task;
  std::uint64_t log_end;
};
// What a starting task waits for, as text for people; empty: nothing.
struct Waiting {
  TaskId task;
  std::string text;
};
// Which process has a replica's port; `look` is the number of the request it answers, or 0.
struct PortSeen {
  TaskId task;
  PortHolder holder;
  std::uint64_t look = 0;
  std::optional<std::string> astray = {};  // where it listens instead; none: not looked at
};
// Also for a task that could not be started at all (ExitKind::exec_failed).
struct Ended {
  TaskStatus status;
};
}  // namespace task_event
using TaskEvent = std::variant<task_event::Started,
                               task_event::Suspended,
                               task_event::Resumed,
                               task_event::Declared,
                               task_event::Checkpointed,
                               task_event::LogAdvanced,
                               task_event::Waiting,
                               task_event::PortSeen,
                               task_event::Ended>;

// A task found on disk when the agent starts.
struct RecoveredTask {
  TaskStatus status;          // ended, or running / suspended under a live supervisor
  bool acknowledged = false;  // the head has its end
  bool fenced = false;
  SteadyTime paid_until;
  TaskMeter meter;  // as last saved, at `metered_at` of this boot
  SteadyTime metered_at;
};

struct CoreOptions {
  NodeOffer offer;
  Memory memory;
  std::vector<RecoveredTask> tasks;
  int protocol = wire::agent_v1::protocol_version;
  // Supervisors end their tasks after the agent has been gone for this long; 0: never.
  Duration tasks_outlive_us;
};

class Core {
 public:
  Core(CoreOptions options, Now now);

  void on_connected(Now now, Effects& out);
  void on_disconnected(Now now);
  // Any sign of the head other than messages. The self-fence counts from the last one. An open
  // connection is such a sign too, as old as the timeout of an unanswered ping.
  void on_head_alive(Now now);
  void on_message(const wire::agent_v1::ToAgent& message,
                  std::string_view blob,
                  Now now,
                  Effects& out);
  void on_task_event(const TaskEvent& event, Now now, Effects& out);
  // One sample of a task; idleness and metering use only these.
  void on_sample(TaskId task, const TaskSample& sample, Now now, Effects& out);
  // A request from inside the job. Returns the granted duration.
  Result<Duration> keep_alive(
      TaskId task, Duration lasts, std::string reason, Now now, Effects& out);
  void tick(Now now, Effects& out);
  // The disk is almost full: the tasks that ended first are removed with their logs, before the
  // logs of running tasks lose anything. A few per call; called until there is space again.
  void on_disk_low(Effects& out);
  // The node is being reclaimed: the head is informed and moves its work; nothing new starts.
  void on_reclaimed(std::string reason, Now now, Effects& out);
  // The head has removed this node: its tasks end, then this agent ends.
  void on_removed(Now now, Effects& out);
  // After on_reclaimed: no task lives, and the head has every report and the notice itself. Before
  // that, a start may be on its way here, and its job would be lost with this node.
  bool may_leave() const {
    return live_.empty() && unacknowledged_count() == 0 && (notice_known_ || memory_.epoch == 0);
  }
  // The node's offer changed (a GPU failed): the next hello contains it.
  void set_offer(NodeOffer offer) { offer_ = std::move(offer); }

  const Memory& memory() const { return memory_; }
  bool welcomed() const { return welcomed_; }
  std::size_t live_count() const { return live_.size(); }
  std::size_t unacknowledged_count() const { return pending_.size(); }
  const TaskStatus* find(TaskId id) const;
  const std::set<TaskId>& live() const { return live_; }
  const TaskWatch* watch(TaskId id) const;
  // None, or which invariant is broken. For tests and the simulator.
  std::optional<std::string> check_invariants() const;

 private:
  struct Held {
    TaskStatus status;
    bool fenced = false;
    SteadyTime paid_until;  // 0: no limit
    bool stop_sent = false;
    bool fence_sent = false;
    SteadyTime ends_at;               // the deadline that the supervisor has
    bool acknowledged = false;        // the head has stored its end
    std::uint64_t report_number = 0;  // of the unacknowledged report; 0: none
    IdleRules idle;
    std::unique_ptr<TaskWatch> watch;  // while it lives
  };
  struct Pending {
    TaskId task;
    SteadyTime sent_at;
    bool sent = false;
  };

  void handle(const wire::agent_v1::Welcome& m, Now now, Effects& out);
  void handle(const wire::agent_v1::Refused& m, Now now, Effects& out);
  void handle(const wire::agent_v1::Start& m, Now now, Effects& out);
  void handle(const wire::agent_v1::Stop& m, Now now, Effects& out);
  void handle(const wire::agent_v1::Suspend& m, Now now, Effects& out);
  void handle(const wire::agent_v1::Resume& m, Now now, Effects& out);
  void handle(const wire::agent_v1::LeaseRenew& m, Now now, Effects& out);
  void handle(const wire::agent_v1::Ack& m, Now now, Effects& out);
  void handle(const wire::agent_v1::Settle& m, Now now, Effects& out);
  void handle(const wire::agent_v1::LogRead& m, Now now, Effects& out);
  void handle(const wire::agent_v1::Leave& m, Now now, Effects& out);
  void handle(const wire::agent_v1::SetIdleRules& m, Now now, Effects& out);
  void handle(const wire::agent_v1::KeepTask& m, Now now, Effects& out);

  void happened(Held& held, const task_event::Started& e, Now now, Effects& out);
  void happened(Held& held, const task_event::Suspended& e, Now now, Effects& out);
  void happened(Held& held, const task_event::Resumed& e, Now now, Effects& out);
  void happened(Held& held, const task_event::Declared& e, Now now, Effects& out);
  void happened(Held& held, const task_event::Checkpointed& e, Now now, Effects& out);
  void happened(Held& held, const task_event::LogAdvanced& e, Now now, Effects& out);
  void happened(Held& held, const task_event::Waiting& e, Now now, Effects& out);
  void happened(Held& held, const task_event::PortSeen& e, Now now, Effects& out);
  void happened(Held& held, const task_event::Ended& e, Now now, Effects& out);

  bool epoch_accepted(Epoch epoch, Effects& out);
  Held* take_order(TaskId id, std::uint32_t order, Now now, Effects& out);
  SteadyTime ends_at(const Held& held) const;
  SteadyTime seen_now_;  // the newest time seen, for tasks that must end with this agent
  int protocol_;
  Duration tasks_outlive_us_;
  std::string reclaimed_;
  std::uint64_t notice_number_ = 0;  // of that; 0: not reclaimed
  bool notice_known_ = false;        // to the head, or it refuses this node
  bool bills() const;
  void say_marks(Now now, Effects& out);
  void say_mark(const Held& held, Now now, Effects& out);
  void give_back_if_abandoned(Now now, Effects& out);
  void stop_task(Held& held, Duration grace, StopReason reason, Now now, Effects& out);
  void end_without_start(TaskId id, ExitKind kind, std::string message, Now now, Effects& out);
  void report(Held& held, Now now, Effects& out);
  void send_notice_number(Effects& out);
  void send_report(std::uint64_t number, Pending& pending, Now now, Effects& out);
  void acknowledge(Held& held, Now now, Effects& out);
  void bury(TaskId id);
  void remove_oldest(Effects& out);
  std::uint64_t next_report_number(Effects& out);
  bool was_removed(TaskId id) const;

  NodeOffer offer_;
  Memory memory_;
  std::uint64_t next_report_number_ = 1;
  std::map<TaskId, Held> tasks_;
  std::set<TaskId> live_;                               // not ended
  std::map<std::uint64_t, Pending> pending_;            // reports not acknowledged, by number
  std::deque<std::pair<SteadyTime, TaskId>> retained_;  // acknowledged ends, by removal time
  std::set<TaskId> tombstones_;
  TaskId tombstone_floor_;  // unknown ids up to this one were removed
  bool connected_ = false, welcomed_ = false, leaving_ = false;
  SteadyTime head_seen_at_;
  SteadyTime empty_since_;  // since when no task lives
  SteadyTime marked_at_;
  bool given_back_ = false;
};

}  // namespace billow::agent
