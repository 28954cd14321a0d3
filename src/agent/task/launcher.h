// Starts supervisors and talks to them. Nothing here waits: a link has a descriptor for the agent's
// loop to watch, and passes on what it reads as events.
//
// Losing a link does not affect the job. After a restart `connect` finds the supervisor again
// through its ctl.sock. If a link closes before the exit record came, the task directory says how
// the task stands (task_dir.h).
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "agent/network/job_network.h"
#include "agent/task/task_dir.h"
#include "base/file.h"
#include "base/result.h"
#include "supervise/protocol.h"

namespace billow::agent {

// Messages of a supervisor. Views are valid during the call only.
class LinkEvents {
 public:
  virtual ~LinkEvents() = default;
  virtual void on_status(const supervise::StatusFrame&) {}
  virtual void on_output(const supervise::OutputHead&, std::string_view) {}
  virtual void on_log_advanced(std::uint64_t /*log_end*/) {}
  virtual void on_stdin_ack(const supervise::StdinAckFrame&) {}
  virtual void on_replay(std::string_view) {}
  virtual void on_exited(const supervise::ExitRecord&) {}
  virtual void on_closed() {}  // the last event
};

class SupervisorLink {
 public:
  SupervisorLink() = default;
  explicit SupervisorLink(Fd fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }  // -1 once closed
  bool open() const { return static_cast<bool>(fd_); }
  // The connection itself, to be given to another process.
  Fd release() { return std::move(fd_); }
  // Reads and calls back. Call it when fd() is readable.
  void on_readable(LinkEvents& events);
  // True while something could not be sent yet: watch for writability, then call on_writable.
  bool wants_write() const { return !out_.empty(); }
  void on_writable();

  void send_stdin(std::uint64_t offset,
                  std::string_view data);  // at most supervise::stdin_window_bytes unacknowledged
  void send_stdin_eof(std::uint64_t offset);
  void resize(TerminalSize size);
  void signal(int number, supervise::SignalScope scope = supervise::SignalScope::group);
  void stop(Duration grace, std::uint32_t reason = 0);  // negative grace: as the spec says
  void set_deadline(supervise::DeadlineKind kind, SteadyTime when);
  void freeze(bool frozen);
  void request_status();
  void subscribe(supervise::Subscription subscription, bool replay = false);

 private:
  void send(supervise::FrameType type,
            const void* head,
            std::size_t head_bytes,
            std::string_view data = {});
  bool dispatch(const supervise::FrameHead& head, std::string_view payload, LinkEvents& events);
  Fd fd_;
  std::string in_;
  std::string
      out_;  // bounded by link_out_bytes_max: a supervisor that reads nothing loses its link
};

struct LauncherOptions {
  std::string supervise_path;  // empty: billow-supervise beside this program, or $BILLOW_SUPERVISE
};

class Launcher {
 public:
  static Result<Launcher> create(LauncherOptions options);

  // Starts the supervisor of a new task directory and passes the lock to it. `secrets`: variables
  // as "NAME=value\0", which are passed in memory and never written to a file. `redacted`: values
  // that its log does not show, as supervise/redactor.h reads them. `network`: the job's own.
  Result<SupervisorLink> launch(NewTask task,
                                std::string_view secrets = {},
                                std::string_view redacted = {},
                                const JobNetwork* network = nullptr);
  // Connects to the supervisor of an adopted task. A supervisor that has just started may not
  // listen yet, and one that is ending no longer does: while its lock is held this tries again, for
  // at most `patience`. unavailable: read the directory again.
  Result<SupervisorLink> connect(const std::string& task_path,
                                 Duration patience = seconds(5)) const;
  // Reaps supervisors that ended, so that none stays a zombie. Cheap: call it when a link closes
  // and on a timer. Returns how many still run.
  std::size_t reap();

 private:
  Launcher() = default;
  std::string path_;
  std::set<int> children_;
};

}  // namespace billow::agent
