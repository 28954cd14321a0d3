#include "net/http/http_request.h"

#include "base/append_format.h"

namespace billow::net {

Result<std::string> request_head(const Endpoint& endpoint,
                                 Method method,
                                 std::string_view target,
                                 const Headers& headers,
                                 std::optional<std::uint64_t> body_bytes) {
  if (target.empty() || target[0] != '/')
    return fail(Code::invalid,
                fmt::format("the request target \"{}\" does not begin with /", target));
  for (char c : target)
    if (static_cast<unsigned char>(c) <= 0x20 || static_cast<unsigned char>(c) >= 0x7f)
      return fail(Code::invalid,
                  "the request target contains a character that must be percent-encoded");
  std::string out;
  out.reserve(256);
  out.append(method_name(method)).append(" ").append(target).append(" HTTP/1.1\r\n");
  if (!headers.has("Host"))
    out.append("Host: ").append(endpoint.host_header()).append("\r\n");
  for (const auto& [name, value] : headers) {
    if (!valid_token(name) || !valid_field_value(value))
      return fail(Code::invalid, fmt::format("the header {} contains invalid characters",
                                             valid_token(name) ? name : "?"));
    if (equal_nocase(name, "Content-Length") || equal_nocase(name, "Transfer-Encoding"))
      continue;
    out.append(name).append(": ").append(value).append("\r\n");
  }
  const bool usual_body =
      method == Method::post || method == Method::put || method == Method::patch;
  if (body_bytes && (*body_bytes > 0 || usual_body))
    append_format(out, "Content-Length: {}\r\n", *body_bytes);
  out += "\r\n";
  return out;
}

bool repeatable(Method method) {
  switch (method) {
    case Method::get:
    case Method::head:
    case Method::put:
    case Method::del:
    case Method::options:
      return true;
    case Method::post:
    case Method::patch:
      return false;
  }
  return false;
}

}  // namespace billow::net
