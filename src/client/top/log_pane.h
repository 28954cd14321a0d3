// The lines of a log as a screen shows them: the newest log_lines_max of them, without escape
// sequences, a line that was rewritten with \r (a progress bar) as it last stood.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace billow::client::top {

inline constexpr std::size_t log_lines_max = 20'000;
inline constexpr std::size_t log_bytes_max = 8 << 20;
inline constexpr std::size_t log_line_bytes_max = 4096;

class LogLines {
 public:
  void take(std::string_view bytes);
  void clear() { *this = {}; }
  int size() const { return static_cast<int>(lines_.size()) + (open_.empty() ? 0 : 1); }
  const std::string& at(int line) const;
  std::uint64_t dropped() const { return dropped_; }  // lines removed at the beginning
  // The nearest line with the text (any case) from `from` on in the direction; wraps around.
  std::optional<int> find(std::string_view text, int from, bool down) const;

 private:
  void put(char c);
  void end_line();
  std::deque<std::string> lines_;
  std::string open_;  // the line that has not ended yet
  std::size_t bytes_ = 0;
  std::uint64_t dropped_ = 0;
  bool rewrites_ = false;  // a \r came: the next character begins the line anew
  enum class Escape { none, begun, sequence, text, text_end } escape_ = Escape::none;
};

// A line cut into rows of at most `width` columns; at least one.
std::vector<std::string> rows_of_line(std::string_view line, int width);

// How far a job says it is: of "15%|###", "step 30/200", "epoch 3/10" in its newest lines.
struct LogProgress {
  double part = 0;
  std::string text;  // as the job wrote it: "30/200"
};
std::optional<LogProgress> progress_in(const LogLines& log);

}  // namespace billow::client::top
