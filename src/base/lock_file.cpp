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
  // Shared, so that several who look at once do not take each other for the holder; given up with
  // the descriptor. Whoever takes such a lock for good tries for a moment, for a look is in the way
  // for as long as it takes.
  if (::flock(fd.get(), LOCK_SH | LOCK_NB) == 0)
    return false;
  return errno == EWOULDBLOCK;
}

}  // namespace billow
