#include "agent/isolate/hook.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include <cerrno>

#include "base/file.h"
#include "base/text.h"

namespace billow::agent {
namespace {

constexpr std::size_t output_bytes_max = 4096;

// Between fork and exec of a process with threads: system calls only.
[[noreturn]] void become(const Hook& hook,
                         int out,
                         const char* const* argv,
                         const char* const* env,
                         const gid_t* groups,
                         std::size_t group_count) {
  ::setsid();
  ::dup2(out, 1);
  ::dup2(out, 2);
  const int null = ::open("/dev/null", O_RDONLY);
  ::dup2(null, 0);
  if (hook.identity) {
    if (::setgroups(group_count, groups) != 0 ||
        ::setresgid(hook.identity->gid, hook.identity->gid, hook.identity->gid) != 0 ||
        ::setresuid(hook.identity->uid, hook.identity->uid, hook.identity->uid) != 0)
      ::_exit(126);
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // an agent that ends leaves no hook behind; after the change
                                       // of user, which clears it
  if (::chdir(hook.cwd.c_str()) != 0 && ::chdir("/") != 0)
    ::_exit(126);
  ::execve("/bin/sh", const_cast<char* const*>(argv), const_cast<char* const*>(env));
  ::_exit(127);
}

}  // namespace

Status run_hook(const Hook& hook) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return fail_errno("pipe", errno);
  const Fd in(ends[0]), out(ends[1]);
  const char* argv[] = {"sh", "-c", hook.command.c_str(), nullptr};
  std::vector<const char*> env;
  for (const std::string& entry : hook.env)
    env.push_back(entry.c_str());
  env.push_back(nullptr);
  std::vector<gid_t> groups;
  if (hook.identity)
    groups.assign(hook.identity->groups.begin(), hook.identity->groups.end());
  const pid_t pid = ::fork();
  if (pid < 0)
    return fail_errno("fork", errno);
  if (pid == 0)
    become(hook, out.get(), argv, env.data(), groups.data(), groups.size());
  ::close(ends[1]);
  const_cast<Fd&>(out).release();
  std::string printed;
  const SteadyTime give_up = system_clock().steady() + hook.patience;
  int status = 0;
  bool over = false;
  for (;;) {
    pollfd waiting{in.get(), POLLIN, 0};
    ::poll(&waiting, 1, 20);
    char buffer[1024];
    if (waiting.revents) {
      const ssize_t n = ::read(in.get(), buffer, sizeof buffer);
      if (n > 0)
        printed.append(buffer, static_cast<std::size_t>(n));
      if (printed.size() > output_bytes_max)
        printed.erase(0, printed.size() - output_bytes_max);
      if (n <= 0)
        ::poll(nullptr, 0, 5);
    }
    siginfo_t ended{};
    if (::waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        ended.si_pid == pid) {
      ::kill(-pid, SIGKILL);  // what it left running is nobody's; before it is reaped, so that the
                              // number is still its own
      ::waitpid(pid, &status, 0);
      break;
    }
    if (!over && system_clock().steady() > give_up) {
      over = true;
      ::kill(-pid, SIGKILL);
    }
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
    return {};
  const std::string how = over ? fmt::format("took more than {}", format_duration(hook.patience))
                          : WIFEXITED(status)
                              ? fmt::format("ended with code {}", WEXITSTATUS(status))
                              : "was killed";
  const auto last = trim(printed);
  return fail(Code::conflict,
              fmt::format("`{}` {}{}{}", hook.command, how, last.empty() ? "" : ": ",
                          last.substr(last.size() > 200 ? last.size() - 200 : 0)));
}

}  // namespace billow::agent
