// Logs that outlive their nodes (ADR 18). When a task ends, its log is read from its node and kept
// on the head's disk; logs of tasks that still run on other machines are copied from time to time,
// so that a machine that vanishes takes little with it. Readers get the copy once it is whole, or
// when the node is gone.
//
// On disk: logs/PROJECT/TASK.log is a whole log, TASK.NODE.part what has come so far of one that is
// on that node, TASK.gone one that the project's limit has removed, TASK.sent says that the bucket
// has it (log_bucket.h). The directory is the index: a
// head that starts reads it, and takes the rest of the parts from their nodes. Beyond the limit of
// a project its oldest logs go first.
//
// Runs on the loop's thread; files are written by one worker, in order.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/control/state.h"
#include "files/log_file.h"
#include "head/agents.h"
#include "head/logs/log_bucket.h"
#include "net/workers.h"

namespace billow::limits {
// Of one project: the oldest go first.
inline constexpr std::size_t kept_logs_max = 100'000;
// How long a machine that is no longer needed waits for the logs of its tasks to be taken.
inline constexpr Duration kept_logs_patience = seconds(60);
}  // namespace billow::limits

namespace billow::head {

class KeptLogs {
 public:
  using LogRead = wire::agent_v1::LogRead;
  using LogChunk = wire::agent_v1::LogChunk;
  using OnChunk = Agents::OnChunk;
  struct Options {
    std::string directory;
    net::Loop* loop = nullptr;
    const Clock* clock = nullptr;
    Agents* agents = nullptr;
    std::function<Engine&()> engine;
    LogBucket* bucket = nullptr;  // null: none
  };
  static Result<std::unique_ptr<KeptLogs>> open(Options options);

  // The log of a task that has ended is taken once that is durable.
  std::function<void()> heard(const control::State& state, const Event& event);
  void look();  // on a timer; idempotent
  // Orders that end a node wait here until its logs are taken. False: there is nothing to wait for.
  bool holds(const control::Effect& effect);
  // Whether logs of tasks that ended on the node are still to be taken; no longer than the
  // patience.
  bool taking_from(NodeId node) const;

  std::unique_ptr<net::Subscription> read(NodeId node, LogRead request, OnChunk fn);
  std::uint64_t bytes_of(ProjectId project) const;  // what its logs take on the disk

 private:
  enum class Kind { whole, part, gone };
  struct Known {
    Kind kind = Kind::part;
    NodeId node;  // of a part
    std::uint64_t bytes = 0;
    std::optional<std::uint64_t> end;  // of a part; none: not looked at since the head started
  };
  struct Shelf {
    std::map<TaskId, Known> logs;
    std::uint64_t bytes = 0;
  };
  struct Wanted {
    TaskId task;
    NodeId node;
    ProjectId project;
    bool ended = false;
    SteadyTime since;
  };
  struct Taking {
    Wanted wanted;
    std::unique_ptr<net::Subscription> request;
  };
  struct Found {
    std::string path;
    Known known;
    ProjectId project;
  };
  struct Reading;

  explicit KeptLogs(Options options);
  Status load();
  void load_shelf(ProjectId project, const std::string& directory);
  void catch_up();  // with tasks that ended before this head started
  void want(Wanted wanted);
  void take_next();
  void ask(TaskId task);
  void took(TaskId task, const LogChunk& chunk, std::string_view frames);
  void store(TaskId task, const LogChunk& chunk, std::string_view frames);
  void stored(TaskId task, bool last, const Result<files::LogSpan>& span);
  void done(TaskId task);
  void look_at_running(SteadyTime now);
  void let_go();
  void trim(ProjectId project);
  // What an admin has set for the project (`billow quota`), or the default; none: no limit.
  std::optional<std::uint64_t> project_bytes_max(ProjectId project) const;
  std::uint64_t task_bytes_max(ProjectId project) const;
  void set(ProjectId project, TaskId task, Known known);
  std::string path(ProjectId project, TaskId task, const Known& known) const;
  std::optional<Found> find(TaskId task) const;
  void read_kept(const Found& found, const LogRead& request, const std::shared_ptr<Reading>& to);
  void ask_node(NodeId node, const LogRead& request, const std::shared_ptr<Reading>& to);
  void ask_bucket(const LogRead& request, const std::shared_ptr<Reading>& to);
  void fail_read(const std::shared_ptr<Reading>& to, std::string why);
  void send(TaskId task);  // to the bucket, if there is one and it lacks the log
  std::string why_missing(TaskId task) const;
  const control::State& state() const { return options_.engine().state(); }

  Options options_;
  std::map<ProjectId, Shelf> shelves_;
  std::unordered_map<TaskId, ProjectId> project_of_;
  std::unordered_map<TaskId, Wanted> placed_;  // tasks that have not ended
  std::deque<Wanted> queue_;
  std::map<TaskId, Taking> taking_;
  std::vector<Wanted> away_;                // their nodes do not answer now
  std::map<TaskId, SteadyTime> next_copy_;  // of tasks that run
  std::vector<control::Effect> held_;
  bool caught_up_ = false;
  std::unique_ptr<net::Workers> writer_;
  std::unique_ptr<net::Workers> readers_;
};

}  // namespace billow::head
