// One line for each request, in order of their ends. Lines gather in memory and are written a few
// times a second; a file that grows beyond its limit is renamed aside once, so that two of them are
// the most there is. No query strings and no header values: keys and tokens travel there.
#pragma once

#include <string>

#include "base/file.h"
#include "gateway/proxy.h"

namespace billow::gateway {

class AccessLog {
 public:
  AccessLog(net::Loop& loop, std::string path);
  ~AccessLog();
  void add(const Front& front, std::string_view endpoint, End end, SteadyTime now);

 private:
  void flush();
  std::string path_;
  Fd fd_;
  std::uint64_t bytes_ = 0;
  std::string buffer_;
  net::Timer timer_;
};

}  // namespace billow::gateway
