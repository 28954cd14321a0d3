#include "container/namespaces.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>

#include "base/file.h"
#include "base/text.h"

namespace billow::container {
namespace {

Status write_proc(const char* path, const std::string& text) {
  const Fd fd(::open(path, O_WRONLY | O_CLOEXEC));
  if (!fd || ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return fail_errno(path, errno);
  return {};
}

// Flags that a remount must keep: in a user namespace the flags of inherited mounts are locked.
unsigned long kept_flags(const std::string& path) {
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0)
    return 0;
  unsigned long flags = 0;
  if (info.f_flag & ST_RDONLY)
    flags |= MS_RDONLY;
  if (info.f_flag & ST_NOSUID)
    flags |= MS_NOSUID;
  if (info.f_flag & ST_NODEV)
    flags |= MS_NODEV;
  if (info.f_flag & ST_NOEXEC)
    flags |= MS_NOEXEC;
  if (info.f_flag & ST_NOATIME)
    flags |= MS_NOATIME;
  if (info.f_flag & ST_NODIRATIME)
    flags |= MS_NODIRATIME;
  if (info.f_flag & ST_RELATIME)
    flags |= MS_RELATIME;
  return flags;
}

// Mount options are separated by commas and, within lowerdir, colons; a path may hold either.
std::string escaped(std::string_view path) {
  std::string out;
  for (const char c : path) {
    if (c == ',' || c == ':' || c == '\\')
      out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

Status enter_mount_namespace() {
  if (::unshare(CLONE_NEWNS) != 0)
    return fail_errno("make a mount namespace", errno);
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0)
    return fail_errno("make a mount namespace", errno);
  return {};
}

Status enter_namespaces(Identity identity) {
  const unsigned uid = ::geteuid(), gid = ::getegid();
  if (::unshare(CLONE_NEWUSER) != 0) {
    const int error = errno;
    return fail(
        Code::unsupported,
        fmt::format("this node does not let users create namespaces: {}", strerrordesc_np(error)),
        "an administrator can allow it: sysctl -w user.max_user_namespaces=10000 (Debian: "
        "kernel.unprivileged_userns_clone=1, Ubuntu: "
        "kernel.apparmor_restrict_unprivileged_userns=0)");
  }
  BILLOW_TRY_VOID(write_proc("/proc/self/setgroups", "deny"));
  BILLOW_TRY_VOID(write_proc("/proc/self/uid_map",
                             fmt::format("{} {} 1", identity == Identity::as_root ? 0 : uid, uid)));
  BILLOW_TRY_VOID(write_proc("/proc/self/gid_map",
                             fmt::format("{} {} 1", identity == Identity::as_root ? 0 : gid, gid)));
  return enter_mount_namespace();
}

Status enter_empty_network() {
  if (::unshare(CLONE_NEWNET) != 0)
    return fail_errno("make a network namespace", errno);
  const Fd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq loopback{};
  std::strcpy(loopback.ifr_name, "lo");
  loopback.ifr_flags = IFF_UP | IFF_RUNNING;
  if (!fd || ::ioctl(fd.get(), SIOCSIFFLAGS, &loopback) != 0)
    return fail_errno("start the container's loopback device", errno);
  return {};
}

Status check_network(std::uint64_t inode) {
  struct stat ours {};
  if (::stat("/proc/self/ns/net", &ours) != 0)
    return fail_errno("/proc/self/ns/net", errno);
  if (ours.st_ino != inode)
    return fail(Code::internal, "the job is not in the network that was made for it",
                "install billow and billow-supervise of the same version");
  return {};
}

Status lock_control_groups() {
  const std::string top = "/sys/fs/cgroup";
  if (!file_exists(top))
    return {};
  // The node's mounts must not be changed here; copies of them may.
  if (::mount(top.c_str(), top.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0)
    return fail_errno("lock the control groups", errno);
  const std::string mounts = BILLOW_TRY(read_file("/proc/self/mounts"));
  std::set<std::string> below;
  for (const std::string& line : split(mounts, '\n')) {
    const auto words = split(line, ' ');
    if (words.size() > 1 && (words[1] == top || words[1].starts_with(top + "/")))
      below.insert(words[1]);
  }
  for (const std::string& path : below)
    if (::mount(nullptr, path.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | kept_flags(path),
                nullptr) != 0)
      return fail_errno("lock " + path, errno);
  return {};
}

Status mount_overlay(const OverlayMount& mount) {
  std::string options = "lowerdir=";
  for (std::size_t i = 0; i < mount.lower.size(); ++i)
    options += (i ? ":" : "") + escaped(mount.lower[i]);
  if (!mount.upper.empty())
    options += fmt::format(",upperdir={},workdir={}", escaped(mount.upper), escaped(mount.work));
  // Inside a user namespace only these attributes may be written; outside the option is harmless.
  options += ",userxattr";
  if (options.size() >= 4096)
    return fail(
        Code::too_large,
        fmt::format("the image has {} layers, more than one mount can take", mount.lower.size()),
        "flatten it: podman build --squash-all");
  if (!mount.directory.empty() && ::chdir(mount.directory.c_str()) != 0)
    return fail_errno(mount.directory, errno);
  const int rc = ::mount("overlay", mount.target.c_str(), "overlay", 0, options.c_str());
  const int error = errno;
  // Not back to where it was: the unprivileged user of root's container may not enter a working
  // directory of root. The container has its own.
  if (!mount.directory.empty() && ::chdir("/") != 0)
    return fail_errno("/", errno);
  if (rc != 0)
    return fail_errno("mount an overlay at " + mount.target, error);
  return {};
}

Status mount_memory(const std::string& target, std::string_view options) {
  if (::mount("tmpfs", target.c_str(), "tmpfs", MS_NOSUID | MS_NODEV,
              std::string(options).c_str()) != 0)
    return fail_errno("mount a tmpfs at " + target, errno);
  return {};
}

Status bind(const std::string& source, const std::string& target, bool read_only) {
  if (::mount(source.c_str(), target.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0)
    return fail_errno(fmt::format("show {} at {}", source, target), errno);
  if (read_only && ::mount(nullptr, target.c_str(), nullptr,
                           MS_REMOUNT | MS_BIND | MS_RDONLY | kept_flags(target), nullptr) != 0)
    return fail_errno("make read-only: " + target, errno);
  return {};
}

}  // namespace billow::container
