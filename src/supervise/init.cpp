#include "supervise/init.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "process/signals.h"
#include "supervise/sys.h"

extern char** environ;

namespace billow::supervise {
namespace {

constexpr int container_failed = 125, not_executable = 126, not_found = 127;
constexpr std::int64_t leftover_grace_ns = 1'000'000'000;

int say(const char* what, int error, int code) {
  Text<512> line;
  line << what << ": " << errno_text(error) << "\n";
  const ssize_t ignored = write(2, line.data, line.size);
  (void)ignored;
  return code;
}

// In a process group of its own, in the foreground of its terminal: a signal from the keyboard then
// reaches it once, from the terminal.
[[noreturn]] void run_command(char** argv) {
  setpgid(0, 0);
  if (isatty(0))
    tcsetpgrp(0, getpid());
  process::reset_signals();
  execvpe(argv[0], argv, environ);
  _exit(say(argv[0], errno, errno == ENOENT || errno == ENOTDIR ? not_found : not_executable));
}

// True once nothing is left to wait for.
bool reap(pid_t command, int* status, bool* ended) {
  for (;;) {
    int one = 0;
    const pid_t pid = waitpid(-1, &one, WNOHANG);
    if (pid < 0 && errno == EINTR)
      continue;
    if (pid <= 0)
      return pid < 0;
    if (pid == command) {
      *status = one;
      *ended = true;
    }
  }
}

}  // namespace

int run_as_init(int argc, char** argv) {
  if (argc < 3)
    return say("billow-as-user init COMMAND", EINVAL, container_failed);
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  const pid_t command = fork();
  if (command < 0)
    return say("start the job's command", errno, container_failed);
  if (command == 0)
    run_command(argv + 2);
  int status = 0;
  bool ended = false;
  std::int64_t give_up_ns = 0;
  while (!reap(command, &status, &ended)) {
    if (ended && give_up_ns == 0) {
      kill(-1, SIGTERM);  // what it left behind, before this process ends and the kernel kills it
      give_up_ns = boot_ns() + leftover_grace_ns;
    }
    const std::int64_t left_ns = give_up_ns - boot_ns();
    if (ended && left_ns <= 0)
      break;
    const timespec patience{left_ns / 1'000'000'000, left_ns % 1'000'000'000};
    const int number = ended ? sigtimedwait(&all, nullptr, &patience) : sigwaitinfo(&all, nullptr);
    if (number > 0 && number != SIGCHLD && !ended)
      kill(command, number);
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace billow::supervise
