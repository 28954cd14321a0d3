// Real supervisors in a temporary directory, driven the way the agent drives them.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "agent/task/launcher.h"
#include "agent/task/log_reader.h"
#include "agent/task/task_dir.h"

namespace billow::agent {

inline std::string make_temp_dir() {
  std::string pattern =
      (std::getenv("TMPDIR") != nullptr ? std::string(std::getenv("TMPDIR")) : "/tmp") +
      "/billow-agent-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr)
    std::abort();
  return pattern;
}

// Everything one supervisor said.
struct Heard : LinkEvents {
  std::vector<supervise::StatusFrame> statuses;
  std::string out, err, replay;
  std::uint64_t live_next = 0;
  bool live_gap = false;
  std::uint64_t log_end = 0;
  supervise::StdinAckFrame ack{};
  std::optional<supervise::ExitRecord> exit;
  bool closed = false;

  void on_status(const supervise::StatusFrame& f) override { statuses.push_back(f); }
  void on_output(const supervise::OutputHead& h, std::string_view data) override {
    if (h.offset != live_next)
      live_gap = true;
    live_next = h.offset + sizeof(supervise::RecordHead) + data.size();
    (h.record.stream == 1 ? out : err).append(data);
  }
  void on_log_advanced(std::uint64_t end) override { log_end = end; }
  void on_stdin_ack(const supervise::StdinAckFrame& f) override { ack = f; }
  void on_replay(std::string_view data) override { replay.append(data); }
  void on_exited(const supervise::ExitRecord& r) override { exit = r; }
  void on_closed() override { closed = true; }
  bool reached(supervise::SupervisorState state) const {
    return !statuses.empty() && statuses.back().state == static_cast<std::uint32_t>(state);
  }
};

class Rig {
 public:
  Rig() : root_(make_temp_dir()) {
    auto dirs = TaskDirs::open(root_ + "/tasks");
    if (!dirs)
      ADD_FAILURE() << dirs.error().message;
    dirs_.emplace(std::move(*dirs));
    auto launcher = Launcher::create({BILLOW_SUPERVISE_PATH});
    if (!launcher)
      ADD_FAILURE() << launcher.error().message;
    launcher_.emplace(std::move(*launcher));
  }
  ~Rig() {
    // What a failed test left running ends with it.
    if (auto tasks = dirs_->list())
      for (const FoundTask& task : *tasks)
        if (task.presence == TaskPresence::supervised && task.supervisor_pid > 0)
          ::kill(task.supervisor_pid, SIGTERM);
    pump_until([&] { return launcher_->reap() == 0; });
    (void)remove_tree(root_);
  }

  TaskDirs& dirs() { return *dirs_; }
  Launcher& launcher() { return *launcher_; }
  const std::string& root() const { return root_; }

  Result<SupervisorLink> start(TaskId id, const TaskSpec& spec, std::string_view meta = {}) {
    auto task = dirs_->create(id, spec, meta);
    if (!task)
      return pass(task.error());
    return launcher_->launch(std::move(*task));
  }
  // Reads from the link until the condition holds. False after the deadline.
  template <class Condition>
  bool until(SupervisorLink& link, Heard& heard, Condition condition, int seconds_max = 60) {
    return pump_until(
        [&] {
          if (condition())
            return true;
          pollfd p{link.fd(), static_cast<short>(link.wants_write() ? POLLIN | POLLOUT : POLLIN),
                   0};
          ::poll(&p, 1, 10);
          if ((p.revents & POLLOUT) != 0)
            link.on_writable();
          if ((p.revents & (POLLIN | POLLHUP)) != 0)
            link.on_readable(heard);
          return condition();
        },
        seconds_max);
  }
  template <class Condition>
  static bool pump_until(Condition condition, int seconds_max = 60) {
    const SteadyTime end = system_clock().steady() + seconds(seconds_max);
    while (!condition()) {
      if (system_clock().steady() > end)
        return false;
      ::poll(nullptr, 0, 1);
    }
    return true;
  }
  // Starts a task, waits for its end and gives what it said.
  Heard run(TaskId id, const TaskSpec& spec) {
    Heard heard;
    auto link = start(id, spec);
    if (!link) {
      ADD_FAILURE() << link.error().message;
      return heard;
    }
    EXPECT_TRUE(until(*link, heard, [&] { return heard.closed; })) << "the task did not end";
    return heard;
  }
  // The whole log of a task by stream, read from the files.
  struct Log {
    std::string out, err;
    std::uint64_t gone = 0, next = 0;
  };
  Log read_log(TaskId id, std::size_t chunk_bytes = 64 << 10) {
    Log log;
    LogReader reader(dirs_->path(id));
    for (;;) {
      auto chunk = reader.read(log.next, chunk_bytes);
      if (!chunk) {
        ADD_FAILURE() << chunk.error().message;
        return log;
      }
      log.gone += chunk->gone_bytes;
      EXPECT_TRUE(for_each_record(chunk->frames, chunk->offset, [&](const LogRecord& r) {
        (r.stream == supervise::Stream::out ? log.out : log.err).append(r.data);
      }));
      log.next = chunk->next_offset;
      if (chunk->at_end)
        return log;
    }
  }

 private:
  std::string root_;
  std::optional<TaskDirs> dirs_;
  std::optional<Launcher> launcher_;
};

inline TaskSpec shell(std::string script) {
  TaskSpec spec;
  spec.argv = {"/bin/sh", "-c", std::move(script)};
  spec.env = {"PATH=/usr/local/bin:/usr/bin:/bin"};
  spec.stop_grace = seconds(5);
  spec.leftover_grace = milliseconds(50);
  spec.subscription = supervise::Subscription::live;
  return spec;
}

}  // namespace billow::agent
