#include "supervise/child.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "process/become_linux.h"
#include "process/call_filter_linux.h"
#include "process/hide_processes_linux.h"
#include "supervise/binds.h"
#include "supervise/private_dev.h"
#include "supervise/private_tmp.h"
#include "supervise/sys.h"

namespace billow::supervise {
namespace {

struct Io {
  int in = -1, out = -1, err = -1;  // the job's ends
  bool terminal = false;
};

[[noreturn]] void give_up(int failure, int error, const char* step, const char* subject = "") {
  StartFailure report{};
  report.error = error;
  Text<sizeof(report.step)> text;
  text << step << subject;
  memcpy(report.step, text.data, text.size + 1);
  const ssize_t ignored = write(failure, &report, sizeof(report));
  (void)ignored;
  _exit(127);
}

const char* find_env(const Spec& spec, const char* name) {
  const std::size_t length = strlen(name);
  for (const char** e = spec.env; *e != nullptr; ++e)
    if (strncmp(*e, name, length) == 0 && (*e)[length] == '=')
      return *e + length + 1;
  return nullptr;
}

// A script without "#!" is run by the shell, as execvp does.
int exec_file(const Spec& spec, const char* path) {
  auto** argv = const_cast<char**>(spec.argv);
  auto** env = const_cast<char**>(spec.env);
  execve(path, argv, env);
  if (errno != ENOEXEC)
    return errno;
  // argv[0] and its predecessor slot are ours to use: the list is an array of pointers we own.
  static const char* shell_argv[4096];
  if (spec.argv_count + 2 > sizeof(shell_argv) / sizeof(shell_argv[0]))
    return ENOEXEC;
  shell_argv[0] = "/bin/sh";
  shell_argv[1] = path;
  for (std::uint32_t i = 1; i <= spec.argv_count; ++i)
    shell_argv[i + 1] = spec.argv[i];
  execve("/bin/sh", const_cast<char**>(shell_argv), env);
  return errno;
}

// Searches the job's own PATH. The error for a file that may not be executed takes precedence over
// one for a missing file.
int exec_search(const Spec& spec) {
  const char* file = spec.argv[0];
  if (strchr(file, '/') != nullptr)
    return exec_file(spec, file);
  const char* path = find_env(spec, "PATH");
  if (path == nullptr || path[0] == 0)
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  int result = ENOENT;
  while (true) {
    const char* end = strchrnul(path, ':');
    Text<4096> candidate;
    const std::size_t length = static_cast<std::size_t>(end - path);
    if (length + strlen(file) + 2 < sizeof(candidate.data)) {
      memcpy(candidate.data, path, length);
      candidate.data[candidate.size = length] = 0;
      candidate << (length == 0 ? "./" : "/") << file;
      const int error = exec_file(spec, candidate.data);
      if (error != ENOENT && error != ENOTDIR)
        result = error;
      if (error != ENOENT && error != ENOTDIR && error != EACCES)
        return error;
    }
    if (*end == 0)
      return result;
    path = end + 1;
  }
}

// For a list of processes the kernel stops all forks and exits, which takes up to tens of
// milliseconds. Groups of version 1 also have a list of threads, and this process has one thread.
void enter_cgroups(const Spec& spec, bool born_in_v2, int failure) {
  auto enter = [](const char* directory, const char* list) {
    Text<512> path;
    path << directory << list;
    return write_small(path.data, "0");
  };
  auto enter_as_process = [&](const char* directory) {
    if (const int error = enter(directory, "/cgroup.procs"))
      give_up(failure, error, "enter cgroup ", directory);
  };
  if (spec.cgroup_v2 != nullptr && !born_in_v2)
    enter_as_process(spec.cgroup_v2);
  for (std::uint32_t i = 0; i < spec.cgroups_v1_count; ++i)
    if (enter(spec.cgroups_v1[i], "/tasks") != 0)
      enter_as_process(spec.cgroups_v1[i]);
}

void limit_resources(const Spec& spec, int failure) {
  for (std::uint32_t i = 0; i < spec.rlimits_count; ++i) {
    const rlimit limit{spec.rlimits[i].soft, spec.rlimits[i].hard};
    if (setrlimit(static_cast<__rlimit_resource>(spec.rlimits[i].resource), &limit) != 0)
      give_up(failure, errno, "set a resource limit");
  }
  if (spec.has_nice && setpriority(PRIO_PROCESS, 0, spec.nice) != 0)
    give_up(failure, errno, "set the nice value");
  if (spec.has_oom_score_adj) {
    Text<16> value;
    if (spec.oom_score_adj < 0)
      value << "-";
    value << static_cast<std::uint64_t>(spec.oom_score_adj < 0 ? -spec.oom_score_adj
                                                               : spec.oom_score_adj);
    write_small("/proc/self/oom_score_adj",
                value.data);  // may fail: without privilege it can only be raised
  }
}

void become_job_user(const Spec& spec, int failure) {
  if (!spec.has_uid)
    return;
  const gid_t gid = spec.has_gid ? spec.gid : getgid();
  if (const char* step = process::become_user(
          {spec.uid, gid, spec.groups, spec.has_groups ? spec.groups_count : 0}))
    give_up(failure, errno, step);
}

void connect_io(const Io& io, int failure) {
  if (setsid() < 0)
    give_up(failure, errno, "start a session");
  if (io.terminal && ioctl(io.in, TIOCSCTTY, 0) != 0)
    give_up(failure, errno, "take the terminal");
  if (dup2(io.in, 0) < 0 || dup2(io.out, 1) < 0 || dup2(io.err, 2) < 0)
    give_up(failure, errno, "connect input and output");
}

[[noreturn]] void run_child(const Spec& spec, const Io& io, bool born_in_v2, int failure) {
  connect_io(io, failure);
  enter_cgroups(spec, born_in_v2, failure);
  if (spec.own_network && setns(fd_network, CLONE_NEWNET) != 0)
    give_up(failure, errno, "enter the job's network");
  if (spec.hide_count > 0 || spec.binds_count > 0 || spec.private_tmp != nullptr ||
      spec.private_proc) {
    const char* stage = "";
    int error = enter_mount_namespace(spec, &stage);
    if (error == 0 && spec.private_tmp != nullptr)
      error = mount_private_tmp(spec, &stage);
    if (error == 0 && spec.hide_count > 0)
      error = enter_private_dev(spec, &stage);
    if (error == 0 && spec.binds_count > 0)
      error = mount_binds(spec, &stage);
    if (error == 0 && spec.private_proc) {
      stage = "make a private /proc";
      error = process::hide_processes();
    }
    if (error != 0)
      give_up(failure, error, stage);
  }
  limit_resources(spec, failure);
  become_job_user(spec, failure);
  if (spec.no_new_privs)
    if (const char* step = process::forbid_new_privileges())
      give_up(failure, errno, step);
  umask(spec.umask);
  if (chdir(spec.cwd) != 0)
    give_up(failure, errno, "enter the working directory ", spec.cwd);
  process::reset_signals();
  if (spec.refused_calls != 0)
    if (const char* step = process::refuse_calls(spec.refused_calls))
      give_up(failure, errno, step);
  const int error = exec_search(spec);
  give_up(failure, error, "exec ", spec.argv[0]);
}

// Forks straight into the cgroup if the kernel can: entering one later pauses the whole kernel.
pid_t fork_into(const char* cgroup_v2, bool* born_in_v2) {
  *born_in_v2 = false;
  const int directory =
      cgroup_v2 != nullptr ? open(cgroup_v2, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
  if (directory >= 0) {
    clone_args args{};
    args.flags = CLONE_INTO_CGROUP;
    args.exit_signal = SIGCHLD;
    args.cgroup = static_cast<std::uint64_t>(directory);
    *born_in_v2 = true;
    const long pid = syscall(SYS_clone3, &args, sizeof(args));
    const int error = errno;
    if (pid != 0)
      close(directory);
    if (pid >= 0)
      return static_cast<pid_t>(pid);
    *born_in_v2 = false;
    if (error != ENOSYS && error != EINVAL && error != E2BIG && error != EBUSY &&
        error != EOPNOTSUPP && error != EACCES) {
      errno = error;
      return -1;
    }
  }
  return fork();
}

int open_terminal(const Spec& spec, Child* child, Io* io) {
  const int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
  if (master < 0)
    return errno;
  int unlock = 0;
  if (ioctl(master, TIOCSPTLCK, &unlock) != 0)
    return errno;
  const int slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (slave < 0)
    return errno;
  if (spec.has_uid && geteuid() == 0 && fchown(slave, spec.uid, static_cast<gid_t>(-1)) != 0)
    return errno;
  resize_terminal(master, spec.rows, spec.columns);
  child->out = master;
  child->in = master;
  // The supervisor keeps its copy of the slave open until the job ends, so that a job that closes
  // and reopens its terminal does not look like one that hung up.
  *io = {slave, slave, slave, true};
  return 0;
}

int open_pipes(const Spec& spec, Child* child, Io* io) {
  int out[2], err[2], in[2];
  if (pipe2(out, O_CLOEXEC) != 0)
    return errno;
  fcntl(out[0], F_SETFL, O_NONBLOCK);
  child->out = out[0];
  io->out = out[1];
  if (spec.one_stream) {
    // Only one pipe keeps the order in which the job wrote to both.
    io->err = fcntl(out[1], F_DUPFD_CLOEXEC, 3);
    if (io->err < 0)
      return errno;
  } else {
    if (pipe2(err, O_CLOEXEC) != 0)
      return errno;
    fcntl(err[0], F_SETFL, O_NONBLOCK);
    child->err = err[0];
    io->err = err[1];
  }
  if (!spec.stdin_open) {
    io->in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return io->in < 0 ? errno : 0;
  }
  if (pipe2(in, O_CLOEXEC) != 0)
    return errno;
  fcntl(in[1], F_SETFL, O_NONBLOCK);
  child->in = in[1];
  io->in = in[0];
  return 0;
}

}  // namespace

int resize_terminal(int master, std::uint16_t rows, std::uint16_t columns) {
  winsize size{};
  size.ws_row = rows;
  size.ws_col = columns;
  return ioctl(master, TIOCSWINSZ, &size) == 0 ? 0 : errno;
}

int start_child(const Spec& spec, Child* out, const char** step) {
  Io io;
  *step = spec.pty ? "open a terminal" : "open pipes";
  if (const int error = spec.pty ? open_terminal(spec, out, &io) : open_pipes(spec, out, &io))
    return error;
  int failure[2];
  if (pipe2(failure, O_CLOEXEC) != 0)
    return errno;
  *step = "fork";
  bool born_in_v2 = false;
  // Signals wait until the job's program has its own: the child inherits that they are ignored
  // here, and one that came before exec would be lost.
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  const pid_t pid = fork_into(spec.cgroup_v2, &born_in_v2);
  const int error = errno;
  if (pid == 0)
    run_child(spec, io, born_in_v2, failure[1]);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0)
    return error;
  close(failure[1]);
  out->pid = pid;
  out->failure = failure[0];
  if (!io.terminal) {
    close(io.in);
    close(io.out);
    close(io.err);
  }
  return 0;
}

}  // namespace billow::supervise
