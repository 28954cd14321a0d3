#include "supervise/binds.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <initializer_list>

#include "process/each_entry_linux.h"
#include "process/open_without_links_linux.h"
#include "supervise/bind_file.h"
#include "supervise/job_rights.h"
#include "supervise/sys.h"

namespace billow::supervise {
namespace {

using Path = Text<4352>;

int bind_over(const char* from, const char* to, unsigned long recursive) {
  return mount(from, to, nullptr, MS_BIND | recursive, nullptr) == 0 ? 0 : errno;
}

// Binds or copies every entry of `from` into the empty `to`.
int mirror(const char* from, const char* to) {
  return process::each_entry(from, [&](const char* name) {
    Path source, target;
    source << from << "/" << name;
    target << to << "/" << name;
    struct stat st {};
    if (lstat(source.data, &st) != 0)
      return 0;  // removed meanwhile
    if (S_ISLNK(st.st_mode)) {
      char link[4096];
      const ssize_t length = readlink(source.data, link, sizeof(link) - 1);
      if (length <= 0)
        return 0;
      link[length] = 0;
      return symlink(link, target.data) == 0 ? 0 : errno;
    }
    if (!S_ISDIR(st.st_mode))
      return bind_file(source.data, target.data);
    return mkdir(target.data, 0755) == 0 ? bind_over(source.data, target.data, MS_REC) : errno;
  });
}

bool is_directory(const char* path) {
  struct stat st {};
  return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

// Creates the directories of `path` below `above`, which exists.
int make_below(const char* path, std::size_t above) {
  Path part;
  for (std::size_t at = 0; path[at] != 0 && at + 1 < sizeof(part.data);) {
    do {
      part.data[at] = path[at];
      ++at;
    } while (path[at] != 0 && path[at] != '/' && at + 1 < sizeof(part.data));
    part.data[at] = 0;
    if (at > above && mkdir(part.data, 0755) != 0 && errno != EEXIST)
      return errno;
  }
  return 0;
}

// An open directory: the mount goes over the directory that was checked, even if a link on the way
// changes meanwhile.
struct Place {
  int fd = -1;
  Text<64> opened;  // its path through /proc, without links
  Path real;
};
bool within(const char* path, const char* top) {
  const std::size_t length = strlen(top);
  return strncmp(path, top, length) == 0 && (path[length] == 0 || path[length] == '/');
}
int open_place(const char* path, Place* out, const char** stage) {
  out->fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (out->fd < 0)
    return errno;
  out->opened << "/proc/self/fd/" << static_cast<std::uint64_t>(out->fd);
  const ssize_t length = readlink(out->opened.data, out->real.data, sizeof(out->real.data) - 1);
  int error = length <= 0 ? EIO : 0;
  if (error == 0)
    out->real.data[out->real.size = static_cast<std::size_t>(length)] = 0;
  // Whatever enters this namespace later for the job believes what it finds there.
  for (const char* top : {"/proc", "/sys", "/dev"})
    if (error == 0 && within(out->real.data, top)) {
      *stage =
          "put a volume where the system's own files are (its place leads into /proc, /sys or "
          "/dev)";
      error = EPERM;
    }
  if (error != 0)
    close(out->fd);
  return error;
}

// A new directory directly below / needs another /: one in memory that holds all there is in it,
// and takes its place in this namespace. The task directory is the current one, before and after.
int take_roots_place() {
  Path here;
  if (getcwd(here.data, sizeof(here.data)) == nullptr)
    return errno;
  if (chdir("place") != 0)
    return errno;
  if (syscall(SYS_pivot_root, ".", ".") != 0)
    return errno;
  if (umount2(".", MNT_DETACH) != 0)
    return errno;
  return chdir(here.data) == 0 ? 0 : errno;
}

// Creates the missing directories with the rights of the job's user alone, wherever links on the
// way lead.
int make_as_user(const Spec& spec, const char* path, std::size_t above) {
  const JobRights rights(spec);
  return rights.error() != 0 ? rights.error() : make_below(path, above);
}

// Whether nobody but the system's own user can put something else in the place of this directory,
// or of one it lies in. In a user namespace that user has another number: the one / belongs to.
bool only_the_systems(const char* real) {
  struct stat st {};
  if (stat("/", &st) != 0)
    return false;
  const uid_t system = st.st_uid;
  Path part;
  for (std::size_t at = 0; real[at] != 0 && at + 1 < sizeof(part.data);) {
    do {
      part.data[at] = real[at];
      ++at;
    } while (real[at] != 0 && real[at] != '/' && at + 1 < sizeof(part.data));
    part.data[at] = 0;
    if (lstat(part.data, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != system ||
        ((st.st_mode & 022) != 0 && (st.st_mode & S_ISVTX) == 0))
      return false;
  }
  return true;
}

// In this namespace alone: a copy in memory takes the place of the directory above.
int make_place_here(const Place& over, const char* path, std::size_t above, const char** stage) {
  const bool top = strcmp(over.real.data, "/") == 0;
  // `place` in the task directory is only a mount point.
  if (mkdir("place", 0755) != 0 && errno != EEXIST)
    return errno;
  if (mount("tmpfs", "place", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m") != 0)
    return errno;
  if (const int error = mirror(over.real.data, "place"))
    return error;
  // With the same mode and owner as the original. Without privilege the owner cannot be set; but
  // then it holds nothing that its user could not see.
  struct stat its {};
  if (fstat(over.fd, &its) != 0)
    return errno;
  (void)!chown("place", its.st_uid, its.st_gid);
  if (chmod("place", its.st_mode & 07777) != 0)
    return errno;
  if (top)
    *stage = "make the volume's place below / (use /mnt/NAME, or make the directory on the node)";
  if (const int error = top ? take_roots_place()
                        : mount("place", over.opened.data, nullptr, MS_MOVE, nullptr) == 0 ? 0
                                                                                           : errno)
    return error;
  // Below the directory that was checked, not below what its name leads to now.
  Path wanted;
  if (!top)
    wanted << over.real.data;
  const std::size_t there = wanted.size;
  wanted << (path[above] == '/' ? "" : "/") << path + above;
  return make_below(wanted.data, there);
}

// Makes the directory: really, where the job's user may; in this namespace alone where only the
// system could. There the directory above gets a copy in memory in its place, which takes nothing
// from the job: it could not write there anyway. Anywhere else (what belongs to a third) it stays a
// mistake: what lies there can be exchanged while it is looked at.
int make_place(const Spec& spec, const char* path, const char** stage) {
  if (is_directory(path))
    return 0;
  Path above;
  above << path;
  while (above.size > 1 && !is_directory(above.data)) {
    while (above.size > 0 && above.data[above.size - 1] != '/')
      above.data[--above.size] = 0;
    while (above.size > 1 && above.data[above.size - 1] == '/')
      above.data[--above.size] = 0;
  }
  *stage = "make the volume's place";
  Place over;
  if (const int error = open_place(above.data, &over, stage))
    return error;
  int error = make_as_user(spec, path, above.size);
  const bool denied = error == EACCES || error == EPERM || error == EROFS;
  if (denied && !only_the_systems(over.real.data))
    *stage =
        "make the volume's place (it is in a directory of somebody else's: make it there first)";
  else if (denied)
    error = make_place_here(over, path, above.size, stage);
  close(over.fd);
  return error;
}

// What a mount may not lose: in a user namespace the flags of inherited mounts are locked.
unsigned long kept_flags(const char* path) {
  struct statvfs now {};
  unsigned long flags = 0;
  if (statvfs(path, &now) != 0)
    return flags;
  if (now.f_flag & ST_NOEXEC)
    flags |= MS_NOEXEC;
  if (now.f_flag & ST_RDONLY)
    flags |= MS_RDONLY;
  if (now.f_flag & ST_NOATIME)
    flags |= MS_NOATIME;
  if (now.f_flag & ST_RELATIME)
    flags |= MS_RELATIME;
  if (now.f_flag & ST_NODIRATIME)
    flags |= MS_NODIRATIME;
  return flags;
}

// Opened with the rights of the job's user, so that it shows nothing that lies behind a directory
// that is closed to that user. The agent has followed the links of its path and checked where they
// lead; none is followed here, because users may own directories above the volume and exchange them
// since. Kept open: the source stays the same, even if something is mounted over it later. A
// negative error, or the descriptor.
int open_source(const Spec& spec, const char* source, const char** stage) {
  *stage = "find the volume on this node";
  const JobRights rights(spec);
  if (rights.error() != 0)
    return -rights.error();
  const int from = process::open_without_links(source);
  if (from >= 0)
    return from;
  if (errno == EACCES)
    *stage = "find the volume on this node (the job's user may not reach its directory)";
  if (errno == ELOOP)
    *stage = "find the volume on this node (a directory was replaced by a link after the check)";
  return -errno;
}

int mount_one(
    const Spec& spec, const char* source, const char* path, bool read_only, const char** stage) {
  const int from = open_source(spec, source, stage);
  if (from < 0)
    return -from;
  *stage = "mount a volume";
  // Mounted first where no one else can reach it, and moved to the job's path only when complete.
  // Mounts inside a volume are left out of a read-only one, because they could not be made
  // read-only with it.
  Text<64> opened;
  opened << "/proc/self/fd/" << static_cast<std::uint64_t>(from);
  if (mkdir("volume", 0700) != 0 && errno != EEXIST)
    return errno;
  if (const int error = bind_over(opened.data, "volume", read_only ? 0 : MS_REC))
    return error;
  close(from);
  *stage = read_only ? "make a volume read-only" : "mount a volume without devices";
  if (mount(nullptr, "volume", nullptr,
            MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | kept_flags("volume") |
                (read_only ? MS_RDONLY : 0),
            nullptr) != 0)
    return errno;
  if (const int error = make_place(spec, path, stage))
    return error;
  *stage = "mount a volume";
  Place place;
  if (const int error = open_place(path, &place, stage))
    return error;
  const int error = mount("volume", place.opened.data, nullptr, MS_MOVE, nullptr) == 0 ? 0 : errno;
  close(place.fd);
  return error;
}

}  // namespace

int mount_binds(const Spec& spec, const char** stage) {
  const mode_t before = umask(0);
  int error = 0;
  // "ro" or "rw", the source and the target, one per line.
  for (const char** bind = spec.binds; *bind != nullptr && error == 0; ++bind) {
    const char* source = *bind + 3;
    const char* end = strchr(source, '\n');
    Path from;
    for (const char* c = source; c < end && from.size + 1 < sizeof(from.data); ++c)
      from.data[from.size++] = *c;
    from.data[from.size] = 0;
    error = mount_one(spec, from.data, end + 1, (*bind)[1] == 'o', stage);
  }
  umask(before);
  return error;
}

}  // namespace billow::supervise
