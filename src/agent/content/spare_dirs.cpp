#include "agent/content/spare_dirs.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include <algorithm>
#include <iterator>

#include "base/file.h"
#include "base/log.h"

namespace billow::agent {
namespace {

constexpr std::size_t spares_max = 16;
constexpr Duration spare_age_max = minutes(60);

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

std::optional<EntryStates> SpareDirs::states_for(TaskId task, const files::Tree& tree) {
  std::lock_guard lock(mutex_);
  const auto found = tasks_.find(task);
  if (found == tasks_.end() || !found->second.tree)
    return std::nullopt;
  return agent::states_for(tree, *found->second.tree, found->second.states);
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
    (void)remove_tree(spare.path);
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
    if (const Status gone = remove_tree(spare.path); !gone)
      log_warn("{}", gone.error().message);
}

}  // namespace billow::agent
