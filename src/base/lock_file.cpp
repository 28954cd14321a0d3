#include "base/lock_file.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>

#include "base/file.h"

namespace billow {

bool lock_is_held(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd)
    return false;
  // A shared lock, so that concurrent checks do not take each other for the holder. It is released
  // with the descriptor. A process that acquires the exclusive lock must retry briefly, because a
  // check can be in the way.
  if (::flock(fd.get(), LOCK_SH | LOCK_NB) == 0)
    return false;
  return errno == EWOULDBLOCK;
}

}  // namespace billow
