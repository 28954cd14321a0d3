#include "supervise/private_dev.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "process/each_entry_linux.h"
#include "supervise/bind_file.h"
#include "supervise/sys.h"

namespace billow::supervise {
namespace {

using Path = Text<320>;

bool hidden(const Spec& spec, const char* relative) {
  for (const char** name = spec.hide_devices; *name != nullptr; ++name)
    if (strcmp(*name, relative) == 0)
      return true;
  return false;
}
bool something_hidden_below(const Spec& spec, const char* relative) {
  const std::size_t length = strlen(relative);
  for (const char** name = spec.hide_devices; *name != nullptr; ++name)
    if (strncmp(*name, relative, length) == 0 && (*name)[length] == '/')
      return true;
  return false;
}

int copy_node(const char* from, const char* to, const struct stat& st) {
  if (mknod(to, st.st_mode, st.st_rdev) != 0)
    return bind_file(from, to);
  return chown(to, st.st_uid, st.st_gid) == 0 && chmod(to, st.st_mode & 07777) == 0 ? 0 : errno;
}

int fill(const Spec& spec,
         const char* from_directory,
         const char* to_directory,
         const char* prefix,
         int depth);

int copy_entry(
    const Spec& spec, const Path& from, const Path& to, const char* relative, int depth) {
  struct stat st {};
  if (lstat(from.data, &st) != 0)
    return 0;  // removed meanwhile
  if (S_ISLNK(st.st_mode)) {
    char target[256];
    const ssize_t n = readlink(from.data, target, sizeof(target) - 1);
    if (n <= 0)
      return 0;
    target[n] = 0;
    return symlink(target, to.data) == 0 ? 0 : errno;
  }
  if (S_ISDIR(st.st_mode)) {
    if (mkdir(to.data, st.st_mode & 07777) != 0)
      return errno;
    if (depth < 2 && something_hidden_below(spec, relative))
      return fill(spec, from.data, to.data, relative, depth + 1);
    return mount(from.data, to.data, nullptr, MS_BIND | MS_REC, nullptr) == 0 ? 0 : errno;
  }
  if (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode))
    return spec.user_namespace ? bind_file(from.data, to.data) : copy_node(from.data, to.data, st);
  return 0;  // sockets and pipes of daemons are left out, except in directories that are bound
}

int fill(const Spec& spec,
         const char* from_directory,
         const char* to_directory,
         const char* prefix,
         int depth) {
  return process::each_entry(from_directory, [&](const char* name) {
    Path relative, from, to;
    if (prefix[0] != 0)
      relative << prefix << "/";
    relative << name;
    if (hidden(spec, relative.data))
      return 0;
    from << from_directory << "/" << name;
    to << to_directory << "/" << name;
    return copy_entry(spec, from, to, relative.data, depth);
  });
}

// Inside a user namespace we are who we were: the identity map of our one uid and gid needs no
// privilege.
int enter_user_namespace() {
  const unsigned uid = geteuid(), gid = getegid();
  if (unshare(CLONE_NEWUSER) != 0)
    return errno;
  write_small("/proc/self/setgroups", "deny");
  Text<64> uid_map, gid_map;
  uid_map << uid << " " << uid << " 1";
  gid_map << gid << " " << gid << " 1";
  if (const int error = write_small("/proc/self/uid_map", uid_map.data))
    return error;
  return write_small("/proc/self/gid_map", gid_map.data);
}

}  // namespace

int enter_mount_namespace(const Spec& spec, const char** stage) {
  *stage = "make a user namespace";
  if (spec.user_namespace)
    if (const int error = enter_user_namespace())
      return error;
  *stage = "make a mount namespace";
  if (unshare(CLONE_NEWNS) != 0)
    return errno;
  // Our mounts must not reach the node; later mounts of the node may still reach the job.
  return mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) == 0 ? 0 : errno;
}

int enter_private_dev(const Spec& spec, const char** stage) {
  *stage = "make a private /dev";
  // The task directory is the current one; `dev` in it is only a mount point.
  if (mkdir("dev", 0755) != 0 && errno != EEXIST)
    return errno;
  if (mount("tmpfs", "dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=0755,size=64k") != 0)
    return errno;
  umask(0);
  if (const int error = fill(spec, "/dev", "dev", "", 0))
    return error;
  if (mount("dev", "/dev", nullptr, MS_MOVE, nullptr) != 0)
    return errno;
  // Read-only: as root, the CUDA library creates the nodes of GPUs it misses. Devices can still be
  // opened for writing.
  if (mount(nullptr, "/dev", nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NOEXEC,
            nullptr) != 0)
    return errno;
  return 0;
}

}  // namespace billow::supervise
