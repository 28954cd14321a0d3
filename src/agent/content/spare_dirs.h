// Directories of ended jobs, kept for the next job of the same user in the same project: usually it
// needs the same files but a few, and only these are written.
//
// A spare directory holds only unchanged files of the tree that was written there: what its job
// changed or created is removed when the job ends. What the next job gets is checked once more,
// file by file, when its files are written (see staged_tree.h). Nothing is kept over a restart of
// the agent. Thread-safe.
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/content/staged_tree.h"
#include "base/clock.h"
#include "base/ids.h"
#include "files/tree.h"

namespace billow::agent {

class SpareDirs {
 public:
  // Who may get a directory again.
  struct Whose {
    uid_t uid = 0;
    std::string user, project;
    auto operator<=>(const Whose&) const = default;
  };
  // `place`: a directory of the agent's own, on the file system of the jobs' directories.
  SpareDirs(std::string place, std::uint64_t bytes_max);

  // Moves a spare directory to `path`, which does not exist yet. False: there is none. Either way
  // the task's own directory may be kept when it ends.
  bool take(const Whose& whose, const Sha256& tree, TaskId task, const std::string& path);
  // Tasks of an earlier agent process: what their directories hold is not known.
  void adopt(const std::vector<TaskId>& tasks);
  // What is known of the task's directory, for each entry of this tree; none: it is a new one.
  std::optional<EntryStates> states_for(TaskId task, const files::Tree& tree);
  // If removing what the task's directory holds beside this tree would take longer than writing the
  // tree anew: its content becomes a spare directory again, and the task gets that of another spare
  // directory, if one is worth it.
  void exchange(TaskId task, const files::Tree& tree, const std::string& path);
  // The tree was written to the task's directory.
  void written(TaskId task, const Sha256& digest, files::Tree tree, EntryStates states);
  // The task has ended. False: its directory cannot be kept, and is still there.
  bool retire(TaskId task, const std::string& path);
  // Removes what has not been used for long.
  void trim();

 private:
  struct Content {
    Whose whose;
    Sha256 digest{};
    std::shared_ptr<const files::Tree> tree;
    EntryStates states;
  };
  struct Spare {
    std::string path;
    std::uint64_t bytes = 0;
    SteadyTime since;
    Content content;
  };
  bool give_back(TaskId task, const files::Tree& tree, const std::string& path);
  void take_content(TaskId task, const files::Tree& tree, const std::string& path);
  std::list<Spare> unwanted(Duration age_max);  // taken out of the list; the mutex is held
  static void remove(const std::list<Spare>& spares);

  const std::string place_;
  const std::uint64_t bytes_max_;
  std::mutex mutex_;
  std::map<TaskId, Content> tasks_;
  std::set<TaskId> adopted_;
  std::list<Spare> spares_;  // oldest first
  std::uint64_t bytes_ = 0, next_ = 1;
};

}  // namespace billow::agent
