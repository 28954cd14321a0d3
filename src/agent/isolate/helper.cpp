#include "agent/isolate/helper.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"

namespace billow::agent {
namespace {

constexpr std::size_t line_bytes_max = 4 << 20;
constexpr Duration kill_patience = seconds(10);

// Between fork and exec of a process with threads: system calls only.
[[noreturn]] void become(const Helper& helper,
                         int out,
                         char* const* argv,
                         char* const* env,
                         const gid_t* groups,
                         std::size_t group_count) {
  ::setsid();
  ::dup2(out, 1);
  const int null = ::open("/dev/null", O_RDWR);
  ::dup2(helper.input >= 0 ? helper.input : null, 0);
  ::dup2(null, 2);
  if (helper.identity) {
    if (::setgroups(group_count, groups) != 0 ||
        ::setresgid(helper.identity->gid, helper.identity->gid, helper.identity->gid) != 0 ||
        ::setresuid(helper.identity->uid, helper.identity->uid, helper.identity->uid) != 0)
      ::_exit(126);
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // after the change of user, which clears it
  if (::chdir("/") != 0)
    ::_exit(126);
  ::execve(argv[0], argv, env);
  ::_exit(127);
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words)
    out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

// One that was killed and hangs in the kernel (a disk or a server of files that is gone) is not
// waited for: whoever runs helpers has others to run.
int reaped(pid_t pid, bool killed) {
  int status = 0;
  const SteadyTime give_up = system_clock().steady() + kill_patience;
  for (;;) {
    const pid_t done = ::waitpid(pid, &status, killed ? WNOHANG : 0);
    if (done == pid)
      return status;
    if (done < 0 && errno != EINTR)
      return 0;
    if (killed && system_clock().steady() > give_up)
      return SIGKILL;
    if (killed)
      ::poll(nullptr, 0, 10);
  }
}

}  // namespace

Result<int> run_helper(const Helper& helper) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return fail_errno("pipe", errno);
  const Fd in(ends[0]);
  Fd out(ends[1]);
  std::vector<std::string> words = helper.argv, variables = helper.env;
  const auto argv = pointers(words), env = pointers(variables);
  std::vector<gid_t> groups;
  if (helper.identity)
    groups.assign(helper.identity->groups.begin(), helper.identity->groups.end());
  const pid_t pid = ::fork();
  if (pid < 0)
    return fail_errno("fork", errno);
  if (pid == 0)
    become(helper, out.get(), argv.data(), env.data(), groups.data(), groups.size());
  out.reset();
  const SteadyTime begun = system_clock().steady();
  SteadyTime alive = begun;
  std::uint64_t progress = 0;
  std::string text, overdue;
  bool open = true, killed = false;
  while (open) {
    pollfd waiting{in.get(), POLLIN, 0};
    ::poll(&waiting, 1, 100);
    const SteadyTime now = system_clock().steady();
    if (helper.progress && helper.progress() != progress) {
      progress = helper.progress();
      alive = now;
    }
    if (helper.quiet_max.ns > 0 && now - alive > helper.quiet_max)
      overdue = fmt::format("{} was given up: nothing came of it for {}", helper.what,
                            format_duration(helper.quiet_max));
    else if (helper.within.ns > 0 && now - begun > helper.within)
      overdue =
          fmt::format("{} was given up after {}", helper.what, format_duration(helper.within));
    if (!overdue.empty() || (helper.cancelled && *helper.cancelled)) {
      killed = true;
      ::kill(-pid, SIGKILL);
      break;  // what it started may hold the pipe open
    }
    if (!waiting.revents)
      continue;
    char buffer[65536];
    const ssize_t n = ::read(in.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR)
      continue;
    open = n > 0;
    if (n > 0)
      text.append(buffer, static_cast<std::size_t>(n));
    std::size_t from = 0;
    for (auto at = text.find('\n'); at != std::string::npos; at = text.find('\n', from)) {
      helper.line(std::string_view(text).substr(from, at - from));
      from = at + 1;
      alive = now;
    }
    text.erase(0, from);
    if (text.size() > line_bytes_max)
      text.clear();
  }
  const int status = reaped(pid, killed);
  ::kill(-pid, SIGKILL);  // what it left running is nobody's
  if (!overdue.empty())
    return fail(Code::timed_out, overdue);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace billow::agent
