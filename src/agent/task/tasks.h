// The running tasks of this node. Carries out each effect of the core that concerns a task, and
// passes messages of supervisors to the core as events. It knows processes, directories and
// devices, and decides nothing.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "agent/content/containers.h"
#include "agent/content/spare_dirs.h"
#include "agent/isolate/cgroup.h"
#include "agent/isolate/look_as_user.h"
#include "agent/isolate/mig_claims.h"
#include "agent/isolate/network_guard.h"
#include "agent/isolate/own_place.h"
#include "agent/isolate/peer.h"
#include "agent/isolate/sandbox.h"
#include "agent/isolate/secret_files.h"
#include "agent/isolate/users.h"
#include "agent/network/project_networks.h"
#include "agent/observe/egress.h"
#include "agent/observe/sampler.h"
#include "agent/reach/listening.h"
#include "agent/reach/port_watch.h"
#include "agent/reach/ssh_server.h"
#include "agent/task/checkpointer.h"
#include "agent/task/disk_guard.h"
#include "agent/task/launcher.h"
#include "agent/task/log_reader.h"
#include "agent/task/node_rules.h"
#include "agent/task/rights/task_rights.h"
#include "agent/task/suspender.h"
#include "agent/task/task_dir.h"
#include "base/limits.h"
#include "container/plan.h"
#include "core/agent/core.h"
#include "core/wire/confined.h"
#include "gpu/backend.h"
#include "gpu/host.h"
#include "net/loop.h"

namespace billow::agent {

class Tasks {
 public:
  struct Options {
    std::string data_dir;
    std::string sim_state_dir;  // empty: real GPUs
    std::vector<GpuInfo> gpus;
    // For the memory of suspended tasks; see GpumemHost.
    std::int64_t arena_bytes = 0, sleep_memory_bytes = 0, sleep_disk_bytes = 0;
    // MiB by process; called on workers; may be empty.
    std::function<std::map<int, std::int64_t>()> gpu_memory;
    std::string keepalive_socket;  // in the environment of jobs; empty: none
    MigClaims migs;
    // Where `billow stage` gets a job's files; empty: files cannot follow a job here.
    std::string files_socket;
    std::string work_dir;                 // where they are written
    std::string cache_dir;                // of images and projects' caches; empty: work_dir
    std::string kept_dir;                 // of the notes about what is kept there; empty: data_dir
    SpareDirs* spares = nullptr;          // where ended jobs leave their files; null: nowhere
    std::function<ContentSource()> head;  // where environments are fetched from
    std::uint64_t environment_bytes_max = 0;          // unpacked environments, for each user
    std::uint64_t image_bytes_max = 0;                // container images, for each user
    std::function<Result<ImageTerms>()> image_terms;  // as in Containers
    std::function<Result<NodeRules>()> rules;         // of the machine's owner; may be missing
    Duration pull_patience = limits::container_quiet_max;
    bool allow_metadata = false;    // jobs may use the cloud's metadata service
    bool metadata_closed = false;   // as in NodeRules, if they do not say it
    bool allow_namespaces = false;  // jobs may create user namespaces and mount in them
    // Jobs of users who have no account on this machine run as this user; missing: they fail.
    std::optional<UserRecord> without_account;
    // The socket of the node's root helper, for an agent that is not root (task_rights.h); empty:
    // it does itself what it may.
    std::string root_helper;
    std::function<Reach()> reach;  // how gateways reach replicas here; missing: from this machine
  };
  struct Callbacks {
    std::function<void(const TaskEvent&)> event;
    std::function<void(const wire::agent_v1::FromAgent&, std::string_view blob)> send;
    std::function<void(const wire::agent_v1::Tunnelled&, std::string_view blob)> send_tunnel;
    // Bytes sent to the head are egress, because it is on another site; may be missing.
    std::function<bool()> head_is_outside;
    std::function<void(TaskId)> files_done;  // its working directory may be removed; may be missing
    // Checks the node after a bare task, then reports Ended; may be missing.
    std::function<void(TaskStatus)> look_over;
  };
  static Result<std::unique_ptr<Tasks>> create(net::Loop& loop,
                                               Options options,
                                               Callbacks callbacks);
  ~Tasks();

  // The tasks of an earlier agent, from their directories. Those that run are connected to again.
  // If a directory cannot be read, the agent must not go on: it would remove what belongs to tasks
  // that run, and report them as lost.
  Result<std::vector<RecoveredTask>> recover();

  void perform(const effect::StartTask& e);
  // The task ends without having started, and its end says why.
  void refuse(TaskId task, const Error& why, int code = 126);
  void perform(const effect::RecordEnd& e);
  void perform(const effect::StopTask& e);
  void perform(const effect::SignalTask& e);
  void perform(const effect::InputTask& e);
  void perform(const effect::ResizeTask& e);
  void perform(const effect::SuspendTask& e);
  void perform(const effect::ResumeTask& e);
  void perform(const effect::SetEndsAt& e);
  void perform(const effect::AcknowledgeTask& e);
  void perform(const effect::RemoveTask& e);
  void perform(const effect::ReadLog& e);
  void answer_query(const wire::agent_v1::LogRead& read);
  void perform(const effect::CancelLog& e);
  void perform(const effect::LookAtPort& e);  // tasks_ports.cpp
  // The account that a job of this name runs as. Empty: the agent's own.
  Result<UserRecord> account(const std::string& name) const;
  bool limits_memory() const { return cgroups_.memory() != CgroupKind::none; }
  void leave();  // the agent ends, and no task is left
  void perform(const effect::SaveMeter& e);
  std::vector<WatchedTask> watched() const;
  std::string asleep_text(TaskId task) const { return suspender_.asleep_text(task); }
  // The task that a process belongs to, if any.
  // The task that this process belongs to. Reads a few files of that process, whatever runs here.
  std::optional<TaskId> task_of(const SocketPeer& peer) const;
  bool has_root_helper() const { return rights_->of_helper(); }
  bool has_user(unsigned uid) const;  // a task that runs here belongs to this user
  // Whether jobs with the network `internet` and these blocks reach the address. From any thread.
  static bool may_reach(const std::vector<std::string>& allow, const net::RawAddress& address);
  // What was recorded when the task started.
  Result<TaskRecord> recorded(TaskId task) const;
  void forget_readers();  // the connection to the head ended, and its readers of logs with it
  void reap() {
    (void)launcher_.reap();
    ssh_.reap();
  }
  Tunnels& tunnels() { return tunnels_; }
  std::int64_t image_bytes() { return containers_.image_bytes(); }
  void forget_other_containers(const std::vector<TaskId>& live) { containers_.forget_others(live); }
  std::size_t live() const { return links_.size(); }
  // The live tasks with the pids of their supervisors.
  std::vector<std::pair<TaskId, int>> supervisors() const;

 private:
  struct Link;
  struct Reader {
    TaskId task;
    std::uint64_t offset = 0;
    bool follow = false;
  };
  struct Places {
    OwnPlace work, cache, temporary, memory;
  };
  Tasks(net::Loop& loop,
        Options options,
        Callbacks callbacks,
        TaskDirs dirs,
        Launcher launcher,
        std::optional<HelperRights> helper,
        Places places);
  // A task on its way to its supervisor (tasks_start.cpp).
  struct Granted {
    std::vector<GpuInfo> cards;
    std::vector<int> indices;
    std::vector<std::string> mig_uuids;
  };
  struct Starting {
    wire::agent_v1::Start start;  // volumes as they were found (content/volume_source.h)
    const Containers::Prepared* prepared =
        nullptr;  // none: the job has neither image nor environment
    NodeRules rules = {};
    UserRecord user = {};
    Granted granted = {};
    TaskSpec spec = {};
    TaskPlan plan = {};
    TaskCgroup group = {};
    std::optional<JobNetwork> network = {};
    bool other_root() const { return prepared && prepared->plan.root; }
    bool confined() const { return !wire::confined_for(start).empty(); }
    bool strict() const { return wire::strict_isolation(start); }
  };
  Status specify(Starting& starting, SteadyTime paid_until);
  Status specify_command(Starting& starting);
  Status specify_rights(Starting& starting);
  Result<std::string> work_dir_of(const Starting& starting);
  Status furnish(Starting& starting);
  Status make_private_tmp(Starting& starting, const Environment& env);
  void hide_processes(Starting& starting) const;
  Status make_network(Starting& starting, Environment& env);  // tasks_network.cpp
  void adopt_network(TaskId task);
  std::string hosts_file(const std::string& project) const;
  Result<Environment> environment_of(Starting& starting);
  Result<Granted> claim_gpus(const wire::agent_v1::Start& start);
  static void describe_gpus(const wire::agent_v1::Start& start,
                            const Granted& granted,
                            Environment& env);
  CgroupLimits limits_of(const wire::agent_v1::Start& start) const;  // tasks_limits.cpp
  Status limit(Starting& starting);                                  // tasks_limits.cpp
  Status close_devices(Starting& starting) const;                    // tasks_limits.cpp
  Result<DiskLimit> disk_limit(const Starting& starting) const;      // tasks_disk.cpp
  void exceeds_disk(TaskId task, const std::string& why);
  void tell_disk_exceeded(TaskStatus& status);
  std::int64_t fair_memory(const wire::agent_v1::Start& start) const;
  Result<NodeRules> rules() const;
  Status guard(const Starting& starting);
  void begin(const effect::StartTask& e,
             const NodeRules& rules,
             const Containers::Prepared* prepared);
  void end_unstarted(TaskId task, ExitStatus exit);
  void clean_up(TaskId task);
  Suspender::Callbacks suspender_callbacks();
  std::vector<int> processes_of(TaskId task) const;
  bool signal_handlers(TaskId task, int number, SignalTo to);
  void watch(TaskId task, SupervisorLink link);
  Result<Tunnels::Target> open_door(const wire::agent_v1::TunnelOpen& request);  // task_tunnels.cpp
  Result<Tunnels::Target> open_port(TaskId task, std::uint16_t port);
  ConnectAs network_user_of(TaskId task) const;
  std::uint32_t refused_calls(const Surroundings& asked) const;
  // Keeps a job on the node's own file system from other processes of its account.
  std::uint32_t own_domain() const;
  Result<UserRecord> user_of(const wire::agent_v1::Start& start) const;
  Result<JobPlace> place_of(TaskId task) const;  // task_place.cpp
  std::optional<container::Plan> image_plan(TaskId task) const;
  void close_doors(TaskId task);
  void watch_port(TaskId task, std::uint16_t port);  // tasks_ports.cpp
  void look_at_ports();
  void look_at_port_of(TaskId task);
  Status close_replica_port(std::uint16_t port, const NodeRules& rules, const std::string& cgroup);
  void renew_closed_ports();
  void tell_port_taken(TaskStatus& status);
  std::string key_of(TaskId task) const;  // a variable that only its processes have
  int pid_of(TaskId task) const;          // its first process; 0: not known to run
  Link* link(TaskId task);
  void closed(TaskId task);
  void adopt(TaskId task, SupervisorLink link);
  void settle(TaskId task);
  void seek(TaskId task, Duration after);
  // True: the order is carried out once the task's supervisor answers.
  template <class Order>
  bool awaits_supervisor(const Order& order);
  void lost(TaskId task);
  bool recover_one(const FoundTask& task, RecoveredTask& recovered);
  void recover_running(TaskId task, TaskStatus& status);
  void ended(TaskId task, const supervise::ExitRecord& record);
  void remove_groups(TaskId task, const TaskCgroup& group);
  void remove_groups_left();
  void count_egress(TaskId task, const std::string& cgroup, const std::string& inside = {});
  Status can_close_metadata() const;
  Status close_metadata(const std::string& cgroup) const;
  std::int64_t all_sent(TaskId task, const std::string& cgroup);  // at its end
  void hold_gpus(TaskId task,
                 int pid,
                 const std::string& cgroup,
                 const std::vector<GpuGrant>& gpus);
  std::uint32_t card_index(const GpuGrant& grant) const;
  void advanced(TaskId task);
  void stop_now(const effect::StopTask& e);
  bool serve(std::uint64_t subscription, Reader& reader);  // true: answered

  net::Loop& loop_;
  Options options_;
  Callbacks callbacks_;
  TaskDirs dirs_;
  Launcher launcher_;
  std::string owner_;
  OwnPlace work_;       // of work_dir
  OwnPlace cache_;      // of cache_dir
  OwnPlace temporary_;  // this agent's own directory in /tmp
  OwnPlace memory_;     // and in memory
  Cgroups cgroups_;
  Sandbox sandbox_;
  HostInfo host_;                       // as it was when the agent started
  Result<NetworkGuard> network_guard_;  // an error: not wanted, or not possible here
  std::unordered_map<TaskId, std::unique_ptr<Link>> links_;
  // Tasks of an earlier agent whose supervisor does not answer yet, with the orders they await.
  struct Sought {
    net::Timer again;
    std::vector<std::function<void()>> orders;
    std::size_t input_bytes = 0;  // in these orders
  };
  std::unordered_map<TaskId, Sought> sought_;
  std::map<std::uint64_t, Reader> readers_;  // by subscription
  // Subscriptions that wait for a task's log.
  std::unordered_map<TaskId, std::set<std::uint64_t>> reading_;
  std::unordered_map<TaskId, std::unique_ptr<LogReader>> logs_;
  TreeRemoval removal_;
  Suspender suspender_;
  Checkpointer checkpointer_;
  MigClaims migs_;
  SecretFiles secret_files_;
  UserLooks looks_;
  std::unique_ptr<TaskRights> rights_;
  ProjectNetworks project_networks_;
  SshServers ssh_;
  Tunnels tunnels_;
  // Which process listens on a port that was asked for, as last found.
  struct KnownListener {
    Listener listener;
    ConnectAs as;
  };
  std::map<std::pair<TaskId, std::uint16_t>, KnownListener> listeners_;
  PortWatch ports_;
  net::Timer ports_timer_;
  std::vector<std::uint64_t> gateway_groups_;  // whose processes may call replicas, as last found
  SteadyTime gateway_groups_due_;
  // Of ended tasks, in which a process had not ended yet.
  std::vector<std::pair<TaskId, TaskCgroup>> groups_left_;
  net::Timer groups_timer_;
  Containers containers_;
  std::unordered_map<TaskId, EgressCounter> egress_;
  struct Carried {
    std::int64_t before = 0, bytes = 0;  // by earlier agents, and by this one
  };
  // Bytes sent through tunnels, which the task's own counter does not see.
  std::unordered_map<TaskId, Carried> tunnelled_;
  std::unordered_set<TaskId> born_here_;  // started by this agent
  DiskGuard disk_guard_;
};

}  // namespace billow::agent
