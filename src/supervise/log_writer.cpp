#include "supervise/log_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include "supervise/sys.h"

namespace billow::supervise {
namespace {
// Free space is looked at after so many bytes: twenty tasks write at most 20 MiB in between.
constexpr std::uint64_t space_checked_every = 1u << 20;
constexpr std::uint64_t worth_a_record = 4096;  // of data

// Whether less than a twentieth of the disk is free, or 512 MiB of a large one.
bool below_reserve(int fd) {
  struct statvfs disk {};
  if (fstatvfs(fd, &disk) != 0)
    return false;
  const std::uint64_t all = static_cast<std::uint64_t>(disk.f_blocks) * disk.f_frsize;
  const std::uint64_t free = static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize;
  const std::uint64_t most = 512u << 20;
  return free < (all / 20 < most ? all / 20 : most);
}

Text<64> segment_name(std::uint64_t base) {
  Text<64> name;
  name << "out." << base << ".log";
  return name;
}
}  // namespace

void LogWriter::start(std::uint64_t segment_bytes, std::uint32_t segments_max) {
  segment_bytes_ = segment_bytes;
  segments_max_ = segments_max;
}

bool LogWriter::open_segment() {
  const int fd = open(file_log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
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
  if (old_count_ >= segments_max_)
    drop_oldest_segment();
  return open_segment();
}

void LogWriter::drop_oldest_segment() {
  unlink(segment_name(old_bases_[0]).data);
  memmove(old_bases_, old_bases_ + 1, --old_count_ * sizeof(old_bases_[0]));
}

bool LogWriter::leaves_the_reserve(std::uint64_t bytes) {
  if (unchecked_bytes_ + bytes < space_checked_every) {
    unchecked_bytes_ += bytes;
    return true;
  }
  while (below_reserve(fd_)) {
    if (old_count_ == 0) {
      error_ = ENOSPC;
      return false;
    }
    drop_oldest_segment();
  }
  unchecked_bytes_ = 0;
  return true;
}

bool LogWriter::write_records(const Record* records, int count, std::int64_t wall) {
  if (fd_ < 0 && !open_segment())
    return false;
  RecordHead heads[2];
  iovec parts[4];
  std::uint64_t total = 0;
  for (int i = 0; i < count; ++i) {
    heads[i] = {records[i].bytes, static_cast<std::uint8_t>(records[i].stream), records[i].flags, 0,
                wall};
    parts[2 * i] = {&heads[i], sizeof(heads[i])};
    parts[2 * i + 1] = {const_cast<char*>(records[i].data), records[i].bytes};
    total += sizeof(heads[i]) + records[i].bytes;
  }
  if (end_ > base_ && end_ - base_ + total > segment_bytes_ && !rotate())
    return false;
  if (!leaves_the_reserve(total))
    return false;
  ssize_t n;
  do
    n = writev(fd_, parts, 2 * count);
  while (n < 0 && errno == EINTR);
  if (n == static_cast<ssize_t>(total)) {
    end_ += total;
    return true;
  }
  error_ = n < 0 ? errno : ENOSPC;
  const off_t good = static_cast<off_t>(sizeof(SegmentHeader) + (end_ - base_));
  if (n > 0 && ftruncate(fd_, good) != 0)
    error_ = errno;
  lseek(fd_, good, SEEK_SET);
  return false;
}

void LogWriter::lose(std::uint32_t bytes, int error) {
  error_ = error;
  dropped_bytes_ += bytes;
  dropped_untold_ += bytes;
}

namespace {
Text<160> loss_notice(std::uint64_t bytes, int error) {
  Text<160> notice;
  const bool full = error == ENOSPC || error == EDQUOT;
  notice << "billow: " << bytes << " bytes lost: " << (full ? "disk full" : errno_text(error))
         << "\n";
  return notice;
}
}  // namespace

void LogWriter::flush_loss(std::int64_t wall) {
  if (dropped_untold_ == 0)
    return;
  const auto notice = loss_notice(dropped_untold_, error_);
  const Record record{Stream::err, record_notice, notice.data,
                      static_cast<std::uint32_t>(notice.size)};
  if (write_records(&record, 1, wall))
    dropped_untold_ = 0;
}

std::uint32_t LogWriter::fitting(std::uint32_t bytes) const {
  const std::uint64_t used = end_ - base_ + sizeof(RecordHead);
  // A record of a few bytes is not worth its head; the next segment takes them.
  if (fd_ < 0 || used + worth_a_record > segment_bytes_)
    return bytes;
  const std::uint64_t room = segment_bytes_ - used;
  return room < bytes ? static_cast<std::uint32_t>(room) : bytes;
}

bool LogWriter::append(
    Stream stream, std::uint8_t flags, const char* data, std::uint32_t bytes, std::int64_t wall) {
  const auto notice = loss_notice(dropped_untold_, error_);
  const Record records[2] = {
      {Stream::err, record_notice, notice.data, static_cast<std::uint32_t>(notice.size)},
      {stream, flags, data, bytes}};
  // Notice and record are written together: a notice before every attempt would fill the little
  // free space.
  const bool untold = dropped_untold_ > 0;
  if (write_records(untold ? records : records + 1, untold ? 2 : 1, wall)) {
    dropped_untold_ = 0;
    return true;
  }
  lose(bytes, error_);
  return false;
}

}  // namespace billow::supervise
