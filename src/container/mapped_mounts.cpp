#include "container/mapped_mounts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace billow::container {
namespace {

// As the kernel defines them; C libraries before 2.36 do not have them.
constexpr unsigned clone_tree = 1;
constexpr unsigned with_submounts = 0x8000;
constexpr unsigned empty_path = 0x1000;
constexpr unsigned move_from_empty_path = 0x4;
constexpr std::uint64_t attribute_idmap = 0x00100000;
struct MountAttributes {
  std::uint64_t set = 0, clear = 0, propagation = 0, user_namespace = 0;
};
constexpr long tmpfs_magic = 0x01021994;

Result<Fd> copy_of(const std::string& path, unsigned depth) {
  Fd fd(static_cast<int>(
      ::syscall(SYS_open_tree, AT_FDCWD, path.c_str(), clone_tree | O_CLOEXEC | depth)));
  if (!fd)
    return fail_errno(path, errno);
  return fd;
}

bool map(int tree, unsigned depth, int user_namespace) {
  const MountAttributes attributes{.set = attribute_idmap,
                                   .user_namespace = static_cast<std::uint64_t>(user_namespace)};
  return ::syscall(SYS_mount_setattr, tree, "", empty_path | depth, &attributes,
                   sizeof attributes) == 0;
}

// With the mounts inside it, if these can be mapped too.
Result<Fd> mapped_copy(const std::string& path, int user_namespace) {
  for (const unsigned depth : {with_submounts, 0u}) {
    Fd tree = BILLOW_TRY(copy_of(path, depth));
    if (map(tree.get(), depth, user_namespace))
      return tree;
  }
  return fail_errno("map the owners of " + path, errno);
}

bool in_memory(const std::string& path) {
  struct statfs info {};
  return ::statfs(path.c_str(), &info) == 0 && static_cast<long>(info.f_type) == tmpfs_magic;
}

// Since Linux 5.19.
bool overlays_take_mapped_layers() {
  utsname name{};
  int major = 0, minor = 0;
  return ::uname(&name) == 0 && std::sscanf(name.release, "%d.%d", &major, &minor) == 2 &&
         (major > 5 || (major == 5 && minor >= 19));
}

Result<bool> is_directory(int fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0)
    return fail_errno(path, errno);
  return S_ISDIR(info.st_mode);
}

Status attach(int tree, const std::string& target, bool directory) {
  if (directory) {
    BILLOW_TRY_VOID(make_directories(target, 0700));
  } else if (!Fd(::open(target.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600))) {
    return fail_errno(target, errno);
  }
  if (::syscall(SYS_move_mount, tree, "", AT_FDCWD, target.c_str(), move_from_empty_path) != 0)
    return fail_errno("mount " + target, errno);
  return {};
}

}  // namespace

Result<MappedMounts> MappedMounts::prepare(const Plan& plan, int user_namespace) {
  MappedMounts out;
  if (!overlays_take_mapped_layers())
    return fail(Code::unsupported, "this kernel cannot make an image of mapped layers");
  auto layers = mapped_copy(plan.layers_dir, user_namespace);
  if (!layers)
    return fail(Code::unsupported, layers.error().message);
  out.layers_.fd = std::move(*layers);
  for (const Mount& mount : plan.mounts) {
    auto mapped = mapped_copy(mount.source, user_namespace);
    if (!mapped && in_memory(mount.source))
      return fail(Code::unsupported, mapped.error().message);
    Copy copy{mapped ? std::move(*mapped) : BILLOW_TRY(copy_of(mount.source, with_submounts))};
    copy.directory = BILLOW_TRY(is_directory(copy.fd.get(), mount.source));
    out.mounts_.push_back(std::move(copy));
  }
  return out;
}

Status MappedMounts::show(const std::string& directory, Plan& plan) const {
  plan.layers_dir = directory + "/layers";
  BILLOW_TRY_VOID(attach(layers_.fd.get(), plan.layers_dir, true));
  for (std::size_t i = 0; i < mounts_.size(); ++i) {
    plan.mounts[i].source = fmt::format("{}/{}", directory, i);
    BILLOW_TRY_VOID(attach(mounts_[i].fd.get(), plan.mounts[i].source, mounts_[i].directory));
  }
  return {};
}

}  // namespace billow::container
