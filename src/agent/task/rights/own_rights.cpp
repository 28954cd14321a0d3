// The rights of an agent that is root, or whose jobs run as its own account.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>

#include "agent/content/file_service.h"
#include "agent/observe/proc_stats.h"
#include "agent/task/rights/task_rights.h"
#include "agent/task/task_link.h"

namespace billow::agent {
namespace {

constexpr int leftover_rounds_max = 20;

class Own final : public TaskRights {
 public:
  explicit Own(OwnRights its) : its_(std::move(its)) {}

  Status suffice_for(const Start&) const override { return {}; }
  Result<UserRecord> permitted(UserRecord user, bool allow_root) const override {
    return permitted_user(std::move(user), allow_root);
  }
  Status reserve(TaskId, const UserRecord&, const CgroupLimits&, bool) override { return {}; }
  // Others cannot look into it, but can pass through the work place to their own.
  Result<std::string> make_work_dir(TaskId task, const UserRecord& user) override {
    const std::string name = std::to_string(task.value);
    BILLOW_TRY(its_.work.directory({.relative = name,
                                    .mode = 0700,
                                    .owner = user.identity,
                                    .existing = OwnPlace::If::exists_fail}));
    return its_.work.below(name);
  }
  Result<std::string> make_private_tmp(TaskId task, const UserRecord& user) override {
    const std::string name = private_tmp_name(task);
    const std::string inner = name + "/tmp";
    // Below a directory of the agent's: other jobs of the account do not reach it by its path.
    BILLOW_TRY(its_.work.directory({.relative = name,
                                    .mode = 0700,
                                    .owner = std::nullopt,
                                    .existing = OwnPlace::If::exists_fail}));
    BILLOW_TRY(its_.work.directory({.relative = inner,
                                    .mode = 0700,
                                    .owner = user.identity,
                                    .existing = OwnPlace::If::exists_fail}));
    return its_.work.below(inner);
  }
  Result<std::vector<SecretFiles::Written>> write_secrets(const Start& start,
                                                          const UserRecord& user) override {
    return its_.secrets.write(start.task, start.surroundings.secrets, start.secrets, user);
  }
  Result<SupervisorLink> launch(const Launch& launch) override {
    NewTask made = BILLOW_TRY(its_.dirs.create(launch.task, launch.spec, launch.meta));
    launch.made();
    return its_.launcher.launch(std::move(made), launch.secrets, launch.redacted, launch.network);
  }
  Result<SupervisorLink> connect(TaskId task, Duration patience) override {
    return its_.launcher.connect(its_.dirs.path(task), patience);
  }
  // Also those that left its control groups.
  void end_leftovers(TaskId task, const TaskCgroup& group) override {
    std::vector<std::string> directories = group.v1;
    if (!group.v2.empty())
      directories.push_back(group.v2);
    for (int round = 0;
         round < leftover_rounds_max && kill_leftovers(task_key(its_.owner, task), directories) > 0;
         ++round)
      ::poll(nullptr, 0, 2);
  }
  Status release(TaskId, const TaskCgroup& group) override {
    return group.empty() ? Status{} : its_.cgroups.remove(group);
  }
  Status record_end(TaskId task, const supervise::ExitRecord& record) override {
    return its_.dirs.record_end(task, record);
  }
  Status acknowledge(TaskId task) override { return its_.dirs.acknowledge(task); }
  Status forget(TaskId task) override { return its_.dirs.remove(task); }
  void signal(TaskId, int pid, int number) override { ::kill(pid, number); }
  std::string notes(TaskId task) const override { return its_.dirs.path(task); }

 private:
  OwnRights its_;
};

}  // namespace

std::unique_ptr<TaskRights> own_rights(OwnRights rights) {
  return std::make_unique<Own>(std::move(rights));
}

}  // namespace billow::agent
