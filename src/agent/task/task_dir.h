// The task directories of a node. They alone decide whether a task may be started.
//
// `create` makes tasks/<id> with mkdir. If it exists, the task was started before and is not
// started again. The lock is taken here, before the supervisor exists, and passed to it, so that it
// is never free between "about to start" and "ended". A free lock means one of three things, which
// `find` distinguishes:
//   an exit record               → it ended
//   no pid in the lock           → it never ran: it may be removed and started again
//   a pid, but no exit record    → its supervisor was killed: the task is lost
// What cannot be read at the moment is none of them, and an error.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/isolate/task_spec.h"
#include "base/file.h"
#include "base/ids.h"
#include "supervise/protocol.h"

namespace billow::agent {

enum class TaskPresence { supervised, ended, never_started, lost };

struct FoundTask {
  TaskId id;
  TaskPresence presence = TaskPresence::lost;
  std::optional<supervise::ExitRecord> exit;  // if it ended
  std::string meta;                           // the agent's own notes
  bool acknowledged = false;                  // the head has the exit
  int supervisor_pid = 0;                     // as the lock says; 0 if it never ran
};

// A new directory: locked, and ready for the launcher.
struct NewTask {
  TaskId id;
  std::string path;
  Fd lock;
};

// Whether a task may run although `find` found nothing: its directory is there and could not be
// read.
bool is_unreadable(const Error& error);

class TaskDirs {
 public:
  // Created if missing. `readers`: a group that may read what is in it, while the directories
  // belong to this process.
  static Result<TaskDirs> open(std::string root, std::optional<unsigned> readers = {});
  // Those of another process, to read them.
  static TaskDirs at(std::string root) { return TaskDirs(std::move(root), {}); }

  // Code::conflict if the task exists.
  Result<NewTask> create(TaskId id, TaskSpec spec, std::string_view meta = {});
  // For a task that ends before it began: creates its directory with an exit record, so that it can
  // never start. Idempotent.
  Status record_end(TaskId id, const supervise::ExitRecord& record);
  std::string path(TaskId id) const;
  Result<FoundTask> find(TaskId id) const;
  // Every task of this node. Entries that are not task directories are ignored; a task that cannot
  // be read fails the whole list, because the agent removes what belongs to tasks that it misses.
  Result<std::vector<FoundTask>> list() const;
  // The head has the exit: the directory may be removed once its logs have expired.
  Status acknowledge(TaskId id);
  // Refused (Code::conflict) while a supervisor lives.
  Status remove(TaskId id);
  const std::string& root() const { return root_; }

 private:
  TaskDirs(std::string root, std::optional<unsigned> readers)
      : root_(std::move(root)), readers_(readers) {}
  Status make(const std::string& directory) const;
  std::string root_;
  std::optional<unsigned> readers_;
};

// Whether the lock of a task directory is held: by its supervisor, or by an agent about to start
// one. A lock that cannot be read may be held.
bool supervisor_alive(const std::string& directory);
// The exit record of a task directory; not_found if there is none.
Result<supervise::ExitRecord> read_exit(const std::string& directory);
}  // namespace billow::agent
