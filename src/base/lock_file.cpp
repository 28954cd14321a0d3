#include "base/lock_file.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>

#include "base/file.h"

namespace billow {

bool lock_is_held(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) return false;
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return false;  // ours now, and given up with the descriptor
  return errno == EWOULDBLOCK;
}

}  // namespace billow
