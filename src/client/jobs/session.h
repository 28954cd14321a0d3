// Being attached to a job: its output comes here, our input, signals and window size go there,
// until it ends or we leave. The connection may break and the head may be away for a while; the
// session finds it again and goes on at the log offset it had reached, so that no byte is lost or
// shown twice.
//
// On the wire (the attach WebSocket): a binary message is one byte for the stream (1 out, 2 err)
// and bytes. With bit 7 of that byte set, eight bytes follow (little endian): the log offset to
// resume at once this message has been taken whole. Offsets count the log's own framing, so only
// the head can say them; without them the bytes received are counted.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "client/frame/client.h"

namespace billow::client {

struct SessionOptions {
  std::string job;   // "12"
  bool tty = false;  // the job has a terminal: raw keys, window size, Ctrl-P Ctrl-Q
  bool forward_input = false;
  bool quiet = false;  // no queue reason, no summary
  bool json = false;   // the final document on stderr
  std::string tail;    // bytes of earlier output to begin with; empty: all of it
  int input_fd = 0, output_fd = 1, error_fd = 2;
  Duration away_max = minutes(10);  // how long to look for a head that went away
  bool watch =
      false;  // only look: no key, signal or window size of ours reaches the job, and Ctrl-C leaves
};

struct SessionEnd {
  bool detached = false;
  bool told = false;  // how it ended has been said already
  int exit_code = 0;
  Json job;  // the last document known
};

Result<SessionEnd> attach_session(Client& client, SessionOptions options);

// The shell code of a finished job's document.
int exit_code_of(const Json& job);
// "job 12 failed · 3s · $0.0042 · exit code 3"
std::string summary_of(const Json& job, WallTime now);
std::string without_digits(std::string text);
// "job 12 is queued: …"
std::string waiting_line(const Json& job);

// One message of the attach stream; nullopt where it is malformed.
struct OutputMessage {
  bool error_stream = false;
  std::optional<std::uint64_t> resume_at;
  std::string_view bytes;
};
std::optional<OutputMessage> parse_output(std::string_view message);

}  // namespace billow::client
