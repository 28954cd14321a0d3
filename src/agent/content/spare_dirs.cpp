#include "agent/content/spare_dirs.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "base/file.h"
#include "base/files/remove_tree.h"
#include "base/log.h"

namespace billow::agent {
namespace {

constexpr std::size_t spares_max = 16;
constexpr Duration spare_age_max = minutes(60);
// Removing a file takes about as long as writing so much.
constexpr std::uint64_t removal_bytes = 64 << 10;

bool is_worth_keeping(const files::Tree& tree, const EntryStates& kept, std::size_t had) {
  std::uint64_t spared = 0;
  std::size_t same = 0;
  for (std::size_t i = 0; i < kept.size(); ++i)
    if (kept[i].inode != 0) {
      spared += removal_bytes + tree.entries[i].size;
      ++same;
    }
  return spared >= (had - std::min(had, same)) * removal_bytes;
}

}  // namespace

SpareDirs::SpareDirs(std::string place, std::uint64_t bytes_max)
    : place_(std::move(place)), bytes_max_(bytes_max) {
  (void)remove_tree(place_);  // of an earlier agent, which alone knew what they hold
  (void)make_directories(place_, 0700);
}

// The newest with the same tree, else the newest.
bool SpareDirs::take(const Whose& whose, const Sha256& tree, TaskId task, const std::string& path) {
  std::lock_guard lock(mutex_);
  Content& content = tasks_[task];
  content = {.whose = whose};
  const auto fits = [&](const Spare& spare) {
    return spare.content.whose == whose;
  };
  const auto same = [&](const Spare& spare) {
    return fits(spare) && spare.content.digest == tree;
  };
  auto found = std::find_if(spares_.rbegin(), spares_.rend(), same);
  if (found == spares_.rend())
    found = std::find_if(spares_.rbegin(), spares_.rend(), fits);
  if (found == spares_.rend())
    return false;
  Spare spare = std::move(*found);
  spares_.erase(std::next(found).base());
  bytes_ -= spare.bytes;
  if (::renameat2(AT_FDCWD, spare.path.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) != 0) {
    log_warn("{}: cannot be used again: {}", spare.path, ::strerrordesc_np(errno));
    return false;
  }
  content = std::move(spare.content);
  return true;
}

void SpareDirs::adopt(const std::vector<TaskId>& tasks) {
  std::lock_guard lock(mutex_);
  adopted_.insert(tasks.begin(), tasks.end());
}

std::optional<EntryStates> SpareDirs::states_for(TaskId task, const files::Tree& tree) {
  std::lock_guard lock(mutex_);
  const auto found = tasks_.find(task);
  if (found == tasks_.end() && adopted_.contains(task))
    return EntryStates(tree.entries.size());
  if (found == tasks_.end() || !found->second.tree)
    return std::nullopt;
  return agent::states_for(tree, *found->second.tree, found->second.states);
}

void SpareDirs::exchange(TaskId task, const files::Tree& tree, const std::string& path) {
  if (give_back(task, tree, path))
    take_content(task, tree, path);
}

// False: everything is still there.
bool SpareDirs::give_back(TaskId task, const files::Tree& tree, const std::string& path) {
  Spare spare;
  {
    std::lock_guard lock(mutex_);
    const auto found = tasks_.find(task);
    if (found == tasks_.end() || !found->second.tree)
      return false;
    const Content& content = found->second;
    if (is_worth_keeping(tree, agent::states_for(tree, *content.tree, content.states),
                         content.tree->entries.size()))
      return false;
    spare.content = content;
    spare.path = place_ + "/" + std::to_string(next_++);
  }
  spare.bytes = spare.content.tree->bytes();
  spare.since = system_clock().steady();
  struct stat info {};
  const bool made = ::lstat(path.c_str(), &info) == 0 && ::mkdir(spare.path.c_str(), 0700) == 0 &&
                    ::chown(spare.path.c_str(), info.st_uid, info.st_gid) == 0;
  const Status moved =
      made ? move_content(path, spare.path, *spare.content.tree, spare.content.states)
           : Status(fail_errno(spare.path, errno));
  if (!moved) {
    log_warn("{}", moved.error().message);
    (void)remove_tree_of_user(spare.path);  // what is missing now is written again
    return false;
  }
  std::lock_guard lock(mutex_);
  if (const auto found = tasks_.find(task); found != tasks_.end())
    found->second = {.whose = spare.content.whose};
  bytes_ += spare.bytes;
  spares_.push_back(std::move(spare));
  return true;
}

void SpareDirs::take_content(TaskId task, const files::Tree& tree, const std::string& path) {
  Spare spare;
  {
    std::lock_guard lock(mutex_);
    const auto own = tasks_.find(task);
    const auto found = std::find_if(spares_.rbegin(), spares_.rend(), [&](const Spare& one) {
      return own != tasks_.end() && one.content.whose == own->second.whose &&
             is_worth_keeping(tree, agent::states_for(tree, *one.content.tree, one.content.states),
                              one.content.tree->entries.size());
    });
    if (found == spares_.rend())
      return;
    spare = std::move(*found);
    spares_.erase(std::next(found).base());
    bytes_ -= spare.bytes;
  }
  const Status moved = move_content(spare.path, path, *spare.content.tree, spare.content.states);
  if (!moved)
    log_warn("{}", moved.error().message);
  (void)remove_tree_of_user(spare.path);
  std::lock_guard lock(mutex_);
  if (const auto own = tasks_.find(task); own != tasks_.end())
    own->second = std::move(spare.content);
}

void SpareDirs::written(TaskId task, const Sha256& digest, files::Tree tree, EntryStates states) {
  std::lock_guard lock(mutex_);
  const auto found = tasks_.find(task);
  if (found == tasks_.end())
    return;
  // Jobs of one tree share its list.
  std::shared_ptr<const files::Tree> list;
  for (const auto& [other, content] : tasks_)
    if (content.tree && content.digest == digest)
      list = content.tree;
  if (!list)
    list = std::make_shared<const files::Tree>(std::move(tree));
  found->second.digest = digest;
  found->second.tree = std::move(list);
  found->second.states = std::move(states);
}

bool SpareDirs::retire(TaskId task, const std::string& path) {
  Spare spare;
  {
    std::lock_guard lock(mutex_);
    adopted_.erase(task);
    const auto found = tasks_.find(task);
    if (found == tasks_.end())
      return false;
    spare.content = std::move(found->second);
    tasks_.erase(found);
    spare.path = place_ + "/" + std::to_string(next_++);
  }
  if (!spare.content.tree || spare.content.tree->bytes() > bytes_max_)
    return false;
  spare.bytes = spare.content.tree->bytes();
  spare.since = system_clock().steady();
  // Out of its job's reach first: what is left of it must not find the directory by its name.
  if (::renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, spare.path.c_str(), RENAME_NOREPLACE) != 0)
    return false;
  // The job may have closed its own directory to itself.
  ::chmod(spare.path.c_str(), 0700);
  const auto kept = keep_only(spare.path, *spare.content.tree, spare.content.states);
  if (!kept) {
    log_warn("{}", kept.error().message);
    (void)remove_tree_of_user(spare.path);
    return true;
  }
  std::list<Spare> gone;
  {
    std::lock_guard lock(mutex_);
    bytes_ += spare.bytes;
    spares_.push_back(std::move(spare));
    gone = unwanted(spare_age_max);
  }
  remove(gone);
  return true;
}

void SpareDirs::trim() {
  std::list<Spare> gone;
  {
    std::lock_guard lock(mutex_);
    gone = unwanted(spare_age_max);
  }
  remove(gone);
}

std::list<SpareDirs::Spare> SpareDirs::unwanted(Duration age_max) {
  std::list<Spare> out;
  const SteadyTime now = system_clock().steady();
  while (!spares_.empty() && (spares_.size() > spares_max || bytes_ > bytes_max_ ||
                              now - spares_.front().since > age_max)) {
    bytes_ -= spares_.front().bytes;
    out.splice(out.end(), spares_, spares_.begin());
  }
  return out;
}

void SpareDirs::remove(const std::list<Spare>& spares) {
  for (const Spare& spare : spares)
    if (const Status gone = remove_tree_of_user(spare.path); !gone)
      log_warn("{}", gone.error().message);
}

}  // namespace billow::agent
