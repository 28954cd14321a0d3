#include "agent/content/staged_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <span>
#include <system_error>
#include <thread>
#include <unordered_map>

#include "base/file.h"
#include "base/files/remove_tree.h"

namespace billow::agent {
namespace {

constexpr mode_t mode_bits = S_IFMT | 07777;

EntryState state_of(const struct stat& info) {
  EntryState out;
  out.inode = info.st_ino;
  out.mode = info.st_mode & mode_bits;
  // Times and size of a directory change with its content, which is looked at on its own.
  if (!S_ISREG(info.st_mode))
    return out;
  out.size = static_cast<std::uint64_t>(info.st_size);
  out.mtime_ns = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec;
  out.ctime_ns = info.st_ctim.tv_sec * 1'000'000'000 + info.st_ctim.tv_nsec;
  return out;
}

// The clock of file times, which goes in steps of some milliseconds.
std::int64_t file_clock_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

// Returns when a change of a file will show in its times, the newest of which is this. A clock that
// was set back is not waited for: without states the files are written again, nothing worse.
Status wait_until_after(std::int64_t newest_ns) {
  for (int i = 0; file_clock_ns() <= newest_ns; ++i) {
    if (i == 100)
      return fail(Code::conflict, "the clock was set back");
    ::usleep(1000);
  }
  return {};
}

std::vector<std::string> names_in(DIR* dir) {
  std::vector<std::string> out;
  while (const dirent* item = ::readdir(dir)) {
    const std::string_view name = item->d_name;
    if (name != "." && name != "..")
      out.emplace_back(name);
  }
  return out;
}

constexpr std::size_t cleaning_threads_max = 4;
constexpr std::size_t waiting_max = 64;  // directories, each with an open descriptor

// Several threads: most of the time goes into asking the kernel for the states of files.
class Cleaner {
 public:
  Cleaner(const std::string& directory, const files::Tree& tree, const EntryStates& states)
      : directory_(directory), tree_(tree), states_(states), kept_(tree.entries.size()) {
    // Entries of one directory mostly follow each other, by name.
    std::vector<Child>* last = nullptr;
    std::string_view last_parent;
    for (std::size_t i = 0; i < tree.entries.size(); ++i) {
      const std::string_view path = tree.entries[i].path;
      const auto slash = path.rfind('/');
      const std::string_view parent = slash == path.npos ? "" : path.substr(0, slash);
      if (!last || parent != last_parent)
        last = &children_[parent];
      last_parent = parent;
      last->push_back({path.substr(slash + 1), i});
    }
    for (auto& [parent, children] : children_)
      if (!std::ranges::is_sorted(children, {}, &Child::name))
        std::ranges::sort(children, {}, &Child::name);
  }

  Result<std::vector<bool>> run() {
    Fd root(::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat info {};
    if (!root || ::fstat(root.get(), &info) != 0)
      return fail_errno(directory_, errno);
    owner_ = info.st_uid;
    waiting_.push_back({std::move(root), ""});
    {
      const std::size_t count = std::min<std::size_t>(
          {cleaning_threads_max, std::max(1u, std::thread::hardware_concurrency()),
           tree_.entries.size() / 512 + 1});
      std::vector<std::jthread> others;
      try {
        for (std::size_t i = 1; i < count; ++i)
          others.emplace_back([this] { work(); });
      } catch (const std::system_error&) {
        // The job may start no more threads: fewer do the same.
      }
      work();
    }
    BILLOW_TRY_VOID(trouble_);
    return std::vector<bool>(kept_.begin(), kept_.end());
  }

 private:
  struct Directory {
    Fd fd;
    std::string path;
  };
  struct Child {
    std::string_view name;
    std::size_t index = 0;  // of the entry
  };

  void work() {
    for (std::unique_lock lock(mutex_);;) {
      changed_.wait(lock, [this] { return !waiting_.empty() || at_work_ == 0; });
      if (waiting_.empty())
        return;
      Directory next = std::move(waiting_.back());
      waiting_.pop_back();
      ++at_work_;
      lock.unlock();
      const Status done = clean(std::move(next.fd), next.path);
      lock.lock();
      if (!done && trouble_)
        trouble_ = done;
      if (--at_work_ == 0)
        changed_.notify_all();
    }
  }

  // Now, or by whichever thread is free.
  Status clean_below(Fd fd, const std::string& path) {
    {
      std::lock_guard lock(mutex_);
      if (waiting_.size() < waiting_max) {
        waiting_.push_back({std::move(fd), path});
        changed_.notify_one();
        return {};
      }
    }
    return clean(std::move(fd), path);
  }

  Status clean(Fd fd, const std::string& above) {
    const std::string where = directory_ + (above.empty() ? "" : "/" + above);
    const int at = fd.get();
    std::unique_ptr<DIR, int (*)(DIR*)> dir(::fdopendir(at), ::closedir);
    if (!dir)
      return fail_errno(where, errno);
    (void)fd.release();
    const auto listed = children_.find(above);
    const std::span<const Child> children =
        listed == children_.end() ? std::span<const Child>() : listed->second;
    std::vector<std::string> names = names_in(dir.get());
    std::ranges::sort(names);
    auto child = children.begin();
    for (const std::string& name : names) {
      struct stat info {};
      if (::fstatat(at, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
        return fail_errno(where + "/" + name, errno);
      while (child != children.end() && child->name < name)
        ++child;
      if (child == children.end() || child->name != name ||
          !is_unchanged(child->index, at, name, info)) {
        BILLOW_TRY_VOID(remove(at, name, S_ISDIR(info.st_mode)));
        continue;
      }
      kept_[child->index] = 1;
      if (!S_ISDIR(info.st_mode))
        continue;
      Fd below(::openat(at, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (!below)
        return fail_errno(where + "/" + name, errno);
      BILLOW_TRY_VOID(clean_below(std::move(below), tree_.entries[child->index].path));
    }
    return {};
  }

  bool is_unchanged(std::size_t index,
                    int at,
                    const std::string& name,
                    const struct stat& info) const {
    const files::Entry& entry = tree_.entries[index];
    if (info.st_uid != owner_)
      return false;
    if (entry.kind == files::Kind::link) {
      char target[PATH_MAX];
      const ssize_t size =
          S_ISLNK(info.st_mode) ? ::readlinkat(at, name.c_str(), target, sizeof target) : -1;
      return size >= 0 && std::string_view(target, static_cast<std::size_t>(size)) == entry.target;
    }
    const EntryState& known = states_[index];
    const bool right_kind =
        entry.kind == files::Kind::directory ? S_ISDIR(info.st_mode) : S_ISREG(info.st_mode);
    // A file with a second name could be changed where nobody looks.
    return right_kind && known.inode != 0 && known == state_of(info) &&
           (S_ISDIR(info.st_mode) || info.st_nlink == 1);
  }

  Status remove(int at, const std::string& name, bool is_directory) const {
    if (!is_directory) {
      if (::unlinkat(at, name.c_str(), 0) != 0 && errno != ENOENT)
        return fail_errno(directory_ + "/…/" + name, errno);
      return {};
    }
    return remove_tree_of_user("/proc/self/fd/" + std::to_string(at) + "/" + name, owner_);
  }

  const std::string& directory_;
  const files::Tree& tree_;
  const EntryStates& states_;
  std::unordered_map<std::string_view, std::vector<Child>> children_;  // of each directory, by name
  std::vector<char> kept_;  // each is written by one thread
  uid_t owner_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Directory> waiting_;
  std::size_t at_work_ = 0;
  Status trouble_;  // the first
};

}  // namespace

Result<EntryStates> settled_states(const std::string& directory,
                                   const files::Tree& tree,
                                   EntryStates known) {
  const Fd root(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root)
    return fail_errno(directory, errno);
  EntryStates out = std::move(known);
  out.resize(tree.entries.size());
  std::int64_t newest = 0;
  for (std::size_t i = 0; i < tree.entries.size(); ++i) {
    if (out[i].inode != 0)
      continue;
    struct stat info {};
    if (::fstatat(root.get(), tree.entries[i].path.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
      return fail_errno(directory + "/" + tree.entries[i].path, errno);
    if (S_ISLNK(info.st_mode))
      continue;
    out[i] = state_of(info);
    newest = std::max(newest, out[i].ctime_ns);
  }
  BILLOW_TRY_VOID(wait_until_after(newest));
  return out;
}

Result<std::vector<bool>> keep_only(const std::string& directory,
                                    const files::Tree& tree,
                                    const EntryStates& states) {
  if (states.size() != tree.entries.size())
    return fail(Code::internal, "the states are those of another tree");
  return Cleaner(directory, tree, states).run();
}

namespace {

std::unordered_map<std::string_view, std::size_t> places_of(const files::Tree& tree) {
  std::unordered_map<std::string_view, std::size_t> out;
  out.reserve(tree.entries.size());
  for (std::size_t i = 0; i < tree.entries.size(); ++i)
    out.emplace(tree.entries[i].path, i);
  return out;
}

}  // namespace

EntryStates states_for(const files::Tree& tree,
                       const files::Tree& known,
                       const EntryStates& states) {
  EntryStates out(tree.entries.size());
  if (states.size() != known.entries.size())
    return out;
  // Mostly the next entry of the one is the next of the other.
  std::unordered_map<std::string_view, std::size_t> by_path;
  for (std::size_t i = 0, next = 0; i < tree.entries.size(); ++i) {
    const files::Entry& wanted = tree.entries[i];
    if (next >= known.entries.size() || known.entries[next].path != wanted.path) {
      if (by_path.empty())
        by_path = places_of(known);
      const auto found = by_path.find(wanted.path);
      if (found == by_path.end())
        continue;
      next = found->second;
    }
    const files::Entry& there = known.entries[next];
    if (there.kind == wanted.kind && there.mode == wanted.mode && there.size == wanted.size &&
        there.pieces == wanted.pieces)
      out[i] = states[next];
    ++next;
  }
  return out;
}

Status move_content(const std::string& from,
                    const std::string& to,
                    const files::Tree& tree,
                    EntryStates& states) {
  if (states.size() != tree.entries.size())
    return fail(Code::internal, "the states are those of another tree");
  const auto open_directory = [](const std::string& path) {
    return Fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  };
  Fd listed = open_directory(from);
  const Fd target = open_directory(to);
  const int source = listed.get();
  std::unique_ptr<DIR, int (*)(DIR*)> dir(listed && target ? ::fdopendir(source) : nullptr,
                                          ::closedir);
  if (!dir)
    return fail_errno(from, errno);
  (void)listed.release();
  std::unordered_map<std::string_view, std::size_t> files_here;
  for (std::size_t i = 0; i < tree.entries.size(); ++i)
    if (const files::Entry& e = tree.entries[i];
        e.kind == files::Kind::file && e.path.find('/') == std::string::npos)
      files_here.emplace(e.path, i);
  std::int64_t newest = 0;
  for (const std::string& name : names_in(dir.get())) {
    const auto found = files_here.find(name);
    EntryState* state = found == files_here.end() ? nullptr : &states[found->second];
    struct stat before {
    }, after{};
    const bool unchanged = state && state->inode != 0 &&
                           ::fstatat(source, name.c_str(), &before, AT_SYMLINK_NOFOLLOW) == 0 &&
                           *state == state_of(before);
    if (::renameat2(source, name.c_str(), target.get(), name.c_str(), RENAME_NOREPLACE) != 0)
      return fail_errno(from + "/" + name, errno);
    if (!state)
      continue;
    EntryState moved;
    if (unchanged && ::fstatat(target.get(), name.c_str(), &after, AT_SYMLINK_NOFOLLOW) == 0)
      moved = state_of(after);
    newest = std::max(newest, moved.ctime_ns);
    state->ctime_ns = moved.ctime_ns;
    if (*state != moved)
      *state = {};
  }
  return wait_until_after(newest);
}

std::string encode_states(const EntryStates& states) {
  std::string out(states.size() * sizeof(EntryState), '\0');
  if (!states.empty())
    std::memcpy(out.data(), states.data(), out.size());
  return out;
}

Result<EntryStates> decode_states(std::string_view bytes, std::size_t count) {
  if (bytes.size() != count * sizeof(EntryState))
    return fail(Code::invalid, "invalid list of file states");
  EntryStates out(count);
  if (count > 0)
    std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

}  // namespace billow::agent
