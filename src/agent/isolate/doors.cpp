#include "agent/isolate/doors.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "net/ask_keepalive.h"

namespace billow::agent {
namespace {

constexpr int waiting_max = 256;  // connections that are not accepted yet

Result<Fd> bound(const std::string& name, const std::string& shown) {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd)
    return fail_errno("socket", errno);
  const auto [address, size] = net::socket_address(name);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0)
    return fail_errno("bind the socket " + shown, errno);
  return fd;
}

Result<Fd> listening(Fd fd, const std::string& shown) {
  if (::listen(fd.get(), waiting_max) != 0)
    return fail_errno("listen on the socket " + shown, errno);
  return fd;
}

}  // namespace

Result<Fd> listen_at(const OwnPlace& place, const Door& door) {
  const Fd directory = BILLOW_TRY(place.directory({.relative = door.directory, .mode = 0711}));
  const std::string shown = door.path(place);
  if (::unlinkat(directory.get(), door.name.c_str(), 0) != 0 && errno != ENOENT)
    return fail_errno(shown, errno);
  // Bound through the descriptor: /proc/net/unix shows every user the path as it was bound.
  Fd fd = BILLOW_TRY(bound(fmt::format("/proc/self/fd/{}/{}", directory.get(), door.name), shown));
  if (::fchmodat(directory.get(), door.name.c_str(), 0666, 0) != 0)
    return fail_errno(shown, errno);
  return listening(std::move(fd), shown);
}

Result<Fd> listen_abstract(const std::string& name) {
  return listening(BILLOW_TRY(bound(name, "@" + name)), "@" + name);
}

}  // namespace billow::agent
