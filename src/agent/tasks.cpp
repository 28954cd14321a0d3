#include "agent/tasks.h"

#include <poll.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "agent/file_service.h"
#include "agent/gang.h"
#include "agent/keepalive.h"
#include "agent/proc_stats.h"
#include "agent/task_status.h"
#include "agent/users.h"
#include "base/crypto.h"
#include "base/limits.h"
#include "base/log.h"
#include "gpu/sim/sim_holders.h"
#include "gpu/topology.h"
#include "model/surroundings.h"
#include "wire/codec.h"

namespace billow::agent {

using namespace wire::agent_v1;

namespace {

// What the agent writes beside a task's spec to know it again after a restart.
struct Meta {
  bool fenced = false;
  SteadyTime paid_until;
  std::vector<GpuGrant> gpus;
  bool bare = false;
  template <class V>
  void fields(V& v) { v("fenced", fenced); v("paid_until_ns", paid_until); v("gpus", gpus); v("bare", bare); }
};

constexpr Duration settle_patience = milliseconds(20);    // the loop waits this long at most
constexpr Duration settle_again_after = milliseconds(100);
constexpr int leftover_rounds_max = 20;

// What tells this agent's tasks from those of another one on the same machine, whose numbers are the same.
std::string owner_of(const std::string& data_dir) {
  char resolved[PATH_MAX];
  return sha256_hex(::realpath(data_dir.c_str(), resolved) ? resolved : data_dir).substr(0, 12);
}
std::string task_key(const std::string& owner, TaskId task) { return fmt::format("BILLOW_TASK_KEY={}-{}", owner, task.value); }

// What a task has used, beside its directory's other files: {"meter": …, "at": steady time of this boot}.
struct SavedMeter {
  TaskMeter meter;
  SteadyTime at;
  template <class V>
  void fields(V& v) { v("meter", meter); v("at_ns", at); }
};

// Of the job's user, who writes into it; others cannot look into it, but can pass through to their own.
Result<std::string> make_work_dir(const std::string& work_dir, TaskId task, const UserRecord& user) {
  BILLOW_TRY_VOID(make_directories(work_dir, 0711));
  const std::string path = work_path(work_dir, task);
  if (::mkdir(path.c_str(), 0700) != 0) return fail_errno(path, errno);
  if (::geteuid() == 0 && ::lchown(path.c_str(), user.identity.uid, user.identity.gid) != 0) return fail_errno(path, errno);
  return path;
}

std::string task_name(TaskId task) { return fmt::format("{}", task.value); }

}  // namespace

struct Tasks::Link final : LinkEvents {
  Tasks& owner;
  TaskId task;
  SupervisorLink link;
  std::unique_ptr<net::FdWatch> watch;
  std::string cgroup;
  std::vector<GpuGrant> gpus;
  int pid = 0;                       // of the job's first process
  int supervisor_pid = 0;            // as it said itself
  bool announced = false, exited = false, closed = false;
  bool last_checkpoint = false;      // asked for, because it is being stopped
  int job_pid = 0;
  std::uint64_t log_end = 0;
  SteadyTime last_input;
  bool input_known = true;           // where its input stands; an adopted task's supervisor says so first
  // Input on its way: what the supervisor has not accepted yet stays here. No more is sent than its ring has room for, counted from
  // what the job has consumed, so nothing sent is ever refused and nothing needs to be sent twice.
  std::string input;
  std::uint64_t input_base = 0;      // offset of input[0] in all input
  std::uint64_t input_sent = 0, input_consumed = 0;
  bool input_eof = false, eof_sent = false;

  Link(Tasks& o, TaskId t, SupervisorLink l) : owner(o), task(t), link(std::move(l)) {}

  void on_status(const supervise::StatusFrame& status) override {
    supervisor_pid = status.supervisor_pid;
    if (!input_known) {
      input_known = true;
      input_base = input_sent = input_consumed = status.stdin_accepted;
      tell_input(true);  // whatever came before this was not taken
      push_input();
    }
    log_end = std::max(log_end, status.log_end);
    if (status.job_pid > 0) job_pid = status.job_pid;
    if (announced || status.job_pid <= 0) return;
    announced = true;
    pid = status.job_pid;
    if (status.state != static_cast<std::uint32_t>(supervise::SupervisorState::frozen))  // a suspended one holds none
    owner.hold_gpus(task, status.job_pid, cgroup, gpus);
    owner.callbacks_.event(task_event::Started{task, {status.started_wall_ns}});
  }
  void on_log_advanced(std::uint64_t end) override {
    log_end = std::max(log_end, end);
    owner.advanced(task);
  }
  void on_stdin_ack(const supervise::StdinAckFrame& ack) override {
    if (!input_known) return;
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
  void tell_input(bool refused) { owner.callbacks_.send(InputTaken{task, input_consumed, input_base, input_received(), refused}, {}); }

  void push_input() {
    if (!input_known) return;
    while (input_sent - input_base < input.size()) {
      const std::uint64_t room = supervise::stdin_window_bytes - std::min<std::uint64_t>(supervise::stdin_window_bytes, input_sent - input_consumed);
      const std::size_t from = input_sent - input_base;
      const std::size_t n = std::min<std::size_t>({room, input.size() - from, supervise::record_data_bytes_max});
      if (n == 0) break;
      link.send_stdin(input_sent, std::string_view(input).substr(from, n));
      input_sent += n;
    }
    if (input_eof && !eof_sent && input_sent == input_base + input.size()) {
      link.send_stdin_eof(input_sent);
      eof_sent = true;
    }
    rearm();
  }
  void rearm() { if (watch && link.open()) watch->want(true, link.wants_write()); }
};

Result<std::unique_ptr<Tasks>> Tasks::create(net::Loop& loop, Options options, Callbacks callbacks) {
  auto dirs = BILLOW_TRY(TaskDirs::open(options.data_dir + "/tasks"));
  auto launcher = BILLOW_TRY(Launcher::create({}));
  return std::unique_ptr<Tasks>(new Tasks(loop, std::move(options), std::move(callbacks), std::move(dirs), std::move(launcher)));
}

Tasks::Tasks(net::Loop& loop, Options options, Callbacks callbacks, TaskDirs dirs, Launcher launcher)
    : loop_(loop), options_(std::move(options)), callbacks_(std::move(callbacks)), dirs_(std::move(dirs)), launcher_(std::move(launcher)),
      owner_(owner_of(options_.data_dir)), cgroups_(Cgroups::detect({.owner = owner_})), sandbox_(Sandbox::detect()),
      suspender_(loop, {options_.data_dir, owner_, !options_.sim_state_dir.empty(), options_.arena_bytes}, suspender_callbacks()),
      checkpointer_(loop, {.event = [this](const TaskEvent& event) { callbacks_.event(event); },
                           .signal = [this](TaskId task, int number) { perform(effect::SignalTask{task, number}); },
                           .runs = [this](TaskId task) { return links_.contains(task) && !suspender_.frozen(task); }}),
      migs_(std::move(options_.migs)) {}

Tasks::~Tasks() = default;

void Tasks::leave() { if (links_.empty()) suspender_.leave(); }

std::vector<int> Tasks::processes_of(TaskId task) const {
  if (const std::string group = cgroups_.find(task).v2; !group.empty()) return cgroup_pids(group);
  const auto found = dirs_.find(task);
  return found && found->supervisor_pid > 0 ? ProcessTable::read().descendants(found->supervisor_pid) : std::vector<int>{};
}

Suspender::Callbacks Tasks::suspender_callbacks() {
  return {.event = [this](const TaskEvent& event) { callbacks_.event(event); },
          .freeze = [this](TaskId task, bool frozen) {
            Link* l = link(task);
            if (!l) return false;
            l->link.freeze(frozen);
            l->rearm();
            return true;
          },
          .hold = [this](TaskId task, bool holds) {
            Link* l = link(task);
            if (options_.sim_state_dir.empty() || !l) return;
            if (holds) hold_gpus(task, l->pid, l->cgroup, l->gpus);
            else (void)remove_sim_hold(options_.sim_state_dir, task_name(task));
          },
          .directory = [this](TaskId task) { return dirs_.path(task); },
          .processes = [this](TaskId task) { return processes_of(task); },
          .gpu_memory = options_.gpu_memory,
          .stop = [this](TaskId task, const std::string& why) {
            log_warn("task {} is stopped: {}", task.value, why);
            perform(effect::StopTask{task, Duration{-1}, StopReason::greedy});
          }};
}

Tasks::Link* Tasks::link(TaskId task) {
  const auto found = links_.find(task);
  return found == links_.end() ? nullptr : found->second.get();
}

void Tasks::watch(TaskId task, SupervisorLink supervisor) {
  auto made = std::make_unique<Link>(*this, task, std::move(supervisor));
  Link* raw = made.get();
  links_[task] = std::move(made);
  raw->watch = loop_.watch(raw->link.fd(), [this, task](bool readable, bool writable) {
    Link* l = link(task);
    if (!l) return;
    if (writable) l->link.on_writable();
    if (readable) l->link.on_readable(*l);
    l = link(task);
    if (!l) return;
    if (l->closed || !l->link.open()) return closed(task);
    l->rearm();
  });
  raw->rearm();
}

// The link is gone. Either the task ended (and said so), or its supervisor died, or only the connection did: the directory knows.
void Tasks::closed(TaskId task) {
  Link* l = link(task);
  if (!l) return;
  const bool exited = l->exited;
  auto old = std::move(links_[task]);
  links_.erase(task);
  old->watch.reset();
  launcher_.reap();
  if (!exited) settle(task);
}

// A task without a link: its directory says what became of it. While its supervisor lives it is sought until it answers or
// ends; a task is called lost only when nobody holds its lock any more.
void Tasks::settle(TaskId task) {
  seeking_.erase(task);
  const auto found = dirs_.find(task);
  if (found && found->presence == TaskPresence::supervised) {
    auto again = launcher_.connect(dirs_.path(task), settle_patience);
    if (again) return adopt(task, std::move(*again));
    seeking_[task] = loop_.after(settle_again_after, [this, task] { settle(task); });
    return;
  }
  if (found && found->exit) return ended(task, *found->exit);
  lost(task);
}

// The supervisor was killed. What it left behind may hold a GPU, and is ended before the task is called so.
void Tasks::lost(TaskId task) {
  const TaskCgroup group = cgroups_.find(task);
  std::vector<std::string> directories = group.v1;
  if (!group.v2.empty()) directories.push_back(group.v2);
  for (int round = 0; round < leftover_rounds_max && kill_leftovers(task_key(owner_, task), directories) > 0; ++round) ::poll(nullptr, 0, 2);
  (void)cgroups_.remove(group);
  if (!options_.sim_state_dir.empty()) (void)remove_sim_hold(options_.sim_state_dir, task_name(task));
  suspender_.ended(task);
  checkpointer_.ended(task);
  migs_.release(task);
  callbacks_.event(task_event::Ended{lost_status(task, system_clock().wall(), "its supervisor died")});
  advanced(task);
}

// Takes up a task whose supervisor was found again.
void Tasks::adopt(TaskId task, SupervisorLink supervisor) {
  suspender_.adopted(task);
  if (const TaskPlan* plan = suspender_.plan(task)) {
    checkpointer_.began(task, *plan);
    for (const std::string& uuid : plan->mig_uuids) migs_.hold(task, uuid);
  }
  watch(task, std::move(supervisor));
  Link* l = link(task);
  l->input_known = false;
  l->cgroup = cgroups_.find(task).v2;
  if (const auto found = dirs_.find(task))
    if (const auto meta = wire::from_json_text<Meta>(found->meta)) l->gpus = meta->gpus;
  l->link.subscribe(supervise::Subscription::notify);
  l->link.request_status();
  l->rearm();
}

void Tasks::ended(TaskId task, const supervise::ExitRecord& record) {
  if (!options_.sim_state_dir.empty()) (void)remove_sim_hold(options_.sim_state_dir, task_name(task));
  suspender_.ended(task);
  checkpointer_.ended(task);
  migs_.release(task);
  remove_hostfile(owner_, task);
  if (callbacks_.files_done) callbacks_.files_done(task);
  const TaskCgroup group = cgroups_.find(task);
  const auto found = dirs_.find(task);
  const auto meta = found ? wire::from_json_text<Meta>(found->meta) : Result<Meta>(Meta{});
  if (meta && meta->bare && callbacks_.look_over) {
    // It had the node to itself and no sandbox: what it left is ended, and the node looked over, before the next job may come.
    std::vector<std::string> directories = group.v1;
    if (!group.v2.empty()) directories.push_back(group.v2);
    for (int round = 0; round < leftover_rounds_max && kill_leftovers(task_key(owner_, task), directories) > 0; ++round) ::poll(nullptr, 0, 2);
    callbacks_.look_over(status_of(task, record));
  } else {
    callbacks_.event(task_event::Ended{status_of(task, record)});
  }
  advanced(task);
  if (!group.empty() && !cgroups_.remove(group)) {
    // Something inside is still dying; once more in a moment, and adoption cleans up what is left even then.
    auto timer = std::make_shared<net::Timer>();
    *timer = loop_.after(seconds(1), [this, group, timer] { (void)cgroups_.remove(group); });
  }
}

// A grant counts the cards this node offers; an engine may have given it some of the machine's only.
std::uint32_t Tasks::card_index(const GpuGrant& grant) const {
  const auto at = static_cast<std::size_t>(grant.gpu);
  return at < options_.gpus.size() ? options_.gpus[at].index : static_cast<std::uint32_t>(grant.gpu);
}

void Tasks::hold_gpus(TaskId task, int pid, const std::string& cgroup, const std::vector<GpuGrant>& gpus) {
  if (options_.sim_state_dir.empty() || gpus.empty()) return;
  std::vector<SimHoldEntry> entries;
  for (const GpuGrant& grant : gpus)
    entries.push_back({.gpu = card_index(grant), .milli = grant.share.milli, .mem_mib = grant.share.mem_mib, .pid = cgroup.empty() ? pid : 0, .cgroup = cgroup});
  const Status written = write_sim_hold(options_.sim_state_dir, task_name(task), entries);
  if (!written) log_warn("task {}: {}", task.value, written.error().message);
}

std::vector<RecoveredTask> Tasks::recover() {
  std::vector<RecoveredTask> out;
  auto found = dirs_.list();
  if (!found) {
    log_error("task directories: {}", found.error().message);
    return out;
  }
  for (FoundTask& task : *found) {
    const auto meta = wire::from_json_text<Meta>(task.meta);
    RecoveredTask recovered;
    recovered.status.task = task.id;
    recovered.acknowledged = task.acknowledged;
    if (meta) {
      recovered.fenced = meta->fenced;
      recovered.paid_until = meta->paid_until;
    }
    if (const auto text = read_file(dirs_.path(task.id) + "/meter", 4096))
      if (const auto saved = wire::from_json_text<SavedMeter>(*text)) recovered.meter = saved->meter, recovered.metered_at = saved->at;
    switch (task.presence) {
      case TaskPresence::never_started:
        (void)dirs_.remove(task.id);  // it may be started again, as if never asked for
        continue;
      case TaskPresence::ended:
        if (meta && meta->bare && !task.acknowledged) {  // the node was not looked over yet
          recovered.status.state = TaskState::running;
          loop_.post([this, id = task.id, exit = *task.exit] { ended(id, exit); });
          break;
        }
        recovered.status = status_of(task.id, *task.exit);
        break;
      case TaskPresence::lost:
        if (task.acknowledged) {
          recovered.status = lost_status(task.id, system_clock().wall(), "its supervisor died");
          break;
        }
        recovered.status.state = TaskState::running;  // until what is left of it has been ended
        loop_.post([this, id = task.id] { lost(id); });
        break;
      case TaskPresence::supervised: {
        recovered.status.state = TaskState::running;
        if (const auto order = read_order(dirs_.path(task.id))) {
          recovered.status.state = order->state();
          recovered.status.order = order->order;
          recovered.status.order_error = order->error;
          recovered.status.ram_mib = order->ram_mib;
          if (!order->done) loop_.post([this, id = task.id, again = *order] { suspender_.carry_out(id, again); });
        }
        auto connected = launcher_.connect(dirs_.path(task.id), settle_patience);
        if (connected) adopt(task.id, std::move(*connected));
        else loop_.post([this, id = task.id] { settle(id); });  // not listening yet, or about to end
        break;
      }
    }
    out.push_back(std::move(recovered));
  }
  migs_.sweep();
  return out;
}

Result<TaskSpec> Tasks::spec_of(const Start& start, SteadyTime paid_until, TaskCgroup& group, TaskPlan& plan) {
  TaskSpec spec;
  spec.argv = gang_argv(start);
  spec.cwd = start.cwd.empty() ? "/" : start.cwd;
  const UserRecord user = BILLOW_TRY(resolve_job_user({.unix_user = start.unix_user, .allow_root = start.unix_user == "root"}));
  if (const auto files = start.env.find(surroundings::files); files != start.env.end()) {
    if (options_.files_socket.empty()) return fail(Code::unavailable, "files cannot follow a job to this node: see the agent's log");
    spec.cwd = BILLOW_TRY(make_work_dir(options_.work_dir, start.task, user));
    spec.argv.insert(spec.argv.begin(), {executable_dir() + "/billow", "stage", "--"});
  }
  const UserRecord self = BILLOW_TRY(current_user());
  if (user.identity.uid != self.identity.uid) {
    spec.identity = user.identity;
    spec.no_new_privs = true;
  }
  Environment env = start.env;
  env.try_emplace("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
  env["HOME"] = user.home;
  env["USER"] = env["LOGNAME"] = user.name;
  std::vector<GpuInfo> cards;
  std::vector<int> granted;
  std::vector<std::string> migs;
  for (const GpuGrant& grant : start.gpus) {
    const auto index = static_cast<std::size_t>(grant.gpu);
    if (index >= options_.gpus.size()) return fail(Code::conflict, fmt::format("this node has no GPU {}", grant.gpu));
    cards.push_back(options_.gpus[index]);
    granted.push_back(grant.gpu);
    if (grant.mig_start >= 0) migs.push_back(BILLOW_TRY(migs_.claim(start.task, cards.back(), grant)));
  }
  for (const auto& [name, value] : visibility({.gpus = cards, .mig_uuids = migs}).env) env[name] = value;
  if (!start.gpus.empty()) {
    std::string indices;
    for (int gpu : granted) indices += (indices.empty() ? "" : ",") + std::to_string(gpu);
    env["BILLOW_GPUS"] = indices;
    env["BILLOW_GPU_MILLI"] = std::to_string(start.gpus.front().share.milli);
  }
  if (const std::string hosts = write_hostfile(owner_, start); !hosts.empty()) env["BILLOW_HOSTFILE"] = hosts;
  for (const char* name : {"BILLOW_VAULT_SOCKET", "BILLOW_JOB_TOKEN", "BILLOW_TASK_KEY"}) env.erase(name);  // of a job that submits another
  plan = suspender_.prepare(start, cards, !options_.sim_state_dir.empty(), env);
  plan.mig_uuids = migs;
  if (spec.identity) {
    plan.other_user = true;
    plan.uid = spec.identity->uid;
    plan.gid = spec.identity->gid;
    plan.groups = spec.identity->groups;
  }
  BILLOW_TRY_VOID(Checkpointer::prepare(plan, start.task, start.job, owner_, env));
  BILLOW_TRY_VOID(add_file_variables(start, {options_.files_socket, options_.work_dir, options_.data_dir}, env));
  if (!options_.keepalive_socket.empty()) env[keepalive_variable] = options_.keepalive_socket;
  for (const auto& [name, value] : env) spec.env.push_back(name + "=" + value);
  spec.env.push_back(task_key(owner_, start.task));
  if (start.pty) spec.terminal = TerminalSize{start.rows, start.cols};
  spec.stdin_open = start.use_stdin;
  spec.time_limit = start.time_limit;
  spec.paid_until = paid_until;
  // A fenced task must be gone soon after its fence: the head counts on it.
  spec.stop_grace = start.fenced ? std::min(start.stop_grace, limits::fence_grace) : start.stop_grace;
  std::vector<std::vector<std::string>> files;
  for (const GpuInfo& gpu : options_.gpus) files.push_back(gpu.device_files);
  // A job that has the node to itself has nothing between it and the hardware; its control group only tells what belongs to it.
  if (options_.sim_state_dir.empty() && !start.bare) sandbox_.apply_to(spec, device_nodes(files), granted);
  // In a container they are the container's to mount.
  if (start.surroundings.image.empty()) BILLOW_TRY_VOID(sandbox_.bind_to(spec, start.volumes));
  auto made = cgroups_.create(start.task, {.cpu_milli = start.bare ? 0 : start.cpu_milli, .mem_mib = start.bare ? 0 : start.mem_mib});
  if (made) {
    group = std::move(*made);
    group.apply_to(spec);
  } else {
    log_warn("task {}: no control group: {}", start.task.value, made.error().message);
  }
  return spec;
}

void Tasks::perform(const effect::StartTask& e) {
  const TaskId id = e.start.task;
  const auto could_not = [&](const Error& error) {
    migs_.release(id);
    TaskStatus status;
    status.task = id;
    status.state = TaskState::ended;
    status.started_at = status.ended_at = system_clock().wall();
    status.exit = {.kind = ExitKind::exec_failed, .code = 126, .signal = 0, .message = error.message};
    // Recorded like any other end: after a crash of this agent it must still be known, and its log is empty rather than missing.
    perform(effect::RecordEnd{status});
    callbacks_.event(task_event::Ended{status});
  };
  TaskCgroup group;
  TaskPlan plan;
  auto spec = spec_of(e.start, e.ends_at, group, plan);
  if (!spec) return could_not(spec.error());
  plan.env = spec->env;
  plan.cwd = spec->cwd;
  const Meta meta{e.start.fenced, e.paid_until, e.start.gpus, e.start.bare};
  auto made = dirs_.create(id, *spec, wire::to_json_text(meta));
  if (!made) {
    if (made.error().code != Code::conflict) {
      suspender_.ended(id);
      return could_not(made.error());
    }
    // It was started in an earlier life; the core knows it from recovery, so this is a start that crossed it.
    log_warn("task {} was started before", id.value);
    return;
  }
  auto launched = launcher_.launch(std::move(*made));
  if (!launched) {
    suspender_.ended(id);
    return could_not(launched.error());
  }
  checkpointer_.began(id, plan);
  suspender_.began(id, std::move(plan));
  watch(id, std::move(*launched));
  Link* l = link(id);
  l->cgroup = group.v2;
  l->gpus = e.start.gpus;
}

void Tasks::perform(const effect::RecordEnd& e) {
  const Status recorded = dirs_.record_end(e.status.task, record_of(e.status));
  if (!recorded) log_warn("task {}: {}", e.status.task.value, recorded.error().message);
}

void Tasks::perform(const effect::StopTask& e) {
  // One more checkpoint before a gentle end; asking again, or with force, does not wait for it.
  if (Link* l = link(e.task); l && e.reason == StopReason::request && e.grace.ns != 0 && !l->last_checkpoint) {
    l->last_checkpoint = true;
    const Duration patience = e.grace.ns > 0 ? e.grace : seconds(10);
    return checkpointer_.last(e.task, patience, [this, e] { stop_now(e); });
  }
  stop_now(e);
}
void Tasks::stop_now(const effect::StopTask& e) {
  if (Link* l = link(e.task)) {
    l->link.stop(e.grace, static_cast<std::uint32_t>(e.reason));
    l->rearm();
  }
}
void Tasks::perform(const effect::SignalTask& e) {
  if (Link* l = link(e.task)) {
    l->link.signal(e.number);
    l->rearm();
  }
}
void Tasks::perform(const effect::InputTask& e) {
  Link* l = link(e.task);
  if (!l) return;
  // Until an adopted task's supervisor has said how far its input has come, only what goes behind everything has a place. Whoever
  // counts is told from where to go on when the answer is there.
  if (!l->input_known && (e.offset >= 0 || (e.bytes.empty() && !e.eof))) return;
  if (e.bytes.empty() && !e.eof) return l->tell_input(false);
  l->last_input = system_clock().steady();
  const auto offset = e.offset < 0 ? l->input_received() : static_cast<std::uint64_t>(e.offset);
  const std::size_t repeated = l->input_received() - std::min(l->input_received(), offset);
  const bool too_much = l->input.size() + e.bytes.size() > limits::task_input_bytes_max;
  if (offset > l->input_received() || too_much) return l->tell_input(true);
  l->input.append(e.bytes, std::min(repeated, e.bytes.size()));
  l->input_eof = l->input_eof || e.eof;
  l->push_input();
}
void Tasks::perform(const effect::ResizeTask& e) {
  if (Link* l = link(e.task)) {
    l->link.resize({e.rows, e.cols});
    l->rearm();
  }
}
void Tasks::perform(const effect::SuspendTask& e) { suspender_.carry_out(e.task, {.order = e.order, .suspend = true, .mode = e.mode}); }
void Tasks::perform(const effect::ResumeTask& e) {
  OrderRecord record{.order = e.order, .suspend = false};
  if (const auto last = read_order(dirs_.path(e.task))) {
    record.mode = last->mode;
    record.moved = last->moved;
    record.pids = last->pids;
    record.ram_mib = last->ram_mib;
  }
  record.gpus = e.gpus;
  suspender_.carry_out(e.task, std::move(record));
}
void Tasks::perform(const effect::SetEndsAt& e) {
  if (Link* l = link(e.task)) {
    l->link.set_deadline(supervise::DeadlineKind::paid_until, e.ends_at);
    l->rearm();
  }
}
void Tasks::perform(const effect::AcknowledgeTask& e) {
  const Status marked = dirs_.acknowledge(e.task);
  if (!marked) log_warn("task {}: {}", e.task.value, marked.error().message);
}
void Tasks::perform(const effect::RemoveTask& e) {
  logs_.erase(e.task);
  const Status removed = dirs_.remove(e.task);
  if (!removed) log_warn("task {}: {}", e.task.value, removed.error().message);
}

void Tasks::perform(const effect::SaveMeter& e) {
  // Not synced: after a power cut the task is lost anyway, and a file that is a minute old only counts that minute as work.
  const std::string path = dirs_.path(e.task);
  if (file_exists(path)) (void)write_file_atomic(path + "/meter", wire::to_json_text(SavedMeter{e.meter, e.at}), 0600);
}

std::vector<WatchedTask> Tasks::watched() const {
  std::vector<WatchedTask> out;
  for (const auto& [id, l] : links_)
    if (l->job_pid > 0 && !l->exited) out.push_back({id, l->job_pid, l->cgroup, l->gpus, l->log_end, l->last_input});
  return out;
}

std::optional<TaskId> Tasks::task_of(int pid) const {
  for (const auto& [id, l] : links_) {
    if (!l->cgroup.empty()) {
      const std::vector<int> pids = cgroup_pids(l->cgroup);
      if (std::find(pids.begin(), pids.end(), pid) != pids.end()) return id;
    }
    if (l->job_pid == pid) return id;
  }
  const ProcessTable table = ProcessTable::read();
  for (const auto& [id, l] : links_) {
    const std::vector<int> pids = table.descendants(l->job_pid);
    if (l->job_pid > 0 && std::find(pids.begin(), pids.end(), pid) != pids.end()) return id;
  }
  return std::nullopt;
}

Result<TaskRecord> Tasks::recorded(TaskId task) const {
  return record_of_spec(BILLOW_TRY(read_file(dirs_.path(task) + "/" + supervise::file_spec, supervise::spec_bytes_max)));
}

// ---- logs

bool Tasks::serve(std::uint64_t subscription, Reader& reader) {
  auto& log = logs_[reader.task];
  if (!log) log = std::make_unique<LogReader>(dirs_.path(reader.task));
  // Looked at before the log is read: what is written after this look is found by the next read.
  const bool live = links_.contains(reader.task) && !link(reader.task)->exited;
  auto chunk = log->read(reader.offset, limits::log_chunk_bytes_max);
  wire::agent_v1::LogChunk answer;
  answer.subscription = subscription;
  if (!chunk) {
    // A task that was placed and has not written its first file yet.
    if (live && reader.follow) return false;
    answer.end = true;
    answer.offset = answer.next_offset = reader.offset;
    if (!file_exists(dirs_.path(reader.task))) answer.error = "its log is no longer kept on the node";
    callbacks_.send(answer, {});
    return true;
  }
  const bool nothing = chunk->frames.empty();
  if (nothing && live && reader.follow) return false;
  answer.offset = chunk->offset;
  answer.next_offset = chunk->next_offset;
  answer.lost_bytes = chunk->gone_bytes;
  answer.end = nothing && (!live || !reader.follow);
  // The last piece and the word that it was the last go together when nothing can be added any more.
  if (!nothing && !live && chunk->at_end) answer.end = true;
  if (!nothing && !reader.follow && chunk->at_end) answer.end = true;
  callbacks_.send(answer, chunk->frames);
  return true;
}

void Tasks::perform(const effect::ReadLog& e) {
  Reader reader{e.read.task, e.read.offset, e.read.follow};
  if (e.read.tail_bytes >= 0) {
    auto& log = logs_[reader.task];
    if (!log) log = std::make_unique<LogReader>(dirs_.path(reader.task));
    if (const auto offset = log->tail_offset(static_cast<std::uint64_t>(e.read.tail_bytes))) reader.offset = *offset;
  }
  if (serve(e.read.subscription, reader)) return;
  reading_[reader.task].insert(e.read.subscription);
  readers_[e.read.subscription] = reader;
}

void Tasks::perform(const effect::CancelLog& e) {
  const auto found = readers_.find(e.subscription);
  if (found == readers_.end()) return;
  const auto waiting = reading_.find(found->second.task);
  waiting->second.erase(e.subscription);
  if (waiting->second.empty()) reading_.erase(waiting);
  readers_.erase(found);
}

std::vector<std::pair<TaskId, int>> Tasks::supervisors() const {
  std::vector<std::pair<TaskId, int>> out;
  for (const auto& [task, link] : links_)
    if (link->supervisor_pid > 0 && !link->exited) out.emplace_back(task, link->supervisor_pid);
  return out;
}

void Tasks::forget_readers() {
  readers_.clear();
  reading_.clear();
}

void Tasks::advanced(TaskId task) {
  const auto found = reading_.find(task);
  if (found == reading_.end()) return;
  const std::set<std::uint64_t> waiting = std::move(found->second);
  reading_.erase(found);
  for (std::uint64_t subscription : waiting) {
    const auto reader = readers_.find(subscription);
    if (reader == readers_.end()) continue;
    if (serve(subscription, reader->second)) readers_.erase(reader);
    else reading_[task].insert(subscription);
  }
}

}  // namespace billow::agent
