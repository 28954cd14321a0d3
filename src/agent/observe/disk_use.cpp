#include "agent/observe/disk_use.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/kcmp.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/files/walk_tree.h"
#include "base/text.h"

namespace billow::agent {
namespace {

constexpr std::int64_t block_bytes = 512;      // of st_blocks, on every file system
constexpr std::size_t linked_max = 2'000'000;  // files with several names, which are remembered

// An image's files and a job's own above them have a device of their own; 0: there is none.
dev_t layered_root(int pid) {
  struct stat info {};
  struct statfs kind {};
  const std::string root = fmt::format("/proc/{}/root/", pid);
  if (::statfs(root.c_str(), &kind) != 0 || kind.f_type != OVERLAYFS_SUPER_MAGIC ||
      ::stat(root.c_str(), &info) != 0)
    return 0;
  struct stat ours {};
  return ::stat("/", &ours) == 0 && ours.st_dev == info.st_dev ? 0 : info.st_dev;
}

// Threads share their open files unless one has asked for its own.
bool has_own_files(int pid, int thread) {
  return ::syscall(SYS_kcmp, pid, thread, KCMP_FILES, 0, 0) > 0;
}

std::string path_of(int fd) {
  char target[4096];
  const ssize_t n = ::readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), target, sizeof target);
  return n > 0 ? std::string(target, static_cast<std::size_t>(n)) : std::string();
}

// With room for the largest handle.
union HandleBuffer {
  char bytes[sizeof(file_handle) + MAX_HANDLE_SZ];
  file_handle handle;
  char* content() { return bytes + sizeof(file_handle); }
};

}  // namespace

class DiskWalk {
 public:
  DiskWalk(std::int64_t entries_max, DiskMemory* memory)
      : entries_max_(entries_max), memory_(memory) {}

  void place(const std::string& path) {
    DirStream top = open_dir_stream(AT_FDCWD, path.c_str());
    struct stat info {};
    if (!top || ::fstat(::dirfd(top.get()), &info) != 0)
      return;
    devices_.insert(info.st_dev);
    if (memory_) {
      tops_.push_back(path_of(::dirfd(top.get())));
      on_device_[info.st_dev] = Fd(::fcntl(::dirfd(top.get()), F_DUPFD_CLOEXEC, 0));
    }
    count(info);
    walk(std::move(top), info.st_dev);
  }

  // What was found earlier and not now, but is still there. To be called after all places and
  // processes.
  void found_earlier() {
    if (!memory_)
      return;
    // Directories are walked, which may find more of the others.
    for (const bool directories : {true, false})
      for (auto at = memory_->handles_.begin(); at != memory_->handles_.end() && use_.complete;)
        if (seen_.contains(at->first) || look_again(at->first, at->second, directories))
          ++at;
        else
          at = memory_->handles_.erase(at);
  }

  // Of deleted files only those on the file systems of the places: others are not what is limited.
  void held_by(int pid) {
    root_ = layered_root(pid);
    held_in(fmt::format("/proc/{}/fd", pid));
    mapped_by(pid);
    const DirStream threads = open_dir_stream(AT_FDCWD, fmt::format("/proc/{}/task", pid).c_str());
    while (const dirent* entry = threads ? ::readdir(threads.get()) : nullptr)
      if (const auto thread = parse_int(entry->d_name, 1, INT32_MAX);
          thread && *thread != pid && has_own_files(pid, static_cast<int>(*thread)))
        held_in(fmt::format("/proc/{}/task/{}/fd", pid, *thread));
  }

  const DiskUse& use() const { return use_; }

 private:
  void walk(DirStream top, dev_t device) {
    device_ = device;
    open_.clear();
    open_.push_back(std::move(top));
    while (!open_.empty() && use_.complete)
      step();
    open_.clear();
  }

  // False: it is gone, or has left the places for good.
  bool look_again(std::pair<dev_t, ino_t> key, const DiskMemory::Handle& known, bool directories) {
    const auto device = on_device_.find(key.first);
    if (device == on_device_.end())
      return true;
    HandleBuffer buffer{};
    buffer.handle.handle_bytes = static_cast<unsigned>(known.bytes.size());
    buffer.handle.handle_type = known.type;
    std::memcpy(buffer.content(), known.bytes.data(), known.bytes.size());
    const Fd fd(::open_by_handle_at(device->second.get(), &buffer.handle, O_PATH | O_CLOEXEC));
    struct stat info {};
    if (!fd || ::fstat(fd.get(), &info) != 0)
      return false;
    if (S_ISDIR(info.st_mode) != directories)
      return true;
    if (info.st_nlink > 0 && !below_a_place(path_of(fd.get())))
      return false;
    if (!directories || info.st_nlink == 0) {
      count(info);
      return true;
    }
    if (DirStream found = open_dir_stream(fd.get(), ".")) {
      count(info);
      walk(std::move(found), info.st_dev);
    }
    return true;
  }
  bool below_a_place(const std::string& path) const {
    for (const std::string& top : tops_)
      if (path.starts_with(top) && (path.size() == top.size() || path[top.size()] == '/'))
        return true;
    return false;
  }

  static bool is_worth_a_handle(const struct stat& info) {
    return S_ISDIR(info.st_mode) ||
           (S_ISREG(info.st_mode) && info.st_blocks * block_bytes >= DiskMemory::file_bytes_min);
  }
  void remember(int at, const char* name, const struct stat& info) {
    const std::pair key(info.st_dev, info.st_ino);
    if (!memory_ || !is_worth_a_handle(info) ||
        (memory_->handles_.size() >= DiskMemory::handles_max && !memory_->handles_.contains(key)))
      return;
    HandleBuffer buffer{};
    buffer.handle.handle_bytes = MAX_HANDLE_SZ;
    int mount = 0;
    if (::name_to_handle_at(at, name, &buffer.handle, &mount, 0) == 0)
      memory_->handles_[key] = {buffer.handle.handle_type,
                                {buffer.content(), buffer.handle.handle_bytes}};
  }

  void held_in(const std::string& directory) {
    const DirStream dir = open_dir_stream(AT_FDCWD, directory.c_str());
    while (const dirent* entry = dir ? ::readdir(dir.get()) : nullptr) {
      struct stat info {};
      if (parse_int(entry->d_name, 0, INT32_MAX) &&
          ::fstatat(::dirfd(dir.get()), entry->d_name, &info, 0) == 0)
        count_deleted(info);
    }
  }

  // A file that is mapped stays, though nobody holds it open. Who may not ask for the file itself
  // learns only how much of it is mapped.
  void mapped_by(int pid) {
    std::ifstream maps(fmt::format("/proc/{}/maps", pid));
    for (std::string line; std::getline(maps, line);) {
      if (!line.ends_with(" (deleted)"))
        continue;
      unsigned long begin = 0, end = 0, inode = 0;
      unsigned major = 0, minor = 0;
      if (std::sscanf(line.c_str(), "%lx-%lx %*s %*x %x:%x %lu", &begin, &end, &major, &minor,
                      &inode) != 5)
        continue;
      struct stat info {};
      const std::string file = fmt::format("/proc/{}/map_files/{:x}-{:x}", pid, begin, end);
      if (::stat(file.c_str(), &info) != 0) {
        info.st_mode = S_IFREG;
        info.st_dev = ::makedev(major, minor);
        info.st_ino = inode;
        info.st_blocks = static_cast<blkcnt_t>((end - begin) / block_bytes);
      }
      count_deleted(info);
    }
  }

  void count_deleted(const struct stat& info) {
    if (S_ISREG(info.st_mode) && info.st_nlink == 0 &&
        (devices_.contains(info.st_dev) || info.st_dev == root_))
      count(info);
  }

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
    remember(at, entry->d_name, info);
    if (!count(info) || !S_ISDIR(info.st_mode))
      return;
    if (open_.size() >= disk_depth_max) {
      use_.too_deep = true;
      return;
    }
    if (DirStream below = open_dir_stream(at, entry->d_name))
      open_.push_back(std::move(below));
  }

  // False: it was counted before.
  bool count(const struct stat& info) {
    if (++use_.entries > entries_max_)
      use_.complete = false;
    // Files with several names, or with none, are met more than once, and what is moved meanwhile.
    const std::pair key(info.st_dev, info.st_ino);
    if (!S_ISDIR(info.st_mode) && info.st_nlink != 1 && !counted_.insert(key).second)
      return false;
    if (memory_ && is_worth_a_handle(info) && seen_.size() < DiskMemory::handles_max &&
        !seen_.insert(key).second)
      return false;
    if (counted_.size() > linked_max)
      use_.complete = false;
    use_.bytes += info.st_blocks * block_bytes;
    return true;
  }

  std::int64_t entries_max_;
  DiskMemory* memory_;
  std::vector<std::string> tops_;           // the paths of the places, without links
  std::map<dev_t, Fd> on_device_;           // a directory on each of their file systems
  std::set<std::pair<dev_t, ino_t>> seen_;  // of what is worth a handle, in this look
  dev_t device_ = 0, root_ = 0;
  std::set<dev_t> devices_;
  std::set<std::pair<dev_t, ino_t>> counted_;
  std::vector<DirStream> open_;
  DiskUse use_;
};

DiskUse disk_use(const std::vector<std::string>& places,
                 const std::vector<int>& pids,
                 std::int64_t entries_max,
                 DiskMemory* memory) {
  DiskWalk walk(entries_max, memory);
  for (const std::string& place : places)
    walk.place(place);
  for (const int pid : pids)
    walk.held_by(pid);
  walk.found_earlier();
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
