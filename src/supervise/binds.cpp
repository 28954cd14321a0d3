#include "supervise/binds.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "supervise/each_entry.h"
#include "supervise/sys.h"

namespace billow::supervise {
namespace {

using Path = Text<4352>;

int bind_over(const char* from, const char* to, unsigned long recursive) { return mount(from, to, nullptr, MS_BIND | recursive, nullptr) == 0 ? 0 : errno; }

// Everything in `from` bound or copied into the empty `to`.
int mirror(const char* from, const char* to) {
  return each_entry(from, [&](const char* name) {
    Path source, target;
    source << from << "/" << name;
    target << to << "/" << name;
    struct stat st {};
    if (lstat(source.data, &st) != 0) return 0;  // gone meanwhile
    if (S_ISLNK(st.st_mode)) {
      char link[4096];
      const ssize_t length = readlink(source.data, link, sizeof(link) - 1);
      if (length <= 0) return 0;
      link[length] = 0;
      return symlink(link, target.data) == 0 ? 0 : errno;
    }
    if (!S_ISDIR(st.st_mode)) return bind_file(source.data, target.data);
    return mkdir(target.data, 0755) == 0 ? bind_over(source.data, target.data, MS_REC) : errno;
  });
}

bool is_directory(const char* path) {
  struct stat st {};
  return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

// The directories of `path` below `above`, which is there.
int make_below(const char* path, std::size_t above) {
  Path part;
  for (std::size_t at = 0; path[at] != 0 && at + 1 < sizeof(part.data);) {
    do part.data[at] = path[at], ++at;
    while (path[at] != 0 && path[at] != '/' && at + 1 < sizeof(part.data));
    part.data[at] = 0;
    if (at > above && mkdir(part.data, 0755) != 0 && errno != EEXIST) return errno;
  }
  return 0;
}

// Makes the directory in this namespace alone.
int make_place(const char* path, const char** stage) {
  if (is_directory(path)) return 0;
  Path above;
  above << path;
  while (above.size > 1 && !is_directory(above.data)) {
    while (above.size > 0 && above.data[above.size - 1] != '/') above.data[--above.size] = 0;
    while (above.size > 1 && above.data[above.size - 1] == '/') above.data[--above.size] = 0;
  }
  *stage = "make the volume's place (below / it must be there already; use /mnt/NAME)";
  if (above.size <= 1) return ENOENT;
  *stage = "make the volume's place";
  // The task directory is the current one; `place` in it is only ever a mount point.
  if (mkdir("place", 0755) != 0 && errno != EEXIST) return errno;
  if (mount("tmpfs", "place", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m") != 0) return errno;
  if (const int error = mirror(above.data, "place")) return error;
  // As closed as what it stands for. Without privilege the owner may not be given; then nothing was mirrored that its user could not see.
  struct stat its {};
  if (stat(above.data, &its) != 0) return errno;
  (void)!chown("place", its.st_uid, its.st_gid);
  if (chmod("place", its.st_mode & 07777) != 0) return errno;
  if (mount("place", above.data, nullptr, MS_MOVE, nullptr) != 0) return errno;
  if (const int error = make_below(path, above.size)) return error;
  return 0;
}

int mount_one(const char* source, const char* path, bool read_only, const char** stage) {
  *stage = "find the volume on this node";
  // Held open: what is mounted is what was there, whatever is mounted over it below.
  const int from = open(source, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (from < 0) return errno;
  int error = make_place(path, stage);
  if (error == 0) {
    Text<64> opened;
    opened << "/proc/self/fd/" << static_cast<std::uint64_t>(from);
    *stage = "mount a volume";
    // What is mounted inside a volume stays outside of a read-only one: it could not be made read-only with it.
    error = bind_over(opened.data, path, read_only ? 0 : MS_REC);
  }
  close(from);
  if (error != 0) return error;
  struct statvfs now {};
  unsigned long flags = MS_NOSUID | MS_NODEV;
  if (statvfs(path, &now) == 0) {
    if (now.f_flag & ST_NOEXEC) flags |= MS_NOEXEC;
    if (now.f_flag & ST_RDONLY) flags |= MS_RDONLY;
    if (now.f_flag & ST_NOATIME) flags |= MS_NOATIME;
    if (now.f_flag & ST_RELATIME) flags |= MS_RELATIME;
    if (now.f_flag & ST_NODIRATIME) flags |= MS_NODIRATIME;
  }
  if (read_only) flags |= MS_RDONLY;
  *stage = read_only ? "make a volume read-only" : "mount a volume without devices";
  return mount(nullptr, path, nullptr, MS_REMOUNT | MS_BIND | flags, nullptr) == 0 ? 0 : errno;
}

}  // namespace

int mount_binds(const Spec& spec, const char** stage) {
  const mode_t before = umask(0);
  int error = 0;
  // "ro" or "rw", the source and the place, a line each.
  for (const char** bind = spec.binds; *bind != nullptr && error == 0; ++bind) {
    const char* source = *bind + 3;
    const char* end = strchr(source, '\n');
    Path from;
    for (const char* c = source; c < end && from.size + 1 < sizeof(from.data); ++c) from.data[from.size++] = *c;
    from.data[from.size] = 0;
    error = mount_one(from.data, end + 1, (*bind)[1] == 'o', stage);
  }
  umask(before);
  return error;
}

}  // namespace billow::supervise
