#include "process/gateway_group.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/file.h"
#include "base/text.h"

namespace billow::process {
namespace {

constexpr std::size_t mounts_bytes_max = 4 << 20;
// Of the processor, if the tasks beside it want all of it: a gateway serves many of them.
constexpr std::string_view most_weight = "10000";

Status write_value(const std::string& path, std::string_view value) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd || ::write(fd.get(), value.data(), value.size()) < 0)
    return fail_errno(path, errno);
  return {};
}

}  // namespace

std::string cgroup_v2_mount() {
  std::string found;
  const auto mounts = read_file("/proc/self/mounts", mounts_bytes_max);
  for (const std::string& line : split(mounts ? *mounts : "", '\n'))
    if (const auto words = split(line, ' '); words.size() > 3 && words[2] == "cgroup2")
      found = words[1];
  return found;
}

Result<std::string> gateway_group() {
  const std::string mount = cgroup_v2_mount();
  if (mount.empty())
    return fail(Code::unsupported, "no cgroup v2 is mounted");
  std::string path = mount;
  for (const char* name : {"/billow", "/gateway"}) {
    path += name;
    if (::mkdir(path.c_str(), 0755) == 0)
      (void)::chmod(path.c_str(), 0755);  // whatever the umask is
    else if (errno != EEXIST)
      return fail_errno("create the control group " + path, errno);
  }
  if (::access((path + "/cgroup.procs").c_str(), W_OK) != 0)
    return fail_errno("the control group " + path, errno);
  (void)write_value(path + "/cpu.weight", most_weight);  // absent: processors are not divided
  return path;
}

Status enter_gateway_group() {
  return write_value(BILLOW_TRY(gateway_group()) + "/cgroup.procs", "0");
}

}  // namespace billow::process
