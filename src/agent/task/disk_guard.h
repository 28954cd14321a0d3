// Ends tasks whose files take more of the node's disk than they may. Directories are counted, not
// quotas set, because most file systems are mounted without project quotas: between two looks a
// task can exceed its limit, and a disk that is nearly full is looked at more often.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "agent/observe/disk_use.h"
#include "base/clock.h"
#include "base/ids.h"
#include "net/loop.h"
#include "net/workers.h"

namespace billow::agent {

// Part of what an agent stores with a task, for the next agent.
struct DiskLimit {
  std::int64_t bytes = 0;  // 0: none
  std::vector<std::string> places;
  std::string by;  // what set it, as the job's end says
  bool operator==(const DiskLimit&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("bytes", s.bytes);
    v("places", s.places);
    v("by", s.by);
  }
};

class DiskGuard {
 public:
  struct Options {
    Duration period = seconds(10);  // between two looks at the same task
    Duration hurry = seconds(1);    // while the disk is nearly full
  };
  struct Callbacks {
    std::function<std::vector<int>(TaskId)> processes;
    std::function<void(TaskId, const std::string& why)> stop;
  };
  DiskGuard(net::Loop& loop, Options options, Callbacks callbacks);

  void watch(TaskId task, DiskLimit limit);
  void ended(TaskId task);
  // Why this guard ended the task; empty: it did not.
  std::string why(TaskId task) const;

 private:
  struct Watched {
    DiskLimit limit;
    std::shared_ptr<DiskMemory> memory = std::make_shared<DiskMemory>();
    SteadyTime earliest, next;  // the next look, if the disk is nearly full and if it is not
    bool looking = false;
    std::string why;
  };
  void look();
  void look_at(TaskId task, Watched& watched);
  void seen(TaskId task, const DiskUse& use, Duration took);

  net::Loop& loop_;
  Options options_;
  Callbacks callbacks_;
  std::unordered_map<TaskId, Watched> tasks_;
  net::Timer timer_;
  net::Workers workers_;
};

// Whether so little is free that tasks are looked at more often.
bool nearly_full(const DiskSpace& space);

}  // namespace billow::agent
