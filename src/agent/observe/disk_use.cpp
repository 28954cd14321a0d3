#include "agent/observe/disk_use.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <memory>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/text.h"

namespace billow::agent {
namespace {

constexpr std::int64_t block_bytes = 512;      // of st_blocks, on every file system
constexpr std::size_t linked_max = 2'000'000;  // files with several names, which are remembered

struct DirCloser {
  void operator()(DIR* dir) const { ::closedir(dir); }
};
using Dir = std::unique_ptr<DIR, DirCloser>;

Dir open_dir(int at, const char* name) {
  const int fd = ::openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0)
    return {};
  Dir dir(::fdopendir(fd));
  if (!dir)
    ::close(fd);
  return dir;
}

class Walk {
 public:
  explicit Walk(std::int64_t entries_max) : entries_max_(entries_max) {}

  void place(const std::string& path) {
    Dir top = open_dir(AT_FDCWD, path.c_str());
    struct stat info {};
    if (!top || ::fstat(::dirfd(top.get()), &info) != 0)
      return;
    device_ = info.st_dev;
    devices_.insert(info.st_dev);
    count(info);
    open_.push_back(std::move(top));
    while (!open_.empty() && use_.complete)
      step();
    open_.clear();
  }

  // Of deleted files only those on the file systems of the places: others are not what is limited.
  void held_by(int pid) {
    const std::string held = fmt::format("/proc/{}/fd", pid);
    const Dir dir = open_dir(AT_FDCWD, held.c_str());
    if (!dir)
      return;
    while (const dirent* entry = ::readdir(dir.get())) {
      struct stat info {};
      if (!parse_int(entry->d_name, 0, INT32_MAX) ||
          ::fstatat(::dirfd(dir.get()), entry->d_name, &info, 0) != 0)
        continue;
      if (S_ISREG(info.st_mode) && info.st_nlink == 0 && devices_.contains(info.st_dev))
        count(info);
    }
  }

  const DiskUse& use() const { return use_; }

 private:
  void step() {
    const dirent* entry = ::readdir(open_.back().get());
    if (!entry) {
      open_.pop_back();
      return;
    }
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..")
      return;
    struct stat info {};
    const int at = ::dirfd(open_.back().get());
    if (::fstatat(at, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 || info.st_dev != device_)
      return;
    count(info);
    if (!S_ISDIR(info.st_mode))
      return;
    if (open_.size() >= disk_depth_max) {
      use_.too_deep = true;
      return;
    }
    if (Dir below = open_dir(at, entry->d_name))
      open_.push_back(std::move(below));
  }

  void count(const struct stat& info) {
    if (++use_.entries > entries_max_)
      use_.complete = false;
    // Only files with several names, or with none, are met more than once.
    if (!S_ISDIR(info.st_mode) && info.st_nlink != 1 &&
        !counted_.emplace(info.st_dev, info.st_ino).second)
      return;
    if (counted_.size() > linked_max)
      use_.complete = false;
    use_.bytes += info.st_blocks * block_bytes;
  }

  std::int64_t entries_max_;
  dev_t device_ = 0;
  std::set<dev_t> devices_;
  std::set<std::pair<dev_t, ino_t>> counted_;
  std::vector<Dir> open_;
  DiskUse use_;
};

}  // namespace

DiskUse disk_use(const std::vector<std::string>& places,
                 const std::vector<int>& pids,
                 std::int64_t entries_max) {
  Walk walk(entries_max);
  for (const std::string& place : places)
    walk.place(place);
  for (const int pid : pids)
    walk.held_by(pid);
  return walk.use();
}

DiskSpace disk_space(const std::string& path) {
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0)
    return {};
  const auto unit = static_cast<std::int64_t>(info.f_frsize);
  return {.free = static_cast<std::int64_t>(info.f_bavail) * unit,
          .size = static_cast<std::int64_t>(info.f_blocks) * unit};
}

}  // namespace billow::agent
