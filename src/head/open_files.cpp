#include "head/open_files.h"

#include <sys/resource.h>

#include <algorithm>

#include "base/limits.h"

namespace billow::head {

std::uint64_t raise_open_files() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0)
    return 0;
  const std::uint64_t before = files.rlim_cur;
  // Twice what the server takes: requests of its own (webhooks, pools, the store) need some too.
  files.rlim_cur = std::max<rlim_t>(
      files.rlim_cur, std::min<rlim_t>(files.rlim_max, 2 * limits::http_connections_max));
  if (files.rlim_cur != before)
    (void)::setrlimit(RLIMIT_NOFILE, &files);
  return before;
}

std::size_t connections_within_open_files() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY)
    return limits::http_connections_max;
  return static_cast<std::size_t>(
      std::clamp<rlim_t>(files.rlim_cur / 2, 64, limits::http_connections_max));
}

}  // namespace billow::head
