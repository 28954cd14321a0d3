#include "agent/task/disk_guard.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/text.h"

namespace billow::agent {
namespace {

constexpr int looks_share = 20;  // looking takes at most one part in this many of a worker's time
constexpr std::int64_t free_floor_bytes = 4ll << 30;
constexpr int free_floor_part = 20;

}  // namespace

bool nearly_full(const DiskSpace& space) {
  return space.free >= 0 && space.free < std::max(free_floor_bytes, space.size / free_floor_part) &&
         space.size > 2 * free_floor_bytes;
}

DiskGuard::DiskGuard(net::Loop& loop, Options options, Callbacks callbacks)
    : loop_(loop),
      options_(options),
      callbacks_(std::move(callbacks)),
      workers_(loop, {.threads = 1, .queue_max = 1024}) {}

void DiskGuard::watch(TaskId task, DiskLimit limit) {
  if (limit.bytes <= 0 || limit.places.empty())
    return;
  // Later tasks must not put off the next look, however often they start.
  if (tasks_.empty())
    timer_ = loop_.after(options_.hurry, [this] { look(); });
  const SteadyTime soon = system_clock().steady() + options_.hurry;
  tasks_[task] = {.limit = std::move(limit), .earliest = soon, .next = soon, .why = {}};
}

void DiskGuard::ended(TaskId task) {
  tasks_.erase(task);
}

std::string DiskGuard::why(TaskId task) const {
  const auto found = tasks_.find(task);
  return found == tasks_.end() ? std::string() : found->second.why;
}

void DiskGuard::look() {
  const SteadyTime now = system_clock().steady();
  for (auto& [task, watched] : tasks_) {
    if (watched.looking || !watched.why.empty())
      continue;
    if (now >= watched.next ||
        (now >= watched.earliest && nearly_full(disk_space(watched.limit.places.front()))))
      look_at(task, watched);
  }
  if (!tasks_.empty())
    timer_ = loop_.after(options_.hurry, [this] { look(); });
}

void DiskGuard::look_at(TaskId task, Watched& watched) {
  const auto work = [places = watched.limit.places, pids = callbacks_.processes(task),
                     memory = watched.memory] {
    const SteadyTime began = system_clock().steady();
    const DiskUse use = disk_use(places, pids, disk_entries_max, memory.get());
    return std::pair(use, system_clock().steady() - began);
  };
  watched.looking = workers_
                        .submit(work,
                                [this, task](const std::pair<DiskUse, Duration>& looked) {
                                  seen(task, looked.first, looked.second);
                                })
                        .has_value();
}

void DiskGuard::seen(TaskId task, const DiskUse& use, Duration took) {
  const auto found = tasks_.find(task);
  if (found == tasks_.end())
    return;
  Watched& watched = found->second;
  watched.looking = false;
  watched.earliest = system_clock().steady() + took * looks_share;
  watched.next = std::max(watched.earliest, system_clock().steady() + options_.period);
  const std::string limit = format_bytes(static_cast<std::uint64_t>(watched.limit.bytes));
  if (use.bytes > watched.limit.bytes)
    watched.why = fmt::format("its files take {} of the node's disk, and its limit is {} ({})",
                              format_bytes(static_cast<std::uint64_t>(use.bytes)), limit,
                              watched.limit.by.empty() ? "--disk" : watched.limit.by);
  else if (!use.complete)
    watched.why = fmt::format("it has too many files to limit their space to {}", limit);
  else if (use.too_deep)
    watched.why = fmt::format(
        "its directories are nested more than {} deep, too deep to limit their space to {}",
        disk_depth_max, limit);
  if (!watched.why.empty())
    callbacks_.stop(task, watched.why);
}

}  // namespace billow::agent
