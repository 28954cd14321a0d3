// One line for each request, in order of completion. Lines are buffered and written a few times a
// second; a file that exceeds its limit is renamed, and a few old ones are kept. Requests that need
// no key cannot fill the log: long paths are cut, and of requests that are turned away only so many
// are written in a second; the others are counted. No query strings and no header values: they may
// contain keys and tokens.
#pragma once

#include <mutex>
#include <string>

#include "base/file.h"
#include "gateway/proxy.h"
#include "gateway/record/disk_writer.h"

namespace billow::gateway {

std::string_view end_name(End end);
// The file becomes PATH.1, that one PATH.2, and so on; the last is lost.
void keep_old_files(const std::string& path, unsigned files);

class AccessLog {
 public:
  AccessLog(net::Loop& loop, DiskWriter& disk, std::string path);
  ~AccessLog();
  // From the thread of the request's loop.
  void add(const Front& front, std::string_view endpoint, End end, SteadyTime now);

 private:
  const std::string& time_text(WallTime now);  // the same for all lines of a second
  void flush();
  void write(std::string_view lines);
  // Of the thread that writes.
  DiskWriter& disk_;
  std::string path_;
  Fd fd_;
  std::uint64_t bytes_ = 0;
  std::mutex mutex_;  // for the rest
  std::string buffer_;
  bool losing_ = false;
  std::int64_t second_ = -1;
  std::string second_text_;
  std::size_t turned_away_bytes_ = 0;  // written in this second
  std::uint64_t left_out_ = 0;
  net::Timer timer_;
};

}  // namespace billow::gateway
