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

#include "process/open_without_links_linux.h"

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

// A file or directory that is to be shown.
struct Source {
  std::string path;
  Fd fd;
};
Result<Source> open_source(const std::string& path, bool exact) {
  Fd fd(exact ? process::open_without_links(path.c_str())
              : ::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!fd)
    return fail_errno(path, errno);
  return Source{path, std::move(fd)};
}

Result<Fd> copy_of(const Source& source, unsigned depth) {
  Fd fd(static_cast<int>(
      ::syscall(SYS_open_tree, source.fd.get(), "", clone_tree | O_CLOEXEC | empty_path | depth)));
  if (!fd)
    return fail_errno(source.path, errno);
  return fd;
}

bool map(int tree, unsigned depth, int user_namespace) {
  const MountAttributes attributes{.set = attribute_idmap,
                                   .user_namespace = static_cast<std::uint64_t>(user_namespace)};
  return ::syscall(SYS_mount_setattr, tree, "", empty_path | depth, &attributes,
                   sizeof attributes) == 0;
}

// With the mounts inside it, if these can be mapped too.
Result<Fd> mapped_copy(const Source& source, int user_namespace) {
  for (const unsigned depth : {with_submounts, 0u}) {
    Fd tree = BILLOW_TRY(copy_of(source, depth));
    if (map(tree.get(), depth, user_namespace))
      return tree;
  }
  return fail_errno("map the owners of " + source.path, errno);
}

bool in_memory(const Source& source) {
  struct statfs info {};
  return ::fstatfs(source.fd.get(), &info) == 0 && static_cast<long>(info.f_type) == tmpfs_magic;
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
  auto layers = mapped_copy(BILLOW_TRY(open_source(plan.layers_dir, false)), user_namespace);
  if (!layers)
    return fail(Code::unsupported, layers.error().message);
  out.layers_.fd = std::move(*layers);
  for (const Mount& mount : plan.mounts) {
    const Source source = BILLOW_TRY(open_source(mount.source, mount.exact));
    auto mapped = mapped_copy(source, user_namespace);
    if (!mapped && in_memory(source))
      return fail(Code::unsupported, mapped.error().message);
    Copy copy{mapped ? std::move(*mapped) : BILLOW_TRY(copy_of(source, with_submounts))};
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
    plan.mounts[i].exact = false;  // nobody else sees it
    BILLOW_TRY_VOID(attach(mounts_[i].fd.get(), plan.mounts[i].source, mounts_[i].directory));
  }
  return {};
}

}  // namespace billow::container
