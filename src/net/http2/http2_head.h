// Heads of HTTP/2 messages as values. The fields of a header block become the same Head that the
// HTTP/1.1 parser makes, by the same rules, so code that forwards the message in HTTP/1.1 cannot be
// made to write anything but what was checked.
#pragma once

#include "net/http/http_parser.h"

namespace billow::net {

// Fields to be sent. Names are written in lower case.
class Http2Fields {
 public:
  void add(std::string_view name, std::string_view value);
  void clear();
  std::size_t size() const { return sizes_.size(); }
  std::size_t bytes() const { return text_.size(); }
  // Calls take(name, value) for each, in order.
  template <class F>
  void each(F&& take) const {
    std::string_view rest = text_;
    for (const auto& [name, value] : sizes_) {
      take(rest.substr(0, name), rest.substr(name, value));
      rest.remove_prefix(name + value);
    }
  }

 private:
  std::string text_;
  std::vector<std::pair<std::size_t, std::size_t>> sizes_;
};

// Reads the fields of one header block.
//
// Refused: a field that is not a token and a value, pseudo-header fields other than those of a
// request (or a response), repeated ones, an :authority that differs from Host, a Host that is
// missing, fields about the connection (Connection, Transfer-Encoding, Upgrade, …), a
// Content-Length that is repeated or not a number, too many or too large fields.
class Http2HeadReader {
 public:
  explicit Http2HeadReader(HttpParser::Kind kind) : kind_(kind) {}
  void add(std::string_view name, std::string_view value);
  // The list as HTTP/2 counts it: 32 bytes for each field besides its own.
  std::size_t bytes() const { return bytes_; }
  // After the last field. `end`: no body follows. After an error: error_status().
  Status finish(bool end);
  HttpParser::Head& head() { return head_; }
  int error_status() const { return error_status_; }

 private:
  void take_pseudo(std::string_view name, std::string_view value);
  void take_field(std::string_view name, std::string_view value);
  void refuse(int status, std::string why);
  Status finish_request();
  Status finish_response();

  HttpParser::Kind kind_;
  HttpParser::Head head_;
  std::string authority_, scheme_, cookies_;
  bool has_method_ = false, has_path_ = false, has_scheme_ = false, has_authority_ = false;
  bool any_field_ = false;
  std::size_t bytes_ = 0;
  int error_status_ = 0;
  std::string error_;
};

// Fields after a body. None may be about the connection or the framing.
Status check_trailer(std::string_view name, std::string_view value);

}  // namespace billow::net
