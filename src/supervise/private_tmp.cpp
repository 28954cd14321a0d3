#include "supervise/private_tmp.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "supervise/sys.h"

namespace billow::supervise {
namespace {

using Path = Text<4352>;

constexpr char tmp_place[] = "/tmp";
constexpr char memory_place[] = "/dev/shm";
constexpr std::uint32_t shown_max = 64;

// Whether the path is below the place, and not the place itself.
bool below(const char* path, const char* place) {
  const std::size_t length = strlen(place);
  return strncmp(path, place, length) == 0 && path[length] == '/' && path[length + 1] != 0;
}

// The directories of the path, as mount points: nothing of the job has run here yet.
int make_path(const char* path) {
  Path part;
  for (std::size_t at = 0; path[at] != 0 && at + 1 < sizeof(part.data);) {
    do
      part.data[at] = path[at], ++at;
    while (path[at] != 0 && path[at] != '/' && at + 1 < sizeof(part.data));
    part.data[at] = 0;
    if (mkdir(part.data, 0755) != 0 && errno != EEXIST)
      return errno;
  }
  return 0;
}

int show(int from, const char* at) {
  if (const int error = make_path(at))
    return error;
  Text<64> opened;
  opened << "/proc/self/fd/" << static_cast<std::uint64_t>(from);
  return mount(opened.data, at, nullptr, MS_BIND | MS_REC, nullptr) == 0 ? 0 : errno;
}

}  // namespace

int mount_private_tmp(const Spec& spec, const char** stage) {
  *stage = "find a directory below /tmp";
  if (spec.shown_count > shown_max)
    return E2BIG;
  // Opened first: they are hidden in a moment.
  int open_dirs[shown_max];
  for (std::uint32_t i = 0; i < spec.shown_count; ++i) {
    const char* path = spec.shown[i];
    open_dirs[i] = -1;
    if (!below(path, tmp_place) && !below(path, memory_place))
      continue;
    open_dirs[i] = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (open_dirs[i] < 0 && errno != ENOENT)
      return errno;
  }
  *stage = "make a private /tmp";
  if (mount(spec.private_tmp, tmp_place, nullptr, MS_BIND, nullptr) != 0 ||
      mount(nullptr, tmp_place, nullptr, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV, nullptr) != 0)
    return errno;
  *stage = "make a private /dev/shm";
  if (mount("tmpfs", memory_place, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777") != 0)
    return errno;
  *stage = "show a directory below the private /tmp";
  const mode_t before = umask(0);
  int error = 0;
  for (std::uint32_t i = 0; i < spec.shown_count; ++i) {
    if (open_dirs[i] < 0)
      continue;
    if (error == 0)
      error = show(open_dirs[i], spec.shown[i]);
    close(open_dirs[i]);
  }
  umask(before);
  return error;
}

}  // namespace billow::supervise
