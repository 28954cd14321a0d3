// Rewrites HTTP heads in transit: drops hop-by-hop fields, and adds those that the next hop needs.
#include <array>

#include "base/text.h"
#include "gateway/peers.h"
#include "gateway/proxy.h"

namespace billow::gateway {
namespace {

constexpr std::string_view key_prefix = "bwk_";  // of every endpoint's keys

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

// Fields that the proxy sets about the client; the client's own values are discarded.
bool ours(std::string_view name) {
  switch (name.size()) {
    case 9:
      return equal_nocase(name, "Forwarded");
    case 12:
      return equal_nocase(name, "X-Request-Id");
    case 15:
      return equal_nocase(name, "X-Forwarded-For");
    case 16:
      return equal_nocase(name, "X-Forwarded-Host");
    case 17:
      return equal_nocase(name, "X-Forwarded-Proto");
    case 18:
      return equal_nocase(name, "X-Forwarded-Prefix");
    default:
      return false;
  }
}

void append_number(std::string& out, std::uint64_t n) {
  char digits[20];
  char* at = digits + sizeof digits;
  do
    *--at = static_cast<char>('0' + n % 10);
  while (n /= 10);
  out.append(at, static_cast<std::size_t>(digits + sizeof digits - at));
}

void append_field(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ").append(value).append("\r\n");
}

std::string_view address_of(std::string_view peer) {
  const auto colon = peer.rfind(':');
  if (colon == peer.npos)
    return peer;
  peer = peer.substr(0, colon);
  if (peer.starts_with('[') && peer.ends_with(']'))
    peer = peer.substr(1, peer.size() - 2);
  return peer;
}

void append_cors(std::string& out, const Front& front) {
  if (front.ticket.allow_origin.empty())
    return;
  append_field(out, "Access-Control-Allow-Origin", front.ticket.allow_origin);
  if (front.ticket.allow_origin != "*")
    append_field(out, "Vary", "Origin");
  append_field(out, "Access-Control-Expose-Headers", "X-Request-Id, Location, Retry-After");
}

}  // namespace

std::string without_session(std::string_view cookies) {
  std::string out;
  while (!cookies.empty()) {
    const std::string_view pair = cookies.substr(0, cookies.find(';'));
    cookies.remove_prefix(std::min(pair.size() + 1, cookies.size()));
    if (trim(pair).empty() || trim(pair.substr(0, pair.find('='))) == session_cookie)
      continue;
    if (!out.empty())
      out += "; ";
    out.append(trim(pair));
  }
  return out;
}

// A browser keeps "=NAME=VALUE" as a cookie without a name and sends it as "NAME=VALUE".
bool sets_session(std::string_view set_cookie) {
  std::string_view pair = trim(set_cookie.substr(0, set_cookie.find(';')));
  while (pair.starts_with('='))
    pair = trim(pair.substr(1));
  return equal_nocase(trim(pair.substr(0, pair.find('='))), session_cookie);
}

bool repeatable_method(std::string_view method) {
  return method == "GET" || method == "HEAD" || method == "PUT" || method == "DELETE" ||
         method == "OPTIONS";
}

void write_request_head(std::string& out, const Front& front) {
  const auto& head = front.head();
  // Another gateway sees the client's full path; a replica only its own part.
  const bool to_peer = front.ticket.upstream && !front.ticket.upstream->peer_key.empty();
  const std::size_t prefix_bytes = to_peer ? 0 : front.ticket.prefix_bytes;
  const std::string_view prefix = std::string_view(head.target).substr(0, prefix_bytes);
  std::string_view target = std::string_view(head.target).substr(prefix_bytes);
  out.append(head.method).append(" ");
  if (target.empty() || target[0] != '/')
    out += '/';
  out.append(target).append(" HTTP/1.1\r\n");
  const bool named = head.headers.count("Connection") > 0;
  std::string_view host;
  for (const auto& [name, value] : head.headers) {
    if (name.size() == 4 && equal_nocase(name, "Host"))
      host = value;
    if (hop_by_hop(name) || ours(name))
      continue;
    if (!front.ticket.strip_header.empty() && equal_nocase(name, front.ticket.strip_header))
      continue;
    if ((front.ticket.strip_credentials || value.find(key_prefix) != value.npos) &&
        (equal_nocase(name, "Authorization") || equal_nocase(name, "X-Api-Key")))
      continue;  // a key of some endpoint, even if this one asks for none
    if (named && head.headers.has_token("Connection", name))
      continue;
    if (name.size() == 6 && equal_nocase(name, "Cookie") &&
        value.find(session_cookie) != value.npos) {
      if (const std::string rest = without_session(value); !rest.empty())
        append_field(out, name, rest);
      continue;
    }
    append_field(out, name, value);
  }
  if (host.empty())
    append_field(out, "Host", "localhost");
  if (front.wants_upgrade()) {
    append_field(out, "Connection", "Upgrade");
    append_field(out, "Upgrade", head.headers.get("Upgrade"));
  }
  if (head.chunked) {
    out += "Transfer-Encoding: chunked\r\n";
  } else if (head.content_length) {
    out += "Content-Length: ";
    append_number(out, *head.content_length);
    out += "\r\n";
  }
  const auto told = [&](const char* name, std::string_view own) {
    const std::string_view by_peer =
        front.ticket.from_peer ? head.headers.get(name) : std::string_view();
    append_field(out, name, by_peer.empty() ? own : by_peer);
  };
  told("X-Forwarded-For", address_of(front.peer()));
  told("X-Forwarded-Proto", front.tls() ? "https" : "http");
  if (to_peer)
    append_field(out, peer_header, front.ticket.upstream->peer_key);
  if (!host.empty())
    append_field(out, "X-Forwarded-Host", host);
  if (!prefix.empty())
    append_field(out, "X-Forwarded-Prefix", prefix);
  append_field(out, "X-Request-Id", front.request_id());
  out += "\r\n";
}

void write_answer_head(std::string& out,
                       const net::HttpParser::Head& head,
                       const Front& front,
                       bool chunked,
                       bool keep_alive) {
  out += "HTTP/1.1 ";
  append_number(out, static_cast<std::uint64_t>(head.status));
  out.append(" ").append(net::status_text(head.status)).append("\r\n");
  const bool named = head.headers.count("Connection") > 0;
  const bool cors = !front.ticket.allow_origin.empty();
  for (const auto& [name, value] : head.headers) {
    if (hop_by_hop(name) || equal_nocase(name, "X-Request-Id") ||
        equal_nocase(name, "X-Billow-Problem"))
      continue;
    if (named && head.headers.has_token("Connection", name))
      continue;
    if (cors && (equal_nocase(name, "Access-Control-Allow-Origin") ||
                 equal_nocase(name, "Access-Control-Expose-Headers")))
      continue;
    if (name.size() == 10 && equal_nocase(name, "Set-Cookie") && sets_session(value))
      continue;
    // A redirect within the replica's paths is rewritten to the paths that the client sees. A
    // replica that knows its prefix has already done so.
    const std::string_view prefix =
        std::string_view(front.head().target).substr(0, front.ticket.prefix_bytes);
    if (equal_nocase(name, "Location") && value.starts_with('/') && !value.starts_with("//") &&
        !value.starts_with(std::string(prefix) + "/")) {
      out.append("Location: ")
          .append(front.head().target, 0, front.ticket.prefix_bytes)
          .append(value)
          .append("\r\n");
      continue;
    }
    append_field(out, name, value);
  }
  append_field(out, "X-Request-Id", front.request_id());
  append_cors(out, front);
  if (head.status == 101) {
    append_field(out, "Connection", "Upgrade");
    append_field(out, "Upgrade", head.headers.get("Upgrade"));
  } else {
    if (chunked) {
      out += "Transfer-Encoding: chunked\r\n";
    } else if (head.content_length && head.status != 204 && head.status >= 200) {
      out += "Content-Length: ";
      append_number(out, *head.content_length);
      out += "\r\n";
    }
    if (!keep_alive)
      out += "Connection: close\r\n";
    else if (front.head().minor_version == 0)
      out += "Connection: keep-alive\r\n";
  }
  out += "\r\n";
}

void write_whole_head(std::string& out,
                      const net::Response& response,
                      const Front& front,
                      std::string_view date,
                      bool keep_alive) {
  out += "HTTP/1.1 ";
  append_number(out, static_cast<std::uint64_t>(response.status));
  out.append(" ").append(net::status_text(response.status)).append("\r\n");
  append_field(out, "Date", date);
  for (const auto& [name, value] : response.headers) {
    if (hop_by_hop(name) || !net::valid_token(name) || !net::valid_field_value(value))
      continue;
    append_field(out, name, value);
  }
  if (!front.request_id().empty() && !response.headers.has("X-Request-Id"))
    append_field(out, "X-Request-Id", front.request_id());
  // Distinguishes an error of the gateway from one of the application.
  if (response.status >= 400)
    append_field(out, "X-Billow-Problem", "1");
  append_cors(out, front);
  if (response.status != 204 && response.status != 304) {
    out += "Content-Length: ";
    append_number(out, response.body.size());
    out += "\r\n";
  }
  if (!keep_alive)
    out += "Connection: close\r\n";
  else if (front.head().minor_version == 0)
    out += "Connection: keep-alive\r\n";
  out += "\r\n";
}

}  // namespace billow::gateway
