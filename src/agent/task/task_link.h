// A live task as the agent holds it: the connection to its supervisor, its pending input, and what
// it was given. Only the sources of Tasks include this.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "agent/content/input_terms.h"
#include "agent/task/tasks.h"

namespace billow::agent {

using namespace wire::agent_v1;

// What the agent stores with a task's spec for its next start.
struct TaskMeta {
  bool fenced = false;
  SteadyTime paid_until;
  std::vector<GpuGrant> gpus;
  bool bare = false;
  std::uint16_t port = 0;
  InputTerms inputs;
  DiskLimit disk;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("fenced", s.fenced);
    v("paid_until_ns", s.paid_until);
    v("gpus", s.gpus);
    v("bare", s.bare);
    v("port", s.port);
    v("inputs", s.inputs);
    v("disk", s.disk);
  }
};

// What a task has used so far, saved in its directory.
struct SavedMeter {
  TaskMeter meter;
  SteadyTime at;               // of this boot
  std::int64_t tunnelled = 0;  // the part of its egress that went through tunnels
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("meter", s.meter);
    v("at_ns", s.at);
    v("tunnelled", s.tunnelled);
  }
};

inline std::string task_key(const std::string& owner, TaskId task) {
  return fmt::format("BILLOW_TASK_KEY={}-{}", owner, task.value);
}
inline std::string task_name(TaskId task) {
  return fmt::format("{}", task.value);
}

struct Tasks::Link final : LinkEvents {
  Tasks& owner;
  TaskId task;
  SupervisorLink link;
  std::unique_ptr<net::FdWatch> watch;
  std::string cgroup;
  unsigned uid = ::geteuid();  // the job's user
  bool has_user(unsigned one) const {
    return uid == one || (uid == 0 && one == container_user(task).uid);
  }
  std::vector<GpuGrant> gpus;
  int pid = 0;             // of the job's first process
  int supervisor_pid = 0;  // as it reported
  bool announced = false, exited = false, closed = false;
  bool last_checkpoint = false;  // requested, because the task is being stopped
  int job_pid = 0;
  std::uint64_t log_end = 0;
  SteadyTime last_input;
  bool input_known = true;  // false until the supervisor of an adopted task has reported it
  // Input that the supervisor has not accepted yet. Never more is sent than fits into its ring, as
  // counted from what the job has consumed: nothing is refused, and nothing is sent twice.
  std::string input;
  std::uint64_t input_base = 0;  // offset of input[0] in all input
  std::uint64_t input_sent = 0, input_consumed = 0;
  bool input_eof = false, eof_sent = false;

  Link(Tasks& o, TaskId t, SupervisorLink l) : owner(o), task(t), link(std::move(l)) {}

  void on_status(const supervise::StatusFrame& status) override {
    supervisor_pid = status.supervisor_pid;
    if (!input_known) {
      input_known = true;
      input_base = input_sent = input_consumed = status.stdin_accepted;
      tell_input(true);  // earlier input was not taken
      push_input();
    }
    log_end = std::max(log_end, status.log_end);
    if (status.job_pid > 0)
      job_pid = status.job_pid;
    if (announced || status.job_pid <= 0)
      return;
    announced = true;
    pid = status.job_pid;
    if (status.state != static_cast<std::uint32_t>(
                            supervise::SupervisorState::frozen))  // a suspended task holds none
      owner.hold_gpus(task, status.job_pid, cgroup, gpus);
    owner.callbacks_.event(task_event::Started{task, {status.started_wall_ns}});
  }
  void on_log_advanced(std::uint64_t end) override {
    log_end = std::max(log_end, end);
    owner.advanced(task);
  }
  void on_stdin_ack(const supervise::StdinAckFrame& ack) override {
    if (!input_known)
      return;
    input_consumed = ack.consumed;
    if (ack.accepted > input_base) {
      input.erase(0, std::min<std::size_t>(input.size(), ack.accepted - input_base));
      input_base = ack.accepted;
    }
    tell_input(false);
    push_input();
  }
  void on_exited(const supervise::ExitRecord& record) override {
    exited = true;
    owner.ended(task, record);
  }
  void on_closed() override { closed = true; }

  std::uint64_t input_received() const { return input_base + input.size(); }
  void tell_input(bool refused) {
    owner.callbacks_.send(InputTaken{task, input_consumed, input_base, input_received(), refused},
                          {});
  }

  void push_input() {
    if (!input_known)
      return;
    while (input_sent - input_base < input.size()) {
      const std::uint64_t window_left =
          supervise::stdin_window_bytes -
          std::min<std::uint64_t>(supervise::stdin_window_bytes, input_sent - input_consumed);
      const std::size_t from = input_sent - input_base;
      const std::size_t n = std::min<std::size_t>(
          {window_left, input.size() - from, supervise::record_data_bytes_max});
      if (n == 0)
        break;
      link.send_stdin(input_sent, std::string_view(input).substr(from, n));
      input_sent += n;
    }
    if (input_eof && !eof_sent && input_sent == input_base + input.size()) {
      link.send_stdin_eof(input_sent);
      eof_sent = true;
    }
    rearm();
  }
  void rearm() {
    if (watch && link.open())
      watch->want(true, link.wants_write());
  }
};

}  // namespace billow::agent
