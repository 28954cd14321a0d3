#include "agent/task/tasks.h"

#include <arpa/inet.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "agent/content/project_cache.h"
#include "agent/observe/proc_stats.h"
#include "agent/task/gang.h"
#include "agent/task/signal_handlers.h"
#include "agent/task/task_link.h"
#include "agent/task/task_status.h"
#include "base/crypto.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"
#include "core/wire/codec.h"
#include "gpu/sim/sim_holders.h"

namespace billow::agent {

namespace {

constexpr int ancestors_max = 64;
constexpr Duration remove_groups_every = seconds(1);

// Distinguishes this agent's tasks from those of another agent on the same machine, which may have
// the same numbers.
std::string owner_of(const std::string& data_dir) {
  char resolved[PATH_MAX];
  return sha256_hex(::realpath(data_dir.c_str(), resolved) ? resolved : data_dir).substr(0, 12);
}

Result<NetworkGuard> guard_for(const Tasks::Options& options) {
  if (options.allow_metadata)
    return fail(Code::invalid, "jobs may use the cloud's metadata service");
  return NetworkGuard::create();
}

}  // namespace

Result<std::unique_ptr<Tasks>> Tasks::create(net::Loop& loop,
                                             Options options,
                                             Callbacks callbacks) {
  if (options.cache_dir.empty())
    options.cache_dir = options.work_dir;
  if (options.kept_dir.empty())
    options.kept_dir = options.data_dir;
  std::optional<HelperRights> helper;
  if (!options.root_helper.empty())
    helper = BILLOW_TRY(helper_rights(options.root_helper, options.data_dir + "/notes"));
  auto dirs = helper ? TaskDirs::at(helper->hello.tasks)
                     : BILLOW_TRY(TaskDirs::open(options.data_dir + "/tasks"));
  auto launcher = BILLOW_TRY(Launcher::create({}));
  Places places{BILLOW_TRY(OwnPlace::at(options.work_dir)),
                BILLOW_TRY(OwnPlace::at(options.cache_dir)),
                BILLOW_TRY(OwnPlace::open({options.data_dir, "/tmp", {}})),
                BILLOW_TRY(OwnPlace::open({options.data_dir, SecretFiles::place(), {}}))};
  return std::unique_ptr<Tasks>(new Tasks(loop, std::move(options), std::move(callbacks),
                                          std::move(dirs), std::move(launcher), std::move(helper),
                                          std::move(places)));
}

Tasks::Tasks(net::Loop& loop,
             Options options,
             Callbacks callbacks,
             TaskDirs dirs,
             Launcher launcher,
             std::optional<HelperRights> helper,
             Places places)
    : loop_(loop),
      options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      dirs_(std::move(dirs)),
      launcher_(std::move(launcher)),
      owner_(owner_of(options_.data_dir)),
      work_(std::move(places.work)),
      cache_(std::move(places.cache)),
      temporary_(std::move(places.temporary)),
      memory_(std::move(places.memory)),
      cgroups_(Cgroups::detect({.owner = helper ? helper->hello.groups_owner : owner_,
                                .of_helper = helper.has_value()})),
      sandbox_(helper ? helper->hello.sandbox : Sandbox::detect()),
      host_(read_host().value_or(HostInfo{})),
      network_guard_(guard_for(options_)),
      removal_(loop),
      suspender_(loop,
                 {options_.data_dir, owner_, !options_.sim_state_dir.empty(), options_.arena_bytes,
                  temporary_.path(), options_.sleep_memory_bytes, options_.sleep_disk_bytes},
                 suspender_callbacks()),
      checkpointer_(loop,
                    removal_,
                    {.event = [this](const TaskEvent& event) { callbacks_.event(event); },
                     .signal = [this](TaskId task,
                                      int number,
                                      SignalTo to) { return signal_handlers(task, number, to); },
                     .place = [this](TaskId task) { return place_of(task); },
                     .runs =
                         [this](TaskId task) {
                           return links_.contains(task) && !suspender_.frozen(task);
                         }}),
      migs_(std::move(options_.migs)),
      secret_files_(removal_,
                    memory_.path(),
                    owner_,
                    unguessable_name(options_.data_dir, "memory").value_or("")),
      rights_(helper ? std::move(helper->rights)
                     : own_rights({dirs_, launcher_, cgroups_, work_, secret_files_, owner_})),
      ssh_(removal_, temporary_.path()),
      tunnels_(loop,
               {.open = [this](const TunnelOpen& request) { return open_door(request); },
                .send = [this](const Tunnelled& message,
                               std::string_view blob) { callbacks_.send_tunnel(message, blob); },
                .carried =
                    [this](TaskId task, std::size_t bytes) {
                      if (links_.contains(task) && callbacks_.head_is_outside &&
                          callbacks_.head_is_outside())
                        tunnelled_[task].bytes += static_cast<std::int64_t>(bytes);
                    }}),
      containers_(loop,
                  {.directory = options_.cache_dir + "/boxes",
                   .cdi_file = options_.data_dir + "/cdi.json",
                   .owner = owner_,
                   .gpus = options_.gpus,
                   .head = options_.head,
                   .environment_bytes_max = options_.environment_bytes_max,
                   .image_bytes_max = options_.image_bytes_max,
                   .image_terms = options_.image_terms,
                   .quiet_max = options_.pull_patience},
                  {.note =
                       [this](TaskId task, std::string text) {
                         callbacks_.event(task_event::Waiting{task, std::move(text)});
                       },
                   .place =
                       [this](TaskId task) {
                         return FetchPlace::create(cgroups_, task,
                                                   network_guard_ ? &*network_guard_ : nullptr);
                       }}),
      disk_guard_(loop,
                  {},
                  {.processes = [this](TaskId task) { return processes_of(task); },
                   .stop =
                       [this](TaskId task, const std::string& why) {
                         exceeds_disk(task, why);
                       }}) {
  if (const Status closed = can_close_metadata(); !closed && !rights_->of_helper())
    log_info("{}", closed.error().message);
  ports_.set_processes([this](TaskId task) {
    // Processes that the job moved to another control group are still descendants of its
    // supervisor.
    std::vector<int> all = processes_of(task);
    if (const auto found = dirs_.find(task); found && found->supervisor_pid > 0)
      for (const int pid : ProcessTable::read().descendants(found->supervisor_pid))
        all.push_back(pid);
    return all;
  });
  ports_.set_reach(options_.reach);
}

Tasks::~Tasks() = default;

void Tasks::leave() {
  if (!links_.empty())
    return;
  suspender_.leave();
  removal_.finish();
  for (const OwnPlace* place : {&work_, &temporary_, &memory_})
    place->leave();
}

std::vector<int> Tasks::processes_of(TaskId task) const {
  if (const std::string group = cgroups_.find(task).v2; !group.empty())
    return cgroup_pids(group);
  const auto found = dirs_.find(task);
  return found && found->supervisor_pid > 0
             ? ProcessTable::read().descendants(found->supervisor_pid)
             : std::vector<int>{};
}

Suspender::Callbacks Tasks::suspender_callbacks() {
  return {.event =
              [this](const TaskEvent& event) {
                // Report that it has its port together with the resume.
                if (const auto* resumed = std::get_if<task_event::Resumed>(&event))
                  look_at_port_of(resumed->task);
                callbacks_.event(event);
              },
          .freeze =
              [this](TaskId task, bool frozen) {
                Link* l = link(task);
                if (!l)
                  return false;
                l->link.freeze(frozen);
                l->rearm();
                return true;
              },
          .hold =
              [this](TaskId task, bool holds) {
                Link* l = link(task);
                if (options_.sim_state_dir.empty() || !l)
                  return;
                if (holds)
                  hold_gpus(task, l->pid, l->cgroup, l->gpus);
                else
                  (void)remove_sim_hold(options_.sim_state_dir, task_name(task));
              },
          .directory = [this](TaskId task) { return rights_->notes(task); },
          .processes = [this](TaskId task) { return processes_of(task); },
          .place = [this](TaskId task) { return place_of(task); },
          .gpu_memory = options_.gpu_memory,
          .stop =
              [this](TaskId task, const std::string& why) {
                log_warn("stopping task {}: {}", task.value, why);
                perform(effect::StopTask{task, Duration{-1}, StopReason::greedy});
              }};
}

Tasks::Link* Tasks::link(TaskId task) {
  const auto found = links_.find(task);
  return found == links_.end() ? nullptr : found->second.get();
}

std::string Tasks::key_of(TaskId task) const {
  return task_key(owner_, task);
}

int Tasks::pid_of(TaskId task) const {
  const auto found = links_.find(task);
  return found == links_.end() || found->second->exited ? 0 : found->second->job_pid;
}

void Tasks::watch(TaskId task, SupervisorLink supervisor) {
  auto made = std::make_unique<Link>(*this, task, std::move(supervisor));
  Link* raw = made.get();
  links_[task] = std::move(made);
  raw->watch = loop_.watch(raw->link.fd(), [this, task](bool readable, bool writable) {
    Link* l = link(task);
    if (!l)
      return;
    if (writable)
      l->link.on_writable();
    if (readable)
      l->link.on_readable(*l);
    l = link(task);
    if (!l)
      return;
    if (l->closed || !l->link.open())
      return closed(task);
    l->rearm();
  });
  raw->rearm();
}

// The link closed. Either the task ended and reported it, or its supervisor died, or only the
// connection broke: the directory says which.
void Tasks::closed(TaskId task) {
  Link* l = link(task);
  if (!l)
    return;
  const bool exited = l->exited;
  auto old = std::move(links_[task]);
  links_.erase(task);
  old->watch.reset();
  (void)launcher_.reap();
  if (!exited)
    settle(task);
}

// What a start makes for its task, however far it came.
void Tasks::clean_up(TaskId task) {
  suspender_.ended(task);
  checkpointer_.ended(temporary_.path(), task);
  migs_.release(task);
  project_networks_.ended(task);
  remove_hostfile(temporary_.path(), task);
  containers_.ended(task);
  if (callbacks_.files_done)
    callbacks_.files_done(task);
}

void Tasks::ended(TaskId task, const supervise::ExitRecord& record) {
  if (!options_.sim_state_dir.empty())
    (void)remove_sim_hold(options_.sim_state_dir, task_name(task));
  close_doors(task);
  clean_up(task);
  const TaskCgroup group = cgroups_.find(task);
  const auto found = dirs_.find(task);
  const auto meta =
      found ? wire::from_json_text<TaskMeta>(found->meta) : Result<TaskMeta>(TaskMeta{});
  TaskStatus status = status_of(task, record);
  tell_port_taken(status);
  tell_disk_exceeded(status);
  status.usage.meter.egress_bytes = all_sent(task, group.v2);
  if (meta && meta->bare && callbacks_.look_over) {
    // It had the whole node and no sandbox: its leftovers are killed and the node is checked before
    // the next job may start.
    rights_->end_leftovers(task, group);
    callbacks_.look_over(std::move(status));
  } else {
    callbacks_.event(task_event::Ended{std::move(status)});
  }
  advanced(task);
  remove_groups(task, group);
  remove_groups(task, cgroups_.find_uplink(task));
}

// Recorded like any other end: it must be known after a crash of this agent, and its log is empty
// rather than missing. What the start made until it failed is removed. If the task runs, because
// the start crossed its recovery, all of that belongs to the running task.
void Tasks::end_unstarted(TaskId task, ExitStatus exit) {
  const auto found = dirs_.find(task);
  const bool runs =
      found ? found->presence == TaskPresence::supervised : is_unreadable(found.error());
  if (!runs && !links_.contains(task)) {
    clean_up(task);
    secret_files_.remove(task);
    remove_groups(task, cgroups_.find(task));
    remove_groups(task, cgroups_.find_uplink(task));
  }
  TaskStatus status;
  status.task = task;
  status.state = TaskState::ended;
  status.started_at = status.ended_at = system_clock().wall();
  status.exit = std::move(exit);
  perform(effect::RecordEnd{status});
  callbacks_.event(task_event::Ended{status});
  advanced(task);
}

void Tasks::refuse(TaskId task, const Error& why, int code) {
  end_unstarted(
      task,
      {.kind = ExitKind::exec_failed,
       .code = code,
       .signal = 0,
       .message = why.hint.empty() ? why.message : fmt::format("{} ({})", why.message, why.hint)});
}

// Until no process is left in them; a later agent removes what this one leaves.
void Tasks::remove_groups(TaskId task, const TaskCgroup& group) {
  if (rights_->release(task, group))
    return;
  groups_left_.emplace_back(task, group);
  if (groups_left_.size() == 1)
    groups_timer_ = loop_.every(remove_groups_every, [this] { remove_groups_left(); });
}

void Tasks::remove_groups_left() {
  std::erase_if(groups_left_, [this](const auto& left) {
    return rights_->release(left.first, left.second).has_value();
  });
  if (groups_left_.empty())
    groups_timer_.cancel();
}

// A grant counts the cards this node offers, which may be only some of the machine's.
std::uint32_t Tasks::card_index(const GpuGrant& grant) const {
  const auto at = static_cast<std::size_t>(grant.gpu);
  return at < options_.gpus.size() ? options_.gpus[at].index
                                   : static_cast<std::uint32_t>(grant.gpu);
}

void Tasks::hold_gpus(TaskId task,
                      int pid,
                      const std::string& cgroup,
                      const std::vector<GpuGrant>& gpus) {
  if (options_.sim_state_dir.empty() || gpus.empty())
    return;
  std::vector<SimHoldEntry> entries;
  for (const GpuGrant& grant : gpus)
    entries.push_back({.gpu = card_index(grant),
                       .milli = grant.share.milli,
                       .mem_mib = grant.share.mem_mib,
                       .pid = cgroup.empty() ? pid : 0,
                       .cgroup = cgroup});
  const Status written = write_sim_hold(options_.sim_state_dir, task_name(task), entries);
  if (!written)
    log_warn("task {}: {}", task.value, written.error().message);
}

template <class Order>
bool Tasks::awaits_supervisor(const Order& order) {
  const auto sought = sought_.find(order.task);
  if (sought == sought_.end())
    return false;
  sought->second.orders.emplace_back([this, order] { perform(order); });
  return true;
}

void Tasks::perform(const effect::StopTask& e) {
  if (awaits_supervisor(e))
    return;
  if (containers_.preparing(e.task)) {
    containers_.cancel(e.task);
    return end_unstarted(e.task, {.kind = ExitKind::stopped,
                                  .code = 143,
                                  .signal = 0,
                                  .message = "stopped before it began"});
  }
  // One more checkpoint before a stop with a grace period. A second stop, or --force, does not
  // wait.
  if (Link* l = link(e.task);
      l && e.reason == StopReason::request && e.grace.ns != 0 && !l->last_checkpoint) {
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
  if (awaits_supervisor(e))
    return;
  if (Link* l = link(e.task)) {
    l->link.signal(e.number);
    l->rearm();
  }
}
bool Tasks::signal_handlers(TaskId task, int number, SignalTo to) {
  const Link* l = link(task);
  if (!l || l->job_pid <= 0)
    return false;
  const auto pids = handlers_of(number, processes_of(task), l->job_pid, to);
  for (const int pid : pids)
    rights_->signal(task, pid, number);
  return !pids.empty();
}
void Tasks::perform(const effect::InputTask& e) {
  if (const auto sought = sought_.find(e.task); sought != sought_.end()) {
    // Clients that count offsets learn where to continue once the supervisor has reported it.
    std::size_t& kept = sought->second.input_bytes;
    if (e.offset >= 0 || kept + e.bytes.size() > limits::task_input_bytes_max)
      return;
    kept += e.bytes.size();
    awaits_supervisor(e);
    return;
  }
  Link* l = link(e.task);
  if (!l)
    return;
  // Until the supervisor of an adopted task has reported how much input it has, only input without
  // an offset can be appended. Clients that count offsets then learn where to continue.
  if (!l->input_known && (e.offset >= 0 || (e.bytes.empty() && !e.eof)))
    return;
  if (e.bytes.empty() && !e.eof)
    return l->tell_input(false);
  l->last_input = system_clock().steady();
  const auto offset = e.offset < 0 ? l->input_received() : static_cast<std::uint64_t>(e.offset);
  const std::size_t repeated = l->input_received() - std::min(l->input_received(), offset);
  const bool too_much = l->input.size() + e.bytes.size() > limits::task_input_bytes_max;
  if (offset > l->input_received() || too_much)
    return l->tell_input(true);
  l->input.append(e.bytes, std::min(repeated, e.bytes.size()));
  l->input_eof = l->input_eof || e.eof;
  l->push_input();
}
void Tasks::perform(const effect::ResizeTask& e) {
  if (awaits_supervisor(e))
    return;
  if (Link* l = link(e.task)) {
    l->link.resize({e.rows, e.cols});
    l->rearm();
  }
}
void Tasks::perform(const effect::SuspendTask& e) {
  if (awaits_supervisor(e))
    return;
  suspender_.carry_out(e.task, {.order = e.order, .suspend = true, .mode = e.mode});
}
void Tasks::perform(const effect::ResumeTask& e) {
  if (awaits_supervisor(e))
    return;
  OrderRecord record{.order = e.order, .suspend = false};
  if (const auto last = read_order(rights_->notes(e.task))) {
    record.mode = last->mode;
    record.moved = last->moved;
    record.pids = last->pids;
    record.ram_mib = last->ram_mib;
  }
  record.gpus = e.gpus;
  suspender_.carry_out(e.task, std::move(record));
}
void Tasks::perform(const effect::SetEndsAt& e) {
  if (awaits_supervisor(e))
    return;
  if (Link* l = link(e.task)) {
    l->link.set_deadline(supervise::DeadlineKind::paid_until, e.ends_at);
    l->rearm();
  }
}
void Tasks::perform(const effect::AcknowledgeTask& e) {
  const Status marked = rights_->acknowledge(e.task);
  if (!marked)
    log_warn("task {}: {}", e.task.value, marked.error().message);
}
void Tasks::perform(const effect::RemoveTask& e) {
  logs_.erase(e.task);
  const Status removed = rights_->forget(e.task);
  if (!removed)
    log_warn("task {}: {}", e.task.value, removed.error().message);
}

std::vector<WatchedTask> Tasks::watched() const {
  std::vector<WatchedTask> out;
  for (const auto& [id, l] : links_)
    if (l->job_pid > 0 && !l->exited) {
      WatchedTask task{id,         l->job_pid,    l->cgroup, l->gpus,
                       l->log_end, l->last_input, {},        born_here_.contains(id)};
      if (const auto counter = egress_.find(id); counter != egress_.end())
        task.egress = Egress{counter->second.bytes(), counter->second.found() || task.born_here};
      if (const auto sent = tunnelled_.find(id); sent != tunnelled_.end())
        task.tunnelled =
            sent->second.bytes + (task.egress && task.egress->from_start ? sent->second.before : 0);
      out.push_back(std::move(task));
    }
  return out;
}

bool Tasks::has_user(unsigned uid) const {
  return std::any_of(links_.begin(), links_.end(),
                     [&](const auto& one) { return one.second->has_user(uid); });
}

// By its control group. Where that says nothing, because there is none or the job's program left
// it, by its ancestors: orphans of a job are children of its supervisor.
std::optional<TaskId> Tasks::task_of(const SocketPeer& peer) const {
  if (!has_user(peer.uid))
    return std::nullopt;
  std::optional<TaskId> found = cgroups_.task_at(cgroup_of(peer.pid));
  int pid = peer.pid;
  for (int i = 0; !found && pid > 1 && i < ancestors_max; ++i) {
    for (const auto& [id, l] : links_)
      if (l->job_pid == pid || l->supervisor_pid == pid)
        found = id;
    pid = parent_of(pid);
  }
  if (!found || !links_.contains(*found) || !peer.alive())
    return std::nullopt;
  return found;
}

Result<TaskRecord> Tasks::recorded(TaskId task) const {
  return record_of_spec(BILLOW_TRY(
      read_file(dirs_.path(task) + "/" + supervise::file_spec, supervise::spec_bytes_max)));
}

std::vector<std::pair<TaskId, int>> Tasks::supervisors() const {
  std::vector<std::pair<TaskId, int>> out;
  for (const auto& [task, link] : links_)
    if (link->supervisor_pid > 0 && !link->exited)
      out.emplace_back(task, link->supervisor_pid);
  return out;
}

}  // namespace billow::agent
