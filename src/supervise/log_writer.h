// The job's output on disk: framed records, in the order they were read, in segments of which the
// oldest are dropped first.
//
// A full disk never stops the job, and logs never fill it: below a reserve of free space the log
// gives up its own oldest segment, then loses records after its first MiB, so that the head's
// journal and all other programs can still write. If a record cannot be written whole, the file is
// truncated to its last whole record and the lost bytes are counted. When records fit again, a
// notice before the first one says how many bytes are missing and why.
#pragma once

#include <cstddef>
#include <cstdint>

#include "supervise/protocol.h"

namespace billow::supervise {

class LogWriter {
 public:
  // Files are created in the current directory, the first with the first record. If opening fails
  // (a full disk), the next record tries again.
  void start(std::uint64_t segment_bytes, std::uint32_t segments_max);
  // How many of these bytes one record should take: what the segment being written has room for, so
  // that segments are filled and the log keeps what it may. 1 to `bytes`.
  std::uint32_t fitting(std::uint32_t bytes) const;
  // True when the record is in the file. `end()` is then the offset after it.
  bool append(
      Stream stream, std::uint8_t flags, const char* data, std::uint32_t bytes, std::int64_t wall);
  // Writes what was lost since the last good record, if anything and if the disk allows.
  void flush_loss(std::int64_t wall);
  std::uint64_t end() const { return end_; }
  std::uint64_t dropped_bytes() const { return dropped_bytes_; }

 private:
  bool open_segment();
  bool rotate();
  void drop_oldest_segment();
  bool leaves_the_reserve(std::uint64_t bytes);
  // Writes one record, or a notice of a loss and one record, whole or not at all.
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
  std::uint64_t unchecked_bytes_ = 0;  // written since the free space was looked at
  int error_ = 0;
};

}  // namespace billow::supervise
