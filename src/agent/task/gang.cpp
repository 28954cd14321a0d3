#include "agent/task/gang.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"

namespace billow::agent {
namespace {

// Not in the agent's data directory, which the job's user may not be able to read. Removed with the
// task.
constexpr std::string_view prefix = "hosts-";

std::string path_of(const std::string& directory, TaskId task) {
  return fmt::format("{}/{}{}", directory, prefix, task.value);
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

void remove_other_hostfiles(const std::string& directory, const std::vector<TaskId>& live) {
  std::vector<TaskId> ended;
  DIR* dir = ::opendir(directory.c_str());
  if (!dir)
    return;
  while (const dirent* item = ::readdir(dir)) {
    const std::string_view name = item->d_name;
    if (!name.starts_with(prefix))
      continue;
    // The names of projects' files have 16 digits (tasks_network.cpp).
    const auto number = parse_int(name.substr(prefix.size()), 1, 999'999'999'999'999);
    const TaskId task(static_cast<std::uint64_t>(number.value_or(0)));
    if (number && std::ranges::find(live, task) == live.end())
      ended.push_back(task);
  }
  ::closedir(dir);
  for (const TaskId task : ended)
    remove_hostfile(directory, task);
}

}  // namespace billow::agent
