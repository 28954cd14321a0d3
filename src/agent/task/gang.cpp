#include "agent/task/gang.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"

namespace billow::agent {
namespace {

// Not in the agent's data directory, which the job's user may not be able to read. Removed with the
// task.
std::string path_of(const std::string& directory, TaskId task) {
  return fmt::format("{}/hosts-{}", directory, task.value);
}

}  // namespace

std::vector<std::string> gang_argv(const wire::agent_v1::Start& start) {
  std::vector<std::string> argv = start.argv;
  if ((start.gang || start.procs > 1) && !start.pty)
    argv.insert(argv.begin(), {executable_dir() + "/billow", "ranks", "--procs",
                               std::to_string(start.procs), "--"});
  return argv;
}

std::string write_hostfile(const std::string& directory, const wire::agent_v1::Start& start) {
  const auto addresses = start.env.find("BILLOW_ADDRESSES");
  if (addresses == start.env.end() || !(start.gang || start.procs > 1))
    return {};
  std::string text;
  for (const std::string& address : split(addresses->second, ','))
    text += fmt::format("{} slots={}\n", address, start.procs);
  std::string path = path_of(directory, start.task);
  ::unlink(path.c_str());
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!fd || !write_all(fd.get(), text)) {
    log_warn("task {}: its hostfile could not be written to {}", start.task.value, path);
    return {};
  }
  ::fchmod(fd.get(), 0644);  // regardless of the umask
  return path;
}

void remove_hostfile(const std::string& directory, TaskId task) {
  ::unlink(path_of(directory, task).c_str());
}

}  // namespace billow::agent
