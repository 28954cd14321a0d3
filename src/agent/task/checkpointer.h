// Periodic checkpoints, for the case that the node itself is lost. At each interval the job is
// asked to write one, by its user's command or a signal. Its files in BILLOW_CHECKPOINT_DIR are
// then copied, as its user, to a directory that outlives the node, under a name that only complete
// copies have. The head learns the path and passes it to the next attempt as BILLOW_CHECKPOINT.
//
// A copy that fails changes nothing: the previous one stays, and the next interval tries again. A
// task that is stopped with a grace period is asked once more first. A suspended task is skipped,
// because it cannot answer.
#pragma once

#include <functional>
#include <map>
#include <set>

#include "agent/isolate/tree_removal.h"
#include "agent/task/signal_handlers.h"
#include "agent/task/suspender.h"

namespace billow::agent {

class Checkpointer {
 public:
  struct Callbacks {
    std::function<void(const TaskEvent&)> event;
    // Sends the signal to the processes that handle it. False: none does, yet.
    std::function<bool(TaskId, int signal, SignalTo)> signal;
    std::function<Result<JobPlace>(TaskId)> place;  // where its checkpoint command runs
    std::function<bool(TaskId)> runs;               // it can answer: not suspended, not ended
  };
  Checkpointer(net::Loop& loop, TreeRemoval& removal, Callbacks callbacks);

  // Creates the directory that the job writes its files to, below `directory`, and names it in the
  // job's environment. Called before the start; `plan` has the user.
  Status prepare(
      TaskPlan& plan, TaskId task, JobId job, const std::string& directory, Environment& env);
  void began(TaskId task, const TaskPlan& plan);
  // Removes that directory, in the background (isolate/tree_removal.h).
  void ended(const std::string& directory, TaskId task);
  // The same for all tasks except these: leftovers of an earlier agent process.
  void forget_others(const std::string& directory, const std::vector<TaskId>& live);
  // Makes one more checkpoint, if the task makes any, then calls `then` on the loop; at once if
  // there is nothing to do. `patience` is the time limit for all of it.
  void last(TaskId task, Duration patience, std::function<void()> then);

 private:
  struct Entry {
    TaskPlan plan;
    SteadyTime next;
    bool busy = false;
    bool unheard = false;  // the job did not handle the signal when it was due
    net::Timer give_up;
  };
  void tick();
  void make(TaskId task, Duration patience, std::function<void()> then);
  struct Asked {
    SteadyTime begun;
    Duration patience;
    std::int64_t before_ns = 0;  // the newest change of its files at that time
  };
  // No process handles the signal: a program that is still starting would die of it.
  void postpone(TaskId task, const std::function<void()>& then);
  // False: too many checkpoints wait already.
  bool keep_made(TaskId task, const Asked& asked, std::function<void()> then);
  void made(TaskId task,
            SteadyTime begun,
            Checkpoint checkpoint,
            Status done,
            const std::function<void()>& then);

  net::Loop& loop_;
  TreeRemoval& removal_;
  Callbacks callbacks_;
  std::map<TaskId, Entry> entries_;
  net::Timer timer_;
  net::Workers workers_;
};

}  // namespace billow::agent
