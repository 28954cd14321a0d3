#include "agent/isolate/hook.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>

#include <cerrno>

#include "base/file.h"
#include "base/text.h"
#include "process/capture.h"

namespace billow::agent {
namespace {

constexpr std::size_t output_bytes_max = 4096;
constexpr std::size_t quoted_bytes_max = 200;
constexpr const char* standard_path =
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr int entry_fd = 3;

Status run_to_end(process::Spawn request, const std::string& name, Duration patience) {
  request.group = process::Group::session;
  request.no_new_privs = true;
  request.whole_tree = true;
  request.on_parent_death = SIGKILL;
  request.deadline = system_clock().steady() + patience;
  const auto output = process::capture(
      std::move(request),
      {.input = {}, .bytes_max = output_bytes_max, .keep_last = true, .together = true});
  if (!output)
    return fail(Code::conflict, fmt::format("{} was not run: {}", name, output.error().message));
  if (output->ended.ok())
    return {};
  const std::string how =
      output->ended.late            ? fmt::format("took more than {}", format_duration(patience))
      : output->ended.signal() != 0 ? fmt::format("was killed by signal {}", output->ended.signal())
                                    : fmt::format("exited with code {}", output->ended.code());
  const std::string_view last = trim(output->out);
  return fail(Code::conflict,
              fmt::format("{} {}{}{}", name, how, last.empty() ? "" : ": ",
                          last.substr(last.size() - std::min(last.size(), quoted_bytes_max))));
}

// In memory, because the job's user must read it and a file would have to be given to that user.
Result<Fd> in_memory(std::string_view text) {
  Fd fd(::memfd_create("entry", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd)
    return fail_errno("memfd_create", errno);
  BILLOW_TRY_VOID(write_all(fd.get(), text));
  return fd;
}

}  // namespace

Status run_hook(const Hook& hook) {
  const JobPlace& place = hook.place;
  const std::string name = fmt::format("`{}`", hook.command);
  if (place.pid <= 0)
    return fail(Code::conflict,
                fmt::format("{} was not run: the job has no process on this node", name));
  process::Spawn request;
  request.identity = place.identity;
  request.cgroups = place.cgroups;
  if (place.image_entry.empty()) {
    request.argv = {"/bin/sh", "-c", hook.command};
    request.env = place.env;
    request.cwd = place.cwd;
    request.cwd_or_root = true;
    request.namespaces.pid = place.pid;
    request.refused_calls = place.refused_calls;
    return run_to_end(std::move(request), name, hook.patience);
  }
  // Our own program enters the image as the user, and then becomes the command.
  const Fd entry = BILLOW_TRY(in_memory(place.image_entry));
  request.argv = {executable_dir() + "/billow",
                  "box",
                  "--enter",
                  fmt::format("/proc/self/fd/{}", entry_fd),
                  "--",
                  hook.command};
  request.env = {standard_path, "LC_ALL=C.UTF-8"};
  for (const std::string& variable : place.env)
    if (variable.starts_with("BILLOW_TASK_KEY="))
      request.env->push_back(variable);
  request.cwd = "/";
  request.fds = {{entry.get(), entry_fd}};
  return run_to_end(std::move(request), name, hook.patience);
}

Status run_user_script(const UserScript& script) {
  process::Spawn request;
  request.argv = {"/bin/sh", "-c", script.script};
  request.env = {standard_path};
  request.env->insert(request.env->end(), script.env.begin(), script.env.end());
  request.identity = script.identity;
  request.cwd = "/";
  return run_to_end(std::move(request), script.name, script.patience);
}

}  // namespace billow::agent
