// One job from its start to its exit record. Single-threaded, one poll loop, no allocation.
//
// Others rely on this order: the pid is in `lock` before the job can run; the exit record is in
// place before it is reported; the record is written only when no process of the job is left and
// its pipes are drained.
#pragma once

#include <sys/types.h>

#include "supervise/child.h"
#include "supervise/ctl.h"
#include "supervise/log_writer.h"
#include "supervise/redactor.h"
#include "supervise/spec.h"
#include "supervise/tree.h"

namespace billow::supervise {

class Supervisor final : public CtlHandler {
 public:
  Supervisor(const Spec& spec, Redactor& redactor)
      : spec_(spec), tree_(spec), ctl_(*this), redactor_(redactor) {}
  // Runs the job to its end and returns this process's exit status.
  int run(int ctl_fd);

  // Writes the record of a job that could not be tried (its spec cannot be read).
  static void record_not_started(const char* detail);

 private:
  void on_stdin(std::uint64_t offset, const char* data, std::uint32_t bytes) override;
  void on_stdin_eof(std::uint64_t offset) override;
  void on_resize(const ResizeFrame& frame) override;
  void on_signal(const SignalFrame& frame) override;
  void on_stop(const StopFrame& frame) override;
  void on_deadline(const DeadlineFrame& frame) override;
  void on_freeze(bool freeze) override;
  StatusFrame status() override;
  std::uint32_t replay(char* out, std::uint32_t capacity) override;

  bool start(int ctl_fd);
  void loop();
  void read_signals();
  void reap();
  void read_failure();
  // Reads up to a fair share. False at the end of the stream.
  bool read_output(int* fd, Stream stream, int reads_max);
  // Into the log and to followers: without the values of secrets.
  void redact(Stream stream, std::uint32_t bytes);
  void show_held();
  void put_output(Stream stream, const char* data, std::uint32_t bytes);
  void put_record(Stream stream, const char* data, std::uint32_t bytes);
  static void put_out(void* self, const char* data, std::uint32_t bytes);
  static void put_err(void* self, const char* data, std::uint32_t bytes);
  void write_stdin();
  void close_stdin();
  void remember(const char* data, std::uint32_t bytes);
  void begin_stop(EndCause cause, std::int64_t grace_ns);
  void run_timers();
  void arm_timer();
  void kill_round();
  void drain();
  void finish();
  ExitRecord exit_record();

  const Spec& spec_;
  Tree tree_;
  Ctl ctl_;
  LogWriter log_;
  Redactor& redactor_;
  Child child_;
  SupervisorState state_ = SupervisorState::starting;
  unsigned long oom_kills_before_ = 0;  // of earlier jobs, if the counter is a container's
  int signals_ = -1, timer_ = -1, parent_ = -1;

  // How it ends.
  bool main_ended_ = false, all_ended_ = false;
  int main_status_ = 0;
  StartFailure failure_{};
  bool start_failed_ = false;
  EndCause cause_ = EndCause::itself;
  std::uint32_t stop_reason_ = 0, exit_flags_ = 0;

  // Times, CLOCK_BOOTTIME; 0 is none.
  std::int64_t started_wall_ns_ = 0, started_boot_ns_ = 0;
  std::int64_t time_deadline_ns_ = 0, paid_until_ns_ = 0, frozen_ns_ = 0;
  std::int64_t kill_at_ns_ =
      0;  // when the grace after SIGTERM ends; then the next round of SIGKILL
  std::int64_t kill_round_ns_ = 20'000'000;  // until the next round; doubles, because a process in
                                             // the kernel may take long to end
  std::int64_t armed_ns_ = 0;
  std::int64_t show_at_ns_ = 0;     // when output that is held back is shown
  std::int64_t hang_up_at_ns_ = 0;  // again
  int refused_rounds_ = 0;

  // Pending input of the job: a ring, and the offsets of the stream.
  std::uint64_t stdin_accepted_ = 0, stdin_consumed_ = 0;
  bool stdin_ended_ = false;
  std::uint64_t read_bytes_ = 0;  // of output
  // The last output of a terminal, also a ring.
  std::uint64_t replay_total_ = 0;
};

}  // namespace billow::supervise
