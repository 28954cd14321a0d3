// The order in which a pass looks at what is queued. Every project has a line of its kinds; the pass takes from the line whose
// first job comes first: what a project is guaranteed, then on-demand, then spot; in each by priority; then starved jobs; then
// the project that has had least for its weight; then age.
//
// A start changes how much its project has had, hence where its line stands, and nothing in the other lines: so a start costs
// one look at the lines, not at the kinds. Kinds come in the index's own order and need no sorting here.
#pragma once

#include <array>
#include <deque>
#include <queue>
#include <vector>

#include "sched/index.h"

namespace billow::sched {

// The first job of a kind that has not been looked at.
struct Front {
  int tier_down = 0;       // guaranteed, borrowed, spot: as victims.h ranks them, so that a victim never comes back first
  std::int32_t priority_down = 0;
  bool fed = true;         // not starved
  std::uint64_t rank = 0;
  JobId job;
  Kind* kind = nullptr;
  std::set<ReadyKey>::const_iterator at;
  auto key() const { return std::tie(tier_down, priority_down, fed, rank, job); }
};

class Line {
 public:
  Line(const ProjectState& project, double share) : project_(&project), share_(share) {}
  const ProjectState& project() const { return *project_; }
  void set_share(double share) { share_ = share; }

  void add(const Front& front);            // in the order of the project's kinds
  void add_again(const Front& front);      // in any order
  bool empty() const { return left_ == 0; }
  const Front& first() const;
  Front take_first();
  bool operator>(const Line& o) const;     // compares where the first ones stand

 private:
  struct Stream {
    std::vector<Front> fronts;
    std::size_t at = 0;
  };
  static constexpr int tiers = 3;
  int first_stream() const;                // -1: the first is in `again_`

  const ProjectState* project_;
  double share_;                           // usage over weight
  std::array<Stream, 2 * tiers> streams_;  // by tier, and whether starved: each of them in order as it comes
  std::vector<Front> again_;               // a heap
  std::size_t left_ = 0;
};

class Lines {
 public:
  Line& open(const ProjectState& project, double share) { return all_.emplace_back(project, share); }
  void form();                             // after all lines have been filled
  bool empty() const { return order_.empty(); }
  Line& take();                            // the line that comes first, to be put back unless it is empty
  void put_back(Line& line) { if (!line.empty()) order_.push(&line); }

 private:
  struct Later {
    bool operator()(const Line* a, const Line* b) const { return *a > *b; }
  };
  std::deque<Line> all_;
  std::priority_queue<Line*, std::vector<Line*>, Later> order_;
};

}  // namespace billow::sched
