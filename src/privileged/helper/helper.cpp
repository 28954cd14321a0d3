#include "privileged/helper/helper.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "agent/isolate/secret_files.h"
#include "agent/observe/proc_stats.h"
#include "base/crypto.h"
#include "base/files/remove_tree.h"
#include "base/log.h"
#include "base/text.h"
#include "privileged/content.h"
#include "process/sealed_memory_linux.h"

namespace billow::privileged {
namespace {

using agent::FoundTask;
using agent::TaskPresence;

constexpr std::size_t secret_bytes_max = 1 << 20;
constexpr int leftover_rounds_max = 20;
constexpr Duration connect_patience = milliseconds(20);
constexpr std::size_t name_bytes = 16;
constexpr std::size_t removals_max = 16;  // at a time; an agent may end any number of tasks

std::string secrets_prefix(std::uint64_t task) {
  return fmt::format("secrets-{}-", task);
}
std::string tmp_name(std::uint64_t task) {
  return fmt::format("{}.tmp", task);
}

// In a unit of systemd the helper may mount nothing itself; jobs run in units that may.
agent::Sandbox sandbox_for(const Helper::Options& options) {
  if (!options.units)
    return agent::Sandbox::detect();
  return agent::Sandbox::of_helper(true, "");
}

Result<Fd> released(Result<agent::SupervisorLink> link) {
  if (!link)
    return pass(link.error());
  return link->release();
}

}  // namespace

Helper::Helper(Options options,
               agent::TaskDirs dirs,
               agent::Launcher launcher,
               agent::OwnPlace work,
               agent::OwnPlace memory,
               agent::Sandbox sandbox)
    : options_(std::move(options)),
      owner_("p" + sha256_hex(options_.state_dir).substr(0, 11)),
      dirs_(std::move(dirs)),
      launcher_(std::move(launcher)),
      work_(std::move(work)),
      memory_(std::move(memory)),
      cgroups_(agent::Cgroups::detect({.owner = owner_})),
      sandbox_(std::move(sandbox)),
      network_guard_(agent::NetworkGuard::create()),
      units_(owner_, options_.socket) {}

Result<std::unique_ptr<Helper>> Helper::create(Options options) {
  if (options.agent_uid == 0)
    return fail(Code::invalid, "the agent of the helper would be root",
                "name another account with --agent");
  BILLOW_TRY_VOID(make_directories(options.state_dir, 0711));
  BILLOW_TRY(agent::open_own_directory(options.state_dir));
  if (::chmod(options.state_dir.c_str(), 0711) != 0)  // regardless of the umask
    return fail_errno(options.state_dir, errno);
  BILLOW_TRY(agent::load_node_policy(options.policy_file));
  auto dirs = BILLOW_TRY(agent::TaskDirs::open(options.state_dir + "/tasks", options.agent_gid));
  auto launcher = BILLOW_TRY(agent::Launcher::create({}));
  auto work = BILLOW_TRY(agent::OwnPlace::open({options.state_dir, "/var/tmp", {}}));
  auto memory =
      BILLOW_TRY(agent::OwnPlace::open({options.state_dir, agent::SecretFiles::place(), {}}));
  agent::Sandbox sandbox = sandbox_for(options);
  return std::unique_ptr<Helper>(new Helper(std::move(options), std::move(dirs),
                                            std::move(launcher), std::move(work), std::move(memory),
                                            std::move(sandbox)));
}

Helper::Answer Helper::answer(unsigned peer_uid, const Message& message) {
  const auto request = read_request(message.text);
  if (!request)
    return {refusal(request.error()), {}};
  // Root asks for one thing only, and the agent never for that.
  const bool may = request->verb == Verb::take ? peer_uid == 0 : peer_uid == options_.agent_uid;
  if (!may)
    return {refusal(Error(Code::forbidden, fmt::format("uid {} may not ask to {}", peer_uid,
                                                       enum_name(request->verb)))),
            {}};
  auto done = perform(*request, message.descriptors);
  if (done)
    return std::move(*done);
  if (done.error().code == Code::forbidden || done.error().code == Code::invalid)
    log_warn("refused to {} task {}: {}", enum_name(request->verb), request->task,
             done.error().message);
  return {refusal(done.error()), {}};
}

Result<Helper::Answer> Helper::perform(const Request& request, const std::vector<Fd>& given) {
  const TaskId task(request.task);
  const auto plain = [](Result<Reply> reply) -> Result<Answer> {
    if (!reply)
      return pass(reply.error());
    return Answer{std::move(*reply), {}};
  };
  const auto nothing = [](const Status& done) -> Result<Answer> {
    if (!done)
      return pass(done.error());
    return Answer{};
  };
  switch (request.verb) {
    case Verb::hello:
      return Answer{hello(), {}};
    case Verb::prepare:
      return plain(prepare(request));
    case Verb::secret:
      return plain(add_secret(request, given));
    case Verb::start:
      return start(request, given);
    case Verb::connect: {
      Answer out;
      out.descriptors.push_back(
          BILLOW_TRY(released(launcher_.connect(dirs_.path(task), connect_patience))));
      return out;
    }
    case Verb::record:
      return nothing(record(task, given));
    case Verb::acknowledge:
      BILLOW_TRY_VOID(not_running(task));
      return nothing(dirs_.acknowledge(task));
    case Verb::end:
      return plain(end(task));
    case Verb::clear:
      return nothing(clear(task));
    case Verb::forget:
      return nothing(dirs_.remove(task));
    case Verb::signal:
      return plain(signal(request));
    case Verb::take: {
      TaskUnits::Taken taken = BILLOW_TRY(units_.take(task));
      Answer out{.reply = {}, .descriptors = std::move(taken.descriptors)};
      out.reply.path = taken.directory;
      out.reply.secrets = taken.secrets;
      out.reply.redacted = taken.redacted;
      return out;
    }
  }
  return fail(Code::internal, "a verb without a meaning");
}

Reply Helper::hello() {
  sweep();
  Reply reply;
  reply.tasks = dirs_.root();
  reply.groups_owner = owner_;
  reply.private_tmp = sandbox_.makes_private_tmp();
  reply.private_dev = sandbox_.kind() == agent::SandboxKind::private_dev;
  reply.seen_processes = sandbox_.seen_processes();
  return reply;
}

Result<Reply> Helper::add_secret(const Request& request, const std::vector<Fd>& given) {
  const auto found = prepared_.find(request.task);
  if (found == prepared_.end())
    return fail(Code::conflict, fmt::format("task {} is not prepared", request.task));
  if (given.size() != 1)
    return fail(Code::invalid, "a secret comes as one descriptor");
  const std::string value = BILLOW_TRY(read_content(given.front(), secret_bytes_max));
  std::string& memory = found->second.memory;
  // Nobody can guess the name, also not other jobs of the account. The job gets the directory when
  // it starts; until then nobody else can write there.
  if (memory.empty()) {
    const std::string name = secrets_prefix(request.task) + hex(random_bytes(name_bytes));
    BILLOW_TRY(memory_.directory({.relative = name,
                                  .mode = 0700,
                                  .owner = std::nullopt,
                                  .existing = agent::OwnPlace::If::exists_fail}));
    memory = name;
  }
  const Fd directory = BILLOW_TRY(memory_.directory({.relative = memory}));
  const Fd file(::openat(directory.get(), request.name.c_str(),
                         O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0400));
  if (!file)
    return fail_errno("create the file of secret " + request.name, errno);
  BILLOW_TRY_VOID(write_all(file.get(), value));
  const agent::Identity& user = found->second.user.identity;
  if (::fchown(file.get(), user.uid, user.gid) != 0)
    return fail_errno("give the file of secret " + request.name, errno);
  Reply reply;
  reply.memory = memory_.below(memory);
  reply.path = reply.memory + "/" + request.name;
  return reply;
}

Result<Helper::Answer> Helper::start(const Request& request, const std::vector<Fd>& given) {
  const TaskId task(request.task);
  const auto found = prepared_.find(request.task);
  if (found == prepared_.end())
    return fail(Code::conflict, fmt::format("task {} is not prepared", request.task));
  if (given.size() != 3)
    return fail(Code::invalid, "a start comes with three descriptors: order, variables, texts");
  Prepared& prepared = found->second;
  const Order order = BILLOW_TRY(read_order(BILLOW_TRY(read_content(given[0], content_bytes_max))));
  const std::string secrets = BILLOW_TRY(read_content(given[1], content_bytes_max));
  const std::string redacted = BILLOW_TRY(read_content(given[2], content_bytes_max));
  agent::TaskSpec spec = BILLOW_TRY(spec_of(order, prepared));
  BILLOW_TRY_VOID(close_devices(task, spec, prepared));
  prepared.group.apply_to(spec);
  if (spec.cgroup_memory.empty())
    spec.cgroup_memory = cgroups_.shared_oom_counter();
  if (!prepared.memory.empty()) {
    const Fd directory = BILLOW_TRY(memory_.directory({.relative = prepared.memory}));
    const agent::Identity& user = prepared.user.identity;
    if (::fchown(directory.get(), user.uid, user.gid) != 0)
      return fail_errno("give the directory of the secrets", errno);
  }
  Answer out;
  out.descriptors.push_back(BILLOW_TRY(launch(task, spec, order.meta, secrets, redacted)));
  prepared_.erase(found);
  return out;
}

Result<Fd> Helper::launch(TaskId task,
                          const agent::TaskSpec& spec,
                          const std::string& meta,
                          std::string_view secrets,
                          std::string_view redacted) {
  agent::NewTask made = BILLOW_TRY(dirs_.create(task, spec, meta));
  if (!options_.units)
    return released(launcher_.launch(std::move(made), secrets, redacted));
  Fd memory, hidden;
  if (!secrets.empty())
    memory = BILLOW_TRY(process::sealed_memory("secrets", secrets));
  if (!redacted.empty())
    hidden = BILLOW_TRY(process::sealed_memory("redacted", redacted));
  return units_.start(std::move(made), std::move(memory), std::move(hidden));
}

Status Helper::record(TaskId task, const std::vector<Fd>& given) {
  if (given.size() != 1)
    return fail(Code::invalid, "an exit record comes as one descriptor");
  const std::string bytes = BILLOW_TRY(read_content(given.front(), 64 << 10));
  supervise::ExitRecord record{};
  if (bytes.size() != sizeof record)
    return fail(Code::invalid, "the exit record has another size");
  std::memcpy(&record, bytes.data(), sizeof record);
  if (record.magic != supervise::exit_magic || record.bytes != sizeof record)
    return fail(Code::invalid, "the exit record is damaged");
  record.detail[sizeof record.detail - 1] = 0;
  return dirs_.record_end(task, record);
}

// Once its exit record is there no process of the job is left, even if its supervisor has not quite
// ended.
Status Helper::not_running(TaskId task) const {
  const auto found = dirs_.find(task);
  if (!found)
    return found.error().code == Code::not_found ? Status{} : pass(found.error());
  if (found->presence == TaskPresence::supervised && !agent::read_exit(dirs_.path(task)))
    return fail(Code::conflict, fmt::format("task {} runs", task.value), "stop it first");
  return {};
}

Result<Reply> Helper::end(TaskId task) {
  BILLOW_TRY_VOID(not_running(task));
  const agent::TaskCgroup group = cgroups_.find(task);
  std::vector<std::string> directories = group.v1;
  if (!group.v2.empty())
    directories.push_back(group.v2);
  Reply reply;
  for (int round = 0; round < leftover_rounds_max; ++round) {
    std::uint32_t reached = 0;
    for (const std::string& directory : directories)
      for (const int pid : agent::cgroup_pids(directory))
        if (pid > 1 && ::kill(pid, SIGKILL) == 0)
          ++reached;
    reply.signalled += reached;
    if (reached == 0)
      break;
    ::usleep(2000);
  }
  return reply;
}

Status Helper::clear(TaskId task) {
  BILLOW_TRY_VOID(not_running(task));
  prepared_.erase(task.value);
  for (const std::string& name : {tmp_name(task.value), std::to_string(task.value)})
    if (file_exists(work_.below(name)))
      remove_later(work_, name);
  remove_named(memory_, secrets_prefix(task.value));
  const agent::TaskCgroup group = cgroups_.find(task);
  return group.empty() ? Status{} : cgroups_.remove(group);
}

// The process is held before it is looked at, so that its number cannot become another's.
Result<Reply> Helper::signal(const Request& request) {
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, request.pid, 0)));
  if (!process)
    return fail_errno(fmt::format("find process {}", request.pid), errno);
  const std::string group = cgroups_.find(TaskId(request.task)).v2;
  const auto pids = group.empty() ? std::vector<int>{} : agent::cgroup_pids(group);
  if (std::ranges::find(pids, request.pid) == pids.end())
    return fail(Code::forbidden,
                fmt::format("process {} does not belong to task {}", request.pid, request.task));
  if (::syscall(SYS_pidfd_send_signal, process.get(), request.number, nullptr, 0) != 0)
    return fail_errno(fmt::format("signal process {}", request.pid), errno);
  Reply reply;
  reply.signalled = 1;
  return reply;
}

// What ended while no agent ran, or while this helper did not.
void Helper::sweep() {
  std::error_code failed;
  const auto each = [&](const agent::OwnPlace& place, std::string_view before) {
    DIR* dir = ::opendir(place.path().c_str());
    if (!dir)
      return;
    std::vector<std::string> stale;
    while (const dirent* entry = ::readdir(dir)) {
      const std::string name = entry->d_name;
      if (name.starts_with("gone.")) {
        stale.push_back(name);
        continue;
      }
      if (!name.starts_with(before))
        continue;
      const std::string rest = name.substr(before.size());
      const auto number = parse_int(rest.substr(0, rest.find_first_of(".-")), 1, INT64_MAX);
      if (number && !prepared_.contains(static_cast<std::uint64_t>(*number)) &&
          not_running(TaskId(static_cast<std::uint64_t>(*number))))
        stale.push_back(name);
    }
    ::closedir(dir);
    for (const std::string& name : stale)
      remove_later(place, name);
  };
  each(work_, "");
  each(memory_, "secrets-");
}

void Helper::remove_named(const agent::OwnPlace& place, const std::string& prefix) {
  DIR* dir = ::opendir(place.path().c_str());
  if (!dir)
    return;
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(dir))
    if (std::string_view(entry->d_name).starts_with(prefix))
      names.emplace_back(entry->d_name);
  ::closedir(dir);
  for (const std::string& name : names)
    remove_later(place, name);
}

// In a process of its own: a job may have left millions of files, and requests do not wait.
void Helper::remove_later(const agent::OwnPlace& place, const std::string& name) {
  const std::string gone = place.below("gone." + hex(random_bytes(8)));
  if (::rename(place.below(name).c_str(), gone.c_str()) != 0)
    return log_warn("{} cannot be renamed: {}", place.below(name), strerrordesc_np(errno));
  if (removals_.size() >= removals_max) {
    removals_left_ = true;
    return;
  }
  process::Spawn request;
  request.body = [gone] {
    return remove_tree_of_user(gone) ? 0 : 1;
  };
  auto child = process::spawn(request);
  if (!child)
    return log_warn("{} stays: {}", gone, child.error().message);
  removals_.push_back(std::move(*child));
}

void Helper::tick() {
  std::erase_if(removals_, [](process::Child& child) { return child.poll().has_value(); });
  if (removals_left_ && removals_.empty()) {
    removals_left_ = false;
    sweep();
  }
  (void)launcher_.reap();
  units_.give_up(system_clock().steady());
}

}  // namespace billow::privileged
