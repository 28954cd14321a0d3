#include "agent/task/checkpointer.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"

namespace billow::agent {
namespace {

constexpr Duration patience_max = minutes(10);
constexpr Duration asked_again_after = seconds(1);  // if the job did not handle the signal yet
// After a signal the job's files are complete when nothing has changed for this long.
constexpr Duration quiet_for = milliseconds(700);
// Complete copies that are kept: the newest, and the one before it in case that is being read.
constexpr int kept = 2;

// Finds the newest change in a directory of the job's, down to a few levels; 0 if it is empty. It
// runs on a worker, follows no link of the job's, and gives up on directories that are too large to
// be read again and again.
struct Look {
  SteadyTime give_up;
  std::size_t left = limits::checkpoint_entries_max;
  std::int64_t newest_ns = 0;
};
Status look_through(int parent, const char* name, int depth, Look& look) {
  const int fd =
      ::openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0)
    return {};
  DIR* dir = ::fdopendir(fd);
  if (!dir) {
    ::close(fd);
    return {};
  }
  const std::unique_ptr<DIR, int (*)(DIR*)> closes(dir, ::closedir);
  while (const dirent* entry = ::readdir(dir)) {
    const std::string_view one = entry->d_name;
    if (one == "." || one == "..")
      continue;
    if (look.left-- == 0)
      return fail(
          Code::too_large,
          fmt::format("the checkpoint has more than {} files: too many to see when it is complete",
                      limits::checkpoint_entries_max),
          "use --checkpoint-cmd, whose end says that the checkpoint is complete");
    if (look.left % 1024 == 0 && system_clock().steady() > look.give_up)
      return fail(Code::timed_out, "looking through the checkpoint's files took too long");
    struct stat info {};
    if (::fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0)
      continue;
    look.newest_ns = std::max<std::int64_t>(
        look.newest_ns, info.st_mtim.tv_sec * 1'000'000'000ll + info.st_mtim.tv_nsec);
    if (S_ISDIR(info.st_mode) && depth > 0)
      BILLOW_TRY_VOID(look_through(fd, entry->d_name, depth - 1, look));
  }
  return {};
}
Result<std::int64_t> newest_change_ns(const std::string& path, SteadyTime give_up) {
  Look look{.give_up = give_up};
  BILLOW_TRY_VOID(look_through(AT_FDCWD, path.c_str(), 4, look));
  return look.newest_ns;
}

Status wait_until_written(const std::string& dir, std::int64_t before_ns, SteadyTime give_up) {
  std::int64_t last = -1;
  SteadyTime since = system_clock().steady();
  for (;;) {
    const SteadyTime begun = system_clock().steady();
    const std::int64_t now_ns = BILLOW_TRY(newest_change_ns(dir, give_up));
    const SteadyTime now = system_clock().steady();
    if (now_ns != last) {
      last = now_ns;
      since = now;
    }
    if (last > before_ns && now - since >= quiet_for)
      return {};
    if (now > give_up)
      return fail(Code::timed_out, "the job wrote no files after the signal");
    ::poll(nullptr, 0,
           static_cast<int>(std::clamp<std::int64_t>(4 * (now - begun).ms(), 50,
                                                     5000)));  // use at most a fifth of a core
  }
}

// Copies under a name that begins with a dot, renames the complete copy, and removes older ones. As
// the job's user, but not in the job's place: the copy goes where the job need not reach, and must
// not end with the job.
constexpr const char* keep_script = R"(set -e
mkdir -p "$KEEP"
rm -rf "$KEEP"/.new-*
cp -R "$BILLOW_CHECKPOINT_DIR" "$KEEP/.new-$NAME"
sync -f "$KEEP/.new-$NAME" 2>/dev/null || sync
mv "$KEEP/.new-$NAME" "$KEEP/$NAME"
ls "$KEEP" | sort -n | head -n -)";

}  // namespace

Checkpointer::Checkpointer(net::Loop& loop, TreeRemoval& removal, Callbacks callbacks)
    : loop_(loop),
      removal_(removal),
      callbacks_(std::move(callbacks)),
      timer_(loop.every(milliseconds(500), [this] { tick(); })),
      workers_(loop, {.threads = 16, .queue_max = 4096}) {}

constexpr std::string_view local_prefix = "checkpoint-";

static std::string local_path(const std::string& directory, TaskId task) {
  return fmt::format("{}/{}{}", directory, local_prefix, task.value);
}

Status Checkpointer::prepare(
    TaskPlan& plan, TaskId task, JobId job, const std::string& directory, Environment& env) {
  if (plan.checkpoint_every.ns <= 0)
    return {};
  const std::string local = local_path(directory, task);
  // An existing directory is an earlier task's and must not reach this one.
  if (::mkdir(local.c_str(), 0700) != 0) {
    BILLOW_TRY_VOID(removal_.remove(local));
    if (::mkdir(local.c_str(), 0700) != 0)
      return fail_errno("make " + local, errno);
  }
  const Fd dir(::open(local.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!dir)
    return fail_errno("open " + local, errno);
  if (plan.other_user && ::fchown(dir.get(), plan.uid, plan.gid) != 0)
    return fail_errno("give " + local + " to the job's user", errno);
  env["BILLOW_CHECKPOINT_DIR"] = local;
  plan.checkpoint_local = local;
  plan.checkpoint_dir += fmt::format("/job-{}", job.value);
  return {};
}

void Checkpointer::began(TaskId task, const TaskPlan& plan) {
  if (plan.checkpoint_every.ns <= 0)
    return;
  entries_[task] = {plan, system_clock().steady() + plan.checkpoint_every, false};
}

// Also of a task that an earlier agent process started.
void Checkpointer::ended(const std::string& directory, TaskId task) {
  std::string local = local_path(directory, task);
  if (const auto found = entries_.find(task); found != entries_.end()) {
    local = found->second.plan.checkpoint_local;
    entries_.erase(found);
  }
  if (const Status gone = removal_.remove(local); !gone)
    log_warn("task {}: {}", task.value, gone.error().message);
}

void Checkpointer::forget_others(const std::string& directory, const std::vector<TaskId>& live) {
  std::vector<std::string> names;
  DIR* dir = ::opendir(directory.c_str());
  if (!dir)
    return;
  while (const dirent* item = ::readdir(dir))
    names.emplace_back(item->d_name);
  ::closedir(dir);
  for (const std::string& name : names) {
    if (!name.starts_with(local_prefix))
      continue;
    const auto number = parse_int(name.substr(local_prefix.size()), 1, INT64_MAX);
    const TaskId task(static_cast<std::uint64_t>(number.value_or(0)));
    if (number && std::ranges::find(live, task) == live.end())
      ended(directory, task);
  }
}

void Checkpointer::tick() {
  const SteadyTime now = system_clock().steady();
  for (auto& [task, entry] : entries_)
    if (!entry.busy && now >= entry.next && callbacks_.runs(task))
      make(task, patience_max, {});
}

void Checkpointer::last(TaskId task, Duration patience, std::function<void()> then) {
  const auto found = entries_.find(task);
  if (found == entries_.end() || found->second.busy || !callbacks_.runs(task))
    return then();
  // The time limit starts now, not when a thread is free: other users' commands may hang.
  auto rest = std::make_shared<std::function<void()>>(std::move(then));
  const auto once = [rest] {
    if (const auto go_on = std::exchange(*rest, nullptr))
      go_on();
  };
  found->second.give_up = loop_.after(patience + seconds(1), [this, once] { loop_.post(once); });
  make(task, patience, once);
}

void Checkpointer::make(TaskId task, Duration patience, std::function<void()> then) {
  Entry& entry = entries_.at(task);
  entry.busy = true;
  const SteadyTime begun = system_clock().steady();
  const auto no_room = [this, task, then] {
    if (const auto found = entries_.find(task); found != entries_.end())
      found->second.busy = false;
    if (then)
      then();
  };
  if (!entry.plan.checkpoint_cmd.empty()) {
    if (!keep_made(task, {begun, patience, 0}, then))
      no_room();
    return;
  }
  // Files changed after this are the signal's work. The job may have a million files, so a worker
  // reads them.
  const Status queued =
      workers_.submit([local = entry.plan.checkpoint_local,
                       give_up = begun + patience] { return newest_change_ns(local, give_up); },
                      [this, task, begun, patience, then, no_room](Result<std::int64_t> before) {
                        const auto found = entries_.find(task);
                        if (found == entries_.end())
                          return no_room();
                        if (!before)
                          return made(task, begun, {}, pass(before.error()), then);
                        if (!callbacks_.runs(task))
                          return no_room();
                        const TaskPlan& plan = found->second.plan;
                        if (!callbacks_.signal(task, plan.checkpoint_signal, signal_to(plan.env)))
                          return postpone(task, then);
                        if (!keep_made(task, {begun, patience, *before}, then))
                          no_room();
                      });
  if (!queued)
    no_room();
}

void Checkpointer::postpone(TaskId task, const std::function<void()>& then) {
  Entry& entry = entries_.at(task);
  entry.busy = false;
  entry.next = system_clock().steady() + asked_again_after;
  if (!std::exchange(entry.unheard, true))
    log_warn("task {}: no process of the job handles signal {} yet; its checkpoints wait for that",
             task.value, entry.plan.checkpoint_signal);
  if (then)
    then();
}

bool Checkpointer::keep_made(TaskId task, const Asked& asked, std::function<void()> then) {
  const TaskPlan plan = entries_.at(task).plan;
  const WallTime at = system_clock().wall();
  const std::string name = fmt::format("{}", at.ns / 1'000'000);
  const auto place = plan.checkpoint_cmd.empty() ? Result<JobPlace>() : callbacks_.place(task);
  return workers_
      .submit(
          [plan, place, asked, name]() -> Status {
            const SteadyTime give_up = asked.begun + asked.patience;
            if (plan.checkpoint_cmd.empty())
              BILLOW_TRY_VOID(wait_until_written(plan.checkpoint_local, asked.before_ns, give_up));
            else if (!place)
              return fail(Code::conflict, fmt::format("`{}` was not run: {}", plan.checkpoint_cmd,
                                                      place.error().message));
            else
              BILLOW_TRY_VOID(run_hook(
                  {.command = plan.checkpoint_cmd, .place = *place, .patience = asked.patience}));
            return run_user_script(
                {.name = "copying the checkpoint",
                 .script = fmt::format("{}{} | while read old; do rm -rf \"$KEEP/$old\"; done",
                                       keep_script, kept),
                 .env = {"BILLOW_CHECKPOINT_DIR=" + plan.checkpoint_local,
                         "KEEP=" + plan.checkpoint_dir, "NAME=" + name},
                 .identity = plan.identity(),
                 .patience = std::max(give_up - system_clock().steady(), seconds(1))});
          },
          [this, task, begun = asked.begun,
           kept = Checkpoint{plan.checkpoint_dir + "/" + name, at, 0},
           then](Status done) { made(task, begun, kept, std::move(done), then); })
      .has_value();
}

void Checkpointer::made(TaskId task,
                        SteadyTime begun,
                        Checkpoint checkpoint,
                        Status done,
                        const std::function<void()>& then) {
  const SteadyTime now = system_clock().steady();
  if (const auto found = entries_.find(task); found != entries_.end()) {
    found->second.busy = false;
    found->second.next = begun + std::max(found->second.plan.checkpoint_every, now - begun);
  }
  checkpoint.cost_ms = (now - begun).ms();
  if (done)
    callbacks_.event(task_event::Checkpointed{task, std::move(checkpoint)});
  else
    log_warn("task {}: the checkpoint failed: {}", task.value, done.error().message);
  if (then)
    then();
}

}  // namespace billow::agent
