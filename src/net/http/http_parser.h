// Reads one HTTP/1.1 message off a byte stream, strictly. The server and both clients share this
// one parser, so there is one reading of a message in Billow, and one thing to fuzz.
//
// Why not Beast's parser: it joins folded lines and accepts "gzip, chunked" as chunked and repeated
// Content-Length fields, so a check against request smuggling would have to parse the head again.
// This parser accepts a subset of what Beast accepts, with the same meaning; a test compares both.
//
// Refused: a bare LF or CR, folded lines, space before the colon, control characters, more than one
// Content-Length (equal or not), one that is not plain digits, Content-Length together with
// Transfer-Encoding, any Transfer-Encoding but exactly "chunked", Transfer-Encoding in HTTP/1.0, a
// missing or repeated Host, and chunk extensions in requests.
#pragma once

#include "base/limits.h"
#include "net/http/http.h"

namespace billow::net {

// Rules that HTTP/1.1 and HTTP/2 share; a failure says what is wrong.
// The absolute form becomes its path.
Status check_target(std::string_view method, std::string& target);
Status check_host(std::string_view host);
Result<std::uint64_t> parse_content_length(std::string_view text);

class HttpParser {
 public:
  enum class Kind { request, response };
  struct Limits {
    std::size_t head_bytes_max = limits::http_header_bytes_max;
    std::size_t headers_max = limits::http_headers_max;
  };
  struct Head {
    std::string method;  // of a request
    std::string target;
    int status = 0;  // of a response
    int minor_version = 1;
    Headers headers;
    std::optional<std::uint64_t> content_length;
    bool chunked = false;
    bool keep_alive = true;
    bool has_body() const { return chunked || content_length.value_or(0) > 0; }
  };
  // One step: how many bytes were consumed, and which of them are body.
  struct Step {
    std::size_t consumed = 0;
    std::string_view body;
  };

  explicit HttpParser(Kind kind) : HttpParser(kind, Limits{}) {}
  HttpParser(Kind kind, Limits limits) : kind_(kind), limits_(limits) {}

  // Consumes as much data as possible. `consumed == 0` means more bytes are needed: feed the same
  // bytes again with more appended. Returns right after the head, so that a caller can decide about
  // the body before it is read. After an error: error_status().
  Result<Step> feed(std::string_view data);
  // The stream has ended. Fails if that truncates a message.
  Status finish();
  // For a response to HEAD: it has no body, whatever its header fields say.
  void expect_no_body() { no_body_ = true; }

  bool head_done() const { return state_ != State::start_line && state_ != State::fields; }
  bool done() const { return state_ == State::done; }
  bool started() const { return head_bytes_ > 0 || scanned_ > 0; }
  bool body_until_close() const { return state_ == State::body_until_close; }
  Head& head() { return head_; }
  int error_status() const { return error_status_; }

 private:
  enum class State {
    start_line,
    fields,
    body_length,
    chunk_size,
    chunk_data,
    chunk_end,
    trailers,
    body_until_close,
    done
  };

  Result<Step> feed_line(std::string_view data);
  Result<Step> feed_body(std::string_view data);
  Status take_line(std::string_view line);
  Status take_request_line(std::string_view line);
  Status take_status_line(std::string_view line);
  Status take_field(std::string_view line);
  Status take_chunk_size(std::string_view line);
  Status end_of_head();
  Status check_hosts();
  Status choose_framing();
  std::unexpected<Error> refuse(int status, std::string message);

  Kind kind_;
  Limits limits_;
  State state_ = State::start_line;
  Head head_;
  bool no_body_ = false;
  bool skipped_blank_ = false;
  std::size_t scanned_ = 0;  // bytes of an incomplete line already searched for its end
  std::size_t head_bytes_ = 0;
  std::size_t trailer_bytes_ = 0;
  std::uint64_t remaining_ = 0;  // of the body, or of this chunk
  int error_status_ = 0;
};

}  // namespace billow::net
