// The order in which a pass examines queued jobs. Every project has a line of its kinds of jobs;
// the pass takes the line whose first job ranks first: guaranteed, then on-demand, then spot;
// within each by priority, which grows with long waiting; then starved jobs, longest wait first;
// then the project served least for its weight; then age. In a project that shares fairly between
// users, each user has a part of the line, and the user served least comes first.
//
// A start changes only the usage of its project and its user, and so the position of their line and
// part. Its cost grows with the number of lines, not of kinds. The index already keeps kinds
// sorted.
#pragma once

#include <array>
#include <list>
#include <map>
#include <queue>
#include <vector>

#include "core/sched/index.h"

namespace billow::sched {

// The effect of a job's priority. Priorities are compared on a logarithmic scale (±log2(1+|p|),
// which keeps their order). A job that has waited longer than `starve_after` rises by one for each
// further `starve_after`. All jobs rise at the same rate, so a job of priority p is passed by jobs
// of a higher priority q only if they were submitted before it or within (scale(q) − scale(p) + 1)
// × `starve_after` after it. After that time no new job can pass it, and it starts next once those
// have started.
double queue_level(std::int32_t priority, Duration waited, Duration starve_after);

// The first job of a kind that the pass has not examined yet.
struct Front {
  // Guaranteed, borrowed, spot, as in preempt.h: a victim never comes first again.
  int tier_down = 0;
  double level_down = 0;      // from priority and waiting time
  bool fed = true;            // not starved
  std::int64_t since_ns = 0;  // if starved: submit time; later jobs can no longer pass it
  std::uint64_t rank = 0;
  JobId job;
  Kind* kind = nullptr;
  std::set<ReadyKey>::const_iterator at;
  auto key() const { return std::tie(tier_down, level_down, fed, since_ns, rank, job); }
};

// One user's part of a line, or all of it.
class LinePart {
 public:
  explicit LinePart(double share) : share_(share) {}
  void set_share(double share) { share_ = share; }
  void add(const Front& front);        // in the order of the project's kinds
  void add_again(const Front& front);  // in any order
  bool empty() const { return left_ == 0; }
  const Front& first() const;
  Front take_first();
  bool operator>(const LinePart& o) const;

 private:
  struct Stream {
    std::vector<Front> fronts;
    std::size_t at = 0;
  };
  static constexpr int tiers = 3;
  int first_stream() const;  // -1: the first is in `again_`

  double share_;  // its user's usage
  // Jobs that are not starved, by tier; each stream is already in order.
  std::array<Stream, tiers> streams_;
  std::vector<Front> again_;  // a heap
  std::size_t left_ = 0;
};

template <class T>
struct Later {
  bool operator()(const T* a, const T* b) const { return *a > *b; }
};

class Line {
 public:
  Line(const ProjectState& project, double share) : project_(&project), share_(share) {}
  const ProjectState& project() const { return *project_; }
  void set_share(double share) { share_ = share; }

  // The part of a user, or one part for all if the project does not distinguish users. `share` is
  // called when the part is created.
  template <class F>
  LinePart& part(UserId user, F share) {
    auto it = parts_.find(user);
    return it != parts_.end() ? it->second : parts_.try_emplace(user, share()).first->second;
  }
  void form();  // after all parts have been filled
  bool empty() const { return order_.empty(); }
  void close() {
    order_ = {};
    taken_ = nullptr;
  }  // the rest of it is skipped in this pass
  const Front& first() const { return order_.top()->first(); }
  Front take_first();  // removes its part from the line until put_back()
  LinePart& taken() { return *taken_; }
  void put_back();
  // Whether nothing would be left if its taken part were put back now.
  bool done() const { return order_.empty() && (!taken_ || taken_->empty()); }
  bool operator>(const Line& o) const;  // compares the ranks of the first jobs

 private:
  const ProjectState* project_;
  double share_;  // usage over weight
  std::map<UserId, LinePart> parts_;
  std::priority_queue<LinePart*, std::vector<LinePart*>, Later<LinePart>> order_;
  LinePart* taken_ = nullptr;
};

class Lines {
 public:
  Line& open(const ProjectState& project, double share) {
    return all_.emplace_back(project, share);
  }
  void form();  // after all lines have been filled
  bool empty() const { return order_.empty(); }
  Line& take();  // the line that comes first; put it back afterwards
  void put_back(Line& line);

 private:
  std::list<Line> all_;
  std::priority_queue<Line*, std::vector<Line*>, Later<Line>> order_;
};

}  // namespace billow::sched
