// What log streams and attached terminals share: pulling a task's log piece by piece from its
// agent, and what to do while the node does not answer.
//
// Each follower pulls one piece of log at a time and asks for the next when its client has taken
// the last, so nothing accumulates in the head, and a slow reader does not delay other readers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "api/call.h"
#include "core/wire/agent_v1.h"

namespace billow::api::streams {

struct TaskPlace {
  TaskId task;
  NodeId node;
};
// The task whose log stands for the job: the given rank of the newest attempt.
std::optional<TaskPlace> place_of(const Json& document, std::int64_t rank);

// Follows the log of one task and hands out whole records. The owner calls next() when it can take
// more.
class LogPull : public std::enable_shared_from_this<LogPull> {
 public:
  using LogChunk = wire::agent_v1::LogChunk;
  using OnRecords = std::function<void(const LogChunk&, std::string_view frames)>;
  struct Options {
    TaskPlace place;
    std::uint64_t offset = 0;
    std::int64_t tail = -1;  // begin this many bytes before the end; -1: at `offset`
    bool follow = false;
  };
  LogPull(Host& host, Options options, OnRecords fn);
  void next();
  TaskPlace place() const { return options_.place; }

 private:
  Host& host_;
  Options options_;
  OnRecords fn_;
  std::unique_ptr<net::Subscription> request_;
};

// How long a node that does not answer is asked again before the reader gets an error.
inline constexpr Duration absence_pause = milliseconds(200);
inline constexpr int absence_tries = 150;
inline constexpr int absence_tries_once = 25;  // for a reader that does not follow

inline constexpr std::size_t ahead_bytes_max = 256 << 10;  // sent and not yet taken by the client

// Why the log of a node known to be unreachable cannot be read; empty: it answers, or may in a
// moment.
std::string away_words(const Host& host, NodeId id);
// For a stream of a job that stays open: whether the caller may still see it.
Status may_still_see(Call& call, ProjectId project);
ProjectId project_of(const Call& call, const Json& document);

// The tasks of each attempt of a job, in the order of their ranks. The leases tell: an attempt
// begins when all tasks of the one before have ended.
std::vector<std::vector<TaskPlace>> places_by_attempt(const control::State& state,
                                                      const std::vector<LeaseRow>& leases,
                                                      std::uint64_t nodes);

// Where the log of a job lies: of its newest attempt (0), or of an earlier one, whose task is found
// by its lease. None: it has not started. If there is no such attempt or rank, the call is answered
// with the error.
struct WantedLog {
  JobId job;
  std::int64_t rank = 0;
  std::uint64_t attempt = 0;
};
void with_place(CallPtr call,
                WantedLog wanted,
                const Json& document,
                std::function<void(std::optional<TaskPlace>)> then);

// The windows in which terminals are shown. A terminal is as large as the smallest of its windows,
// so that each of them shows it whole.
class TerminalWindows {
 public:
  struct Size {
    std::uint16_t rows = 0, cols = 0;
    bool operator==(const Size&) const = default;
  };
  // The new size of the terminal; none: it stays as it is.
  std::optional<Size> set(TaskId terminal, const void* window, Size size);
  std::optional<Size> remove(TaskId terminal, const void* window);
  void missed(TaskId terminal);  // the terminal was not told: its size is new for the next `set`

 private:
  struct Terminal {
    std::map<const void*, Size> windows;
    Size size;
  };
  std::optional<Size> fit(std::map<TaskId, Terminal>::iterator terminal);
  std::map<TaskId, Terminal> terminals_;
};

}  // namespace billow::api::streams
