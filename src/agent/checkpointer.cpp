#include "agent/checkpointer.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"

namespace billow::agent {
namespace {

constexpr Duration patience_max = minutes(10);
constexpr Duration quiet_for = milliseconds(700);  // files that a signal brought about are taken for complete when nothing changed for so long
constexpr int kept = 2;                            // complete ones that are kept: the newest, and one before in case it is being read

// The newest change of anything in a directory, down to a few levels; 0 where it is empty.
std::int64_t newest_change_ns(const std::string& path, int depth = 4) {
  std::int64_t newest = 0;
  DIR* dir = ::opendir(path.c_str());
  if (!dir) return 0;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    struct stat info{};
    if (::lstat((path + "/" + name).c_str(), &info) != 0) continue;
    newest = std::max<std::int64_t>(newest, info.st_mtim.tv_sec * 1'000'000'000ll + info.st_mtim.tv_nsec);
    if (S_ISDIR(info.st_mode) && depth > 0) newest = std::max(newest, newest_change_ns(path + "/" + name, depth - 1));
  }
  ::closedir(dir);
  return newest;
}

Status wait_until_written(const std::string& dir, std::int64_t before_ns, SteadyTime give_up) {
  std::int64_t last = -1;
  SteadyTime since = system_clock().steady();
  for (;;) {
    const std::int64_t now_ns = newest_change_ns(dir);
    const SteadyTime now = system_clock().steady();
    if (now_ns != last) {
      last = now_ns;
      since = now;
    }
    if (last > before_ns && now - since >= quiet_for) return {};
    if (now > give_up) return fail(Code::timed_out, "the job left no files after the signal");
    ::poll(nullptr, 0, 50);
  }
}

// Copied under a name that begins with a dot, renamed when complete, older ones removed: as the job's user, with its rights.
constexpr const char* keep_script = R"(set -e
mkdir -p "$KEEP"
rm -rf "$KEEP"/.new-*
cp -R "$BILLOW_CHECKPOINT_DIR" "$KEEP/.new-$NAME"
sync -f "$KEEP/.new-$NAME" 2>/dev/null || sync
mv "$KEEP/.new-$NAME" "$KEEP/$NAME"
ls "$KEEP" | sort -n | head -n -)";

}  // namespace

Checkpointer::Checkpointer(net::Loop& loop, Callbacks callbacks)
    : loop_(loop), callbacks_(std::move(callbacks)), timer_(loop.every(milliseconds(500), [this] { tick(); })), workers_(loop, {.threads = 16, .queue_max = 4096}) {}

Status Checkpointer::prepare(TaskPlan& plan, TaskId task, JobId job, const std::string& owner, Environment& env) {
  if (plan.checkpoint_every.ns <= 0) return {};
  const std::string local = fmt::format("/tmp/billow-checkpoint-{}-{}", owner, task.value);
  // A name that anybody can guess, where anybody can write: what is there already is somebody else's, and is not handed to this job.
  if (::mkdir(local.c_str(), 0700) != 0) {
    (void)remove_tree(local);
    if (::mkdir(local.c_str(), 0700) != 0) return fail_errno("make " + local, errno);
  }
  const Fd dir(::open(local.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!dir) return fail_errno("open " + local, errno);
  if (plan.other_user && ::fchown(dir.get(), plan.uid, plan.gid) != 0) return fail_errno("give " + local + " to the job's user", errno);
  env["BILLOW_CHECKPOINT_DIR"] = local;
  plan.checkpoint_local = local;
  plan.checkpoint_dir += fmt::format("/job-{}", job.value);
  return {};
}

void Checkpointer::began(TaskId task, const TaskPlan& plan) {
  if (plan.checkpoint_every.ns <= 0) return;
  entries_[task] = {plan, system_clock().steady() + plan.checkpoint_every, false};
}

void Checkpointer::ended(TaskId task) {
  const auto found = entries_.find(task);
  if (found == entries_.end()) return;
  Hook clean = found->second.plan.hook("rm -rf \"$BILLOW_CHECKPOINT_DIR\"");
  entries_.erase(found);
  (void)workers_.submit([clean] { (void)run_hook(clean); return 0; }, [](int) {});
}

void Checkpointer::tick() {
  const SteadyTime now = system_clock().steady();
  for (auto& [task, entry] : entries_)
    if (!entry.busy && now >= entry.next && callbacks_.runs(task)) make(task, patience_max, {});
}

void Checkpointer::last(TaskId task, Duration patience, std::function<void()> then) {
  const auto found = entries_.find(task);
  if (found == entries_.end() || found->second.busy || !callbacks_.runs(task)) return then();
  // Its time runs from here, not from when a thread is free: other people's commands may hang.
  auto rest = std::make_shared<std::function<void()>>(std::move(then));
  const auto once = [rest] { if (const auto go_on = std::exchange(*rest, nullptr)) go_on(); };
  found->second.give_up = loop_.after(patience + seconds(1), [this, once] { loop_.post(once); });
  make(task, patience, once);
}

void Checkpointer::make(TaskId task, Duration patience, std::function<void()> then) {
  Entry& entry = entries_.at(task);
  entry.busy = true;
  const TaskPlan plan = entry.plan;
  const std::int64_t before_ns = newest_change_ns(plan.checkpoint_local);
  const SteadyTime begun = system_clock().steady();
  if (plan.checkpoint_signal > 0) callbacks_.signal(task, plan.checkpoint_signal);
  const WallTime at = system_clock().wall();
  const std::string name = fmt::format("{}", at.ns / 1'000'000);
  const Status queued = workers_.submit([plan, before_ns, begun, patience, name]() -> Status {
    const SteadyTime give_up = begun + patience;
    if (!plan.checkpoint_cmd.empty()) {
      Hook ask = plan.hook(plan.checkpoint_cmd);
      ask.patience = patience;
      BILLOW_TRY_VOID(run_hook(ask));
    } else {
      BILLOW_TRY_VOID(wait_until_written(plan.checkpoint_local, before_ns, give_up));
    }
    Hook keep = plan.hook(fmt::format("{}{} | while read old; do rm -rf \"$KEEP/$old\"; done", keep_script, kept));
    keep.env.push_back("KEEP=" + plan.checkpoint_dir);
    keep.env.push_back("NAME=" + name);
    keep.patience = std::max(give_up - system_clock().steady(), seconds(1));
    return run_hook(keep);
  }, [this, task, plan, begun, at, name, then](Status made) {
    const SteadyTime now = system_clock().steady();
    if (const auto found = entries_.find(task); found != entries_.end()) {
      found->second.busy = false;
      found->second.next = begun + std::max(plan.checkpoint_every, now - begun);
    }
    if (made) callbacks_.event(task_event::Checkpointed{task, {plan.checkpoint_dir + "/" + name, at, (now - begun).ms()}});
    else log_warn("task {}: no checkpoint: {}", task.value, made.error().message);
    if (then) then();
  });
  if (queued) return;
  entry.busy = false;
  if (then) then();
}

}  // namespace billow::agent
