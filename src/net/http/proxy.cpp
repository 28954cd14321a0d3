#include "net/http/proxy.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/text.h"

namespace billow::net {
namespace {

constexpr std::size_t answer_bytes_max = 16 << 10;

}  // namespace

Result<Address> parse_proxy(std::string_view url) {
  const auto parsed = parse_url(url);
  if (!parsed || !url.starts_with("http://") || url.find('@') != std::string_view::npos ||
      parsed->target != "/")
    return fail(Code::invalid, fmt::format("\"{}\" is not the address of a proxy", url),
                "use a form like http://10.0.0.2:3128");
  return parsed->endpoint.address;
}

std::optional<Address> proxy_for(const Endpoint& endpoint) {
  const char* url = ::getenv(proxy_variable);
  if (!url || !*url || endpoint.address.is_loopback() ||
      endpoint.address.host.starts_with("169.254."))
    return std::nullopt;
  auto address = parse_proxy(url);
  return address ? std::optional(std::move(*address)) : std::nullopt;
}

std::string connect_request(const Endpoint& endpoint) {
  const std::string to = endpoint.address.text();
  return fmt::format("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", to);
}

Result<std::size_t> connect_answer(std::string_view bytes, const Address& proxy) {
  const auto end = bytes.find("\r\n\r\n");
  if (end == std::string_view::npos) {
    if (bytes.size() < answer_bytes_max)
      return std::size_t{0};
    return fail(Code::unavailable, fmt::format("the proxy {} does not answer", proxy.text()));
  }
  const std::string_view line = bytes.substr(0, bytes.find("\r\n"));
  if (!line.starts_with("HTTP/1.") || line.size() < 12 || line[9] != '2')
    return fail(Code::unavailable,
                fmt::format("the proxy {} refuses: {}", proxy.text(), utf8_prefix(line, 200)),
                "allow it to connect to the head");
  return end + 4;
}

Result<bool> take_connect_answer(int fd, const Address& proxy) {
  char bytes[answer_bytes_max];
  const ssize_t got = ::recv(fd, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR))
    return false;
  if (got <= 0)
    return fail(Code::unavailable, fmt::format("the proxy {} closed the connection", proxy.text()));
  const std::size_t size =
      BILLOW_TRY(connect_answer({bytes, static_cast<std::size_t>(got)}, proxy));
  if (size == 0)
    return false;
  (void)::recv(fd, bytes, size, MSG_DONTWAIT);
  return true;
}

}  // namespace billow::net
