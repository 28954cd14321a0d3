#include "net/http2/http2_head.h"

#include <algorithm>

namespace billow::net {
namespace {

constexpr std::size_t field_overhead = 32;  // RFC 9113, 6.5.2

bool has_upper(std::string_view name) {
  return std::any_of(name.begin(), name.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
}

// Fields about one HTTP/1.1 connection; HTTP/2 has none of them.
bool about_connection(std::string_view name) {
  return name == "connection" || name == "transfer-encoding" || name == "upgrade" ||
         name == "keep-alive" || name == "proxy-connection" || name == "http2-settings";
}

int status_of(std::string_view text) {
  if (text.size() != 3)
    return 0;
  int status = 0;
  for (char c : text) {
    if (c < '0' || c > '9')
      return 0;
    status = status * 10 + (c - '0');
  }
  return status;
}

}  // namespace

void Http2Fields::add(std::string_view name, std::string_view value) {
  for (char c : name)
    text_ += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  text_.append(value);
  sizes_.emplace_back(name.size(), value.size());
}

void Http2Fields::clear() {
  text_.clear();
  sizes_.clear();
}

void Http2HeadReader::refuse(int status, std::string why) {
  if (error_status_ != 0)
    return;
  error_status_ = status;
  error_ = std::move(why);
}

void Http2HeadReader::add(std::string_view name, std::string_view value) {
  bytes_ += name.size() + value.size() + field_overhead;
  if (error_status_ != 0)
    return;
  if (bytes_ > limits::http_header_bytes_max)
    return refuse(431, fmt::format("the header exceeds {} bytes", limits::http_header_bytes_max));
  if (!valid_field_value(value))
    return refuse(400, "a header value contains a control character");
  if (name.starts_with(':'))
    return take_pseudo(name, value);
  take_field(name, value);
}

void Http2HeadReader::take_pseudo(std::string_view name, std::string_view value) {
  if (any_field_)
    return refuse(400, "a pseudo-header field comes after a header field");
  const auto once = [&](bool& seen) {
    if (std::exchange(seen, true))
      refuse(400, fmt::format("there is more than one {}", name));
  };
  if (kind_ == HttpParser::Kind::response) {
    if (name != ":status")
      return refuse(400, "a response has an unknown pseudo-header field");
    once(has_method_);
    head_.status = status_of(value);
    return;
  }
  if (name == ":method") {
    once(has_method_);
    head_.method = value;
  } else if (name == ":path") {
    once(has_path_);
    head_.target = value;
  } else if (name == ":scheme") {
    once(has_scheme_);
    scheme_ = value;
  } else if (name == ":authority") {
    once(has_authority_);
    authority_ = value;
  } else {
    refuse(400, "the request has an unknown pseudo-header field");
  }
}

void Http2HeadReader::take_field(std::string_view name, std::string_view value) {
  any_field_ = true;
  if (!valid_token(name) || has_upper(name))
    return refuse(400, "a header name is not a token in lower case");
  if (about_connection(name))
    return refuse(400, fmt::format("HTTP/2 has no header field {}", name));
  if (name == "te" && value != "trailers")
    return refuse(400, "in HTTP/2 the only value of te is \"trailers\"");
  // A value with spaces around it would be read without them in HTTP/1.1.
  if (!value.empty() && (value.front() == ' ' || value.front() == '\t' || value.back() == ' ' ||
                         value.back() == '\t'))
    return refuse(400, "a header value begins or ends with a space");
  if (head_.headers.size() >= limits::http_headers_max)
    return refuse(431,
                  fmt::format("there are more than {} header fields", limits::http_headers_max));
  // A client may send its cookies one by one; HTTP/1.1 has one field for all of them.
  if (kind_ == HttpParser::Kind::request && name == "cookie") {
    if (!cookies_.empty())
      cookies_ += "; ";
    cookies_.append(value);
    return;
  }
  if (head_.headers.empty())
    head_.headers.reserve(16);
  head_.headers.add(std::string(name), std::string(value));
}

Status Http2HeadReader::finish(bool end) {
  if (error_status_ == 0)
    if (const auto done = kind_ == HttpParser::Kind::request ? finish_request() : finish_response();
        !done)
      refuse(400, done.error().message);
  if (error_status_ == 0 && head_.headers.count("content-length") > 1)
    refuse(400, "there is more than one Content-Length");
  if (error_status_ == 0 && head_.headers.has("content-length")) {
    if (const auto length = parse_content_length(head_.headers.get("content-length")))
      head_.content_length = *length;
    else
      refuse(400, length.error().message);
  }
  if (error_status_ == 0 && end && kind_ == HttpParser::Kind::request &&
      head_.content_length.value_or(0) > 0)
    refuse(400, "Content-Length announces a body, and none follows");
  if (error_status_ != 0)
    return fail(code_of_status(error_status_), error_);
  // A length of 0 with a body to come is not believed: only the end of the stream ends the message.
  if (!end && head_.content_length == 0)
    head_.content_length.reset();
  head_.chunked = !end && !head_.content_length;
  return {};
}

Status Http2HeadReader::finish_request() {
  const auto bad = [](const char* why) {
    return fail(Code::invalid, why);
  };
  if (!has_method_ || !valid_token(head_.method))
    return bad("the method is missing or not a token");
  if (head_.headers.count("host") > 1)
    return bad("there is more than one Host");
  const auto host = head_.headers.get("host");
  if (has_authority_ && !host.empty() && !equal_nocase(host, authority_))
    return bad("Host differs from :authority");
  if (!has_authority_)
    authority_ = host;
  if (authority_.empty())
    return bad("a request needs an :authority");
  BILLOW_TRY_VOID(check_host(authority_));
  // CONNECT has no path; nobody serves it.
  if (head_.method == "CONNECT" && !has_path_)
    head_.target = "/";
  else if (!has_path_ || !has_scheme_ || (scheme_ != "http" && scheme_ != "https"))
    return bad("a request needs a :path, and http or https as :scheme");
  else if (!head_.target.starts_with('/') && head_.target != "*")
    return bad("the request target must begin with /");
  BILLOW_TRY_VOID(check_target(head_.method, head_.target));
  head_.headers.set("host", authority_);
  if (!cookies_.empty())
    head_.headers.add("cookie", std::move(cookies_));
  return {};
}

Status Http2HeadReader::finish_response() {
  if (head_.status < 100 || head_.status > 599)
    return fail(Code::invalid, "the response's status is missing or out of range");
  return {};
}

Status check_trailer(std::string_view name, std::string_view value) {
  if (!valid_token(name) || has_upper(name) || !valid_field_value(value))
    return fail(Code::invalid, "a trailer is not a field");
  for (std::string_view framing : {"content-length", "host", "te"})
    if (name == framing)
      return fail(Code::invalid, "a trailer field must not define the framing of a message");
  if (about_connection(name))
    return fail(Code::invalid, "a trailer field must not define the framing of a message");
  return {};
}

}  // namespace billow::net
