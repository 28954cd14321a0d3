#include "net/http/http_parser.h"

#include <algorithm>

#include "base/text.h"

namespace billow::net {
namespace {

constexpr std::size_t chunk_line_bytes_max = 256;

bool visible_ascii(std::string_view text) {
  for (char c : text)
    if (c <= 0x20 || c >= 0x7f)
      return false;
  return !text.empty();
}

std::string_view trim_ows(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t'))
    text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t'))
    text.remove_suffix(1);
  return text;
}

// "HTTP/1.0" or "HTTP/1.1" → the minor version; -1 for another version, -2 for something else.
int minor_of(std::string_view text) {
  if (text == "HTTP/1.1")
    return 1;
  if (text == "HTTP/1.0")
    return 0;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9';
  };
  return text.size() == 8 && text.starts_with("HTTP/") && digit(text[5]) && text[6] == '.' &&
                 digit(text[7])
             ? -1
             : -2;
}

}  // namespace

Status check_target(std::string_view method, std::string& target) {
  const auto bad = [](const char* why) {
    return fail(Code::invalid, why);
  };
  if (!visible_ascii(target))
    return bad("the request target contains a space or a character outside visible ASCII");
  // The absolute form that proxies use is equivalent to the path after its authority.
  for (std::string_view scheme : {"http://", "https://"}) {
    if (!target.starts_with(scheme))
      continue;
    const auto path = target.find_first_of("/?", scheme.size());
    target = path == std::string::npos ? "/" : target.substr(path);
    if (target[0] == '?')
      target.insert(0, "/");
  }
  if (target[0] != '/' && !(target == "*" && method == "OPTIONS"))
    return bad("the request target must begin with /");
  if (target.find('#') != std::string::npos)
    return bad("the request target has a fragment");
  return {};
}

Status check_host(std::string_view host) {
  for (char c : host)
    if (static_cast<unsigned char>(c) <= 0x20 || c == ',' || c == '/' || c == '@' || c == '\\' ||
        c == '?' || c == '#')
      return fail(Code::invalid, "the Host header is not a host");
  // Brackets are for IPv6 addresses, and a port is a number: others could read the host otherwise.
  std::string_view port;
  if (host.starts_with('[')) {
    const auto end = host.find(']');
    if (end == host.npos || host.substr(1, end - 1).find(':') == host.npos ||
        (end + 1 < host.size() && host[end + 1] != ':'))
      return fail(Code::invalid, "the Host header is not a host");
    port = host.substr(std::min(end + 2, host.size()));
  } else if (const auto colon = host.find(':'); colon != host.npos && colon == host.rfind(':')) {
    port = host.substr(colon + 1);
  }
  if (port.find_first_not_of("0123456789") != port.npos)
    return fail(Code::invalid, "the port in the Host header is not a number");
  return {};
}

Result<std::uint64_t> parse_content_length(std::string_view text) {
  std::uint64_t length = 0;
  // 18 digits cannot overflow, and no body is that long.
  if (text.empty() || text.size() > 18)
    return fail(Code::invalid, "Content-Length is empty or too large");
  for (char c : text) {
    if (c < '0' || c > '9')
      return fail(Code::invalid, "Content-Length is not a number");
    length = length * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return length;
}

std::unexpected<Error> HttpParser::refuse(int status, std::string message) {
  error_status_ = status;
  return fail(code_of_status(status), std::move(message));
}

Result<HttpParser::Step> HttpParser::feed(std::string_view data) {
  switch (state_) {
    case State::start_line:
    case State::fields:
    case State::chunk_size:
    case State::chunk_end:
    case State::trailers:
      return feed_line(data);
    case State::body_length:
    case State::chunk_data:
    case State::body_until_close:
      return feed_body(data);
    case State::done:
      return Step{};
  }
  return Step{};
}

// Consumes whole lines until the head ends, a chunk's data begins, or no full line is left.
Result<HttpParser::Step> HttpParser::feed_line(std::string_view data) {
  std::size_t used = 0;
  for (;;) {
    const std::string_view rest = data.substr(used);
    const bool in_head = state_ == State::start_line || state_ == State::fields;
    const std::size_t bytes_left = in_head ? limits_.head_bytes_max - head_bytes_
                                   : state_ == State::trailers
                                       ? limits_.head_bytes_max - trailer_bytes_
                                       : chunk_line_bytes_max;
    if (state_ == State::start_line && !rest.empty() && rest[0] != '\r' &&
        !valid_token(rest.substr(0, 1)))
      return refuse(400, "this is not an HTTP request (invalid first byte)");
    const auto line_feed = rest.find('\n', scanned_);
    if (std::min(line_feed, rest.size()) >= bytes_left)
      return refuse(in_head || state_ == State::trailers ? 431 : 400,
                    in_head || state_ == State::trailers
                        ? fmt::format("the header is larger than {} bytes", limits_.head_bytes_max)
                        : std::string("a chunk's size line is too long"));
    if (line_feed == rest.npos) {
      scanned_ = rest.size();
      return Step{used, {}};
    }
    if (line_feed == 0 || rest[line_feed - 1] != '\r')
      return refuse(400, "a line ends with LF only; lines must end with CR LF");
    scanned_ = 0;
    const std::size_t line_bytes = line_feed + 1;
    if (in_head)
      head_bytes_ += line_bytes;
    if (state_ == State::trailers)
      trailer_bytes_ += line_bytes;
    used += line_bytes;
    BILLOW_TRY_VOID(take_line(rest.substr(0, line_feed - 1)));
    const bool wants_lines =
        state_ == State::start_line || state_ == State::fields || state_ == State::trailers;
    if (!wants_lines)
      return Step{used, {}};
  }
}

Result<HttpParser::Step> HttpParser::feed_body(std::string_view data) {
  if (state_ == State::body_until_close)
    return Step{data.size(), data};
  const auto take = static_cast<std::size_t>(std::min<std::uint64_t>(remaining_, data.size()));
  remaining_ -= take;
  if (remaining_ == 0)
    state_ = state_ == State::chunk_data ? State::chunk_end : State::done;
  return Step{take, data.substr(0, take)};
}

Status HttpParser::take_line(std::string_view line) {
  switch (state_) {
    case State::start_line:
      // RFC 9112 2.2: one empty line before a request is allowed.
      if (line.empty() && kind_ == Kind::request && !skipped_blank_) {
        skipped_blank_ = true;
        head_bytes_ = 0;
        return {};
      }
      BILLOW_TRY_VOID(kind_ == Kind::request ? take_request_line(line) : take_status_line(line));
      state_ = State::fields;
      return {};
    case State::fields:
      return line.empty() ? end_of_head() : take_field(line);
    case State::trailers:
      if (!line.empty())
        return take_field(line);
      state_ = State::done;
      return {};
    case State::chunk_size:
      return take_chunk_size(line);
    case State::chunk_end:
      if (!line.empty())
        return refuse(400, "a chunk is longer than its size says");
      state_ = State::chunk_size;
      return {};
    case State::body_length:
    case State::chunk_data:
    case State::body_until_close:
    case State::done:
      return {};
  }
  return {};
}

Status HttpParser::take_request_line(std::string_view line) {
  const auto first = line.find(' ');
  const auto last = line.rfind(' ');
  if (first == line.npos || first == last)
    return refuse(400, "the request line is not METHOD TARGET VERSION");
  const auto method = line.substr(0, first);
  const auto target = line.substr(first + 1, last - first - 1);
  if (!valid_token(method))
    return refuse(400, "the method is not a token");
  const int minor = minor_of(line.substr(last + 1));
  if (minor == -1)
    return refuse(505, "only HTTP/1.0 and HTTP/1.1 are supported");
  if (minor < 0)
    return refuse(400, "the request line does not end with an HTTP version");
  head_.method = method;
  head_.target = target;
  head_.minor_version = minor;
  if (const auto checked = check_target(method, head_.target); !checked)
    return refuse(400, checked.error().message);
  return {};
}

Status HttpParser::take_status_line(std::string_view line) {
  const int minor = line.size() >= 12 ? minor_of(line.substr(0, 8)) : -2;
  if (minor < 0 || line[8] != ' ' || (line.size() > 12 && line[12] != ' ') ||
      !valid_field_value(line))
    return refuse(400, "this is not an HTTP/1 response");
  int status = 0;
  for (char c : line.substr(9, 3)) {
    if (c < '0' || c > '9')
      return refuse(400, "the response's status is not a number");
    status = status * 10 + (c - '0');
  }
  if (status < 100 || status > 599)
    return refuse(400, "the response's status is out of range");
  head_.status = status;
  head_.minor_version = minor;
  return {};
}

Status HttpParser::take_field(std::string_view line) {
  if (line[0] == ' ' || line[0] == '\t')
    return refuse(400, "a header line is folded, which HTTP no longer allows");
  const auto colon = line.find(':');
  if (colon == line.npos)
    return refuse(400, "a header line has no colon");
  const auto name = line.substr(0, colon);
  if (!valid_token(name))
    return refuse(400, "a header name is empty or contains an invalid character");
  const auto value = trim_ows(line.substr(colon + 1));
  if (!valid_field_value(value))
    return refuse(400, "a header value contains a control character");
  if (state_ == State::trailers) {
    // Trailers are ignored, but one that claims to frame the message is an attack.
    for (std::string_view framing :
         {"Transfer-Encoding", "Content-Length", "Connection", "Host", "Upgrade"})
      if (equal_nocase(name, framing))
        return refuse(400, "a trailer field must not define the framing of a message");
    return {};
  }
  if (head_.headers.size() >= limits_.headers_max)
    return refuse(431, fmt::format("there are more than {} header fields", limits_.headers_max));
  if (head_.headers.empty())
    head_.headers.reserve(16);
  head_.headers.add(std::string(name), std::string(value));
  return {};
}

Status HttpParser::check_hosts() {
  const auto hosts = head_.headers.count("Host");
  if (hosts > 1 || (hosts == 0 && head_.minor_version == 1))
    return refuse(400, "a request needs exactly one Host header");
  if (const auto checked = check_host(head_.headers.get("Host")); !checked)
    return refuse(400, checked.error().message);
  return {};
}

Status HttpParser::choose_framing() {
  const auto& headers = head_.headers;
  const auto lengths = headers.count("Content-Length");
  const auto codings = headers.count("Transfer-Encoding");
  if (lengths > 1)
    return refuse(400, "there is more than one Content-Length");
  if (lengths > 0 && codings > 0)
    return refuse(400, "a message has either Content-Length or Transfer-Encoding, not both");
  if (codings > 1 || (codings == 1 && headers.get("Transfer-Encoding") != "chunked"))
    return refuse(400, "the only supported Transfer-Encoding is \"chunked\"");
  if (codings == 1 && head_.minor_version == 0)
    return refuse(400, "HTTP/1.0 has no Transfer-Encoding");
  head_.chunked = codings == 1;
  if (lengths == 1) {
    const auto length = parse_content_length(headers.get("Content-Length"));
    if (!length)
      return refuse(400, length.error().message);
    head_.content_length = *length;
  }
  return {};
}

Status HttpParser::end_of_head() {
  if (kind_ == Kind::request)
    BILLOW_TRY_VOID(check_hosts());
  BILLOW_TRY_VOID(choose_framing());
  for (const auto& [name, value] : head_.headers) {
    if (!equal_nocase(name, "Connection"))
      continue;
    for (const auto& token : split(value, ','))
      if (const auto word = trim_ows(token); !word.empty() && !valid_token(word))
        return refuse(400, "the Connection header is not a list of tokens");
  }
  const bool close = head_.headers.has_token("Connection", "close");
  head_.keep_alive = head_.minor_version == 1
                         ? !close
                         : !close && head_.headers.has_token("Connection", "keep-alive");
  const bool bodiless =
      no_body_ || (kind_ == Kind::response &&
                   (head_.status < 200 || head_.status == 204 || head_.status == 304));
  remaining_ = head_.content_length.value_or(0);
  if (bodiless)
    state_ = State::done;
  else if (head_.chunked)
    state_ = State::chunk_size;
  else if (head_.content_length)
    state_ = remaining_ > 0 ? State::body_length : State::done;
  else
    state_ = kind_ == Kind::request ? State::done : State::body_until_close;
  if (state_ == State::body_until_close)
    head_.keep_alive = false;
  return {};
}

Status HttpParser::take_chunk_size(std::string_view line) {
  const auto digits = std::min(line.find_first_not_of("0123456789abcdefABCDEF"), line.size());
  if (digits == 0 || digits > 15)
    return refuse(400, "a chunk's size is not a hexadecimal number");
  if (digits < line.size() &&
      (kind_ == Kind::request || line[digits] != ';' || !valid_field_value(line)))
    return refuse(400, "text follows the size of a chunk");
  remaining_ = 0;
  for (char c : line.substr(0, digits)) {
    const int value = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
    remaining_ = remaining_ * 16 + static_cast<std::uint64_t>(value);
  }
  state_ = remaining_ > 0 ? State::chunk_data : State::trailers;
  return {};
}

Status HttpParser::finish() {
  if (state_ == State::body_until_close)
    state_ = State::done;
  if (state_ == State::done)
    return {};
  return refuse(400, state_ == State::start_line && head_bytes_ == 0 && scanned_ == 0
                         ? "the connection was closed without an answer"
                         : "the connection was closed in the middle of a message");
}

}  // namespace billow::net
