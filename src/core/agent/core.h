// The agent's logic, pure: messages, task events and the time go in; effects come out. No clock,
// file, process or socket is touched here, so the fault simulator runs this very code.
//
// What holds:
// - A task id is started at most once. A repeated `start` only repeats the report; a `stop` that
// overtakes its `start`
//   ends the task before it began.
// - A head of a lower epoch is refused, whatever it says. A higher epoch is remembered on disk
// (Remember) before anything
//   it asks is done: effects are carried out in order.
// - A change of a task is reported until the head acknowledges it; later changes replace earlier
// ones that were not
//   acknowledged. After a reconnect `hello` lists every task whose end the head is not known to
//   have.
// - Orders to suspend and resume are numbered by the head. Only one above the last is taken up, and
// only by a task that runs or is
//   suspended; its number and outcome are part of the task's status from then on.
// - An ended task's directory is kept until its end is acknowledged, and then for its retention.
// - A live task the head does not know is stopped. Without a head beyond the self-fence, tasks
// marked fenced are stopped,
//   and only they. A task whose paid time passed is stopped. Both ends are also told to the task's
//   supervisor, ahead of time and again as they move: it carries them out when there is no agent to
//   do so.
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

struct Now {
  WallTime wall;
  SteadyTime steady;  // CLOCK_BOOTTIME: the self-fence and paid time go on while the machine sleeps
};

// Why the agent stops a task; travels through the supervisor into the exit record's stop_reason.
enum class StopReason : std::uint32_t {
  request = 0,
  unpaid = 1,
  fenced = 2,
  disowned = 3,
  idle = 4,
  greedy = 5,
  port_taken = 6
};

// What must survive a restart of the agent, beside the task directories.
struct Memory {
  Epoch epoch = 0;
  std::uint64_t report_numbers_used_below =
      1;               // numbers are taken in blocks, so that not each costs a write
  bool bills = false;  // as a head said last
  bool operator==(const Memory&) const = default;
  template <class V>
  void fields(V& v) {
    v("epoch", epoch);
    v("report_numbers_used_below", report_numbers_used_below);
    v("bills", bills);
  }
};

// ---- effects
// --------------------------------------------------------------------------------------------------------
namespace effect {
struct Remember {
  Memory memory;
};  // durable before the next effect
// Answer with Started or Ended. The supervisor ends the task at `ends_at` (0: never) unless told
// otherwise by then.
struct StartTask {
  wire::agent_v1::Start start;
  SteadyTime paid_until;
  SteadyTime ends_at;
};
struct RecordEnd {
  TaskStatus status;
};  // make its directory, ended: whatever arrives later, it cannot start
struct StopTask {
  TaskId task;
  Duration grace;
  StopReason reason;
};  // negative grace: as the task was started with
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
};  // answer with Suspended
struct ResumeTask {
  TaskId task;
  std::uint32_t order;
  std::vector<GpuGrant> gpus;
};  // answer with Resumed
struct SetEndsAt {
  TaskId task;
  SteadyTime ends_at;
};  // 0: without limit
struct AcknowledgeTask {
  TaskId task;
};  // the head has its end: mark the directory
struct RemoveTask {
  TaskId task;
};  // retention is over: the directory may go
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
};  // answer with PortSeen
struct SaveMeter {
  TaskId task;
  TaskMeter meter;
  SteadyTime at;
};  // beside its directory: a restart must not forget what was used
struct GiveBack {
  std::string why;
};  // the machine belongs to a pool that bills: hand it back, then end
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

// ---- what the shell tells
// -------------------------------------------------------------------------------------------
namespace task_event {
struct Started {
  TaskId task;
  WallTime at;
};
// The answers to the orders. With an error the order was not carried out and the task is as it was
// before it.
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
// What became known about whether it can be suspended; empty: it can.
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
// What a task that starts waits for, in words for people; empty: nothing.
struct Waiting {
  TaskId task;
  std::string text;
};
// Who has a replica's port; `look` is the number of the question it answers, or 0.
struct PortSeen {
  TaskId task;
  PortHolder holder;
  std::uint64_t look = 0;
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
  TaskMeter meter;  // as it was saved last, at this time of this boot
  SteadyTime metered_at;
};

struct CoreOptions {
  NodeOffer offer;
  Memory memory;
  std::vector<RecoveredTask> tasks;
  int protocol = wire::agent_v1::protocol_version;
  Duration tasks_outlive_us;  // 0: for ever; else supervisors end their tasks when this agent has
                              // been gone for so long
};

class Core {
 public:
  Core(CoreOptions options, Now now);

  void on_connected(Now now, Effects& out);
  void on_disconnected(Now now);
  // Any sign of the head beyond messages. The self-fence counts from the last one. An open
  // connection is such a sign itself, as old as the time after which an unanswered ping cuts it.
  void on_head_alive(Now now);
  void on_message(const wire::agent_v1::ToAgent& message,
                  std::string_view blob,
                  Now now,
                  Effects& out);
  void on_task_event(const TaskEvent& event, Now now, Effects& out);
  // What a task does right now. It is watched for idleness and metered from these alone.
  void on_sample(TaskId task, const TaskSample& sample, Now now, Effects& out);
  // Asked for inside the job. How long it holds; an error where there is no such task.
  Result<Duration> keep_alive(
      TaskId task, Duration lasts, std::string reason, Now now, Effects& out);
  void tick(Now now, Effects& out);
  // The node is taken away: told to the head, which sends its work elsewhere; nothing new starts.
  void on_reclaimed(std::string reason, Now now, Effects& out);
  // The head does not know this node any more: what runs here is nobody's, and ends; then this
  // agent does.
  void on_removed(Now now, Effects& out);
  bool idle() const { return live_.empty() && pending_.empty(); }
  // When tick has something to do next; none: when something else happens.
  std::optional<SteadyTime> next_wake() const;
  // The machine's offer changed (a GPU fell off): told with the next hello, which a reconnect
  // brings.
  void set_offer(NodeOffer offer) { offer_ = std::move(offer); }

  const Memory& memory() const { return memory_; }
  bool welcomed() const { return welcomed_; }
  std::size_t live_count() const { return live_.size(); }
  std::size_t unacknowledged_count() const { return pending_.size(); }
  const TaskStatus* find(TaskId id) const;
  const std::set<TaskId>& live() const { return live_; }
  const TaskWatch* watch(TaskId id) const;
  // What must hold at any moment; a text where it does not. For tests and the simulator.
  std::optional<std::string> check_invariants() const;

 private:
  struct Held {
    TaskStatus status;
    bool fenced = false;
    SteadyTime paid_until;  // 0: without limit
    bool stop_sent = false;
    bool fence_sent = false;
    SteadyTime ends_at;               // as the supervisor was told last
    bool acknowledged = false;        // its end is durable at the head
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

  bool epoch_accepted(Epoch epoch, Effects& out);
  Held* take_order(TaskId id, std::uint32_t order, Now now, Effects& out);
  SteadyTime ends_at(const Held& held) const;
  SteadyTime seen_now_;  // the newest time heard of, for what must end with this agent
  int protocol_;
  Duration tasks_outlive_us_;
  std::string reclaimed_;
  bool bills() const;
  void say_marks(Now now, Effects& out);
  void dead_man(Now now, Effects& out);
  void stop_task(Held& held, Duration grace, StopReason reason, Now now, Effects& out);
  void end_without_start(TaskId id, ExitKind kind, std::string message, Now now, Effects& out);
  void report(Held& held, Now now, Effects& out);
  void send_report(std::uint64_t number, Pending& pending, Now now, Effects& out);
  void acknowledge(Held& held, Now now, Effects& out);
  void bury(TaskId id);
  std::uint64_t next_report_number(Effects& out);
  bool was_removed(TaskId id) const;

  NodeOffer offer_;
  Memory memory_;
  std::uint64_t next_report_number_ = 1;
  std::map<TaskId, Held> tasks_;
  std::set<TaskId> live_;                               // not ended
  std::map<std::uint64_t, Pending> pending_;            // reports not acknowledged, by number
  std::deque<std::pair<SteadyTime, TaskId>> retained_;  // acknowledged ends, by when they may go
  std::set<TaskId> tombstones_;
  TaskId tombstone_floor_;  // every id up to this one that is not held is gone
  bool connected_ = false, welcomed_ = false, leaving_ = false;
  SteadyTime head_seen_at_;
  SteadyTime empty_since_;  // no task lives
  SteadyTime marked_at_;
  bool given_back_ = false;
};

}  // namespace billow::agent
