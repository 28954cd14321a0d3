#include "gpu/sim/load.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "base/file.h"
#include "base/text.h"

namespace billow {
namespace {

constexpr std::size_t tree_processes_max = 4096;
constexpr std::size_t environ_bytes_max = 256 << 10;
constexpr std::size_t cgroup_depth_max = 8;
constexpr std::size_t pid_list_bytes_max = 1 << 20;

// Small kernel files, read with three system calls and no allocation.
struct SmallFile {
  char text[4096];
  std::size_t size = 0;
  bool read(const char* path) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
      return false;
    const ssize_t n = ::read(fd, text, sizeof text - 1);
    close(fd);
    if (n < 0)
      return false;
    size = static_cast<std::size_t>(n);
    text[size] = 0;
    return true;
  }
};

template <class F>
void each_number(const char* text, F f) {
  for (const char* p = text; *p;) {
    char* end = nullptr;
    const long long value = std::strtoll(p, &end, 10);
    if (end == p)
      break;
    f(value);
    p = end;
  }
}

// Lists of processes, which may exceed a small file.
template <class F>
void each_pid_in(const char* path, F f) {
  SmallFile file;
  if (!file.read(path))
    return;
  if (file.size + 1 < sizeof file.text)
    return each_number(file.text, f);
  if (const auto whole = read_file(path, pid_list_bytes_max))
    each_number(whole->c_str(), f);
}

template <class F>
void each_entry(const char* path, F f) {
  DIR* dir = opendir(path);
  if (!dir)
    return;
  while (const dirent* entry = readdir(dir))
    f(*entry);
  closedir(dir);
}

std::vector<std::int64_t> threads_of(std::int64_t pid) {
  std::vector<std::int64_t> ids;
  char path[64];
  snprintf(path, sizeof path, "/proc/%lld/task", static_cast<long long>(pid));
  each_entry(path, [&](const dirent& entry) {
    if (const long long id = std::atoll(entry.d_name); id > 0)
      ids.push_back(id);
  });
  return ids;
}

// The start of the process in nanoseconds since boot (field 22 of stat, after the name in
// parentheses).
std::int64_t started_ns(std::int64_t pid) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%lld/stat", static_cast<long long>(pid));
  SmallFile file;
  if (!file.read(path))
    return 0;
  const char* p = std::strrchr(file.text, ')');
  for (int field = 2; p && field < 22; ++field)
    p = std::strchr(p + 1, ' ');
  return p ? std::atoll(p + 1) * (1'000'000'000LL / sysconf(_SC_CLK_TCK)) : 0;
}

// "20G" or a bare number of MiB.
std::int64_t declared_mib(std::int64_t pid) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%lld/environ", static_cast<long long>(pid));
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return -1;
  std::string text;
  for (std::size_t size = 0; size < environ_bytes_max;) {
    text.resize(size + 8192);
    const ssize_t n = read(fd, text.data() + size, 8192);
    text.resize(size + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    if (n <= 0)
      break;
    size = text.size();
  }
  close(fd);
  constexpr std::string_view key = "BILLOW_SIM_GPU_MEM=";
  std::size_t at = text.starts_with(key) ? 0 : text.find(std::string(1, '\0') + std::string(key));
  if (at == std::string::npos)
    return -1;
  if (text[at] == '\0')
    ++at;
  const std::string value(text.c_str() + at + key.size());
  if (value.find_first_not_of("0123456789") == std::string::npos)
    return parse_int(value, 0, 1 << 30).value_or(-1);
  const auto bytes = parse_bytes(value);
  return bytes ? static_cast<std::int64_t>(*bytes >> 20) : -1;
}

bool children_listed() {
  static const bool listed = [] {
    char path[96];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", static_cast<int>(getpid()));
    return access(path, R_OK) == 0;
  }();
  return listed;
}

// Kernels without lists of children: every process names its parent.
std::multimap<std::int64_t, std::int64_t> parents_of_all() {
  std::multimap<std::int64_t, std::int64_t> children;
  each_entry("/proc", [&](const dirent& entry) {
    const long long pid = std::atoll(entry.d_name);
    if (pid <= 0)
      return;
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/stat", pid);
    SmallFile file;
    if (!file.read(path))
      return;
    const char* p = std::strrchr(file.text, ')');
    if (p && std::strlen(p) > 4)
      children.emplace(std::atoll(p + 4), pid);
  });
  return children;
}

}  // namespace

std::vector<std::int64_t> SimMeter::tree_of(std::int64_t root) const {
  std::vector<std::int64_t> tree = {root};
  const auto all =
      children_listed() ? std::multimap<std::int64_t, std::int64_t>{} : parents_of_all();
  for (std::size_t i = 0; i < tree.size() && tree.size() < tree_processes_max; ++i) {
    if (!children_listed()) {
      for (auto [it, end] = all.equal_range(tree[i]); it != end; ++it)
        tree.push_back(it->second);
      continue;
    }
    for (const std::int64_t thread : threads_of(tree[i])) {
      char path[96];
      snprintf(path, sizeof path, "/proc/%lld/task/%lld/children", static_cast<long long>(tree[i]),
               static_cast<long long>(thread));
      each_pid_in(path, [&](long long child) {
        if (child > 0)
          tree.push_back(child);
      });
    }
  }
  return tree;
}

std::vector<std::int64_t> SimMeter::cgroup_processes(const std::string& path) {
  std::vector<std::int64_t> pids;
  std::vector<std::pair<std::string, std::size_t>> folders = {{path, 0}};
  for (std::size_t i = 0; i < folders.size() && pids.size() < tree_processes_max; ++i) {
    const auto [folder, depth] = folders[i];
    each_pid_in((folder + "/cgroup.procs").c_str(), [&](long long pid) { pids.push_back(pid); });
    if (depth >= cgroup_depth_max)
      continue;
    each_entry(folder.c_str(), [&, &name = folder, level = depth](const dirent& entry) {
      if (entry.d_type == DT_DIR && entry.d_name[0] != '.')
        folders.emplace_back(name + "/" + entry.d_name, level + 1);
    });
  }
  return pids;
}

bool SimMeter::read_process(std::int64_t pid, bool first_look, SimTreeLoad& load) {
  const auto threads = threads_of(pid);
  if (threads.empty())
    return false;
  SimProcess process;
  process.pid = pid;
  char path[96];
  SmallFile file;
  for (const std::int64_t id : threads) {
    snprintf(path, sizeof path, "/proc/%lld/task/%lld/schedstat", static_cast<long long>(pid),
             static_cast<long long>(id));
    if (!file.read(path))
      continue;
    std::int64_t values[2] = {}, n = 0;
    each_number(file.text, [&](long long value) {
      if (n < 2)
        values[n++] = value;
    });
    const std::int64_t total = values[0] + values[1];
    Thread& thread = threads_[id];
    // A new thread began after the last refresh, or the whole tree is new: all its time falls into
    // the window. A total that fell means that the id was reused by another thread.
    const bool known = thread.round != 0 && total >= thread.total_ns && !first_look;
    process.busy_ns += known ? total - thread.total_ns : total;
    thread = {total, round_};
  }
  snprintf(path, sizeof path, "/proc/%lld/statm", static_cast<long long>(pid));
  if (file.read(path)) {
    std::int64_t pages = 0, n = 0;
    each_number(file.text, [&](long long value) {
      if (n++ == 1)
        pages = value;
    });
    process.rss_mib = pages * (sysconf(_SC_PAGESIZE) / 1024) / 1024;
  }
  load.declared_mib = std::max(load.declared_mib, declared_mib(pid));
  load.processes.push_back(process);
  return true;
}

SimTreeLoad SimMeter::look(const SimHoldEntry& entry) {
  SimTreeLoad load;
  const auto pids = entry.cgroup.empty() ? tree_of(entry.pid) : cgroup_processes(entry.cgroup);
  Target& target = targets_[entry.cgroup.empty() ? std::to_string(entry.pid) : entry.cgroup];
  const bool first = target.looked_ns == 0;
  std::int64_t since_ns = target.looked_ns;
  for (const std::int64_t pid : pids) {
    if (!read_process(pid, first, load))
      continue;
    if (first) {
      const std::int64_t start = started_ns(pid);
      if (start > 0)
        since_ns = since_ns == 0 ? start : std::min(since_ns, start);
    }
  }
  target = {now_ns_, round_};
  // Start times have a resolution of a hundredth of a second; a shorter window would divide by
  // noise.
  const std::int64_t window_ns = std::max<std::int64_t>(now_ns_ - since_ns, 20'000'000);
  std::int64_t busy_ns = 0;
  for (const SimProcess& process : load.processes)
    busy_ns += process.busy_ns;
  load.busy = std::min(1.0, static_cast<double>(busy_ns) / static_cast<double>(window_ns));
  return load;
}

void SimMeter::end() {
  std::erase_if(threads_, [&](const auto& item) { return item.second.round != round_; });
  std::erase_if(targets_, [&](const auto& item) { return item.second.round != round_; });
}

}  // namespace billow
