#include "agent/isolate/cgroup.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "base/limits.h"
#include "base/text.h"

namespace billow::agent {
namespace {

constexpr std::int64_t cpu_period_us = 100'000;
constexpr std::int64_t least_fair_mib = 4096;
constexpr std::int64_t fetch_memory_mib = 4096;  // files that are written count, and can be evicted
constexpr std::int64_t fetch_processes_max = 1024;
constexpr std::int64_t uplink_processes_max = 16, uplink_memory_mib = 256;
constexpr std::int64_t uplink_cpu_milli_min = 250, uplink_cpu_milli_default = 1'000;
constexpr const char* no_mount_why = "no cgroup hierarchy with this controller is mounted";
constexpr const char* no_mount_hint =
    "boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1) or mount the controller";

// Files of the kernel take one write, and answer it with an errno.
int put_value(const std::string& path, const std::string& value) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd)
    return errno;
  return ::write(fd.get(), value.data(), value.size()) < 0 ? errno : 0;
}
std::string get(const std::string& path) {
  auto content = read_file(path, 64 << 10);
  return content ? std::string(trim(*content)) : std::string();
}
std::int64_t get_number(const std::string& path) {
  const std::string text = get(path);
  return text.empty() ? 0 : std::atoll(text.c_str());
}
// The value of "name N" in a file of such lines.
std::int64_t get_field(const std::string& path, std::string_view name) {
  for (const std::string& line : split(get(path), '\n'))
    if (line.starts_with(name) && line.size() > name.size() && line[name.size()] == ' ')
      return std::atoll(line.c_str() + name.size() + 1);
  return 0;
}
// Regardless of the umask of this agent, or of another one that made the group: with cgroup v2, the
// program that starts a container reads the group's files as the job's user.
int make_dir(const std::string& path) {
  constexpr mode_t mode = 0755;
  if (::mkdir(path.c_str(), mode) != 0 && errno != EEXIST)
    return errno;
  struct stat made {};
  if (::stat(path.c_str(), &made) == 0 && (made.st_mode & mode) != mode)
    (void)::chmod(path.c_str(), mode);
  return 0;
}

bool lists(const std::string& words, std::string_view word) {
  for (const std::string& w : split(words, ' '))
    if (w == word)
      return true;
  return false;
}

}  // namespace

std::int64_t fair_memory_mib(const FairMemory& of) {
  const auto part = [&](std::int64_t mine, std::int64_t all) {
    return all > 0 ? of.node_mib * std::min(mine, all) / all : 0;
  };
  return std::max({part(of.gpu_milli, of.node_gpu_milli), part(of.cpu_milli, of.node_cpu_milli),
                   std::min<std::int64_t>(least_fair_mib, of.node_mib / 8)});
}

std::int64_t default_processes_max() {
  const std::int64_t all = get_number("/proc/sys/kernel/pid_max");
  return all > 0 ? std::min(limits::task_processes_max, all / 8) : limits::task_processes_max;
}

void TaskCgroup::apply_to(TaskSpec& spec) const {
  spec.cgroup_v2 = v2;
  spec.cgroups_v1 = v1;
  spec.cgroup_memory = memory;
  spec.cgroup_freezer_v1 = freezer_v1;
}

std::string Cgroups::v1_parent(const char* controller) const {
  for (const auto& [name, path] : v1_parents_)
    if (name == controller)
      return path;
  return {};
}

void Cgroups::probe_v1(const char* controller,
                       const std::string& mount,
                       CgroupKind* kind,
                       Missing* missing) {
  const std::string parent = mount + "/" + name_;
  if (of_helper_) {
    if (file_exists(parent)) {
      *kind = CgroupKind::v1;
      v1_parents_.emplace_back(controller, parent);
    }
    return;
  }
  if (const int error = make_dir(parent)) {
    *missing = {fmt::format("{} cannot be created: {}", parent, strerrordesc_np(error)),
                "run the agent as root, or give it a delegated cgroup"};
    return;
  }
  if (::access((parent + "/cgroup.procs").c_str(), W_OK) != 0) {
    *missing = {parent + " is not writable",
                "run the agent as root, or give it a delegated cgroup"};
    return;
  }
  *kind = CgroupKind::v1;
  v1_parents_.emplace_back(controller, parent);
}

// What the helper has enabled for its tasks.
void Cgroups::read_v2(const std::string& parent) {
  if (!file_exists(parent))
    return;
  v2_parent_ = parent;
  const std::string enabled = get(parent + "/cgroup.subtree_control");
  for (const auto& [controller, kind] :
       {std::pair("cpu", &cpu_), std::pair("memory", &memory_), std::pair("pids", &pids_)})
    if (*kind == CgroupKind::none && lists(enabled, controller))
      *kind = CgroupKind::v2;
}

void Cgroups::probe_v2(const std::string& mount) {
  const std::string parent = mount + "/" + name_;
  const std::string hint = "run the agent as root, or with systemd: Delegate=yes for its unit";
  Missing missing;
  if (of_helper_)
    return read_v2(parent);
  if (const int error = make_dir(parent))
    missing = {fmt::format("{} cannot be created: {}", parent, strerrordesc_np(error)), hint};
  else if (::access((parent + "/cgroup.procs").c_str(), W_OK) != 0)
    missing = {parent + " is not writable", hint};
  else
    v2_parent_ = parent;
  const std::string offered = get(mount + "/cgroup.controllers");
  auto enable = [&](const char* controller, CgroupKind* kind, Missing* lacking) {
    if (*kind != CgroupKind::none || !lists(offered, controller))
      return;
    if (v2_parent_.empty()) {
      *lacking = missing;
      return;
    }
    // A controller must be enabled for the children at each level, from the root down.
    const int error = put_value(mount + "/cgroup.subtree_control", fmt::format("+{}", controller));
    if (error != 0 && !lists(get(parent + "/cgroup.controllers"), controller)) {
      *lacking = {fmt::format("cgroup v2 does not enable '{}' here: {}", controller,
                              strerrordesc_np(error)),
                  hint};
      return;
    }
    if (const int child_error =
            put_value(parent + "/cgroup.subtree_control", fmt::format("+{}", controller))) {
      *lacking = {fmt::format("cgroup v2 does not enable '{}' for tasks: {}", controller,
                              strerrordesc_np(child_error)),
                  hint};
      return;
    }
    *kind = CgroupKind::v2;
  };
  enable("cpu", &cpu_, &cpu_missing_);
  enable("memory", &memory_, &memory_missing_);
  enable("pids", &pids_, &pids_missing_);
}

Cgroups Cgroups::detect(Options options) {
  Cgroups c;
  c.name_ = options.name;
  c.of_helper_ = options.of_helper;
  const std::string owner = options.owner.empty() ? "" : options.owner + "-";
  c.leaf_ = "/" + owner + "task-";
  c.fetch_leaf_ = "/" + owner + "fetch-";
  c.uplink_leaf_ = "/" + owner + "uplink-";
  c.cpu_missing_ = c.memory_missing_ = c.pids_missing_ = {no_mount_why, no_mount_hint};
  std::string v2_mount, v1_memory;
  Missing freezer_missing, devices_missing;
  auto mounts = read_file(options.mounts_file, 4 << 20);
  for (const std::string& line : split(mounts ? *mounts : "", '\n')) {
    const auto words = split(line, ' ');
    if (words.size() < 4)
      continue;
    if (words[2] == "cgroup2")
      v2_mount = words[1];
    if (words[2] != "cgroup")
      continue;
    const auto controllers = split(words[3], ',');
    auto has = [&](const char* name) {
      return std::find(controllers.begin(), controllers.end(), name) != controllers.end();
    };
    if (has("cpu"))
      c.probe_v1("cpu", words[1], &c.cpu_, &c.cpu_missing_);
    if (has("memory")) {
      v1_memory = words[1];
      c.probe_v1("memory", words[1], &c.memory_, &c.memory_missing_);
    }
    if (has("pids"))
      c.probe_v1("pids", words[1], &c.pids_, &c.pids_missing_);
    if (has("freezer"))
      c.probe_v1("freezer", words[1], &c.freezer_, &freezer_missing);
    if (has("devices"))
      c.probe_v1("devices", words[1], &c.devices_, &devices_missing);
  }
  if (!v2_mount.empty())
    c.probe_v2(v2_mount);
  if (c.memory_ == CgroupKind::none)
    c.shared_oom_counter_ = !v1_memory.empty()                         ? v1_memory
                            : file_exists(v2_mount + "/memory.events") ? v2_mount
                                                                       : "";
  if (!options.owner.empty() && !options.of_helper)
    c.remove_leftovers();
  return c;
}

// Empty groups that an agent left which was killed. One with a process in it stays.
void Cgroups::remove_leftovers() const {
  std::vector<std::string> parents = {v2_parent_};
  for (const auto& [controller, parent] : v1_parents_)
    parents.push_back(parent);
  for (const std::string& parent : parents) {
    std::error_code ec;
    for (std::filesystem::directory_iterator at(parent, ec), end; !ec && at != end;
         at.increment(ec))
      if (at->path().native().starts_with(parent + fetch_leaf_) ||
          at->path().native().starts_with(parent + uplink_leaf_))
        ::rmdir(at->path().c_str());
  }
}

Result<TaskCgroup> Cgroups::create(TaskId id, const CgroupLimits& limits) const {
  return create_leaf(leaf_ + std::to_string(id.value), limits);
}

Result<TaskCgroup> Cgroups::create_for_fetch(TaskId id) const {
  return create_leaf(
      fetch_leaf_ + std::to_string(id.value),
      {.cpu_milli = 0, .mem_mib = fetch_memory_mib, .pids_max = fetch_processes_max});
}

Result<TaskCgroup> Cgroups::create_for_uplink(TaskId id, std::int64_t cpu_milli) const {
  return create_leaf(uplink_leaf_ + std::to_string(id.value),
                     {.cpu_milli = cpu_milli > 0 ? std::max(cpu_milli, uplink_cpu_milli_min)
                                                 : uplink_cpu_milli_default,
                      .mem_mib = uplink_memory_mib,
                      .pids_max = uplink_processes_max});
}

Result<TaskCgroup> Cgroups::create_leaf(const std::string& leaf, const CgroupLimits& limits) const {
  TaskCgroup group;
  auto make = [&](const std::string& parent) -> Result<std::string> {
    std::string path = parent + leaf;
    if (const int error = make_dir(path))
      return fail_errno("create the cgroup " + path, error);
    return path;
  };
  auto set = [&](const std::string& path, const std::string& value) -> Status {
    if (const int error = put_value(path, value))
      return fail_errno(fmt::format("set {} to {}", path, value), error);
    return {};
  };
  if (!v2_parent_.empty())
    group.v2 = BILLOW_TRY(make(v2_parent_));
  if (limits.cpu_milli > 0 && cpu_ != CgroupKind::none) {
    const std::int64_t quota = limits.cpu_milli * cpu_period_us / 1000;
    if (cpu_ == CgroupKind::v2) {
      BILLOW_TRY_VOID(
          set(group.v2 + "/cpu.max",
              fmt::format("{} {}", std::max<std::int64_t>(quota, 1000), cpu_period_us)));
    } else {
      group.v1.push_back(BILLOW_TRY(make(v1_parent("cpu"))));
      BILLOW_TRY_VOID(set(group.v1.back() + "/cpu.cfs_period_us", std::to_string(cpu_period_us)));
      BILLOW_TRY_VOID(set(group.v1.back() + "/cpu.cfs_quota_us",
                          std::to_string(std::max<std::int64_t>(quota, 1000))));
      BILLOW_TRY_VOID(
          set(group.v1.back() + "/cpu.shares",
              std::to_string(std::max<std::int64_t>(limits.cpu_milli * 1024 / 1000, 2))));
    }
  }
  if (limits.mem_mib > 0 && memory_ != CgroupKind::none) {
    const std::string bytes = std::to_string(limits.mem_mib << 20);
    if (memory_ == CgroupKind::v2) {
      BILLOW_TRY_VOID(set(group.v2 + "/memory.max", bytes));
      (void)put_value(group.v2 + "/memory.swap.max",
                      "0");  // absent if the kernel does not count swap
      group.memory = group.v2;
    } else {
      group.v1.push_back(BILLOW_TRY(make(v1_parent("memory"))));
      group.memory = group.v1.back();
      BILLOW_TRY_VOID(set(group.memory + "/memory.limit_in_bytes", bytes));
      (void)put_value(group.memory + "/memory.memsw.limit_in_bytes", bytes);
    }
  }
  if (limits.pids_max > 0 && pids_ != CgroupKind::none) {
    const bool v2 = pids_ == CgroupKind::v2;
    if (!v2)
      group.v1.push_back(BILLOW_TRY(make(v1_parent("pids"))));
    BILLOW_TRY_VOID(
        set((v2 ? group.v2 : group.v1.back()) + "/pids.max", std::to_string(limits.pids_max)));
  }
  return group;
}

Status Cgroups::deny_devices(TaskId id,
                             const std::vector<DeviceNumber>& denied,
                             TaskCgroup& group) const {
  const std::string parent = v1_parent("devices");
  if (parent.empty())
    return fail(Code::unsupported, "no device controller is writable, neither v2 nor v1");
  const std::string path = parent + leaf_ + std::to_string(id.value);
  if (const int error = make_dir(path))
    return fail_errno("create the cgroup " + path, error);
  for (const DeviceNumber& device : denied)
    if (const int error = put_value(path + "/devices.deny",
                                    fmt::format("c {}:{} rwm", device.major, device.minor)))
      return fail_errno("deny a device in " + path, error);
  group.v1.push_back(path);
  return {};
}

TaskCgroup Cgroups::find_leaf(const std::string& leaf) const {
  TaskCgroup group;
  if (!v2_parent_.empty() && file_exists(v2_parent_ + leaf))
    group.v2 = v2_parent_ + leaf;
  for (const auto& [controller, parent] : v1_parents_) {
    if (!file_exists(parent + leaf))
      continue;
    group.v1.push_back(parent + leaf);
    if (controller == "memory")
      group.memory = parent + leaf;
    if (controller == "freezer")
      group.freezer_v1 = parent + leaf;
  }
  if (group.memory.empty() && memory_ == CgroupKind::v2)
    group.memory = group.v2;
  return group;
}

std::optional<TaskId> Cgroups::task_at(std::string_view path) const {
  const std::string begins = "/" + name_ + leaf_;
  if (v2_parent_.empty() || !path.starts_with(begins))
    return std::nullopt;
  path.remove_prefix(begins.size());
  const auto id = parse_int(path.substr(0, path.find('/')), 1, INT64_MAX);
  if (!id)
    return std::nullopt;
  return TaskId(static_cast<std::uint64_t>(*id));
}

CgroupUsage Cgroups::usage(const TaskCgroup& group) const {
  CgroupUsage usage;
  if (!group.v2.empty())
    usage.cpu_ns = get_field(group.v2 + "/cpu.stat", "usage_usec") * 1000;
  if (group.memory.empty())
    return usage;
  if (group.memory == group.v2) {
    usage.mem_bytes = get_number(group.memory + "/memory.current");
    usage.mem_peak_bytes = get_number(group.memory + "/memory.peak");
    usage.oom_kills =
        static_cast<std::uint64_t>(get_field(group.memory + "/memory.events", "oom_kill"));
  } else {
    usage.mem_bytes = get_number(group.memory + "/memory.usage_in_bytes");
    usage.mem_peak_bytes = get_number(group.memory + "/memory.max_usage_in_bytes");
    usage.oom_kills =
        static_cast<std::uint64_t>(get_field(group.memory + "/memory.oom_control", "oom_kill"));
  }
  return usage;
}

Status Cgroups::remove(const TaskCgroup& group) const {
  std::vector<std::string> paths = group.v1;
  if (!group.v2.empty())
    paths.push_back(group.v2);
  if (!group.freezer_v1.empty() &&
      std::find(paths.begin(), paths.end(), group.freezer_v1) == paths.end())
    paths.push_back(group.freezer_v1);
  std::string busy;
  for (const std::string& path : paths) {
    if (::rmdir(path.c_str()) == 0 || errno == ENOENT)
      continue;
    // The supervisor has ended, but processes are left: kill them, so that the next call finds the
    // group empty.
    if (put_value(path + "/cgroup.kill", "1") != 0)
      for (const std::string& pid : split(get(path + "/cgroup.procs"), '\n'))
        if (const int number = std::atoi(pid.c_str()); number > 1)
          ::kill(number, SIGKILL);
    if (::rmdir(path.c_str()) != 0 && errno != ENOENT)
      busy = path;
  }
  if (!busy.empty())
    return fail(Code::unavailable, busy + " still has processes", "it is tried again");
  return {};
}

std::vector<std::string> Cgroups::report() const {
  auto line = [](const char* what, CgroupKind kind, const Missing& missing) {
    switch (kind) {
      case CgroupKind::v1:
        return fmt::format("{}: cgroup v1", what);
      case CgroupKind::v2:
        return fmt::format("{}: cgroup v2", what);
      case CgroupKind::none:
        break;
    }
    return fmt::format("{}: not available: {}; {}", what, missing.why, missing.hint);
  };
  return {line("CPU limits", cpu_, cpu_missing_), line("memory limits", memory_, memory_missing_),
          line("process limits", pids_, pids_missing_),
          tracks() ? std::string("process tracking: cgroup v2")
                   : std::string("process tracking: by parent process (no writable cgroup v2; "
                                 "jobs still end with all their processes)")};
}

}  // namespace billow::agent
