#include "agent/task/task_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>

#include "base/platform.h"
#include "base/text.h"

namespace billow::agent {
namespace {

constexpr char file_acknowledged[] = "acked";
// The head's acknowledgement is stored in the mode of the exit record, which nobody may write then:
// that saves a file. A task without an exit record gets a file.
constexpr mode_t any_write = 0222;
constexpr mode_t readable = 0640, enterable = 0750;  // for a group that may read

using Readers = std::optional<unsigned>;  // a group that may read

Status share(const std::string& path, const Readers& readers, mode_t mode) {
  if (readers &&
      (::lchown(path.c_str(), ::geteuid(), *readers) != 0 || ::chmod(path.c_str(), mode) != 0))
    return fail_errno(path, errno);
  return {};
}

Status write_new(const std::string& path, std::string_view content, const Readers& readers) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd)
    return fail_errno("create " + path, errno);
  BILLOW_TRY_VOID(write_all(fd.get(), content));
  return share(path, readers, readable);
}

bool acknowledged(const std::string& directory) {
  struct stat st {};
  if (::stat((directory + "/" + supervise::file_exit).c_str(), &st) == 0 &&
      (st.st_mode & any_write) == 0)
    return true;
  return file_exists(directory + "/" + file_acknowledged);
}

struct LockState {
  bool held = false;
  int pid = 0;
};

// A lock that is there but cannot be opened (no descriptor is free, the disk fails) says nothing:
// taken for a free one, it would make a running task lost.
Result<LockState> probe_lock(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd && (errno == ENOENT || errno == ENOTDIR))
    return LockState{};
  if (!fd)
    return fail_errno("read " + path, errno);
  LockState state;
  char buffer[32] = {};
  // The lock first: a supervisor writes its pid while it holds it, so a free lock's pid is final.
  state.held = ::flock(fd.get(), LOCK_SH | LOCK_NB) != 0;
  const ssize_t size = ::pread(fd.get(), buffer, sizeof(buffer) - 1, 0);
  if (size < 0)  // taken for no pid, it would let a task that ran be started again
    return fail_errno("read " + path, errno);
  if (size > 0)
    state.pid = std::atoi(buffer);
  return state;
}

}  // namespace

bool is_unreadable(const Error& error) {
  return error.code != Code::not_found && error.code != Code::invalid;
}

Result<TaskDirs> TaskDirs::open(std::string root, std::optional<unsigned> readers) {
  BILLOW_TRY_VOID(make_directories(root, 0711));
  BILLOW_TRY_VOID(share(root, readers, enterable));
  return TaskDirs(std::move(root), readers);
}

// The error is that of mkdir: EEXIST decides that a task is not started again.
Status TaskDirs::make(const std::string& directory) const {
  if (::mkdir(directory.c_str(), 0700) != 0)
    return errno == EEXIST ? fail(Code::conflict, directory + " exists")
                           : fail_errno("create " + directory, errno);
  return share(directory, readers_, enterable);
}

std::string TaskDirs::path(TaskId id) const {
  return root_ + "/" + std::to_string(id.value);
}

Result<NewTask> TaskDirs::create(TaskId id, TaskSpec spec, std::string_view meta) {
  if (!id)
    return fail(Code::invalid, "a task needs an id");
  if (!meta.empty())
    spec.meta = meta;
  const std::string encoded = BILLOW_TRY(encode_spec(spec));
  NewTask task{id, path(id), {}};
  if (const Status made = make(task.path); !made)
    return made.error().code == Code::conflict
               ? fail(Code::conflict,
                      fmt::format("task {} was started on this node before", id.value))
               : pass(made.error());
  const std::string lock_path = task.path + "/" + supervise::file_lock;
  task.lock = Fd(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!task.lock)
    return fail_errno("create " + lock_path, errno);
  if (::flock(task.lock.get(), LOCK_EX | LOCK_NB) != 0)
    return fail_errno("lock " + lock_path, errno);
  BILLOW_TRY_VOID(share(lock_path, readers_, readable));
  BILLOW_TRY_VOID(write_new(task.path + "/" + supervise::file_spec, encoded, readers_));
  return task;
}

Status TaskDirs::record_end(TaskId id, const supervise::ExitRecord& record) {
  const std::string dir = path(id);
  if (const Status made = make(dir); !made)
    return made.error().code == Code::conflict ? Status{} : pass(made.error());
  const std::string file = dir + "/" + supervise::file_exit;
  BILLOW_TRY_VOID(
      write_file_atomic(file, {reinterpret_cast<const char*>(&record), sizeof(record)}, 0600));
  return share(file, readers_, readable);
}

Result<FoundTask> TaskDirs::find(TaskId id) const {
  const std::string dir = path(id);
  struct stat info {};
  if (::lstat(dir.c_str(), &info) != 0)
    return errno == ENOENT
               ? fail(Code::not_found, fmt::format("task {} is not on this node", id.value))
               : fail_errno("read " + dir, errno);
  FoundTask found;
  found.id = id;
  const LockState lock = BILLOW_TRY(probe_lock(dir + "/" + supervise::file_lock));
  found.supervisor_pid = lock.pid;
  // It says until when the task may run, and which GPUs it has.
  auto spec = read_file(dir + "/" + supervise::file_spec, supervise::spec_bytes_max);
  if (spec)
    found.meta = meta_of_spec(*spec);
  else if (is_unreadable(spec.error()))
    return std::unexpected(spec.error());
  found.acknowledged = acknowledged(dir);
  if (lock.held) {
    found.presence = TaskPresence::supervised;
    return found;
  }
  if (auto exit = read_exit(dir)) {
    found.presence = TaskPresence::ended;
    found.exit = *exit;
  } else if (is_unreadable(exit.error())) {
    return std::unexpected(exit.error());
  } else {
    found.presence = lock.pid == 0 ? TaskPresence::never_started : TaskPresence::lost;
  }
  return found;
}

Result<std::vector<FoundTask>> TaskDirs::list() const {
  std::vector<FoundTask> out;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(root_.c_str()), &::closedir);
  if (!dir)
    return fail_errno("read " + root_, errno);
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(dir.get());
    if (!entry && errno != 0)
      return fail_errno("read " + root_, errno);  // the rest of the list is not known
    if (!entry)
      break;
    const auto id = parse_int(entry->d_name, 1, INT64_MAX);
    if (!id || std::to_string(*id) != entry->d_name)
      continue;
    auto found = find(TaskId(static_cast<std::uint64_t>(*id)));
    if (found)
      out.push_back(std::move(*found));
    else if (is_unreadable(found.error()))
      return std::unexpected(found.error());
  }
  std::sort(out.begin(), out.end(),
            [](const FoundTask& a, const FoundTask& b) { return a.id < b.id; });
  return out;
}

Status TaskDirs::acknowledge(TaskId id) {
  if (::chmod((path(id) + "/" + supervise::file_exit).c_str(),
              (readers_ ? readable : 0600) & ~any_write) == 0)
    return {};
  const std::string file = path(id) + "/" + file_acknowledged;
  Fd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  if (!fd)
    return fail_errno("create " + file, errno);
  return share(file, readers_, readable);
}

// Renamed first: a half-removed directory must not look like a task that never ran.
Status TaskDirs::remove(TaskId id) {
  const std::string dir = path(id);
  if (!file_exists(dir))
    return {};
  if (BILLOW_TRY(probe_lock(dir + "/" + supervise::file_lock)).held)
    return fail(Code::conflict, fmt::format("task {} still has a supervisor", id.value),
                "stop it first");
  const std::string doomed = root_ + "/removed." + std::to_string(id.value);
  if (::rename(dir.c_str(), doomed.c_str()) != 0) {
    // An earlier removal did not finish.
    BILLOW_TRY_VOID(remove_tree(doomed));
    if (::rename(dir.c_str(), doomed.c_str()) != 0)
      return fail_errno("remove " + dir, errno);
  }
  return remove_tree(doomed);
}

bool supervisor_alive(const std::string& directory) {
  const auto lock = probe_lock(directory + "/" + supervise::file_lock);
  return !lock || lock->held;
}

Result<supervise::ExitRecord> read_exit(const std::string& directory) {
  const std::string content =
      BILLOW_TRY(read_file(directory + "/" + supervise::file_exit, 64 << 10));
  supervise::ExitRecord record{};
  // A newer supervisor may have written more, an older one less: read the common beginning.
  std::memcpy(&record, content.data(), std::min(content.size(), sizeof(record)));
  if (content.size() < offsetof(supervise::ExitRecord, detail) ||
      record.magic != supervise::exit_magic)
    return fail(Code::invalid, directory + ": the exit record is damaged");
  record.detail[sizeof(record.detail) - 1] = 0;
  return record;
}

}  // namespace billow::agent
