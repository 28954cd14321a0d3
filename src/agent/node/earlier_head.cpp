#include "agent/node/earlier_head.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "agent/task/task_dir.h"

namespace billow::agent {

std::string memory_file(const std::string& data_dir) {
  return data_dir + "/memory.json";
}

Status check_tasks_ended(const std::string& data_dir) {
  const auto dirs = BILLOW_TRY(TaskDirs::open(data_dir + "/tasks"));
  const auto tasks = BILLOW_TRY(dirs.list());
  const auto live = std::ranges::count(tasks, TaskPresence::supervised, &FoundTask::presence);
  if (live == 0)
    return {};
  return fail(Code::unavailable,
              fmt::format("{} task{} of the head that this machine leaves still run{} here", live,
                          live == 1 ? "" : "s", live == 1 ? "s" : ""),
              "stop the jobs there, or remove the node there (`billow node rm`)");
}

Status forget_earlier_head(const std::string& data_dir) {
  auto dirs = BILLOW_TRY(TaskDirs::open(data_dir + "/tasks"));
  for (const FoundTask& task : BILLOW_TRY(dirs.list()))
    BILLOW_TRY_VOID(dirs.remove(task.id));
  if (::unlink(memory_file(data_dir).c_str()) != 0 && errno != ENOENT)
    return fail_errno(memory_file(data_dir), errno);
  return {};
}

}  // namespace billow::agent
