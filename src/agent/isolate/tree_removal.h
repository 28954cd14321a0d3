// Removes the directories of ended tasks in the background. A job may have filled them with
// millions of files, and the agent's loop must not wait for that: its heartbeats would stop.
//
// A directory is first renamed, where it lies, to a name that nobody can guess. So its own name is
// free immediately for a repeated start, and no process finds it half removed. What an agent that
// was killed had only renamed is found by the new names when the next one starts.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/sync.h"
#include "net/loop.h"
#include "net/workers.h"

namespace billow::agent {

class TreeRemoval {
 public:
  using Remove = std::function<Status(const std::string& path)>;
  // `remove` is called on other threads than the loop's.
  explicit TreeRemoval(net::Loop& loop, Remove remove = {});

  // Removes a file, link or directory. Its name is free when this returns; the rest happens in the
  // background. Succeeds if nothing has this name.
  Status remove(const std::string& path);
  // What an earlier agent process had renamed in this directory.
  void remove_left(const std::string& directory);
  // Removes what still waits before it returns: the agent ends, and perhaps none follows. From then
  // on `remove` removes at once.
  void finish();

 private:
  using Waiting = Sync<std::deque<std::string>>;
  void later(const std::string& path);
  static bool remove_next(Waiting& waiting, const Remove& remove);

  Remove remove_;
  std::shared_ptr<Waiting> waiting_;
  std::unique_ptr<net::Workers> workers_;
};

}  // namespace billow::agent
