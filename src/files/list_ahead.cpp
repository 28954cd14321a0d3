#include "files/list_ahead.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/file.h"
#include "base/platform.h"
#include "files/ignore.h"
#include "files/tree.h"

namespace billow::files {
namespace {

constexpr unsigned threads_max = 4;
constexpr std::size_t worth_a_thread = 4;  // directories that wait

class Lister {
 public:
  Lister(const std::string& root, bool ignore_files) : root_(root), ignore_files_(ignore_files) {}

  std::unordered_map<std::string, Listing> run() {
    waiting_.push_back({"", std::make_shared<const IgnoreRules>()});
    std::vector<std::jthread> others;
    // A tree of few directories is listed before another thread would run.
    while (!waiting_.empty() && waiting_.size() < worth_a_thread)
      list_next();
    const unsigned count =
        waiting_.empty() ? 1 : std::min(threads_max, std::thread::hardware_concurrency());
    try {
      for (unsigned i = 1; i < count; ++i)
        others.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      // Fewer threads do the same.
    }
    work();
    others.clear();
    return std::move(done_);
  }

 private:
  struct Directory {
    std::string path;
    std::shared_ptr<const IgnoreRules> rules;  // of the directories above it
  };

  void work() {
    for (std::unique_lock lock(mutex_);;) {
      changed_.wait(lock, [this] { return !waiting_.empty() || at_work_ == 0; });
      if (waiting_.empty())
        return;
      lock.unlock();
      list_next();
      lock.lock();
    }
  }

  // One of those that wait, if there is one.
  void list_next() {
    Directory next;
    {
      std::lock_guard lock(mutex_);
      if (waiting_.empty())
        return;
      next = std::move(waiting_.back());
      waiting_.pop_back();
      ++at_work_;
    }
    Listing found;
    std::vector<Directory> below;
    const bool listed =
        list_directory(next.path.empty() ? root_ : root_ + "/" + next.path, found) == 0;
    if (listed)
      below = directories_in(next, found);
    std::lock_guard lock(mutex_);
    entries_ += found.size();
    if (listed)
      done_.emplace(std::move(next.path), std::move(found));
    // The scan fails when it has come to so many.
    if (entries_ <= tree_entries_max)
      std::ranges::move(below, std::back_inserter(waiting_));
    --at_work_;
    changed_.notify_all();
  }

  std::vector<Directory> directories_in(const Directory& directory, const Listing& found) const {
    std::vector<Directory> out;
    const auto rules = rules_in(directory, found);
    for (const Listed& one : found) {
      if (!one.known || !S_ISDIR(one.mode))
        continue;
      std::string path = directory.path.empty() ? one.name : directory.path + "/" + one.name;
      if (ignore_files_ &&
          (one.name == ".git" || is_billows_own(path) || rules->ignored(path, true)))
        continue;
      out.push_back({std::move(path), rules});
    }
    return out;
  }

  std::shared_ptr<const IgnoreRules> rules_in(const Directory& directory,
                                              const Listing& found) const {
    std::shared_ptr<IgnoreRules> more;
    for (const char* name : ignore_file_names) {
      const auto at = std::ranges::lower_bound(found, std::string_view(name), {}, &Listed::name);
      if (!ignore_files_ || at == found.end() || at->name != name || !S_ISREG(at->mode))
        continue;
      if (!more)
        more = std::make_shared<IgnoreRules>(*directory.rules);
      const std::string above = directory.path.empty() ? root_ : root_ + "/" + directory.path;
      if (const auto text = read_file(above + "/" + name, ignore_file_bytes_max))
        more->add(directory.path, *text);
    }
    return more ? more : directory.rules;
  }

  const std::string& root_;
  const bool ignore_files_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Directory> waiting_;
  std::size_t at_work_ = 0, entries_ = 0;
  std::unordered_map<std::string, Listing> done_;
};

}  // namespace

bool is_billows_own(std::string_view path) {
  for (const std::string_view own :
       {".local/share/billow", ".local/state/billow", ".cache/billow", ".config/billow"})
    if (path == own)
      return true;
  return false;
}

int list_directory(const std::string& path, Listing& out) {
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(path.c_str()), ::closedir);
  if (!dir)
    return errno;
  while (const dirent* item = ::readdir(dir.get()))
    if (std::strcmp(item->d_name, ".") != 0 && std::strcmp(item->d_name, "..") != 0)
      out.push_back({.name = item->d_name});
  std::ranges::sort(out, {}, &Listed::name);
  for (Listed& one : out)
    (void)look_at(::dirfd(dir.get()), one.name.c_str(), one);
  return 0;
}

int look_at(int directory, const char* name, Listed& out) {
  struct stat info {};
  if (::fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) != 0)
    return errno;
  out.known = true;
  out.mode = info.st_mode;
  out.size = static_cast<std::uint64_t>(info.st_size);
  out.inode = info.st_ino;
  out.mtime_ns = platform::modified_ns(info);
  out.ctime_ns = platform::changed_ns(info);
  return 0;
}

std::unordered_map<std::string, Listing> list_ahead(const std::string& root, bool ignore_files) {
  return Lister(root, ignore_files).run();
}

}  // namespace billow::files
