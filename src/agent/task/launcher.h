// Starting supervisors and talking to them. Nothing here waits: links expose a descriptor for the
// agent's loop to watch, and hand on what they read as events.
//
// Losing a link is harmless to the job. After a restart `connect` finds the supervisor again
// through its ctl.sock; when a link closes without an exit record having come, the task directory
// has the truth (task_dir.h).
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "agent/task/task_dir.h"
#include "base/file.h"
#include "base/result.h"
#include "supervise/protocol.h"

namespace billow::agent {

// What a supervisor says. Views are valid during the call only.
class LinkEvents {
 public:
  virtual ~LinkEvents() = default;
  virtual void on_status(const supervise::StatusFrame&) {}
  virtual void on_output(const supervise::OutputHead&, std::string_view) {}
  virtual void on_log_advanced(std::uint64_t /*log_end*/) {}
  virtual void on_stdin_ack(const supervise::StdinAckFrame&) {}
  virtual void on_replay(std::string_view) {}
  virtual void on_exited(const supervise::ExitRecord&) {}
  virtual void on_closed() {}  // the link is gone; last event
};

class SupervisorLink {
 public:
  SupervisorLink() = default;
  explicit SupervisorLink(Fd fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }  // -1 once closed
  bool open() const { return static_cast<bool>(fd_); }
  // Reads what there is and calls back. To be called when fd() is readable.
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

  // Starts the supervisor of a task directory just made; its lock goes over to the supervisor.
  // `secrets`: variables as "NAME=value\0", which go through memory and are in no file.
  Result<SupervisorLink> launch(NewTask task, std::string_view secrets = {});
  // Finds the supervisor of an adopted task. One that has just been started may not listen yet, and
  // one that ends listens no more: while its lock is held it is tried again, for `patience` at
  // most. unavailable: look at the directory again.
  Result<SupervisorLink> connect(const std::string& task_path,
                                 Duration patience = seconds(5)) const;
  // Collects supervisors that ended, so that none stays a zombie. Cheap; to be called when a link
  // closes and on a tick.
  void reap();
  std::size_t unreaped() const { return children_.size(); }

 private:
  Launcher() = default;
  std::string path_;
  Fd null_;
  std::set<int> children_;
};

}  // namespace billow::agent
