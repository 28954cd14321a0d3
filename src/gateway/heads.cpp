// Rewrites HTTP heads in transit: drops hop-by-hop fields, and adds those that the next hop needs.
#include <algorithm>
#include <array>

#include "base/text.h"
#include "gateway/gateway.h"
#include "gateway/grpc.h"
#include "gateway/peers.h"
#include "gateway/proxy.h"
#include "gateway/pure/digits.h"

namespace billow::gateway {
namespace {

using net::equal_nocase;

// Fields about one connection, and the framing, which is written again.
bool hop_by_hop(std::string_view name) {
  switch (name.size()) {
    case 2:
      return equal_nocase(name, "TE");
    case 6:
      return equal_nocase(name, "Expect");
    case 7:
      return equal_nocase(name, "Trailer") || equal_nocase(name, "Upgrade");
    case 10:
      return equal_nocase(name, "Connection") || equal_nocase(name, "Keep-Alive");
    case 14:
      return equal_nocase(name, "Content-Length");
    case 16:
      return equal_nocase(name, "Proxy-Connection");
    case 17:
      return equal_nocase(name, "Transfer-Encoding");
    case 18:
      return equal_nocase(name, "Proxy-Authenticate");
    case 19:
      return equal_nocase(name, "Proxy-Authorization");
    default:
      return false;
  }
}

// Programs behind CGI and WSGI see "_" and "-" in the name of a field as the same.
bool same_field(std::string_view name, std::string_view dashed) {
  return std::ranges::equal(name, dashed, [](char a, char b) {
    const auto plain = [](char c) {
      return c == '_' ? '-' : c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    };
    return plain(a) == plain(b);
  });
}

// The proxy sets some of them itself; the client's own values are discarded.
bool ours(std::string_view name) {
  return tells_of_client(name) || is_own_field(name) || same_field(name, "X-Request-Id");
}

// Fields that a Connection field names, which are for one hop. What everybody on the way needs, and
// what gateways decide by, is not for one hop, whatever a client says.
class HopFields {
 public:
  explicit HopFields(const net::Headers& headers) {
    for (const auto& [name, value] : headers)
      if (name.size() == 10 && equal_nocase(name, "Connection"))
        add(value);
  }
  bool contains(std::string_view name) const {
    static constexpr std::string_view for_all[] = {"Host",
                                                   "Authorization",
                                                   "X-Api-Key",
                                                   "Cookie",
                                                   "Origin",
                                                   "Content-Type",
                                                   "Content-Encoding",
                                                   "Idempotency-Key",
                                                   grpc_endpoint_header};
    const auto same = [&](std::string_view each) {
      return equal_nocase(each, name);
    };
    return std::any_of(names_.begin(), names_.begin() + count_, same) &&
           std::ranges::none_of(for_all, same);
  }

 private:
  void add(std::string_view options) {
    while (!options.empty() && count_ < names_.size()) {
      const std::string_view each = options.substr(0, options.find(','));
      options.remove_prefix(std::min(each.size() + 1, options.size()));
      names_[count_++] = trim(each);
    }
  }
  std::array<std::string_view, connection_options_max> names_;
  std::size_t count_ = 0;
};

void append_field(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ").append(value).append("\r\n");
}

// Where the fields of a head go: the text of HTTP/1.1, or the list of HTTP/2.
struct TextFields {
  static constexpr bool http2 = false;
  std::string& out;
  void add(std::string_view name, std::string_view value) { append_field(out, name, value); }
};
struct ListFields {
  static constexpr bool http2 = true;
  net::Http2Fields& out;
  void add(std::string_view name, std::string_view value) { out.add(name, value); }
};
template <class Fields>
void add_length(Fields& out, std::uint64_t bytes) {
  std::string digits;  // at most 20: no allocation on the way
  append_number(digits, bytes);
  out.add("Content-Length", digits);
}

template <class Fields>
void append_cors(Fields& out, const Front& front) {
  if (front.ticket.allow_origin.empty())
    return;
  out.add("Access-Control-Allow-Origin", front.ticket.allow_origin);
  if (front.ticket.allow_origin != "*")
    out.add("Vary", "Origin");
  out.add("Access-Control-Expose-Headers", "X-Request-Id, Location, Retry-After");
}

// Another gateway sees the client's full path; a replica only its own part.
std::size_t hidden_bytes(const Front& front) {
  const bool to_peer = front.ticket.upstream && !front.ticket.upstream->peer_key.empty();
  return to_peer ? 0 : front.ticket.prefix_bytes;
}

// As the replica sees it, after `out`.
void append_target(std::string& out, const Front& front) {
  const auto target = std::string_view(front.head().target).substr(hidden_bytes(front));
  if (target.empty() || target[0] != '/')
    out += '/';
  out.append(target);
}

// The endpoint that a client names is for its own gateway: another one must not be led by it to an
// endpoint whose key was not asked for.
bool is_for_gateway(std::string_view name, std::string_view value, const Ticket& ticket) {
  if (!ticket.strip_header.empty() && equal_nocase(name, ticket.strip_header))
    return true;
  const bool to_peer = ticket.upstream && !ticket.upstream->peer_key.empty();
  if ((to_peer || !ticket.named.empty()) && equal_nocase(name, grpc_endpoint_header))
    return true;
  // A key of some endpoint, even if this one asks for none. An application's own credentials pass.
  return (equal_nocase(name, "Authorization") || equal_nocase(name, "X-Api-Key")) &&
         (ticket.strip_credentials || holds_endpoint_key(value));
}

}  // namespace

bool tells_of_client(std::string_view name) {
  switch (name.size()) {
    case 9:
      return same_field(name, "Forwarded") || same_field(name, "X-Real-Ip");
    case 14:
      return same_field(name, "True-Client-Ip");
    case 15:
      return same_field(name, "X-Forwarded-For");
    case 16:
      return same_field(name, "X-Forwarded-Host");
    case 17:
      return same_field(name, "X-Forwarded-Proto");
    case 18:
      return same_field(name, "X-Forwarded-Prefix");
    default:
      return false;
  }
}

// Others are for replicas: functions of the Python package have some (X-Billow-Secret, …), and so
// has the API of a head behind a gateway (X-Billow-Request).
bool is_own_field(std::string_view name) {
  constexpr std::string_view names[] = {internal_header, call_header, peer_header,
                                        "X-Billow-Mirror", "X-Billow-Problem"};
  constexpr std::string_view of_calls = "X-Billow-Call-";
  return std::ranges::any_of(names, [&](std::string_view n) { return same_field(name, n); }) ||
         (name.size() > of_calls.size() && same_field(name.substr(0, of_calls.size()), of_calls));
}

std::size_t connection_options(const net::Headers& headers) {
  std::size_t options = 0;
  for (const auto& [name, value] : headers)
    if (name.size() == 10 && equal_nocase(name, "Connection"))
      options += 1 + static_cast<std::size_t>(std::ranges::count(value, ','));
  return options;
}

namespace {

// What another gateway says of its client, or this one of a call that it carries out.
std::string_view told(const Front& front, const char* by_peer, const char* by_us) {
  return front.ticket.from_peer  ? front.head().headers.get(by_peer)
         : front.ticket.own_call ? front.head().headers.get(by_us)
                                 : std::string_view();
}

}  // namespace

std::string_view client_address(const Front& front) {
  const auto other = told(front, "X-Forwarded-For", call_client_header);
  return other.empty() ? address_of_peer(front.peer()) : other;
}

std::string_view client_proto(const Front& front) {
  const auto other = told(front, "X-Forwarded-Proto", call_proto_header);
  return !other.empty() ? other : front.https() ? "https" : "http";
}

std::string without_own_cookies(std::string_view cookies) {
  std::string out;
  while (!cookies.empty()) {
    const std::string_view pair = cookies.substr(0, cookies.find(';'));
    cookies.remove_prefix(std::min(pair.size() + 1, cookies.size()));
    const std::string_view name = trim(pair.substr(0, pair.find('=')));
    if (trim(pair).empty() || name == session_cookie || name == replica_cookie)
      continue;
    if (!out.empty())
      out += "; ";
    out.append(trim(pair));
  }
  return out;
}

// A browser keeps "=NAME=VALUE" as a cookie without a name and sends it as "NAME=VALUE".
bool sets_own_cookie(std::string_view set_cookie) {
  std::string_view pair = trim(set_cookie.substr(0, set_cookie.find(';')));
  while (pair.starts_with('='))
    pair = trim(pair.substr(1));
  const std::string_view name = trim(pair.substr(0, pair.find('=')));
  return equal_nocase(name, session_cookie) || equal_nocase(name, replica_cookie);
}

bool repeatable_method(std::string_view method) {
  return method == "GET" || method == "HEAD" || method == "PUT" || method == "DELETE" ||
         method == "OPTIONS";
}

namespace {

// Fields of the client's request that the replica gets.
template <class Fields>
void pass_request_fields(Fields& out, const Front& front) {
  const auto& head = front.head();
  const HopFields hop(head.headers);
  for (const auto& [name, value] : head.headers) {
    if (hop_by_hop(name) || ours(name) || is_for_gateway(name, value, front.ticket))
      continue;
    // Written again, with a span of ours.
    if (name.size() == 11 && front.ticket.trace.span != 0 && equal_nocase(name, "traceparent"))
      continue;
    if (Fields::http2 && name.size() == 4 && equal_nocase(name, "Host"))
      continue;  // it is the authority
    // Tokens are counted by what the answer says, which must be readable.
    if (front.ticket.counts_tokens && name.size() == 15 && equal_nocase(name, "Accept-Encoding"))
      continue;
    if (hop.contains(name))
      continue;
    if (name.size() == 6 && equal_nocase(name, "Cookie") && value.find("billow_") != value.npos) {
      if (const std::string rest = without_own_cookies(value); !rest.empty())
        out.add(name, rest);
      continue;
    }
    out.add(name, value);
  }
}

// Fields that tell the replica about the client.
template <class Fields>
void add_client_fields(Fields& out, const Front& front) {
  const auto& head = front.head();
  out.add("X-Forwarded-For", client_address(front));
  out.add("X-Forwarded-Proto", client_proto(front));
  if (const auto call = told(front, call_header, call_header); !call.empty())
    out.add(call_header, call);
  if (front.ticket.counts_tokens)
    out.add("Accept-Encoding", "identity");
  if (front.ticket.upstream && !front.ticket.upstream->peer_key.empty()) {
    out.add(peer_header, front.ticket.upstream->peer_key);
    if (!front.ticket.named.empty())
      out.add(grpc_endpoint_header, front.ticket.named);
  }
  if (const auto host = head.headers.get("Host"); !host.empty())
    out.add("X-Forwarded-Host", host);
  const std::string_view prefix = std::string_view(head.target).substr(0, hidden_bytes(front));
  if (!prefix.empty())
    out.add("X-Forwarded-Prefix", prefix);
  out.add("X-Request-Id", front.request_id());
  if (front.ticket.trace.span != 0)
    out.add("traceparent", traceparent(front.ticket.trace));
  if (front.ticket.copy)
    out.add("X-Billow-Mirror", "1");
}

}  // namespace

void write_request_head(std::string& out, const Front& front) {
  const auto& head = front.head();
  TextFields fields{out};
  out.append(head.method).append(" ");
  append_target(out, front);
  out += " HTTP/1.1\r\n";
  pass_request_fields(fields, front);
  if (head.headers.get("Host").empty())
    fields.add("Host", "localhost");
  if (front.wants_upgrade()) {
    fields.add("Connection", "Upgrade");
    fields.add("Upgrade", head.headers.get("Upgrade"));
  }
  if (head.chunked)
    fields.add("Transfer-Encoding", "chunked");
  else if (head.content_length)
    add_length(fields, *head.content_length);
  add_client_fields(fields, front);
  out += "\r\n";
}

void write_request_head(net::Http2Fields& out, const Front& front) {
  const auto& head = front.head();
  ListFields fields{out};
  const auto host = head.headers.get("Host");
  std::string target;
  append_target(target, front);
  out.add(":method", head.method);
  out.add(":scheme", "http");
  out.add(":path", target);
  out.add(":authority", host.empty() ? "localhost" : host);
  pass_request_fields(fields, front);
  if (head.headers.has_token("TE", "trailers"))
    out.add("te", "trailers");
  if (head.content_length)
    add_length(fields, *head.content_length);
  add_client_fields(fields, front);
}

namespace {

// Fields of the replica's answer that the client gets.
template <class Fields>
void pass_answer_fields(Fields& out, const net::HttpParser::Head& head, const Front& front) {
  const HopFields hop(head.headers);
  const bool cors = !front.ticket.allow_origin.empty();
  // Another gateway says with it that the error is its own: async calls are tried again then.
  const bool from_peer = front.ticket.upstream && !front.ticket.upstream->peer_key.empty();
  for (const auto& [name, value] : head.headers) {
    if (hop_by_hop(name) || equal_nocase(name, "X-Request-Id") ||
        (!from_peer && equal_nocase(name, "X-Billow-Problem")))
      continue;
    if (hop.contains(name))
      continue;
    if (cors && (equal_nocase(name, "Access-Control-Allow-Origin") ||
                 equal_nocase(name, "Access-Control-Expose-Headers")))
      continue;
    if (name.size() == 10 && equal_nocase(name, "Set-Cookie") && sets_own_cookie(value))
      continue;
    // A redirect within the replica's paths is rewritten to the paths that the client sees. A
    // replica that knows its prefix has already done so.
    const std::string_view prefix =
        std::string_view(front.head().target).substr(0, front.ticket.prefix_bytes);
    if (equal_nocase(name, "Location") && value.starts_with('/') && !value.starts_with("//") &&
        !value.starts_with(std::string(prefix) + "/")) {
      out.add("Location", std::string(prefix).append(value));
      continue;
    }
    out.add(name, value);
  }
  out.add("X-Request-Id", front.request_id());
  if (!front.ticket.set_cookie.empty())
    out.add("Set-Cookie", front.ticket.set_cookie);
  append_cors(out, front);
}

bool tells_length(const net::HttpParser::Head& head) {
  return head.content_length && head.status != 204 && head.status >= 200;
}

// Fields of an answer by the gateway itself.
template <class Fields>
void add_own_fields(Fields& out,
                    const net::Response& response,
                    const Front& front,
                    std::string_view date) {
  out.add("Date", date);
  for (const auto& [name, value] : response.headers) {
    if (hop_by_hop(name) || !net::valid_token(name) || !net::valid_field_value(value))
      continue;
    out.add(name, value);
  }
  if (!front.request_id().empty() && !response.headers.has("X-Request-Id"))
    out.add("X-Request-Id", front.request_id());
  // Distinguishes an error of the gateway from one of the application.
  if (response.status >= 400)
    out.add("X-Billow-Problem", "1");
  append_cors(out, front);
  if (response.status != 204 && response.status != 304)
    add_length(out, response.body.size());
}

void add_persistence(std::string& out, const Front& front, bool keep_alive) {
  if (!keep_alive)
    out += "Connection: close\r\n";
  else if (front.head().minor_version == 0)
    out += "Connection: keep-alive\r\n";
}

void add_status_line(std::string& out, int status) {
  out += "HTTP/1.1 ";
  append_number(out, static_cast<std::uint64_t>(status));
  out.append(" ").append(net::status_text(status)).append("\r\n");
}

}  // namespace

void write_answer_head(std::string& out,
                       const net::HttpParser::Head& head,
                       const Front& front,
                       bool chunked,
                       bool keep_alive) {
  TextFields fields{out};
  add_status_line(out, head.status);
  pass_answer_fields(fields, head, front);
  if (head.status == 101) {
    fields.add("Connection", "Upgrade");
    fields.add("Upgrade", head.headers.get("Upgrade"));
  } else {
    if (chunked)
      fields.add("Transfer-Encoding", "chunked");
    else if (tells_length(head))
      add_length(fields, *head.content_length);
    add_persistence(out, front, keep_alive);
  }
  out += "\r\n";
}

void write_answer_head(net::Http2Fields& out,
                       const net::HttpParser::Head& head,
                       const Front& front) {
  ListFields fields{out};
  pass_answer_fields(fields, head, front);
  if (tells_length(head))
    add_length(fields, *head.content_length);
}

void write_whole_head(std::string& out,
                      const net::Response& response,
                      const Front& front,
                      std::string_view date,
                      bool keep_alive) {
  TextFields fields{out};
  add_status_line(out, response.status);
  add_own_fields(fields, response, front, date);
  add_persistence(out, front, keep_alive);
  out += "\r\n";
}

void write_whole_head(net::Http2Fields& out,
                      const net::Response& response,
                      const Front& front,
                      std::string_view date) {
  ListFields fields{out};
  add_own_fields(fields, response, front, date);
}

}  // namespace billow::gateway
