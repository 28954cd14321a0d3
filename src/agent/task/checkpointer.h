// Periodic checkpoints, for when the node itself goes away. Each interval the job is asked for one,
// by a command of its user or a signal; what it leaves in BILLOW_CHECKPOINT_DIR is copied, as its
// user, to a directory that outlives the node, under a name that only a complete copy ever has. The
// head is told where, and gives it to the next start as BILLOW_CHECKPOINT.
//
// A copy that fails changes nothing: the one before stays, and the next interval tries again. A
// task that is being stopped with grace is asked once more first; a suspended one is left alone,
// because it cannot answer.
#pragma once

#include <functional>
#include <map>
#include <set>

#include "agent/task/suspender.h"

namespace billow::agent {

class Checkpointer {
 public:
  struct Callbacks {
    std::function<void(const TaskEvent&)> event;
    std::function<void(TaskId, int signal)> signal;
    std::function<bool(TaskId)> runs;  // it can answer: not suspended, not ended
  };
  Checkpointer(net::Loop& loop, Callbacks callbacks);

  // Makes the directory the job leaves its files in, in one of the agent's own, and names it in its
  // environment. Before the start; `plan` knows the user.
  static Status prepare(
      TaskPlan& plan, TaskId task, JobId job, const std::string& directory, Environment& env);
  void began(TaskId task, const TaskPlan& plan);
  void ended(TaskId task);
  // One more, if it is due any, and then `then`, on the loop; at once where there is nothing to do.
  // `patience` for all of it.
  void last(TaskId task, Duration patience, std::function<void()> then);

 private:
  struct Entry {
    TaskPlan plan;
    SteadyTime next;
    bool busy = false;
    net::Timer give_up;
  };
  void tick();
  void make(TaskId task, Duration patience, std::function<void()> then);
  struct Asked {
    SteadyTime begun;
    Duration patience;
    std::int64_t before_ns = 0;
  };  // the last: the newest of its files then
  bool keep_made(TaskId task,
                 const Asked& asked,
                 std::function<void()> then);  // false: too many wait already
  void made(TaskId task,
            SteadyTime begun,
            Checkpoint checkpoint,
            Status done,
            const std::function<void()>& then);

  net::Loop& loop_;
  Callbacks callbacks_;
  std::map<TaskId, Entry> entries_;
  net::Timer timer_;
  net::Workers workers_;
};

}  // namespace billow::agent
