// Being attached to a job: its output comes here; input, signals and window size go there, until
// the job ends or the user detaches. When the connection breaks or the head restarts, the
// attachment reconnects and resumes at the log offset it had reached, so that no byte is lost or
// shown twice.
//
// Wire format of the attach WebSocket: a binary message is one byte for the stream (1 out, 2 err)
// and bytes. With bit 7 of that byte set, eight bytes follow (little endian): the log offset at
// which to resume after this message. Offsets count the log's framing, so only the head knows
// them; without them the client counts the bytes received.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "client/frame/client.h"

namespace billow::client {

struct AttachOptions {
  std::string job;   // "12"
  bool tty = false;  // the job has a terminal: raw keys, window size, Ctrl-P Ctrl-Q
  bool forward_input = false;
  bool quiet = false;  // no queue reason, no summary
  bool json = false;   // the final document on stderr
  std::string tail;    // bytes of earlier output to begin with; empty: all of it
  int input_fd = 0, output_fd = 1, error_fd = 2;
  Duration away_max = minutes(10);  // how long to try to reconnect
  bool interrupt_detaches = false;  // Ctrl-C ends the attachment, not the job (without a terminal)
  bool watch = false;  // read only: no key, signal or size is sent, and Ctrl-C detaches
};

struct AttachEnd {
  bool detached = false;
  bool reported = false;  // the end has already been printed
  int exit_code = 0;
  Json job;  // the last document known
};

Result<AttachEnd> attach_to_job(Client& client, AttachOptions options);

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
