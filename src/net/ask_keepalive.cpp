#include "net/ask_keepalive.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/file.h"
#include "base/text.h"

namespace billow::net {

std::pair<sockaddr_un, socklen_t> socket_address(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.starts_with('/')) {
    if (name.size() >= sizeof(address.sun_path))
      return {address, 0};
    std::memcpy(address.sun_path, name.data(), name.size());
    return {address, static_cast<socklen_t>(sizeof address)};
  }
  const std::size_t n = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data(), n);
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + n)};
}

Result<Duration> ask_keepalive(const std::string& name, Duration lasts, const std::string& reason) {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM, 0));
  if (!fd)
    return fail_errno("socket", errno);
  ::fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
  const timeval patience{10, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  const auto [address, size] = socket_address(name);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0)
    return fail(Code::unavailable, "the agent of this node does not answer",
                "try again in a moment");
  std::string line = fmt::format("{} {}", lasts.ns / 1'000'000'000, utf8_prefix(reason, 200));
  std::replace(line.begin(), line.end(), '\n', ' ');
  line += '\n';
  if (::send(fd.get(), line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size()))
    return fail_errno("keep-alive", errno);
  std::string answer;
  char buffer[512];
  for (ssize_t n;
       answer.find('\n') == std::string::npos && (n = ::read(fd.get(), buffer, sizeof buffer)) > 0;)
    answer.append(buffer, static_cast<std::size_t>(n));
  const std::string text(trim(answer));
  if (text.starts_with("ok ")) {
    if (const auto kept = parse_int(text.substr(3), 0, INT64_MAX / 1'000'000'000))
      return seconds(*kept);
  }
  if (text.starts_with("error "))
    return fail(Code::conflict, text.substr(6));
  return fail(Code::unavailable, "the agent of this node does not answer", "try again in a moment");
}

}  // namespace billow::net
