#include "agent/isolate/sandbox.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "base/text.h"

namespace billow::agent {
namespace {

// What the supervisor's child will do, as far as permission goes. The exit status is the errno.
int try_namespaces(bool user) {
  const unsigned uid = ::geteuid();
  if (user) {
    if (::unshare(CLONE_NEWUSER) != 0)
      return errno;
    const Fd map(::open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC));
    const std::string line = fmt::format("{} {} 1", uid, uid);
    if (!map || ::write(map.get(), line.data(), line.size()) < 0)
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

int in_child(bool user) {
  const pid_t pid = ::fork();
  if (pid < 0)
    return errno;
  if (pid == 0)
    ::_exit(try_namespaces(user));
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  return WIFEXITED(status) ? WEXITSTATUS(status) : EPERM;
}

}  // namespace

Sandbox Sandbox::detect() {
  const int as_root = in_child(false);
  if (as_root == 0)
    return Sandbox(SandboxKind::private_dev);
  // A user namespace keeps the one user we are; jobs of other users need root anyway.
  const int as_user = ::geteuid() != 0 ? in_child(true) : as_root;
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
                  fmt::format("the volume for {} is no directory on this node: {}", volume.path,
                              volume.source));
    // By what the path says; where a link of it leads is seen when it is mounted.
    std::string place = std::filesystem::path(volume.path).lexically_normal().native();
    place.erase(0, std::min(place.find_first_not_of('/'), place.size()));
    place.insert(0, "/");
    for (const std::string_view system : {"/proc", "/sys", "/dev"})
      if (place == system || place.starts_with(std::string(system) + "/"))
        return fail(Code::invalid, fmt::format("a volume cannot lie in {}", system));
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

std::vector<DeviceNode> list_nvidia_nodes(const std::vector<int>& minor_to_gpu,
                                          const std::string& dev) {
  std::vector<DeviceNode> nodes;
  DIR* dir = ::opendir(dev.c_str());
  if (dir == nullptr)
    return nodes;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with("nvidia"))
      continue;
    const auto minor = parse_int(name.substr(6), 0, 4095);
    if (!minor)
      continue;
    const auto index = static_cast<std::size_t>(*minor);
    nodes.push_back({std::string(name),
                     index < minor_to_gpu.size() ? minor_to_gpu[index] : static_cast<int>(*minor)});
  }
  ::closedir(dir);
  std::sort(nodes.begin(), nodes.end(),
            [](const DeviceNode& a, const DeviceNode& b) { return a.gpu < b.gpu; });
  return nodes;
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
