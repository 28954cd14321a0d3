#include "supervise/private_tmp.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "supervise/job_rights.h"
#include "supervise/sys.h"

namespace billow::supervise {
namespace {

constexpr const char* places[] = {"/tmp", "/dev/shm"};
constexpr std::uint32_t shown_max = 64;
constexpr int path_flags = O_PATH | O_DIRECTORY | O_CLOEXEC;

struct Shown {
  const char* path;      // as in the spec
  const char* relative;  // below its place
  int place;             // an index in `places`
  int from = -1;         // the directory, opened before it is hidden
  int at = -1;           // its mount point
};

// The rest of a path below one of the places; null: it is the place itself, or elsewhere.
const char* below(const char* path, const char* place) {
  const std::size_t length = strlen(place);
  if (strncmp(path, place, length) != 0 || path[length] != '/')
    return nullptr;
  path += length;
  while (*path == '/')
    ++path;
  return *path == 0 ? nullptr : path;
}

bool within(const char* path, const char* top) {
  const std::size_t length = strlen(top);
  return strncmp(path, top, length) == 0 && (path[length] == 0 || path[length] == '/');
}

// What the job's user could not reach, or reaches only through a link, is not shown: a directory
// may rely on the one above it, which is not there in the job.
int open_without_links(int place, const char* relative) {
  open_how how{};
  how.flags = path_flags;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  return static_cast<int>(syscall(SYS_openat2, place, relative, &how, sizeof how));
}
bool is_refusal(int error) {
  return error == ENOENT || error == EACCES || error == ELOOP || error == ENOTDIR || error == EXDEV;
}

int open_places(int* out) {
  for (int i = 0; i < 2; ++i) {
    out[i] = open(places[i], path_flags);
    if (out[i] < 0)
      return errno;
  }
  return 0;
}

// Makes and opens the directory, part by part and without following links.
int make_mount_point(int place, Shown* shown) {
  int at = fcntl(place, F_DUPFD_CLOEXEC, 0);
  const char* rest = shown->relative;
  while (at >= 0 && *rest != 0) {
    Text<256> part;
    const std::size_t length = static_cast<std::size_t>(strchrnul(rest, '/') - rest);
    if (length + 1 > sizeof(part.data))
      return ENAMETOOLONG;
    memcpy(part.data, rest, length);
    part.data[part.size = length] = 0;
    rest += length;
    while (*rest == '/')
      ++rest;
    if (strcmp(part.data, ".") == 0)
      continue;
    if (mkdirat(at, part.data, 0755) != 0 && errno != EEXIST)
      return errno;
    const int next = openat(at, part.data, path_flags | O_NOFOLLOW);
    const int error = errno;
    close(at);
    if (next < 0)
      return error;
    at = next;
  }
  shown->at = at;
  return at < 0 ? errno : 0;
}

int bind(const Shown& shown) {
  Text<64> from, at;
  from << "/proc/self/fd/" << static_cast<std::uint64_t>(shown.from);
  at << "/proc/self/fd/" << static_cast<std::uint64_t>(shown.at);
  return mount(from.data, at.data, nullptr, MS_BIND | MS_REC, nullptr) == 0 ? 0 : errno;
}

// Opens what is to be shown, before it is hidden, with the rights of the job's user.
int open_shown(const Spec& spec, Shown* all, std::uint32_t* count) {
  int tops[2];
  if (const int error = open_places(tops))
    return error;
  const JobRights rights(spec);
  if (rights.error() != 0)
    return rights.error();
  for (std::uint32_t i = 0; i < spec.shown_count; ++i)
    for (int place = 0; place < 2; ++place) {
      const char* relative = below(spec.shown[i], places[place]);
      if (relative == nullptr)
        continue;
      Shown& one = all[*count];
      one = {spec.shown[i], relative, place, open_without_links(tops[place], relative), -1};
      if (one.from >= 0)
        ++*count;
      else if (!is_refusal(errno))
        return errno;
    }
  for (const int top : tops)
    close(top);
  return 0;
}

// All mount points are made before anything of the user's is mounted, by the user's own rights, and
// held open: what the user changes meanwhile leads nowhere else. A directory inside another one
// that is shown is visible there.
int show(const Spec& spec, Shown* all, std::uint32_t count) {
  const auto is_inside_another = [&](std::uint32_t i) {
    for (std::uint32_t k = 0; k < count; ++k)
      if (k != i && within(all[i].path, all[k].path) &&
          (k < i || strcmp(all[i].path, all[k].path) != 0))
        return true;
    return false;
  };
  int tops[2];
  if (const int error = open_places(tops))
    return error;
  {
    const JobRights rights(spec);
    if (rights.error() != 0)
      return rights.error();
    for (std::uint32_t i = 0; i < count; ++i)
      if (!is_inside_another(i))
        if (const int error = make_mount_point(tops[all[i].place], &all[i]))
          return error;
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    if (all[i].at >= 0)
      if (const int error = bind(all[i]))
        return error;
    close(all[i].from);
    close(all[i].at);
  }
  for (const int top : tops)
    close(top);
  return 0;
}

}  // namespace

int mount_private_tmp(const Spec& spec, const char** stage) {
  *stage = "find a directory below /tmp";
  if (spec.shown_count > shown_max)
    return E2BIG;
  Shown shown[shown_max];
  std::uint32_t count = 0;
  if (const int error = open_shown(spec, shown, &count))
    return error;
  *stage = "make a private /tmp";
  if (mount(spec.private_tmp, places[0], nullptr, MS_BIND, nullptr) != 0 ||
      mount(nullptr, places[0], nullptr, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV, nullptr) != 0)
    return errno;
  *stage = "make a private /dev/shm";
  if (mount("tmpfs", places[1], "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777") != 0)
    return errno;
  *stage = "show a directory below the private /tmp";
  const mode_t before = umask(0);
  const int error = show(spec, shown, count);
  umask(before);
  return error;
}

}  // namespace billow::supervise
