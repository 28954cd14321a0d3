#include "agent/isolate/sandbox.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "base/file.h"
#include "base/text.h"
#include "process/hide_processes_linux.h"
#include "process/spawn.h"

namespace billow::agent {
namespace {

// Tries what the supervisor's child will do, as far as permission goes. The exit code is the errno.
int try_namespaces(const std::string& user_map) {
  if (!user_map.empty()) {
    if (::unshare(CLONE_NEWUSER) != 0)
      return errno;
    const Fd map(::open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC));
    if (!map || ::write(map.get(), user_map.data(), user_map.size()) < 0)
      return errno;
  }
  if (::unshare(CLONE_NEWNS) != 0)
    return errno;
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0)
    return errno;
  if (::mount("tmpfs", "/dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=0755,size=64k") != 0)
    return errno;
  return 0;
}

int in_child(std::function<int()> body) {
  process::Spawn request;
  request.body = std::move(body);
  auto child = process::spawn(request);
  if (!child)
    return EPERM;
  const process::Ended ended = child->wait();
  return ended.signal() == 0 ? ended.code() : EPERM;
}

int try_as_user() {
  const std::string user_map = fmt::format("{0} {0} 1", ::geteuid());
  return in_child([&user_map] { return try_namespaces(user_map); });
}

int try_hiding_processes() {
  if (::unshare(CLONE_NEWNS) != 0)
    return errno;
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0)
    return errno;
  return process::hide_processes();
}

// Container engines and LXCFS mount over parts of /proc, to hide or to replace them. A new /proc
// would show these parts again.
bool proc_is_whole() {
  const auto mounts = read_file("/proc/self/mounts", 4 << 20);
  if (!mounts)
    return false;
  for (const std::string& line : split(*mounts, '\n')) {
    const auto words = split(line, ' ');
    if (words.size() > 1 && words[1].starts_with("/proc/") &&
        words[1] != "/proc/sys/fs/binfmt_misc")
      return false;
  }
  return true;
}

std::string why_processes_are_seen() {
  if (!proc_is_whole())
    return "parts of /proc are mounted over";
  const int error = in_child(try_hiding_processes);
  return error == 0 ? "" : strerrordesc_np(error);
}

}  // namespace

Sandbox Sandbox::detect() {
  const int as_root = in_child([] { return try_namespaces(""); });
  if (as_root == 0) {
    Sandbox sandbox(SandboxKind::private_dev);
    sandbox.seen_processes_ = why_processes_are_seen();
    return sandbox;
  }
  // A user namespace has our user only; jobs of other users need root anyway.
  const int as_user = ::geteuid() != 0 ? try_as_user() : as_root;
  if (as_user == 0)
    return Sandbox(SandboxKind::user_namespace);
  return Sandbox(SandboxKind::variables_only, strerrordesc_np(as_user));
}

void Sandbox::apply_to(TaskSpec& spec,
                       const std::vector<DeviceNode>& nodes,
                       const std::vector<int>& granted) const {
  if (kind_ == SandboxKind::variables_only)
    return;
  for (const DeviceNode& node : nodes)
    if (std::find(granted.begin(), granted.end(), node.gpu) == granted.end())
      spec.hide_devices.push_back(node.path);
  spec.user_namespace = kind_ == SandboxKind::user_namespace && !spec.hide_devices.empty();
}

Status Sandbox::bind_to(TaskSpec& spec, const std::vector<BoundVolume>& volumes) const {
  for (const BoundVolume& volume : volumes) {
    struct stat info {};
    if (::stat(volume.source.c_str(), &info) != 0)
      return fail(Code::unavailable,
                  fmt::format("the volume for {} is not on this node: {}: {}", volume.path,
                              volume.source, strerrordesc_np(errno)));
    if (!S_ISDIR(info.st_mode))
      return fail(Code::unavailable,
                  fmt::format("the volume for {} is not a directory on this node: {}", volume.path,
                              volume.source));
    // By the text of the path. Symbolic links in it are checked when it is mounted.
    std::string place = std::filesystem::path(volume.path).lexically_normal().native();
    place.erase(0, std::min(place.find_first_not_of('/'), place.size()));
    place.insert(0, "/");
    for (const std::string_view system : {"/proc", "/sys", "/dev"})
      if (place == system || place.starts_with(std::string(system) + "/"))
        return fail(Code::invalid, fmt::format("a volume cannot be mounted in {}", system));
    if (kind_ == SandboxKind::variables_only)
      return fail(Code::unavailable,
                  fmt::format("this node's agent may not mount volumes ({})", why_));
    spec.binds.push_back({.source = volume.source, .path = place, .read_only = volume.read_only});
  }
  if (!spec.binds.empty())
    spec.user_namespace = kind_ == SandboxKind::user_namespace;
  return {};
}

std::string Sandbox::report() const {
  switch (kind_) {
    case SandboxKind::private_dev:
      return "device isolation: a private /dev per job";
    case SandboxKind::user_namespace:
      return "device isolation: a private /dev per job, in a user namespace";
    case SandboxKind::variables_only:
      break;
  }
  return fmt::format(
      "device isolation: not permitted ({}): CUDA_VISIBLE_DEVICES only; run the agent as root with "
      "CAP_SYS_ADMIN, or allow "
      "unprivileged user namespaces",
      why_);
}

std::string Sandbox::report_processes() const {
  if (hides_processes())
    return "processes: plain jobs of other users see only their own in /proc";
  return fmt::format("processes: hiding those of others is not available ({})", seen_processes_);
}

std::vector<DeviceNode> device_nodes(const std::vector<std::vector<std::string>>& files_by_gpu) {
  std::vector<DeviceNode> nodes;
  for (std::size_t gpu = 0; gpu < files_by_gpu.size(); ++gpu)
    for (const std::string& file : files_by_gpu[gpu])
      if (file.starts_with("/dev/") && file.size() > 5)
        nodes.push_back({file.substr(5), static_cast<int>(gpu)});
  return nodes;
}

}  // namespace billow::agent
