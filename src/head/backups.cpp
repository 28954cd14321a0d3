#include "head/backups.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/file.h"
#include "base/log.h"

namespace billow::head {
namespace {

constexpr std::string_view prefix = "billow-";
constexpr Duration pause_after_failure = minutes(5);

// By name, which holds the time: the oldest first.
std::vector<std::string> backups_in(const std::string& dir) {
  std::vector<std::string> names;
  if (DIR* list = ::opendir(dir.c_str())) {
    while (const dirent* entry = ::readdir(list)) {
      const std::string_view name = entry->d_name;
      if (name.starts_with(prefix) && !name.ends_with(".partial"))
        names.emplace_back(name);
    }
    ::closedir(list);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string backup_name(WallTime time) {
  std::string text = format_utc(time);  // 2026-01-31T23:59:59Z
  std::erase(text, ':');
  std::erase(text, '-');
  return std::string(prefix) + text;
}

WallTime made_at(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    return {};
  return {static_cast<std::int64_t>(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec};
}

}  // namespace

void Backups::look() {
  const WallTime now = options_.clock->wall();
  if (options_.dir.empty() || busy_ || now < retry_after_)
    return;
  const auto there = backups_in(options_.dir);
  if (!there.empty() && now - made_at(options_.dir + "/" + there.back()) < options_.every)
    return;
  busy_ = true;
  const std::string path = options_.dir + "/" + backup_name(now);
  const auto queued = options_.workers->submit([this, path]() -> std::function<void()> {
    Status done = make_directories(options_.dir, 0700);
    if (done && !file_exists(path))
      done = options_.store->backup_to(path);
    if (done) {
      const auto kept = backups_in(options_.dir);
      for (std::size_t i = 0; i + options_.kept < kept.size(); ++i)
        if (auto removed = remove_tree(options_.dir + "/" + kept[i]); !removed)
          log_warn("an old backup could not be removed: {}", removed.error().message);
    }
    return [this, path, done] {
      busy_ = false;
      if (done) {
        log_info("backup: {}", path);
        return;
      }
      log_error("backup {}: {}", path, done.error().message);
      retry_after_ = options_.clock->wall() + std::min(options_.every, pause_after_failure);
      if (options_.failed)
        options_.failed(done.error());
    };
  });
  if (!queued)
    busy_ = false;
}

}  // namespace billow::head
