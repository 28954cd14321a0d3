// Starting a task: what the supervisor is told to run, and where that could not be made, how the
// task ends before it began.
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>

#include "agent/content/file_service.h"
#include "agent/content/residue.h"
#include "agent/isolate/look_as_user.h"
#include "agent/isolate/secret_files.h"
#include "agent/isolate/users.h"
#include "agent/reach/keepalive.h"
#include "agent/task/gang.h"
#include "agent/task/task_link.h"
#include "agent/task/task_status.h"
#include "base/crypto.h"
#include "base/limits.h"
#include "base/log.h"
#include "core/model/surroundings.h"
#include "core/wire/codec.h"
#include "gpu/topology.h"

namespace billow::agent {
namespace {

// Of the job's user, who writes into it; others cannot look into it, but can pass through to their
// own.
Result<std::string> make_work_dir(const std::string& work_dir,
                                  TaskId task,
                                  const UserRecord& user) {
  BILLOW_TRY_VOID(make_directories(work_dir, 0711));
  const std::string path = work_path(work_dir, task);
  if (::mkdir(path.c_str(), 0700) != 0)
    return fail_errno(path, errno);
  if (::geteuid() == 0 && ::lchown(path.c_str(), user.identity.uid, user.identity.gid) != 0)
    return fail_errno(path, errno);
  return path;
}

// On the node's own file system a whole directory is shown, where there is none or an empty one: a
// file in another could not be shown without hiding what else lies there. Whether there is one is
// for the job's user to see, not for the agent to tell.
Status add_secret_directory(const SecretFiles::Written& secret,
                            const std::optional<Identity>& user,
                            std::vector<BoundVolume>& mounts) {
  const std::string at = secret.wanted_directory();
  const BoundVolume mount{.source = secret.directory(), .path = at, .read_only = true};
  if (std::find(mounts.begin(), mounts.end(), mount) != mounts.end())
    return {};
  const auto refuse = [&](std::string_view why) {
    return fail(
        Code::conflict,
        fmt::format("secret {} cannot be put at {}: {}. Choose another directory, such as "
                    "/run/secrets/{}, or --secret {}:file, whose path is in ${}",
                    secret.name, secret.wanted, why, secret.name, secret.name, secret.variable()));
  };
  if (at.empty() ||
      std::any_of(mounts.begin(), mounts.end(), [&](const BoundVolume& m) { return m.path == at; }))
    return refuse(fmt::format("{} is there already and not empty", at.empty() ? "/" : at));
  switch (look_as_user(user, at)) {
    case Sight::nothing:
    case Sight::empty:
      break;
    case Sight::used:
      return refuse(fmt::format("{} is there already and not empty", at));
    case Sight::closed:
      return refuse(fmt::format("the job's user may not look into what is above {}", at));
  }
  mounts.push_back(mount);
  return {};
}

// From the inside out: the job's command, the ranks of a gang, the room. A room with another root
// is made for each rank, because Billow's own programs are outside of it; a tree at its own path is
// one for all of them.
std::vector<std::string> command_of(const Start& start, const Rooms::Room* room) {
  const std::vector<std::string> enter = {executable_dir() + "/billow", "box", "--"};
  const auto before = [](std::vector<std::string> argv, const std::vector<std::string>& words) {
    argv.insert(argv.begin(), words.begin(), words.end());
    return argv;
  };
  if (!room)
    return gang_argv(start);
  if (!room->plan.root)
    return before(gang_argv(start), enter);
  Start inner = start;
  inner.argv = before(start.argv, enter);
  return gang_argv(inner);
}

}  // namespace

Result<TaskSpec> Tasks::spec_of(const Start& start,
                                SteadyTime paid_until,
                                const Rooms::Room* room,
                                TaskCgroup& group,
                                TaskPlan& plan) {
  for (const GivenSecret& secret : start.secrets)
    if (secret.variable.empty() && secret.file.empty())
      return fail(Code::conflict, secret.value);  // why the head could not give it
  TaskSpec spec;
  spec.argv = command_of(start, room);
  spec.cwd = start.cwd.empty() ? "/" : start.cwd;
  const UserRecord user = BILLOW_TRY(
      resolve_job_user({.unix_user = start.unix_user, .allow_root = start.unix_user == "root"}));
  if (const auto files = start.env.find(surroundings::files); files != start.env.end()) {
    if (options_.files_socket.empty())
      return fail(Code::unavailable, "files cannot follow a job to this node: see the agent's log");
    spec.cwd = BILLOW_TRY(make_work_dir(options_.work_dir, start.task, user));
    spec.argv.insert(spec.argv.begin(), {executable_dir() + "/billow", "stage", "--"});
  }
  const UserRecord self = BILLOW_TRY(current_user());
  if (user.identity.uid != self.identity.uid) {
    spec.identity = user.identity;
    spec.no_new_privs = true;
  }
  Environment env = start.env;
  if (room && room->plan.root) {
    // Another root has its own programs and users, and need not have this directory.
    if (!file_exists(spec.cwd))
      spec.cwd = "/";
  } else {
    env.try_emplace("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    env["HOME"] = user.home;
    env["USER"] = env["LOGNAME"] = user.name;
  }
  std::vector<GpuInfo> cards;
  std::vector<int> granted;
  std::vector<std::string> migs;
  for (const GpuGrant& grant : start.gpus) {
    const auto index = static_cast<std::size_t>(grant.gpu);
    if (index >= options_.gpus.size())
      return fail(Code::conflict, fmt::format("this node has no GPU {}", grant.gpu));
    cards.push_back(options_.gpus[index]);
    granted.push_back(grant.gpu);
    if (grant.mig_start >= 0)
      migs.push_back(BILLOW_TRY(migs_.claim(start.task, cards.back(), grant)));
  }
  for (const auto& [name, value] : visibility({.gpus = cards, .mig_uuids = migs}).env)
    env[name] = value;
  if (!start.gpus.empty()) {
    std::string indices;
    for (int gpu : granted)
      indices += (indices.empty() ? "" : ",") + std::to_string(gpu);
    env["BILLOW_GPUS"] = indices;
    env["BILLOW_GPU_MILLI"] = std::to_string(start.gpus.front().share.milli);
  }
  if (const std::string hosts = write_hostfile(temporary_, start); !hosts.empty())
    env["BILLOW_HOSTFILE"] = hosts;
  for (const char* name : {"BILLOW_VAULT_SOCKET", "BILLOW_JOB_TOKEN", "BILLOW_TASK_KEY"})
    env.erase(name);  // of a job that submits another
  plan = suspender_.prepare(start, cards, !options_.sim_state_dir.empty(), env);
  plan.mig_uuids = migs;
  if (spec.identity) {
    plan.other_user = true;
    plan.uid = spec.identity->uid;
    plan.gid = spec.identity->gid;
    plan.groups = spec.identity->groups;
  }
  BILLOW_TRY_VOID(Checkpointer::prepare(plan, start.task, start.job, temporary_, env));
  BILLOW_TRY_VOID(add_file_variables(
      start, {options_.files_socket, options_.work_dir, options_.data_dir}, env));
  if (!options_.keepalive_socket.empty())
    env[net::keepalive_variable] = options_.keepalive_socket;
  const bool other_root = room && room->plan.root;
  const auto secrets =
      BILLOW_TRY(secret_files_.write(start.task, start.surroundings.secrets, start.secrets, user));
  std::vector<BoundVolume> mounts = start.volumes;
  for (const SecretFiles::Written& secret : secrets) {
    const std::string place = !secret.wanted.empty() ? secret.wanted
                              : other_root           ? SecretFiles::usual_place(secret.name)
                                                     : secret.file;
    env[secret.variable()] = place;
    if (!other_root && !secret.wanted.empty())
      BILLOW_TRY_VOID(add_secret_directory(secret, spec.identity, mounts));
  }
  for (const auto& [name, value] : env)
    spec.env.push_back(name + "=" + value);
  spec.env.push_back(task_key(owner_, start.task));
  if (room) {
    std::vector<std::uint32_t> numbers;
    for (const GpuGrant& grant : start.gpus)
      numbers.push_back(card_index(grant));
    BILLOW_TRY_VOID(rooms_.furnish(*room, start, numbers, secrets, spec));
  }
  if (start.pty)
    spec.terminal = TerminalSize{start.rows, start.cols};
  spec.stdin_open = start.use_stdin;
  spec.time_limit = start.time_limit;
  spec.paid_until = paid_until;
  // A fenced task must be gone soon after its fence: the head counts on it.
  spec.stop_grace =
      start.fenced ? std::min(start.stop_grace, limits::fence_grace) : start.stop_grace;
  std::vector<std::vector<std::string>> files;
  for (const GpuInfo& gpu : options_.gpus)
    files.push_back(gpu.device_files);
  // A job that has the node to itself has nothing between it and the hardware; its control group
  // only tells what belongs to it.
  if (options_.sim_state_dir.empty() && !start.bare)
    sandbox_.apply_to(spec, device_nodes(files), granted);
  // In another root they are the room's to mount.
  if (!other_root)
    BILLOW_TRY_VOID(sandbox_.bind_to(spec, mounts));
  const std::int64_t processes = start.surroundings.processes_max;
  auto made = cgroups_.create(
      start.task,
      {.cpu_milli = start.bare ? 0 : start.cpu_milli,
       .mem_mib = start.bare ? 0 : start.mem_mib,
       .pids_max = processes > 0 || start.bare ? processes : limits::task_processes_max});
  if (made) {
    group = std::move(*made);
    group.apply_to(spec);
  } else {
    log_warn("task {}: no control group: {}", start.task.value, made.error().message);
  }
  return spec;
}

// Recorded like any other end: after a crash of this agent it must still be known, and its log is
// empty rather than missing.
void Tasks::end_unstarted(TaskId task, ExitStatus exit) {
  migs_.release(task);
  rooms_.ended(task);
  secret_files_.remove(task);
  TaskStatus status;
  status.task = task;
  status.state = TaskState::ended;
  status.started_at = status.ended_at = system_clock().wall();
  status.exit = std::move(exit);
  perform(effect::RecordEnd{status});
  callbacks_.event(task_event::Ended{status});
  advanced(task);
}

void Tasks::perform(const effect::StartTask& e) {
  if (const Status noted = note_residue(options_.data_dir, e.start);
      !noted)  // what cannot be found again may not be brought
    return end_unstarted(e.start.task, {.kind = ExitKind::exec_failed,
                                        .code = 125,
                                        .signal = 0,
                                        .message = noted.error().message});
  if (!Rooms::needed(e.start))
    return begin(e, nullptr);
  const auto user =
      resolve_job_user({.unix_user = e.start.unix_user, .allow_root = e.start.unix_user == "root"});
  if (!user)
    return end_unstarted(
        e.start.task,
        {.kind = ExitKind::exec_failed, .code = 126, .signal = 0, .message = user.error().message});
  rooms_.prepare(e.start, *user, [this, e](Result<Rooms::Room> room) {
    if (room)
      return begin(e, &*room);
    const Error& why = room.error();
    end_unstarted(e.start.task,
                  {.kind = ExitKind::exec_failed,
                   .code = 125,
                   .signal = 0,
                   .message = why.hint.empty() ? why.message
                                               : fmt::format("{} ({})", why.message, why.hint)});
  });
}

void Tasks::begin(const effect::StartTask& e, const Rooms::Room* room) {
  const TaskId id = e.start.task;
  const auto could_not = [&](const Error& error) {
    end_unstarted(
        id, {.kind = ExitKind::exec_failed, .code = 126, .signal = 0, .message = error.message});
  };
  TaskCgroup group;
  TaskPlan plan;
  auto spec = spec_of(e.start, e.ends_at, room, group, plan);
  if (!spec)
    return could_not(spec.error());
  plan.env = spec->env;
  plan.cwd = spec->cwd;
  const TaskMeta meta{e.start.fenced, e.paid_until, e.start.gpus, e.start.bare, e.start.port};
  auto made = dirs_.create(id, *spec, wire::to_json_text(meta));
  if (!made) {
    if (made.error().code != Code::conflict) {
      suspender_.ended(id);
      return could_not(made.error());
    }
    // It was started in an earlier life; the core knows it from recovery, so this is a start that
    // crossed it.
    log_warn("task {} was started before", id.value);
    return;
  }
  const auto gang = e.start.env.find("BILLOW_ADDRESSES");
  count_egress(id, group.v2, gang == e.start.env.end() ? std::string() : gang->second);
  born_here_.insert(id);
  std::string secrets;
  for (const GivenSecret& secret : e.start.secrets)
    if (std::string value; !secret.variable.empty() && base64_decode(secret.value, value))
      (((secrets += secret.variable) += '=') += value) += '\0';
  auto launched = launcher_.launch(std::move(*made), secrets);
  if (!launched) {
    (void)all_sent(id, group.v2);
    suspender_.ended(id);
    return could_not(launched.error());
  }
  checkpointer_.began(id, plan);
  suspender_.began(id, std::move(plan));
  watch(id, std::move(*launched));
  Link* l = link(id);
  l->cgroup = group.v2;
  l->gpus = e.start.gpus;
  watch_port(id, e.start.port);
}

void Tasks::perform(const effect::RecordEnd& e) {
  const Status recorded = dirs_.record_end(e.status.task, record_of(e.status));
  if (!recorded)
    log_warn("task {}: {}", e.status.task.value, recorded.error().message);
}

}  // namespace billow::agent
