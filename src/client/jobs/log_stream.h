// A job's log as the head sends it: pieces of output with their time and stream. A follower whose
// head restarts resumes at the offset it had reached.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "client/frame/client.h"

namespace billow::client {

struct LogRequest {
  std::string job;
  std::string rank;
  std::string tail;  // bytes before the end; empty: from the beginning
  bool follow = false;
  WallTime since = {};      // 1970: from the beginning
  std::string search = {};  // only lines with this text; empty: all output
  bool ignore_case = false;
  std::string attempt = {};         // only of this one; empty: the newest
  Duration away_max = minutes(10);  // how long a head that does not answer is asked again
};

struct LogPiece {
  WallTime at;
  bool error_stream = false;
  std::string_view bytes;
};

class LogReader {
 public:
  using OnPiece = std::function<void(const LogPiece&)>;
  LogReader(Client& client, LogRequest request, OnPiece out)
      : client_(client), request_(std::move(request)), out_(std::move(out)) {}

  const std::string& resume_at() const { return resume_at_; }
  void begin_at(std::string offset) { resume_at_ = std::move(offset); }
  // Called when everything received so far has been delivered: a program that writes line by line
  // makes a million small records.
  void on_pause(std::function<void()> fn) { pause_ = std::move(fn); }
  // Called with the bytes that the size limit of logs has deleted; without it, a line on stderr
  // says so.
  void on_gap(std::function<void(std::uint64_t)> fn) { gap_ = std::move(fn); }
  Status run();

 private:
  Status feed(std::string_view data);
  void take(std::uint8_t stream, WallTime at, std::string_view data);

  Client& client_;
  LogRequest request_;
  OnPiece out_;
  std::function<void()> pause_;
  std::function<void(std::uint64_t)> gap_;
  std::string buffer_;  // a record that has not come whole yet
  std::string resume_at_;
  std::string trouble_;  // why the head cannot show the log, or no more of it
  bool ended_ = false;
};

}  // namespace billow::client
