// Lines of a log by number or place, and lines with a text in them: what pages ask for instead of a
// whole log. Runs where the log lies, on the node or on the head's copy; both read it piece by
// piece through LogPieces.
//
// A line is what stands between two newlines of the whole output, both streams as a terminal shows
// them. Its place is that of its first byte in the log, heads of records included, so places only
// grow. Line numbers need every newline before them counted: a LineIndex remembers the count at
// places a megabyte apart, so that each part of a log is counted once.
//
// Work is bounded: a query that has read its bytes_per_turn stops and says where to go on.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/wire/agent_v1.h"
#include "core/wire/log_frames.h"

namespace billow::wire {

inline constexpr std::size_t query_bytes_per_turn = 64u << 20;  // some 30 ms
inline constexpr std::size_t query_piece_bytes = 512u << 10;    // stays in a core's cache
inline constexpr std::size_t query_answer_bytes_max = 1u << 20;
inline constexpr std::size_t line_text_bytes_max = 16u << 10;  // of one line in an answer
inline constexpr std::size_t line_bytes_max = 1u << 20;        // a longer one is searched in parts

// A piece of a log: whole records from `offset` on.
struct LogPiece {
  std::uint64_t offset = 0;
  std::uint64_t next_offset = 0;
  std::string frames;   // empty at the end
  bool at_end = false;  // nothing follows at this moment
};
// Reads about so many bytes of records (at least one record) at or after a place into a piece,
// whose memory is used again; a place that is no longer kept is moved to the oldest kept.
using LogPieces =
    std::function<Status(std::uint64_t offset, std::size_t bytes_max, LogPiece& into)>;

class LineIndex {
 public:
  struct Mark {
    std::uint64_t offset = 0;      // of a record
    std::uint64_t newlines = 0;    // before it
    std::uint64_t line_start = 0;  // place of the line that continues here
  };
  // Adds a place after those known; those too close to the last are left out.
  void add(const Mark& mark);
  void set_first(std::uint64_t offset);  // what is before it is no longer kept
  // The last mark from which a reader comes to the beginning of the line, or to the place.
  Mark before_line(std::uint64_t line) const;
  Mark before_place(std::uint64_t place) const;
  const Mark& last() const { return marks_.back(); }
  std::uint64_t first_offset() const { return marks_.front().offset; }
  std::uint64_t first_line() const { return marks_.front().newlines + 1; }

 private:
  std::vector<Mark> marks_ = {Mark{0, 0, sizeof(RecordHead)}};
};

struct LogQuery {
  enum class Kind { range, search };
  Kind kind = Kind::range;
  std::uint64_t from_line = 0, from_byte = 0, tail_lines = 0;
  std::size_t lines_max = 1000;
  std::string text;
  bool regex = false, any_case = false;
  std::size_t bytes_per_turn = query_bytes_per_turn;
};

struct LogAnswer {
  std::string lines;  // objects, joined by commas
  std::size_t count = 0;
  std::uint64_t next_byte = 0, next_line = 0, first_line = 1;
  std::uint64_t lost_bytes = 0;  // before the oldest line
  bool end = false;              // the log had no more
  bool more = false;             // stopped for others; ask again from next_byte
};

LogQuery query_of(const agent_v1::LogRead& read);
void fill(agent_v1::LogChunk& chunk, const LogAnswer& answer);  // without the lines

// Fails if the text is no regular expression.
Status check_query(const LogQuery& query);
Result<LogAnswer> run_query(const LogQuery& query, LineIndex& index, const LogPieces& read);

}  // namespace billow::wire
