#include "agent/observe/proc_stats.h"

#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"

namespace billow::agent {
namespace {

struct Stat {
  int parent = 0;
  std::int64_t ticks = 0;
  std::int32_t threads = 0;
  std::int64_t rss_pages = 0;
};

// /proc/PID/stat: the name in parentheses may contain anything, so fields are counted from the last
// ')'.
bool read_stat(const std::string& proc, int pid, Stat* out) {
  auto text = read_file(fmt::format("{}/{}/stat", proc, pid), 4096);
  if (!text)
    return false;
  const auto close = text->rfind(')');
  if (close == std::string::npos || close + 2 >= text->size())
    return false;
  const auto fields =
      split(std::string_view(*text).substr(close + 2), ' ');  // [0] is field 3, the state
  if (fields.size() < 22)
    return false;
  out->parent = std::atoi(fields[1].c_str());
  for (int i : {11, 12, 13, 14})
    out->ticks += std::atoll(fields[static_cast<std::size_t>(i)].c_str());
  out->threads = std::atoi(fields[17].c_str());
  out->rss_pages = std::atoll(fields[21].c_str());
  return true;
}

template <class Each>
void each_pid(const std::string& proc, Each each) {
  DIR* dir = ::opendir(proc.c_str());
  if (dir == nullptr)
    return;
  while (const dirent* entry = ::readdir(dir))
    if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
      each(std::atoi(entry->d_name));
  ::closedir(dir);
}

std::int64_t field_of(const std::string& text, std::string_view name) {
  const auto at = text.find(name);
  return at == std::string::npos ? 0 : std::atoll(text.c_str() + at + name.size());
}

}  // namespace

ProcessTable ProcessTable::read(const std::string& proc) {
  ProcessTable table;
  each_pid(proc, [&](int pid) {
    Stat stat;
    if (read_stat(proc, pid, &stat))
      table.by_parent_.emplace_back(stat.parent, pid);
  });
  std::sort(table.by_parent_.begin(), table.by_parent_.end());
  return table;
}

std::vector<int> ProcessTable::descendants(int pid) const {
  std::vector<int> out;
  auto take = [&](int parent) {
    for (auto it = std::lower_bound(by_parent_.begin(), by_parent_.end(), std::pair(parent, 0));
         it != by_parent_.end() && it->first == parent; ++it)
      out.push_back(it->second);
  };
  take(pid);
  // A walk of /proc is not atomic: a reused pid could form a cycle, which the table's size bounds.
  for (std::size_t next = 0; next < out.size() && out.size() <= by_parent_.size(); ++next)
    take(out[next]);
  return out;
}

ProcessUsage usage_of(const std::vector<int>& pids, const std::string& proc) {
  static const std::int64_t tick_ns = 1'000'000'000 / std::max(1L, ::sysconf(_SC_CLK_TCK));
  static const std::int64_t page_bytes = ::sysconf(_SC_PAGESIZE);
  ProcessUsage usage;
  for (const int pid : pids) {
    Stat stat;
    if (!read_stat(proc, pid, &stat))
      continue;
    ++usage.processes;
    usage.threads += stat.threads;
    usage.cpu_ns += stat.ticks * tick_ns;
    usage.rss_bytes += stat.rss_pages * page_bytes;
    if (auto io = read_file(fmt::format("{}/{}/io", proc, pid), 4096)) {
      usage.io_read_bytes += field_of(*io, "rchar: ");
      usage.io_write_bytes += field_of(*io, "wchar: ");
    }
  }
  return usage;
}

std::vector<int> cgroup_pids(const std::string& directory) {
  std::vector<int> out;
  auto text = read_file(directory + "/cgroup.procs", 4 << 20);
  for (const std::string& line : split(text ? *text : "", '\n'))
    if (const int pid = std::atoi(line.c_str()); pid > 0)
      out.push_back(pid);
  return out;
}

std::vector<int> pids_with_environment(const std::string& assignment, const std::string& proc) {
  std::vector<int> out;
  each_pid(proc, [&](int pid) {
    auto environ = read_file(fmt::format("{}/{}/environ", proc, pid), 2 << 20);
    if (!environ)
      return;
    for (const std::string& variable : split(*environ, '\0'))
      if (variable == assignment)
        return out.push_back(pid);
  });
  return out;
}

std::size_t kill_leftovers(const std::string& assignment,
                           const std::vector<std::string>& cgroup_directories) {
  std::vector<int> pids = pids_with_environment(assignment);
  for (const std::string& directory : cgroup_directories)
    for (const int pid : cgroup_pids(directory))
      pids.push_back(pid);
  std::sort(pids.begin(), pids.end());
  pids.erase(std::unique(pids.begin(), pids.end()), pids.end());
  std::size_t reached = 0;
  for (const int pid : pids)
    if (pid > 1 && pid != ::getpid() && ::kill(pid, SIGKILL) == 0)
      ++reached;
  return reached;
}

}  // namespace billow::agent
