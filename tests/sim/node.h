// A simulated machine with GPUs: its task directories and processes (which survive the agent), the
// agent's memory file, and the agent itself, which is the real agent::Core inside a shell that
// mirrors agent/task/tasks.cpp and agent/node/node.cpp.
#pragma once

#include <map>
#include <set>

#include "agent/task/order_record.h"
#include "core/agent/core.h"
#include "supervise/protocol.h"
#include "world.h"

namespace billow::sim {

struct Conn;

struct Process {
  TaskId task;
  JobId job;
  std::uint32_t attempt = 0, rank = 0;
  SimNode* node = nullptr;
  std::vector<GpuGrant> gpus;
  std::size_t secrets = 0;  // that it was given
  std::int64_t started_ns = 0, ended_ns = 0;
  bool alive = true;
  bool killed_by_stop = false;  // else, once dead, it ended by itself, by its time limit, or with
                                // its machine or supervisor
  bool vanished = false;        // with its machine or its supervisor: nobody saw its end
  bool timed_out = false;
  bool unpaid = false;                       // nobody renewed its fence
  bool frozen = false;                       // suspended: it holds no GPU and makes no progress
  std::optional<std::uint32_t> stop_reason;  // of the first stop
  std::int32_t code = 0, signal = 0;
  std::vector<std::function<void()>> on_thaw;  // what became due while it was frozen
};

class SimNode {
 public:
  SimNode(World& world, std::size_t index, int gpus);
  // A rented machine, which joins with the token that it was ordered with.
  SimNode(World& world, std::string name, std::string external, std::string token);

  void boot();
  void start_agent();
  void crash_agent();
  void power_off();
  void reboot(Duration down);
  void kill_a_supervisor();
  void every_second();

  // ---- the wire's side
  void on_frame(const Conn* conn, std::string_view frame);
  void on_closed(const Conn* conn);

  World& world;
  const std::string name;
  const std::string rented_as;  // the provider's name of it; empty: not rented
  bool is_rented() const { return !rented_as.empty(); }
  MachineClock clock;
  int gpu_count;
  bool up = false, gone = false;  // gone: never comes back
  bool slow = false;
  const std::map<TaskId, std::shared_ptr<Process>>& live() const { return live_; }
  bool agent_runs() const { return core_ != nullptr; }
  const agent::Core* core() const { return core_.get(); }

 private:
  // tasks/<id>, as agent/task/task_dir.h describes it.
  struct Dir {
    wire::agent_v1::Start start;
    SteadyTime ends_at;
    bool has_pid = false;
    bool supervised = false;
    bool acknowledged = false;
    agent::OrderRecord order;  // the file of that name; order 0: none
    std::optional<supervise::ExitRecord> exit;
    std::shared_ptr<Process> process;
  };
  agent::Now now() const { return {clock.wall(), clock.steady()}; }
  NodeOffer offer() const;
  bool join();  // true: it has a credential
  void dial();
  void redial();
  void tick();
  bool perform(const agent::Effects& effects);  // false: the agent died on the way
  void start_task(const agent::effect::StartTask& e);
  void refuse_task(TaskId id, const std::string& why);
  std::shared_ptr<Process> process_of(const agent::effect::StartTask& e);
  void plan_end(const agent::effect::StartTask& e, const std::shared_ptr<Process>& process);
  void stop_task(TaskId task, Duration grace, supervise::EndCause cause, agent::StopReason reason);
  void set_ends_at(TaskId task, SteadyTime ends_at);
  void carry_out(TaskId task, agent::OrderRecord record);
  void end_process(TaskId task,
                   supervise::EndCause cause,
                   std::int32_t code,
                   std::int32_t signal,
                   std::uint32_t stop_reason);
  void vanish(Process& process);  // with its machine or its supervisor
  void beat();
  void tell(TaskId task, agent::TaskEvent event);
  std::vector<agent::RecoveredTask> recover();
  void send(const wire::agent_v1::FromAgent& message);
  void check();

  std::map<TaskId, Dir> dirs_;
  std::map<TaskId, std::shared_ptr<Process>> live_;  // of those, the processes that live
  agent::Memory memory_;                             // the file
  std::unique_ptr<agent::Core> core_;
  std::uint64_t life_ = 0;  // of the agent; what was meant for an earlier one is dropped
  std::uint64_t boot_ = 0;
  std::shared_ptr<Conn> conn_;
  std::string join_token_, key_;  // of a rented machine
  TokenId credential_;
  int attempts_ = 0;
  int beats_ = 0;
};

}  // namespace billow::sim
