#include "agent/isolate/look_as_user.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "process/each_entry_linux.h"
#include "process/spawn.h"

namespace billow::agent {
namespace {

// System calls only: it runs in a forked process.
Sight look(const char* path) {
  const int fd = ::open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0)
    return errno == ENOENT                      ? Sight::nothing
           : errno == ENOTDIR || errno == ELOOP ? Sight::used
                                                : Sight::closed;
  ::close(fd);
  const int found = process::each_entry(path, [](const char*) { return EEXIST; });
  return found == 0 ? Sight::empty : found == EEXIST ? Sight::used : Sight::closed;
}

}  // namespace

Sight look_as_user(const std::optional<Identity>& user, const std::string& path) {
  if (!user)
    return look(path.c_str());
  process::Spawn request;
  request.body = [&path] {
    return static_cast<int>(look(path.c_str()));
  };
  request.identity = user;
  auto child = process::spawn(request);
  if (!child)
    return Sight::closed;
  const int code = child->wait().code();
  return code <= static_cast<int>(Sight::closed) ? static_cast<Sight>(code) : Sight::closed;
}

}  // namespace billow::agent
