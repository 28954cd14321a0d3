// Which jobs wait for which. A hundred thousand jobs may wait for one, and they leave one by one
// when it ends or they are stopped, so each step must be cheap.
//
// Numbers are assigned in order, so a list is sorted as it is written: a job that leaves is found
// by binary search and its slot is emptied; when more than half of the slots are empty, the list is
// compacted. So n jobs cost n binary searches and at most 2 n moves.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/ids.h"

namespace billow::control {

class Dependents {
 public:
  void add(JobId on, JobId who) {
    List& list = lists_[on];
    ++list.live;
    if (list.jobs.empty() || value(list.jobs.back()) < who.value)
      return list.jobs.push_back(who);
    // A number before the last occurs only if a job waits twice for the same job, or jobs are
    // restored in another order.
    list.draw_together();
    list.jobs.insert(std::upper_bound(list.jobs.begin(), list.jobs.end(), who), who);
    work_ += list.jobs.size();
  }
  void forget(JobId on, JobId who) {
    const auto found = lists_.find(on);
    if (found == lists_.end())
      return;
    List& list = found->second;
    const auto at =
        std::lower_bound(list.jobs.begin(), list.jobs.end(), who, [&](JobId a, JobId b) {
          ++work_;
          return value(a) < value(b);
        });
    if (at == list.jobs.end() || *at != who)
      return;
    *at = JobId{who.value | gone};
    if (--list.live == 0) {
      lists_.erase(found);
      return;
    }
    if (list.live * 2 < list.jobs.size()) {
      work_ += list.jobs.size();
      list.draw_together();
    }
  }
  // In submit order.
  std::vector<JobId> of(JobId on) const {
    const auto found = lists_.find(on);
    std::vector<JobId> out;
    if (found == lists_.end())
      return out;
    out.reserve(found->second.live);
    for (JobId id : found->second.jobs)
      if (!is_gone(id))
        out.push_back(id);
    return out;
  }
  bool empty() const { return lists_.empty(); }
  // Numbers compared and moved so far, for tests.
  std::uint64_t work() const { return work_; }

 private:
  static constexpr std::uint64_t gone = std::uint64_t{1} << 63;  // no job has a number that large
  static bool is_gone(JobId id) { return (id.value & gone) != 0; }
  static std::uint64_t value(JobId id) { return id.value & ~gone; }
  struct List {
    std::vector<JobId> jobs;
    std::size_t live = 0;
    void draw_together() { std::erase_if(jobs, is_gone); }
  };
  std::unordered_map<JobId, List> lists_;
  std::uint64_t work_ = 0;
};

}  // namespace billow::control
