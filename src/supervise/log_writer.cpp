#include "supervise/log_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "supervise/sys.h"

namespace billow::supervise {
namespace {
Text<64> segment_name(std::uint64_t base) {
  Text<64> name;
  name << "out." << base << ".log";
  return name;
}
}  // namespace

void LogWriter::start(std::uint64_t segment_bytes, std::uint32_t segments_max) {
  segment_bytes_ = segment_bytes;
  segments_max_ = segments_max;
  open_segment();
}

bool LogWriter::open_segment() {
  const int fd = open(file_log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) {
    error_ = errno;
    return false;
  }
  SegmentHeader header{};
  memcpy(header.magic, segment_magic, sizeof(header.magic));
  header.base = end_;
  if (write(fd, &header, sizeof(header)) != static_cast<ssize_t>(sizeof(header))) {
    error_ = errno != 0 ? errno : ENOSPC;
    close(fd);
    return false;
  }
  fd_ = fd;
  base_ = end_;
  return true;
}

bool LogWriter::rotate() {
  if (rename(file_log, segment_name(base_).data) != 0) {
    error_ = errno;
    return false;
  }
  close(fd_);
  fd_ = -1;
  old_bases_[old_count_++] = base_;
  if (old_count_ >= segments_max_) {
    unlink(segment_name(old_bases_[0]).data);
    memmove(old_bases_, old_bases_ + 1, --old_count_ * sizeof(old_bases_[0]));
  }
  return open_segment();
}

bool LogWriter::write_record(Stream stream, std::uint8_t flags, const char* data, std::uint32_t bytes, std::int64_t wall) {
  if (fd_ < 0 && !open_segment()) return false;
  const std::uint64_t record_bytes = sizeof(RecordHead) + bytes;
  if (end_ > base_ && end_ - base_ + record_bytes > segment_bytes_ && !rotate()) return false;
  RecordHead head{bytes, static_cast<std::uint8_t>(stream), flags, 0, wall};
  iovec parts[2] = {{&head, sizeof(head)}, {const_cast<char*>(data), bytes}};
  ssize_t n;
  do n = writev(fd_, parts, 2);
  while (n < 0 && errno == EINTR);
  if (n == static_cast<ssize_t>(record_bytes)) {
    end_ += record_bytes;
    return true;
  }
  error_ = n < 0 ? errno : ENOSPC;
  const off_t good = static_cast<off_t>(sizeof(SegmentHeader) + (end_ - base_));
  if (n > 0 && ftruncate(fd_, good) != 0) error_ = errno;
  lseek(fd_, good, SEEK_SET);
  return false;
}

void LogWriter::lose(std::uint32_t bytes, int error) {
  error_ = error;
  dropped_bytes_ += bytes;
  dropped_untold_ += bytes;
}

void LogWriter::flush_loss(std::int64_t wall) {
  if (dropped_untold_ == 0) return;
  Text<160> notice;
  const bool full = error_ == ENOSPC || error_ == EDQUOT;
  notice << "billow: " << dropped_untold_ << " bytes lost: " << (full ? "disk full" : errno_text(error_)) << "\n";
  if (write_record(Stream::err, record_notice, notice.data, static_cast<std::uint32_t>(notice.size), wall)) dropped_untold_ = 0;
}

bool LogWriter::append(Stream stream, std::uint8_t flags, const char* data, std::uint32_t bytes, std::int64_t wall) {
  flush_loss(wall);
  if (dropped_untold_ == 0 && write_record(stream, flags, data, bytes, wall)) return true;
  lose(bytes, error_);
  return false;
}

}  // namespace billow::supervise
