#include "supervise/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <initializer_list>

#include "supervise/secrets.h"
#include "supervise/sys.h"

namespace billow::supervise {
namespace {

constexpr std::int64_t kill_round_longest_ns = 1'000'000'000;
constexpr int reads_per_turn = 16;     // of 64 KiB, before control frames get their turn again
constexpr int drain_reads_max = 256;   // another process that holds the pipe must not keep us
constexpr int refused_rounds_max = 8;  // some seconds of EPERM
char stdin_ring[stdin_window_bytes];

// The record overwrites a file created at the start, which is then renamed: it needs no new disk
// block, and no reader sees half of it.
int write_exit(const ExitRecord& record) {
  const int fd = open(file_exit_part, O_WRONLY | O_CREAT | O_CLOEXEC, 0640);
  if (fd < 0)
    return errno;
  const ssize_t n = pwrite(fd, &record, sizeof(record), 0);
  const int error = n == static_cast<ssize_t>(sizeof(record)) ? 0 : (n < 0 ? errno : ENOSPC);
  close(fd);
  if (error != 0)
    return error;
  return rename(file_exit_part, file_exit) == 0 ? 0 : errno;
}

void reserve_exit() {
  static const ExitRecord blank{};
  const int fd = open(file_exit_part, O_WRONLY | O_CREAT | O_CLOEXEC, 0640);
  if (fd < 0)
    return;
  const ssize_t ignored = write(fd, &blank, sizeof(blank));
  (void)ignored;
  close(fd);
}

void set_detail(ExitRecord* record, const char* text) {
  Text<sizeof(record->detail)> detail;
  detail << text;
  memcpy(record->detail, detail.data, detail.size + 1);
}

ExitRecord blank_record() {
  ExitRecord record{};
  record.magic = exit_magic;
  record.bytes = sizeof(record);
  record.ended_wall_ns = wall_ns();
  record.ended_boot_ns = boot_ns();
  return record;
}

}  // namespace

void Supervisor::record_not_started(const char* detail) {
  ExitRecord record = blank_record();
  record.kind = static_cast<std::uint32_t>(ExitKind::not_started);
  record.code = 126;
  set_detail(&record, detail);
  write_exit(record);
}

int Supervisor::run(int ctl_fd) {
  if (start(ctl_fd))
    loop();
  finish();
  return 0;
}

bool Supervisor::start(int ctl_fd) {
  sigset_t handled;
  sigemptyset(&handled);
  for (const int number : {SIGCHLD, SIGTERM})
    sigaddset(&handled, number);
  sigprocmask(SIG_BLOCK, &handled, nullptr);
  for (const int number :
       {SIGPIPE, SIGHUP, SIGINT, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2})
    ::signal(number, SIG_IGN);
  signals_ = signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  reserve_exit();
  log_.start(spec_.log_segment_bytes, spec_.log_segments_max);
  if (ctl_fd >= 0)
    ctl_.adopt(ctl_fd, static_cast<Subscription>(spec_.subscription));

  started_wall_ns_ = wall_ns();
  started_boot_ns_ = boot_ns();
  oom_kills_before_ = tree_.oom_kills();
  if (spec_.time_limit_ns > 0)
    time_deadline_ns_ = started_boot_ns_ + spec_.time_limit_ns;
  paid_until_ns_ = spec_.paid_until_boot_ns;
  if (spec_.die_with_pid > 0) {
    parent_ = static_cast<int>(syscall(SYS_pidfd_open, spec_.die_with_pid, 0));
    if (parent_ < 0 && errno == ESRCH)
      cause_ = EndCause::parent_ended;
  }
  const char* step = "";
  if (cause_ == EndCause::parent_ended) {
    failure_.error = ESRCH;
    step = "find the process this job must end with";
  } else {
    failure_.error = start_child(spec_, &child_, &step);
    forget_secrets();
  }
  if (failure_.error == 0)
    return true;
  start_failed_ = true;
  Text<sizeof(failure_.step)> text;
  text << step;
  memcpy(failure_.step, text.data, text.size + 1);
  return false;
}

void Supervisor::loop() {
  enum { at_signal, at_timer, at_parent, at_failure, at_out, at_err, at_in, at_ctl };
  pollfd fds[at_ctl + connections_max + 1];
  while (!all_ended_) {
    arm_timer();
    if (!ctl_.anyone() && !ctl_.listening())
      ctl_.listen_here();
    const bool wants_in = child_.in >= 0 && stdin_accepted_ > stdin_consumed_;
    fds[at_signal] = {signals_, POLLIN, 0};
    fds[at_timer] = {timer_, POLLIN, 0};
    fds[at_parent] = {parent_, POLLIN, 0};
    fds[at_failure] = {child_.failure, POLLIN, 0};
    fds[at_out] = {child_.out, POLLIN, 0};
    fds[at_err] = {child_.err, POLLIN, 0};
    fds[at_in] = {wants_in ? child_.in : -1, POLLOUT, 0};
    const int ctl_count = ctl_.poll_set(fds + at_ctl);
    if (poll(fds, nfds_t{at_ctl} + static_cast<nfds_t>(ctl_count), -1) < 0)
      continue;
    if (fds[at_failure].revents != 0)
      read_failure();
    if (fds[at_out].revents != 0)
      read_output(&child_.out, Stream::out, reads_per_turn);
    if (fds[at_err].revents != 0)
      read_output(&child_.err, Stream::err, reads_per_turn);
    if (fds[at_in].revents != 0)
      write_stdin();
    ctl_.on_poll(fds + at_ctl, ctl_count);
    if (fds[at_parent].revents != 0) {
      close(parent_);
      parent_ = -1;
      begin_stop(EndCause::parent_ended, spec_.stop_grace_ns);
    }
    if (fds[at_timer].revents != 0)
      run_timers();
    if (fds[at_signal].revents != 0)
      read_signals();
  }
}

void Supervisor::read_signals() {
  signalfd_siginfo info;
  bool child = false;
  while (read(signals_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    if (info.ssi_signo == SIGCHLD)
      child = true;
    else
      begin_stop(EndCause::supervisor_signal, spec_.stop_grace_ns);
  }
  if (child)
    reap();
}

// Without a child to wait for, no descendant is left: orphans become our children.
void Supervisor::reap() {
  for (;;) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid < 0 && errno == EINTR)
      continue;
    if (pid == 0)
      break;
    if (pid < 0) {
      all_ended_ = true;
      return;
    }
    if (pid != child_.pid)
      continue;
    main_ended_ = true;
    main_status_ = status;
  }
  // The main process has ended, but others of the job still run: they get a short grace, unless a
  // longer one has already begun.
  if (main_ended_ && state_ != SupervisorState::stopping) {
    state_ = SupervisorState::stopping;
    tree_.thaw();
    tree_.signal(SIGTERM);
    kill_at_ns_ = boot_ns() + spec_.leftover_grace_ns;
  }
}

void Supervisor::read_failure() {
  const ssize_t n = read(child_.failure, &failure_, sizeof(failure_));
  if (n < 0 && (errno == EAGAIN || errno == EINTR))
    return;
  close(child_.failure);
  child_.failure = -1;
  start_failed_ = n == static_cast<ssize_t>(sizeof(failure_));
  if (start_failed_)
    failure_.step[sizeof(failure_.step) - 1] = 0;
  if (state_ == SupervisorState::starting && !start_failed_) {
    state_ = SupervisorState::running;
    ctl_.push_status();
  }
}

// Input is a stream with offsets, so that a restarted agent can repeat what may have been lost.
// What does not fit into the window is refused, and the acknowledgement says so.
void Supervisor::on_stdin(std::uint64_t offset, const char* data, std::uint32_t bytes) {
  if (offset != stdin_append) {
    if (offset > stdin_accepted_)
      return ctl_.push_stdin_ack({stdin_accepted_, stdin_consumed_});
    const std::uint64_t known = stdin_accepted_ - offset;
    if (known >= bytes)
      bytes = 0;
    else {
      data += known;
      bytes -= static_cast<std::uint32_t>(known);
    }
  }
  const std::uint64_t free_bytes = sizeof(stdin_ring) - (stdin_accepted_ - stdin_consumed_);
  if (stdin_ended_)
    bytes = 0;
  if (bytes > free_bytes)
    bytes = static_cast<std::uint32_t>(free_bytes);
  for (std::uint32_t i = 0; i < bytes; ++i)
    stdin_ring[(stdin_accepted_ + i) % sizeof(stdin_ring)] = data[i];
  stdin_accepted_ += bytes;
  write_stdin();
  ctl_.push_stdin_ack({stdin_accepted_, stdin_consumed_});
}

void Supervisor::on_stdin_eof(std::uint64_t offset) {
  if (offset != stdin_append && offset != stdin_accepted_)
    return ctl_.push_stdin_ack({stdin_accepted_, stdin_consumed_});
  if (stdin_ended_)
    return;
  if (spec_.pty) {
    const char end_of_file = 4;  // what a keyboard's Ctrl-D sends
    return on_stdin(stdin_append, &end_of_file, 1);
  }
  stdin_ended_ = true;
  write_stdin();
}

void Supervisor::close_stdin() {
  if (child_.in >= 0 && !spec_.pty)
    close(child_.in);
  if (!spec_.pty)
    child_.in = -1;
}

void Supervisor::write_stdin() {
  const std::uint64_t before = stdin_consumed_;
  while (child_.in >= 0 && stdin_consumed_ < stdin_accepted_) {
    const std::uint64_t at = stdin_consumed_ % sizeof(stdin_ring);
    std::uint64_t part = sizeof(stdin_ring) - at;
    if (part > stdin_accepted_ - stdin_consumed_)
      part = stdin_accepted_ - stdin_consumed_;
    const ssize_t n = write(child_.in, stdin_ring + at, part);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0 && errno == EAGAIN)
      break;
    if (n <= 0) {
      close_stdin();
      break;
    }
    stdin_consumed_ += static_cast<std::uint64_t>(n);
  }
  if (child_.in < 0)
    stdin_consumed_ = stdin_accepted_;  // nothing reads it: count it as read
  if (stdin_ended_ && stdin_consumed_ == stdin_accepted_)
    close_stdin();
  if (stdin_consumed_ != before)
    ctl_.push_stdin_ack({stdin_accepted_, stdin_consumed_});
}

void Supervisor::on_resize(const ResizeFrame& frame) {
  if (spec_.pty && child_.out >= 0)
    resize_terminal(child_.out, frame.rows, frame.columns);
}

void Supervisor::on_signal(const SignalFrame& frame) {
  if (frame.number < 1 || frame.number >= NSIG || main_ended_ || child_.pid <= 0)
    return;
  switch (static_cast<SignalScope>(frame.scope)) {
    case SignalScope::group:
      // A job that is being started may not have its own group yet.
      if (kill(-child_.pid, frame.number) != 0 && errno == ESRCH)
        kill(child_.pid, frame.number);
      return;
    case SignalScope::tree:
      tree_.signal(frame.number);
      return;
    case SignalScope::main_only:
      kill(child_.pid, frame.number);
      return;
  }
}

void Supervisor::on_stop(const StopFrame& frame) {
  if (state_ != SupervisorState::stopping)
    stop_reason_ = frame.reason;
  begin_stop(EndCause::stop_request, frame.grace_ns < 0 ? spec_.stop_grace_ns : frame.grace_ns);
}

// A second request can shorten the grace, never extend it.
void Supervisor::begin_stop(EndCause cause, std::int64_t grace_ns) {
  const std::int64_t kill_at = boot_ns() + grace_ns;
  if (state_ == SupervisorState::stopping) {
    if (kill_at < kill_at_ns_)
      kill_at_ns_ = kill_at;
    return;
  }
  state_ = SupervisorState::stopping;
  cause_ = cause;
  kill_at_ns_ = kill_at;
  tree_.thaw();
  tree_.signal(SIGTERM);
  if (spec_.pty) {
    tree_.signal(SIGHUP);  // an interactive shell ignores SIGTERM but obeys SIGHUP
    hang_up_at_ns_ = boot_ns() + 1'000'000'000;
  }
  tree_.signal(SIGCONT);
  ctl_.push_status();
}

void Supervisor::on_deadline(const DeadlineFrame& frame) {
  if (frame.boot_ns < 0)
    return;
  switch (static_cast<DeadlineKind>(frame.kind)) {
    case DeadlineKind::time_limit:
      time_deadline_ns_ = frame.boot_ns;
      return;
    case DeadlineKind::paid_until:
      paid_until_ns_ = frame.boot_ns;
      return;
  }
}

void Supervisor::on_freeze(bool freeze) {
  if (freeze && state_ == SupervisorState::running) {
    tree_.freeze();
    state_ = SupervisorState::frozen;
    frozen_ns_ = boot_ns();
  } else if (!freeze && state_ == SupervisorState::frozen) {
    tree_.thaw();
    state_ = SupervisorState::running;
    if (time_deadline_ns_ > 0)
      time_deadline_ns_ += boot_ns() - frozen_ns_;  // time while frozen does not count
  }
  ctl_.push_status();
}

// One timer for the nearest deadline, on a clock that also counts while the machine sleeps.
void Supervisor::arm_timer() {
  std::int64_t next = 0;
  auto consider = [&](std::int64_t at) {
    if (at > 0 && (next == 0 || at < next))
      next = at;
  };
  if (state_ != SupervisorState::stopping && state_ != SupervisorState::frozen)
    consider(time_deadline_ns_);
  // Also during a stop with a long grace period, which it may shorten.
  if (state_ != SupervisorState::stopping || paid_until_ns_ > boot_ns())
    consider(paid_until_ns_);
  consider(kill_at_ns_);
  consider(show_at_ns_);
  consider(hang_up_at_ns_);
  if (next == armed_ns_)
    return;
  if (timer_ < 0)
    timer_ = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
  itimerspec when{};
  when.it_value.tv_sec = next / 1'000'000'000;
  when.it_value.tv_nsec = next % 1'000'000'000;
  timerfd_settime(timer_, TFD_TIMER_ABSTIME, &when, nullptr);
  armed_ns_ = next;
}

void Supervisor::run_timers() {
  std::uint64_t ticks;
  const ssize_t ignored = read(timer_, &ticks, sizeof(ticks));
  (void)ignored;
  armed_ns_ = 0;
  const std::int64_t now = boot_ns();
  if (time_deadline_ns_ > 0 && now >= time_deadline_ns_ && state_ != SupervisorState::frozen)
    begin_stop(EndCause::time_limit, spec_.stop_grace_ns);
  if (paid_until_ns_ > 0 && now >= paid_until_ns_)
    begin_stop(EndCause::paid_until, spec_.stop_grace_ns);
  if (kill_at_ns_ > 0 && now >= kill_at_ns_)
    kill_round();
  if (show_at_ns_ > 0 && now >= show_at_ns_)
    show_held();
  // Once more: bash forgets a SIGHUP that comes just before it waits for input.
  if (hang_up_at_ns_ > 0 && now >= hang_up_at_ns_) {
    hang_up_at_ns_ = 0;
    if (!main_ended_)
      kill(child_.pid, SIGHUP);
  }
}

// Repeats SIGKILL until no process is left: one may fork between listing and killing.
void Supervisor::kill_round() {
  std::size_t refused = 0;
  const std::size_t reached = tree_.kill_all(&refused);
  tree_.thaw();  // with cgroup v1 a frozen process ends only when it thaws
  exit_flags_ |= exit_escalated;
  kill_at_ns_ = boot_ns() + kill_round_ns_;
  kill_round_ns_ =
      kill_round_ns_ * 2 < kill_round_longest_ns ? kill_round_ns_ * 2 : kill_round_longest_ns;
  refused_rounds_ = reached == 0 && refused > 0 ? refused_rounds_ + 1 : 0;
  if (main_ended_ && refused_rounds_ >= refused_rounds_max) {
    exit_flags_ |= exit_leftovers;
    all_ended_ = true;
  }
  reap();
}

void Supervisor::drain() {
  for (int i = 0; i < drain_reads_max && child_.out >= 0; ++i) {
    const std::uint64_t before = read_bytes_;
    if (!read_output(&child_.out, Stream::out, 1) || read_bytes_ == before)
      break;
  }
  for (int i = 0; i < drain_reads_max && child_.err >= 0; ++i) {
    const std::uint64_t before = read_bytes_;
    if (!read_output(&child_.err, Stream::err, 1) || read_bytes_ == before)
      break;
  }
  show_held();
  redactor_.forget();
  log_.flush_loss(wall_ns());
}

ExitRecord Supervisor::exit_record() {
  ExitRecord record = blank_record();
  record.started_wall_ns = started_wall_ns_;
  record.started_boot_ns = started_boot_ns_;
  record.cause = static_cast<std::uint32_t>(cause_);
  record.stop_reason = stop_reason_;
  record.flags = exit_flags_;
  record.log_end = log_.end();
  record.log_dropped_bytes = log_.dropped_bytes();
  record.oom_kills = tree_.oom_kills() - oom_kills_before_;
  rusage used{};
  getrusage(RUSAGE_CHILDREN, &used);
  record.user_us = used.ru_utime.tv_sec * 1'000'000 + used.ru_utime.tv_usec;
  record.system_us = used.ru_stime.tv_sec * 1'000'000 + used.ru_stime.tv_usec;
  record.rss_max_kib = used.ru_maxrss;
  if (start_failed_) {
    record.kind = static_cast<std::uint32_t>(ExitKind::not_started);
    record.code = failure_.error == ENOENT ? 127 : 126;
    Text<sizeof(record.detail)> detail;
    detail << failure_.step << ": " << errno_text(failure_.error);
    set_detail(&record, detail.data);
  } else if (WIFSIGNALED(main_status_)) {
    record.kind = static_cast<std::uint32_t>(ExitKind::signaled);
    record.signal = WTERMSIG(main_status_);
    record.code = 128 + record.signal;
    if (WCOREDUMP(main_status_))
      record.flags |= exit_core_dumped;
  } else {
    record.kind = static_cast<std::uint32_t>(ExitKind::exited);
    record.code = WEXITSTATUS(main_status_);
  }
  if (record.oom_kills > 0)
    record.flags |= exit_oom;
  return record;
}

void Supervisor::finish() {
  if (child_.failure >= 0)
    read_failure();
  drain();
  state_ = SupervisorState::ended;
  const ExitRecord record = exit_record();
  int error = write_exit(record);
  ctl_.push_exit(record);
  // Connected agents know of the end; for others the record must reach the disk. Keep the lock, so
  // that the task is not taken for lost, until it does or the directory is removed.
  while (error != 0 && error != ENOENT) {
    timespec second{1, 0};
    nanosleep(&second, nullptr);
    error = write_exit(record);
  }
  ctl_.close_all();
}

StatusFrame Supervisor::status() {
  StatusFrame frame{};
  frame.version = protocol_version;
  frame.state = static_cast<std::uint32_t>(state_);
  frame.supervisor_pid = getpid();
  frame.job_pid = child_.pid;
  frame.started_wall_ns = started_wall_ns_;
  frame.started_boot_ns = started_boot_ns_;
  frame.log_end = log_.end();
  frame.log_dropped_bytes = log_.dropped_bytes();
  frame.stdin_accepted = stdin_accepted_;
  frame.time_deadline_boot_ns = time_deadline_ns_;
  frame.paid_until_boot_ns = paid_until_ns_;
  return frame;
}

}  // namespace billow::supervise
