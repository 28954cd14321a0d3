// A line that says how far something is, how fast it goes and how long it will take: uploads,
// pulls, arrays, waits. On a terminal it is drawn over itself on stderr; elsewhere nothing is said
// until the end. What the line says is a pure function, so that tests can hold it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace billow::client {

enum class ProgressUnit { things, bytes };

struct ProgressState {
  std::string what;                   // "upload data.tar", "array 12"
  std::uint64_t done = 0, total = 0;  // total 0: unknown
  ProgressUnit unit = ProgressUnit::things;
  double per_second = 0;  // 0: not known yet
  Duration elapsed;
  std::string note;  // "3 running"
};
// At most `columns` wide.
std::string progress_line(const ProgressState& state, std::size_t columns);

class Progress {
 public:
  Progress(std::string what, ProgressUnit unit);
  ~Progress();  // takes the line away
  // Redraws at most ten times a second; the rate is that of the last several seconds.
  void update(std::uint64_t done, std::uint64_t total, std::string_view note = {});

 private:
  void draw(SteadyTime now);
  ProgressState state_;
  bool terminal_;
  bool drawn_ = false;
  SteadyTime began_, drawn_at_, window_at_;
  std::uint64_t window_done_ = 0;
};

}  // namespace billow::client
