#include "privileged/helper/task_units.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>

#include "core/wire/codec.h"
#include "privileged/client.h"
#include "process/command.h"
#include "process/spawn.h"
#include "supervise/protocol.h"
#include "supervise/secrets.h"

namespace billow::privileged {
namespace {

constexpr Duration start_patience = seconds(10);
constexpr Duration take_patience = seconds(30);

}  // namespace

Result<Fd> TaskUnits::start(agent::NewTask task, Fd secrets, Fd redacted) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return fail_errno("socketpair", errno);
  Fd ours(ends[0]), theirs(ends[1]);
  Waiting waiting{.taken = {.directory = task.path, .descriptors = {}},
                  .until = system_clock().steady() + take_patience};
  waiting.taken.descriptors.push_back(std::move(theirs));
  waiting.taken.descriptors.push_back(std::move(task.lock));
  waiting.taken.secrets = static_cast<bool>(secrets);
  waiting.taken.redacted = static_cast<bool>(redacted);
  for (Fd* memory : {&secrets, &redacted})
    if (*memory)
      waiting.taken.descriptors.push_back(std::move(*memory));
  waiting_.insert_or_assign(task.id.value, std::move(waiting));
  const std::string number = std::to_string(task.id.value);
  // Its processes live in the control groups of the task; the unit holds the supervisor alone.
  process::CommandSpec command{
      .argv = {"systemd-run", "--quiet", "--no-block", "--collect",
               fmt::format("--unit=billow-task-{}-{}", owner_, number),
               fmt::format("--description=Supervisor of task {} of Billow", number),
               "--property=KillMode=mixed", "--property=OOMPolicy=continue",
               "--property=TasksMax=infinity", "--", executable_dir() + "/billow", "privileged",
               "--socket", socket_, "--take", number},
      .env = {},
      .input = {},
      .timeout = start_patience};
  const auto done = process::run_command(command);
  if (done && done->code == 0)
    return ours;
  waiting_.erase(task.id.value);
  return fail(Code::unavailable,
              fmt::format("systemd did not start the task: {}",
                          done ? done->complaint() : done.error().message),
              "see journalctl -u billow-privileged");
}

Result<TaskUnits::Taken> TaskUnits::take(TaskId task) {
  auto found = waiting_.extract(task.value);
  if (!found)
    return fail(Code::not_found, fmt::format("no start of task {} waits", task.value));
  return std::move(found.mapped().taken);
}

void TaskUnits::give_up(SteadyTime now) {
  std::erase_if(waiting_, [now](const auto& one) { return one.second.until < now; });
}

Status become_supervisor(const std::string& socket, TaskId task) {
  Client helper(socket);
  Request request;
  request.verb = Verb::take;
  request.task = task.value;
  const Client::Answer answer = BILLOW_TRY(helper.call(request));
  const Reply& reply = answer.reply;
  const std::size_t expected = 2u + (reply.secrets ? 1 : 0) + (reply.redacted ? 1 : 0);
  if (answer.descriptors.size() != expected)
    return fail(Code::internal, "the helper gave another number of descriptors than it said");
  const char* named = std::getenv("BILLOW_SUPERVISE");
  process::Spawn become;
  become.program = named ? named : executable_dir() + "/billow-supervise";
  become.argv = {"billow-supervise", reply.path};
  become.env.emplace();
  become.fds = {{answer.descriptors[0].get(), supervise::fd_ctl},
                {answer.descriptors[1].get(), supervise::fd_lock}};
  std::size_t next = 2;
  if (reply.secrets)
    become.fds.push_back({answer.descriptors[next++].get(), supervise::fd_secrets});
  if (reply.redacted)
    become.fds.push_back({answer.descriptors[next].get(), supervise::fd_redacted});
  return process::replace_this_program(become);
}

}  // namespace billow::privileged
