#include "gateway/grpc.h"

#include "base/text.h"
#include "net/address.h"

namespace billow::gateway {
namespace {

constexpr std::size_t message_bytes_max = 1024;

// "%20" for what is not printable, and for the percent sign.
std::string percent_encoded(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, message_bytes_max)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f && c != '%')
      out += c;
    else
      out += fmt::format("%{:02X}", byte);
  }
  return out;
}

// The text of a member of a problem document.
std::string detail_of(const std::string& body) {
  constexpr std::string_view key = "\"detail\":\"";
  auto at = body.find(key);
  if (at == std::string::npos)
    return {};
  std::string out;
  for (at += key.size(); at < body.size() && body[at] != '"'; ++at) {
    if (body[at] == '\\' && at + 1 < body.size())
      ++at;
    out += body[at];
  }
  return out;
}

}  // namespace

bool is_grpc(const net::HttpParser::Head& head) {
  const auto type = head.headers.get("Content-Type");
  constexpr std::string_view name = "application/grpc";
  return starts_with_nocase(type, name) &&
         (type.size() == name.size() || type[name.size()] == '+' || type[name.size()] == ';');
}

std::string_view grpc_endpoint(const net::HttpParser::Head& head) {
  if (const auto named = head.headers.get(grpc_endpoint_header); !named.empty())
    return named;
  const auto host = head.headers.get("Host");
  const auto dot = host.find('.');
  // The first number of an address is no name.
  const bool number = std::all_of(host.begin(), host.end(), [](char c) {
    return (c >= '0' && c <= '9') || c == '.' || c == ':';
  });
  if (dot == host.npos || number || host.starts_with('['))
    return {};
  return host.substr(0, dot);
}

int grpc_code(int http_status) {
  switch (http_status) {
    case 400:
    case 431:
      return 13;  // INTERNAL
    case 401:
      return 16;  // UNAUTHENTICATED
    case 403:
      return 7;  // PERMISSION_DENIED
    case 404:
      return 12;  // UNIMPLEMENTED
    case 413:
      return 8;  // RESOURCE_EXHAUSTED
    case 408:
    case 504:
      return 4;  // DEADLINE_EXCEEDED
    case 429:
    case 502:
    case 503:
      return 14;  // UNAVAILABLE
    default:
      return 2;  // UNKNOWN
  }
}

int http_status_of_grpc(std::string_view grpc_status) {
  if (grpc_status == "0")
    return 200;
  if (grpc_status == "5" || grpc_status == "12")
    return 404;
  if (grpc_status == "7" || grpc_status == "16")
    return 401;
  return grpc_status == "14" ? 503 : 500;
}

// UNKNOWN, DEADLINE_EXCEEDED, INTERNAL, UNAVAILABLE, DATA_LOSS.
bool is_grpc_server_fault(std::string_view grpc_status) {
  return grpc_status == "2" || grpc_status == "4" || grpc_status == "13" || grpc_status == "14" ||
         grpc_status == "15";
}

void write_grpc_error(net::Http2Fields& out, const net::Response& response, const Front& front) {
  out.add("content-type", "application/grpc");
  out.add("grpc-status", std::to_string(grpc_code(response.status)));
  std::string message = detail_of(response.body);
  if (message.empty())
    message = net::status_text(response.status);
  out.add("grpc-message", percent_encoded(message));
  if (const auto later = response.headers.get("Retry-After"); !later.empty())
    out.add("retry-after", later);
  if (!front.request_id().empty())
    out.add("x-request-id", front.request_id());
  out.add("x-billow-problem", "1");
}

std::string grpc_health_request(std::string_view service) {
  service = service.substr(0, 127);  // one byte holds its length
  std::string message;
  if (!service.empty()) {
    message += '\x0a';  // field 1, a string
    message += static_cast<char>(service.size());
    message.append(service);
  }
  std::string out(4, '\0');  // not compressed, and the length in four bytes
  out += static_cast<char>(message.size());
  return out + message;
}

bool grpc_health_serving(std::string_view answer) {
  // One message, not compressed: field 1 is 1.
  return answer.size() >= 7 && answer[0] == '\0' && answer.substr(5, 2) == "\x08\x01";
}

}  // namespace billow::gateway
