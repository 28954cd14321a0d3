// How long jobs run, learned from those that succeeded. A project's runs are remembered by the
// exact command with its GPUs, by the program (or script) whatever its arguments, and by the job's
// name. The most specific key with enough runs answers. The memory is bounded, is part of the
// state's image, and changes only with events.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/model/job.h"

namespace billow::control {

class Durations {
 public:
  struct Runs {
    std::uint64_t key = 0;
    std::uint64_t used = 0;        // when it was last added to, in runs learned
    std::vector<std::int64_t> ms;  // the latest runs, oldest first
    template <class S, class V>
    static constexpr void fields(S& s, V& v) {
      v("key", s.key);
      v("used", s.used);
      v("ms", s.ms);
    }
  };

  void learn(ProjectId project, const JobSpec& spec, Duration ran);
  Expectation expect(ProjectId project, const JobSpec& spec) const;
  // For an array's later elements, from its earlier ones.
  void learn_array(JobId array, Duration ran);
  Expectation expect_array(JobId array) const;
  void forget_array(JobId array);

  std::vector<Runs> contents() const;
  void restore(std::vector<Runs> contents, std::uint64_t learned);
  std::uint64_t learned() const { return learned_; }

 private:
  void add(std::uint64_t key, Duration ran);
  std::map<std::uint64_t, Runs> runs_;
  // Used → key: the least recently used is dropped first.
  std::map<std::uint64_t, std::uint64_t> by_use_;
  std::uint64_t learned_ = 0;
};

// "high", "medium" or "low", by the spread and the number of runs.
const char* confidence(const Expectation& expected);

}  // namespace billow::control
