// A task's log as the head keeps it: the records of the node's log, in compressed blocks, in one
// file. A block begins at the logical offset of its first record, so a reader who knows an offset
// from the node continues here.
//
// Blocks are only appended, except that a small last block is written again with what follows it. A
// block that a crash left half written is cut off by the next append and never read. Beyond the
// limit the oldest blocks are removed; the offset of the first one tells how much is missing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace billow::files {

struct LogSpan {
  std::uint64_t first = 0;         // offset of the oldest record that is kept
  std::uint64_t end = 0;           // offset after the newest
  std::uint64_t stored_bytes = 0;  // of the file
};

struct LogBlock {
  std::uint64_t offset = 0;
  std::string frames;  // empty: the offset is at the end of the log
  LogSpan span;
};

// A file that does not exist is an empty log.
Result<LogSpan> log_span(const std::string& path);
// Adds whole records that begin at `offset`, at or after the end. With more than `bytes_max` of
// records the oldest blocks are removed.
Result<LogSpan> append_log(const std::string& path,
                           std::uint64_t offset,
                           std::string_view frames,
                           std::uint64_t bytes_max);
// The block that contains `offset`, or the next one after it.
Result<LogBlock> read_log_block(const std::string& path, std::uint64_t offset);

// Reads a log from block to block, without looking for each anew.
class LogScan {
 public:
  // Ahead::yes: while the reader goes on from block to block, threads unpack those that follow.
  enum class Ahead { no, yes };
  explicit LogScan(std::string path, Ahead ahead = Ahead::no);
  ~LogScan();
  LogScan(const LogScan&) = delete;
  LogScan& operator=(const LogScan&) = delete;
  Result<LogBlock> read(std::uint64_t offset);  // as read_log_block

 private:
  struct Open;
  std::string path_;
  Ahead ahead_;
  std::unique_ptr<Open> open_;
};

}  // namespace billow::files
