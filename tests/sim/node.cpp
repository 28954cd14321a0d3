#include "node.h"

#include <signal.h>

#include "agent/task/task_status.h"
#include "audit.h"
#include "base/crypto.h"
#include "base/text.h"
#include "core/control/decide/decide.h"
#include "head.h"

namespace billow::sim {

using namespace wire::agent_v1;
namespace sv = supervise;
namespace fx = agent::effect;

SimNode::SimNode(World& w, std::size_t index, int gpus)
    : world(w), name(fmt::format("n{}", index + 1)), gpu_count(gpus) {
  clock.now_ns = &w.now_ns;
  slow = w.rng.chance(0.2);
}

SimNode::SimNode(World& w, std::string named, std::string external, std::string token)
    : world(w),
      name(std::move(named)),
      rented_as(std::move(external)),
      gpu_count(8),
      join_token_(std::move(token)),
      // Of the right form; nobody signs with it.
      key_(sha256_hex(rented_as + join_token_).substr(0, 42) + "A") {
  clock.now_ns = &w.now_ns;
}

NodeOffer SimNode::offer() const {
  NodeOffer o;
  o.name = name;
  o.boot_id = fmt::format("boot-{}", boot_);
  for (int i = 0; i < gpu_count; ++i)
    o.gpus.push_back({.index = i,
                      .uuid = fmt::format("{}-{}", name, i),
                      .vendor = "nvidia",
                      .model = "NVIDIA H100",
                      .type = "H100",
                      .mem_mib = 80000,
                      .nvlink_domain = 0});
  o.cpu_milli = 8000;
  o.mem_mib = 65536;
  o.simulated = true;
  return o;
}

// ---- the machine

void SimNode::boot() {
  if (up || gone)
    return;
  up = true;
  ++boot_;
  clock.booted_ns = world.now_ns - world.rng.between(1'000'000'000, 30'000'000'000);
  world.trace("{} boots ({})", name, boot_);
  start_agent();
}

void SimNode::power_off() {
  if (!up)
    return;
  world.trace("{} loses power", name);
  crash_agent();
  if (conn_)
    conn_->cut_wire();
  up = false;
  for (auto& [id, dir] : dirs_)
    dir.supervised = false;
  for (const auto& [id, process] : std::exchange(live_, {}))
    vanish(*process);
}

void SimNode::vanish(Process& process) {
  process.alive = false;
  process.vanished = true;
  process.ended_ns = world.now_ns;
}

void SimNode::reboot(Duration down) {
  power_off();
  world.after(down, [this] { boot(); });
}

void SimNode::kill_a_supervisor() {
  for (const auto& [id, process] : live_) {
    if (!world.rng.chance(0.5))
      continue;
    world.trace("{}: the supervisor of task {} is killed", name, id.value);
    dirs_.at(id).supervised = false;
    vanish(*process);
    tell(id, agent::task_event::Ended{agent::lost_status(id, clock.wall(), "its supervisor died")});
    live_.erase(id);
    return;
  }
}

void SimNode::every_second() {
  if (gone)
    return;
  if (up && !core_ && (world.calm || world.rng.chance(0.5)))
    start_agent();
  if (!up)
    return;
  const Faults& f = world.faults;
  if (conn_ && world.fault(f.cut))
    conn_->cut_wire();
  if (world.fault(f.reboot)) {
    if (world.rng.chance(0.15) && world.nodes.size() > 1 && !is_rented()) {
      power_off();
      gone = true;
      world.trace("{} will not come back", name);
      return;
    }
    return reboot(world.some(seconds(1), seconds(world.rng.chance(0.3) ? 150 : 20)));
  }
  if (world.fault(f.supervisor_kill))
    kill_a_supervisor();
  if (core_ && world.fault(f.agent_crash))
    crash_agent();
  if (core_)
    tick();
}

// ---- processes

// What a supervisor or its absence says reaches the agent a moment later, if it is still the same
// one.
void SimNode::tell(TaskId, agent::TaskEvent event) {
  if (!core_)
    return;
  world.after(world.some({0}, milliseconds(slow ? 300 : 3)),
              [this, life = life_, event = std::move(event)] {
                if (life != life_ || !core_)
                  return;
                agent::Effects effects;
                core_->on_task_event(event, now(), effects);
                perform(effects);
              });
}

void SimNode::refuse_task(TaskId id, const std::string& why) {
  TaskStatus status;
  status.task = id;
  status.state = TaskState::ended;
  status.started_at = status.ended_at = clock.wall();
  status.exit = {.kind = ExitKind::exec_failed, .code = 126, .signal = 0, .message = why};
  world.trace("{}: task {} cannot start", name, id.value);
  agent::Effects effects;
  core_->on_task_event(agent::task_event::Ended{status}, now(), effects);
  perform(effects);
}

std::shared_ptr<Process> SimNode::process_of(const fx::StartTask& e) {
  auto process = std::make_shared<Process>();
  process->task = e.start.task;
  process->job = e.start.job;
  process->rank = e.start.rank;
  process->attempt = static_cast<std::uint32_t>(
      parse_int(e.start.env.at("BILLOW_ATTEMPT"), 0, 1'000'000).value_or(0));
  process->node = this;
  process->gpus = e.start.gpus;
  for (const GivenSecret& secret : e.start.secrets)
    process->secrets += !secret.variable.empty();
  process->started_ns = world.now_ns;
  return process;
}

// The argv of a simulated job: "sim", milliseconds it runs (-1: until stopped), exit code, signal,
// attempts that fail before one succeeds, milliseconds it takes to end after SIGTERM (-1: ignores
// it).
void SimNode::plan_end(const fx::StartTask& e, const std::shared_ptr<Process>& process) {
  const TaskId id = process->task;
  const auto word = [&](std::size_t i) {
    return parse_int(e.start.argv.at(i), -1, 1'000'000'000).value_or(0);
  };
  const bool fails = word(4) < 0 || process->attempt <= word(4);
  const auto code = static_cast<std::int32_t>(fails ? word(2) : 0),
             signal = static_cast<std::int32_t>(fails ? word(3) : 0);
  const auto if_same = [this, process](auto fn) {
    return [this, process, fn] {
      if (process->alive && dirs_.contains(process->task) &&
          dirs_.at(process->task).process == process)
        fn();
    };
  };
  // A frozen process neither ends by itself nor uses up its time.
  const auto when_thawed = [process, if_same](auto fn) {
    return if_same([process, fn = if_same(fn)] {
      if (process->frozen)
        process->on_thaw.push_back(fn);
      else
        fn();
    });
  };
  if (word(1) >= 0)
    world.after(milliseconds(word(1)), when_thawed([this, id, code, signal] {
                  end_process(id, sv::EndCause::itself, code, signal, 0);
                }));
  if (e.start.time_limit.ns > 0)
    world.after(e.start.time_limit, when_thawed([this, id, process] {
                  process->timed_out = true;
                  end_process(id, sv::EndCause::time_limit, 0, SIGTERM, 0);
                }));
}

void SimNode::start_task(const fx::StartTask& e) {
  const TaskId id = e.start.task;
  if (dirs_.contains(id) && world.mutation != Mutation::start_twice)
    return;  // made with mkdir: it was started before
  // A secret that is neither a variable nor a file says why there is none, as in Tasks::spec_of.
  const auto refused =
      std::find_if(e.start.secrets.begin(), e.start.secrets.end(),
                   [](const GivenSecret& s) { return s.variable.empty() && s.file.empty(); });
  const bool without =
      refused != e.start.secrets.end() && world.mutation != Mutation::secret_unminded;
  if (without || world.fault(world.faults.exec_fails))
    return refuse_task(id, without ? refused->value : "cannot start");
  Dir& dir = dirs_[id];
  dir = Dir{.start = e.start};
  live_.erase(id);
  if (world.fault(world.faults.torn)) {
    world.trace("{}: the agent dies after mkdir of task {}", name, id.value);
    return crash_agent();
  }
  dir.has_pid = dir.supervised = true;
  const std::shared_ptr<Process> process = process_of(e);
  dir.process = live_[id] = process;
  world.trace("{}: task {} begins (job {} attempt {} rank {})", name, id.value, process->job.value,
              process->attempt, process->rank);
  world.audit->process_started(process);
  plan_end(e, process);
  set_ends_at(id, e.ends_at);
  tell(id, agent::task_event::Started{id, clock.wall()});
}

// What Tasks::carry_out does: the order is on disk before and after; in between the machine or the
// agent may go.
void SimNode::carry_out(TaskId task, agent::OrderRecord record) {
  const auto found = dirs_.find(task);
  if (found == dirs_.end())
    return;
  record.done = false;
  found->second.order = record;
  const auto answer = [this, task](const agent::OrderRecord& r) {
    if (r.suspend)
      tell(task, agent::task_event::Suspended{task, r.order, r.ram_mib, r.error});
    else
      tell(task, agent::task_event::Resumed{task, r.order, r.error});
  };
  if (world.mutation == Mutation::suspended_early && record.suspend)
    return answer(record);
  world.after(world.some({0}, milliseconds(world.rng.chance(0.2) ? 5000 : 50)),
              [this, task, record, answer, life = life_]() mutable {
                const auto dir = dirs_.find(task);
                if (life != life_ || dir == dirs_.end() || !dir->second.process ||
                    !dir->second.process->alive)
                  return;
                const auto process = dir->second.process;
                record.done = true;
                if (world.fault(world.faults.order_fails)) {
                  record.error = "it cannot be done now";
                } else {
                  world.trace("{}: task {} is {}", name, task.value,
                              record.suspend ? "frozen" : "thawed");
                  if (!record.suspend)
                    world.audit->process_resumes(process);
                  process->frozen = record.suspend;
                  record.ram_mib = record.suspend ? 1536 : 0;
                }
                dir->second.order = record;
                if (!process->frozen)
                  for (const auto& due : std::exchange(process->on_thaw, {}))
                    world.after(world.some({0}, milliseconds(500)), due);
                answer(record);
              });
}

void SimNode::set_ends_at(TaskId task, SteadyTime ends_at) {
  const auto found = dirs_.find(task);
  if (found == dirs_.end() || !found->second.process)
    return;
  found->second.ends_at = ends_at;
  if (ends_at.ns == 0)
    return;
  world.after(ends_at - clock.steady(), [this, process = found->second.process, ends_at] {
    const auto dir = dirs_.find(process->task);
    if (!process->alive || dir == dirs_.end() || dir->second.process != process ||
        dir->second.ends_at != ends_at)
      return;
    stop_task(process->task, Duration{-1}, sv::EndCause::paid_until, agent::StopReason::request);
  });
}

// What the supervisor does: the first stop says why, later ones may only shorten the grace.
void SimNode::stop_task(TaskId task, Duration grace, sv::EndCause cause, agent::StopReason reason) {
  const auto found = dirs_.find(task);
  if (found == dirs_.end() || !found->second.process || !found->second.process->alive)
    return;
  const auto process = found->second.process;
  const Start& start = found->second.start;
  if (grace.ns < 0)
    grace = start.fenced ? std::min(start.stop_grace, limits::fence_grace) : start.stop_grace;
  if (!process->stop_reason) {
    process->stop_reason = static_cast<std::uint32_t>(reason);
    process->unpaid = cause == sv::EndCause::paid_until;
  }
  const auto until_term = parse_int(found->second.start.argv.at(5), -1, 1'000'000).value_or(0);
  const bool ignores = until_term < 0 || milliseconds(until_term) > grace;
  world.after(ignores ? grace : milliseconds(until_term), [this, process, ignores] {
    if (!process->alive || dirs_.at(process->task).process != process)
      return;
    process->killed_by_stop = true;
    end_process(process->task,
                process->unpaid ? sv::EndCause::paid_until : sv::EndCause::stop_request, 0,
                ignores ? SIGKILL : SIGTERM, *process->stop_reason);
  });
}

void SimNode::end_process(TaskId task,
                          sv::EndCause cause,
                          std::int32_t code,
                          std::int32_t signal,
                          std::uint32_t stop_reason) {
  Dir& dir = dirs_.at(task);
  Process& process = *dir.process;
  process.alive = false;
  live_.erase(task);
  process.ended_ns = world.now_ns;
  process.code = code;
  process.signal = signal;
  sv::ExitRecord record{};
  record.magic = sv::exit_magic;
  record.bytes = sizeof(record);
  record.kind = static_cast<std::uint32_t>(signal ? sv::ExitKind::signaled : sv::ExitKind::exited);
  record.code = code;
  record.signal = signal;
  if (world.mutation == Mutation::exit_mangled && signal) {
    record.kind = static_cast<std::uint32_t>(sv::ExitKind::exited);
    record.code = 128 + signal;
  }
  record.cause = static_cast<std::uint32_t>(cause);
  record.stop_reason = stop_reason;
  record.started_wall_ns = clock.wall().ns - (world.now_ns - process.started_ns);
  record.ended_wall_ns = clock.wall().ns;
  dir.exit = record;
  dir.supervised = false;
  world.trace("{}: task {} ends (code {}, signal {}, cause {})", name, task.value, code, signal,
              static_cast<int>(cause));
  tell(task, agent::task_event::Ended{agent::status_of(task, record)});
}

// ---- the agent

std::vector<agent::RecoveredTask> SimNode::recover() {
  std::vector<agent::RecoveredTask> out;
  if (world.mutation == Mutation::start_twice)
    return out;
  for (auto at = dirs_.begin(); at != dirs_.end();) {
    auto& [id, dir] = *at;
    agent::RecoveredTask task;
    task.status.task = id;
    task.acknowledged = dir.acknowledged;
    task.fenced = dir.start.fenced;
    if (dir.supervised) {
      task.status.state = TaskState::running;
      if (dir.order.order != 0 && world.mutation != Mutation::orders_forgotten) {
        task.status.state = dir.order.state();
        task.status.order = dir.order.order;
        task.status.order_error = dir.order.error;
        task.status.ram_mib = dir.order.ram_mib;
      }
    } else if (dir.exit) {
      task.status = agent::status_of(id, *dir.exit);
    } else if (!dir.has_pid) {
      at = dirs_.erase(at);
      continue;
    } else if (dir.acknowledged) {
      task.status = agent::lost_status(id, clock.wall(), "its supervisor died");
    } else {
      task.status.state = TaskState::running;  // until what is left of it has been ended
    }
    out.push_back(std::move(task));
    ++at;
  }
  return out;
}

void SimNode::start_agent() {
  if (!up || core_)
    return;
  ++life_;
  agent::CoreOptions options;
  options.offer = offer();
  options.memory = memory_;
  options.tasks = recover();
  world.trace("{}: the agent starts with {} tasks", name, options.tasks.size());
  core_ = std::make_unique<agent::Core>(std::move(options), now());
  for (const auto& [id, dir] : dirs_)
    if (dir.supervised)
      tell(id, agent::task_event::Started{
                   id, {clock.wall().ns - (world.now_ns - dir.process->started_ns)}});
  for (const auto& [id, dir] : dirs_)
    if (dir.supervised && dir.order.order != 0 && !dir.order.done)
      carry_out(id, dir.order);
  for (const auto& [id, dir] : dirs_)
    if (dir.has_pid && !dir.supervised && !dir.exit && !dir.acknowledged)
      tell(id,
           agent::task_event::Ended{agent::lost_status(id, clock.wall(), "its supervisor died")});
  attempts_ = 0;
  dial();
}

void SimNode::crash_agent() {
  if (!core_)
    return;
  world.trace("{}: the agent dies", name);
  core_.reset();
  ++life_;
  if (conn_)
    conn_->close_by_agent();
  conn_.reset();
}

// As `billow join` does, with the one token that it was ordered with.
bool SimNode::join() {
  SimHead* const head = world.head();
  if (!is_rented() || credential_ || !head)
    return !is_rented() || credential_;
  const auto& tokens = head->engine->state().token_by_hash;
  if (const auto own = tokens.find(control::node_key_hash(key_)); own != tokens.end())
    credential_ = own->second;
  else if (const auto token = tokens.find(sha256_hex(join_token_)); token != tokens.end())
    head->execute(JoinNode{token->second, name, key_}, {});
  return static_cast<bool>(credential_);
}

void SimNode::dial() {
  if (!core_ || conn_)
    return;
  if (!join())
    return redial();
  std::vector<SimHead*> there;
  for (const auto& h : world.heads)
    if (h->alive && !h->dying)
      there.push_back(h.get());
  if (there.empty())
    return redial();
  SimHead* head = there.size() > 1 && world.rng.chance(0.3) ? there.front() : there.back();
  conn_ = std::make_shared<Conn>(world, this, head);
  conn_->heard = world.head_clock.steady();
  conn_->credential = credential_;
  world.trace("{} dials head {}", name, head->journal.epoch());
  head->conns.push_back(conn_);
  agent::Effects effects;
  core_->on_connected(now(), effects);
  world.audit->hello_sent(*this, core_->memory().epoch);
  perform(effects);
}

void SimNode::redial() {
  const std::int64_t base = std::min<std::int64_t>(2000, 10ll << std::min(attempts_++, 8));
  world.after(milliseconds(base / 2 + world.rng.between(0, base)), [this, life = life_] {
    if (life == life_)
      dial();
  });
}

void SimNode::send(const FromAgent& message) {
  if (conn_)
    conn_->send_to_head(message);
}

void SimNode::on_frame(const Conn* conn, std::string_view frame) {
  if (!core_ || conn_.get() != conn)
    return;
  auto decoded = decode_to_agent(frame);
  if (!decoded)
    broken("an agent cannot read a frame: " + decoded.error().message);
  if (holds_alternative<Welcome>(decoded->message)) {
    attempts_ = 0;
    world.trace("{} is welcome", name);
  }
  agent::Effects effects;
  core_->on_message(decoded->message, decoded->blob, now(), effects);
  // Counts only once its effects are carried out: an agent that died before may have forgotten it.
  if (perform(effects) && core_->welcomed())
    if (const auto* welcome = get_if<Welcome>(&decoded->message))
      world.audit->head_accepted(*this, welcome->epoch);
}

void SimNode::on_closed(const Conn* conn) {
  if (!core_ || conn_.get() != conn)
    return;
  world.trace("{}: the connection is gone", name);
  conn_.reset();
  core_->on_disconnected(now());
  redial();
}

void SimNode::tick() {
  agent::Effects effects;
  // What the machine shows of its tasks, good enough to be metered by; a hole in it now and then.
  if (!world.rng.chance(0.1)) {
    for (const auto& [id, process] : live_) {
      agent::TaskSample sample;
      sample.idle.at = clock.steady();
      agent::GpuSignal gpu;
      gpu.util_pct = world.rng.chance(0.7) ? 80 : 0;
      sample.idle.gpus.assign(process->gpus.size(), gpu);
      sample.idle.cpu_ns = sample.idle.io_bytes = sample.idle.page_faults = 0;
      for (const GpuGrant& grant : process->gpus)
        sample.energy.push_back(
            agent::TaskSample::Energy{world.now_ns / 1'000'000, grant.share.milli});
      core_->on_sample(id, sample, now(), effects);
    }
  }
  core_->tick(now(), effects);
  if (perform(effects) && core_ && core_->welcomed())
    beat();
}

// While nothing goes wrong in a long run, most heartbeats arrive without travelling.
void SimNode::beat() {
  constexpr int travels_every = 10;
  if (!world.is_long() || !world.calm || !conn_->sound() || ++beats_ % travels_every == 0)
    return send(Heartbeat{});
  conn_->heard = world.head_clock.steady();
  core_->on_head_alive(now());
}

bool SimNode::perform(const agent::Effects& effects) {
  const std::uint64_t life = life_;
  for (const agent::Effect& effect : effects) {
    if (world.fault(world.faults.torn)) {
      crash_agent();
      return false;
    }
    std::visit(
        [&](const auto& e) {
          using T = std::decay_t<decltype(e)>;
          if constexpr (std::is_same_v<T, fx::Remember>) {
            if (world.mutation != Mutation::epoch_forgotten)
              memory_ = e.memory;
          } else if constexpr (std::is_same_v<T, fx::StartTask>) {
            start_task(e);
          } else if constexpr (std::is_same_v<T, fx::RecordEnd>) {
            if (!dirs_.contains(e.status.task))
              dirs_[e.status.task].exit = agent::record_of(e.status);
          } else if constexpr (std::is_same_v<T, fx::StopTask>) {
            stop_task(e.task, e.grace, sv::EndCause::stop_request, e.reason);
          } else if constexpr (std::is_same_v<T, fx::SuspendTask>) {
            carry_out(e.task, {.order = e.order, .suspend = true, .mode = e.mode});
          } else if constexpr (std::is_same_v<T, fx::ResumeTask>) {
            carry_out(e.task, {.order = e.order, .suspend = false, .gpus = e.gpus});
          } else if constexpr (std::is_same_v<T, fx::SetEndsAt>) {
            set_ends_at(e.task, e.ends_at);
          } else if constexpr (std::is_same_v<T, fx::AcknowledgeTask>) {
            if (const auto found = dirs_.find(e.task); found != dirs_.end())
              found->second.acknowledged = true;
          } else if constexpr (std::is_same_v<T, fx::RemoveTask>) {
            dirs_.erase(e.task);
            live_.erase(e.task);
          } else if constexpr (std::is_same_v<T, fx::Send>) {
            FromAgent message = e.message;
            if (auto* report = get_if<Report>(&message);
                report && world.mutation == Mutation::lease_freed_early &&
                report->status.state == TaskState::stopping) {
              report->status.state = TaskState::ended;
              report->status.exit = {.kind = ExitKind::stopped, .code = 143};
            }
            send(message);
          } else if constexpr (std::is_same_v<T, fx::Disconnect>) {
            world.trace("{}: {}", name, e.why);
            if (conn_) {
              const auto old = conn_;
              old->close_by_agent();
              on_closed(old.get());
            }
          }
        },
        effect);
    if (life != life_)
      return false;
  }
  if (effects.empty() && !world.thorough)
    return true;
  if (const auto wrong = core_->check_invariants())
    broken(fmt::format("the agent of {}: {}", name, *wrong));
  return true;
}

}  // namespace billow::sim
