// Logs that a stream of /v1/live follows beside everything else, so that one connection serves all
// tabs of a browser. Each log is pulled piece by piece, the next when the client has taken the
// last; a client that is slow with one log is slow with all of its logs, but does not delay other
// clients.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/call.h"

namespace billow::api::streams {

inline constexpr std::size_t live_logs_max = 64;

struct LogWish {
  std::string label;  // the job as the client names it
  JobId job;
  std::int64_t rank = 0;
  std::uint64_t from = 0;  // a place in the log (core/wire/log_query.h)
  std::int64_t tail = -1;  // begin so many bytes before the end instead
};

class FollowedLog;

class LiveLogs {
 public:
  // Writes an event; false: the client is gone.
  using Write = std::function<bool(const std::string& event)>;
  LiveLogs(CallPtr call, Write write);
  ~LiveLogs();
  // Follows these and no others. One that is followed already continues where it is.
  void set(const std::vector<LogWish>& wishes);
  void drained();  // the client has taken what it was sent
  void close();

 private:
  CallPtr call_;
  Write write_;
  std::map<std::pair<std::string, std::int64_t>, std::shared_ptr<FollowedLog>> logs_;
};

Result<LogWish> parse_wish(const Call& call, const Json& item);

// The open streams, by name: who may change what they follow.
class LiveStreams {
 public:
  struct Stream {
    TokenId token;
    UserId user;
    std::function<void(const std::vector<LogWish>&)> set;
  };
  void add(const std::string& name, Stream stream) { streams_[name] = std::move(stream); }
  void remove(const std::string& name) { streams_.erase(name); }
  const Stream* find(const std::string& name) const {
    const auto found = streams_.find(name);
    return found == streams_.end() ? nullptr : &found->second;
  }

 private:
  std::map<std::string, Stream> streams_;
};

}  // namespace billow::api::streams
