// The job's output on disk: framed records, in the order they were read, cut into segments of which
// the oldest go first.
//
// A full disk never stops the job. A record that cannot be written whole is taken back (the file is
// truncated to its last whole record), its bytes are counted, and the first record that fits again
// together with it is preceded by a notice that says how many bytes are missing and why.
#pragma once

#include <cstddef>
#include <cstdint>

#include "supervise/protocol.h"

namespace billow::supervise {

class LogWriter {
 public:
  // Files are made in the current directory, the first with the first record. Opening may fail (a
  // full disk); the next record tries again.
  void start(std::uint64_t segment_bytes, std::uint32_t segments_max);
  // True when the record is in the file. `end()` is then the offset after it.
  bool append(
      Stream stream, std::uint8_t flags, const char* data, std::uint32_t bytes, std::int64_t wall);
  // Says what was lost since the last good record, if anything and if the disk allows.
  void flush_loss(std::int64_t wall);
  std::uint64_t end() const { return end_; }
  std::uint64_t dropped_bytes() const { return dropped_bytes_; }

 private:
  bool open_segment();
  bool rotate();
  // One record, or the notice of a loss and one record, whole or not at all.
  struct Record {
    Stream stream;
    std::uint8_t flags;
    const char* data;
    std::uint32_t bytes;
  };
  bool write_records(const Record* records, int count, std::int64_t wall);
  void lose(std::uint32_t bytes, int error);

  int fd_ = -1;
  std::uint64_t segment_bytes_ = 0;
  std::uint32_t segments_max_ = 1;
  std::uint64_t base_ = 0;  // of the segment being written
  std::uint64_t end_ = 0;   // logical
  std::uint64_t old_bases_[64];
  std::uint32_t old_count_ = 0;
  std::uint64_t dropped_bytes_ = 0;
  std::uint64_t dropped_untold_ = 0;
  int error_ = 0;
};

}  // namespace billow::supervise
