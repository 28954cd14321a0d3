// Reading a task's log from a logical offset, while it is written, rotated and dropped under the
// reader.
//
// A segment has its base offset in its header, so an open descriptor is unambiguous: a rename
// between choosing and opening a file does no harm. Only whole records are returned. An offset that
// is not from an earlier answer is moved forward to the next record.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "core/wire/log_query.h"
#include "supervise/protocol.h"

namespace billow::agent {

using wire::for_each_record;
using wire::LogRecord;

struct LogChunk {
  std::uint64_t offset = 0;       // of the first record in `frames`
  std::uint64_t next_offset = 0;  // where the next read starts
  std::uint64_t gone_bytes = 0;   // dropped by rotation between the offset asked for and `offset`
  std::string frames;             // whole records, as in the file: what goes over the wire
  bool at_end = false;            // there was no more at that moment
};

class LogReader {
 public:
  explicit LogReader(std::string task_path) : path_(std::move(task_path)) {}

  // Up to about `bytes_max` of whole records (one record even if it is larger). An offset beyond
  // the end gives an empty chunk at the end.
  Result<LogChunk> read(std::uint64_t offset, std::size_t bytes_max);
  // Lines of it, by number, place or text.
  Result<wire::LogAnswer> query(const wire::LogQuery& query);
  // Where the log ends now.
  Result<std::uint64_t> end() const;
  // The offset of a record about `bytes` before the end: for `logs --tail`.
  Result<std::uint64_t> tail_offset(std::uint64_t bytes);

 private:
  struct Segment;
  // As read(), into a chunk whose memory is used again.
  Status read_into(LogChunk& chunk, std::uint64_t offset, std::size_t bytes_max);
  Result<Segment> open_segment(std::uint64_t offset) const;
  // The first record that begins at or after `offset`, or the last that begins at or before it.
  enum class Side { after, before };
  std::uint64_t boundary_at(const Segment& segment, std::uint64_t offset, Side side);
  void remember(std::uint64_t offset);

  std::string path_;
  std::set<std::uint64_t> boundaries_;  // offsets known to begin a record; bounded
  wire::LineIndex lines_;
};

}  // namespace billow::agent
