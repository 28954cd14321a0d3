#include "container/image_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/file.h"
#include "base/files/remove_tree.h"
#include "base/files/walk_tree.h"
#include "base/log.h"
#include "container/plan.h"

namespace billow::container {
namespace {

std::string used_path(const std::string& store, const std::string& id) {
  return fmt::format("{}/used/{}", store, id);
}

constexpr int opening = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

// The user owns the store and may put anything there: follow no links and never block.
std::string uses_of(const std::string& scratch) {
  const Fd fd(::open((scratch + "/uses").c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat its {};
  if (!fd || ::fstat(fd.get(), &its) != 0 || !S_ISREG(its.st_mode))
    return {};
  char text[4096];
  const ssize_t size = ::read(fd.get(), text, sizeof text);
  return size > 0 ? std::string(text, static_cast<std::size_t>(size)) : std::string();
}

}  // namespace

std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  DIR* dir = ::opendir(path.c_str());
  if (!dir)
    return names;
  while (const dirent* item = ::readdir(dir))
    if (item->d_name[0] != '.')
      names.emplace_back(item->d_name);
  ::closedir(dir);
  return names;
}

void remove_from_store(const std::string& store,
                       const std::string& folder,
                       const std::function<bool(const std::string& name)>& which) {
  const Fd top(::open(store.c_str(), opening));
  const Fd inside(top ? ::openat(top.get(), folder.c_str(), opening) : -1);
  struct stat its {
  }, inner{};
  if (!inside || ::fstat(top.get(), &its) != 0 || ::fstat(inside.get(), &inner) != 0)
    return;
  if (inner.st_uid != its.st_uid)
    return log_warn("{}/{} belongs to another user", store, folder);
  const std::string path = fmt::format("/proc/self/fd/{}", inside.get());
  for (const std::string& name : names_in(path)) {
    if (!which(name))
      continue;
    // In root's store the containers' own users have directories.
    const Status gone = its.st_uid == 0 ? remove_tree(path + "/" + name)
                                        : remove_tree_of_user(path + "/" + name, its.st_uid);
    if (!gone && file_exists(path + "/" + name))
      log_warn("{}/{}: {}", store, folder, gone.error().message);
  }
}

bool in_use(const std::string& store, const std::string& what) {
  for (const std::string& key : names_in(store + "/scratch"))
    if (uses_of(scratch_dir(store, key)).find(what) != std::string::npos)
      return true;
  return false;
}

Status mark_in_use(const std::string& store, const std::string& key, const std::string& what) {
  BILLOW_TRY_VOID(make_directories(scratch_dir(store, key), 0700));
  return write_file_atomic(scratch_dir(store, key) + "/uses", what + "\n", 0600);
}

Result<Fd> try_lock(const std::string& path, Duration patience) {
  Fd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!lock)
    return fail_errno(path, errno);
  const SteadyTime give_up = system_clock().steady() + patience;
  while (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR)
      return fail_errno("lock " + path, errno);
    if (system_clock().steady() >= give_up)
      return Fd();
    ::poll(nullptr, 0, 10);
  }
  return lock;
}

std::uint64_t disk_bytes(const std::string& directory, const std::atomic<bool>* stop) {
  std::uint64_t bytes = 0;
  walk_tree(directory, {.entry = [&](int, const char*, const struct stat& info) {
              bytes += static_cast<std::uint64_t>(info.st_blocks) * 512;
              return !(stop && *stop);
            }});
  return bytes;
}

void touch_image(const std::string& store, const std::string& id) {
  (void)make_directories(store + "/used", 0700);
  const Fd fd(
      ::open(used_path(store, id).c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (fd)
    (void)::futimens(fd.get(), nullptr);
}

std::vector<std::string> least_recently_used_first(const std::string& store,
                                                   std::vector<std::string> ids) {
  const auto used_at_ns = [&](const std::string& id) -> std::int64_t {
    struct stat info {};
    if (::lstat(used_path(store, id).c_str(), &info) != 0)
      return 0;
    return info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec;
  };
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  std::stable_sort(ids.begin(), ids.end(), [&](const std::string& a, const std::string& b) {
    return used_at_ns(a) < used_at_ns(b);
  });
  return ids;
}

}  // namespace billow::container
