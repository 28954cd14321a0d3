// HTTP messages as values, shared by the server and both clients.
#pragma once

#include <any>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace billow::net {

enum class Method { get, head, post, put, patch, del, options };
std::string_view method_name(Method method);
std::optional<Method> parse_method(std::string_view name);

// Header fields in their original order. Names are compared case-insensitively.
class Headers {
 public:
  using Field = std::pair<std::string, std::string>;
  Headers() = default;
  Headers(std::initializer_list<Field> fields) : fields_(fields) {}

  // The first field of that name; empty if absent.
  std::string_view get(std::string_view name) const;
  bool has(std::string_view name) const;
  std::size_t count(std::string_view name) const;
  void set(std::string_view name, std::string_view value);  // replaces all of that name
  void add(std::string name, std::string value) {
    fields_.emplace_back(std::move(name), std::move(value));
  }
  void remove(std::string_view name);
  void reserve(std::size_t fields) { fields_.reserve(fields); }
  // Whether a comma-separated field (Connection, Upgrade) names this token.
  bool has_token(std::string_view name, std::string_view token) const;

  auto begin() const { return fields_.begin(); }
  auto end() const { return fields_.end(); }
  std::size_t size() const { return fields_.size(); }
  bool empty() const { return fields_.empty(); }

 private:
  std::vector<Field> fields_;
};

struct Request {
  Method method = Method::get;
  std::string target;  // as sent: "/v1/jobs?state=queued"
  // Percent-decoded, but "%2F" stays: an encoded slash never starts a new segment.
  std::string path;
  std::vector<std::pair<std::string, std::string>> query;  // decoded, in order
  Headers headers;
  std::string body;                  // empty when the body went to a BodyPlan's on_chunk
  std::any attachment;               // from the BodyPolicy, for the handler
  std::string peer;                  // "127.0.0.1:51234" or "unix:uid=0"
  std::optional<unsigned> peer_uid;  // of the peer of a Unix socket, from the kernel
  std::string request_id;            // the client's X-Request-Id if valid, else generated
  bool tls = false;

  std::string_view param(std::string_view name) const;  // empty when absent
  bool has_param(std::string_view name) const;
};

struct Response {
  int status = 200;
  Headers headers;
  std::string body;

  static Response json(int status, std::string body);
  static Response text(int status, std::string body);
};

std::string_view status_text(int status);
int http_status(Code code);
// The error code for a status of 400 and above: 404 → not_found.
Code code_of_status(int status);
// An RFC 9457 problem document; every error of the server has this form.
Response problem(int status,
                 std::string_view detail,
                 std::string_view hint = {},
                 std::string_view request_id = {});
Response problem(const Error& error, std::string_view request_id = {});

// "%41+b" → "A+b", or "A b" with plus_is_space. Fails on a broken escape or an encoded NUL.
Result<std::string> percent_decode(std::string_view text, bool plus_is_space = false);
std::string percent_encode(std::string_view text);  // everything but the unreserved characters
Status parse_target(std::string_view target, Request& into);  // fills target, path, query

// Grammar shared with the parser: RFC 9110 tokens and field values.
bool valid_token(std::string_view text);
bool valid_field_value(std::string_view text);
bool equal_nocase(std::string_view a, std::string_view b);

}  // namespace billow::net
