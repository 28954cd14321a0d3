#include "agent/node/node_agent.h"

#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>

#include "agent/node/node_policy.h"
#include "agent/node/offer.h"
#include "agent/observe/egress.h"
#include "agent/task/task_status.h"
#include "base/log.h"
#include "base/text.h"
#include "container/plan.h"
#include "core/wire/codec.h"
#include "core/wire/confined.h"
#include "core/wire/copy.h"
#include "core/wire/gpu_metrics.h"
#include "core/wire/node_labels.h"
#include "net/http/gzip.h"
#include "process/spawn.h"

namespace billow::agent {

using namespace wire::agent_v1;

namespace {

// Whether the tasks' disk has little more than the reserve that supervisors leave free
// (supervise/log_writer.cpp): half as much again.
bool disk_is_low(const std::string& data_dir) {
  struct statvfs disk {};
  if (::statvfs(data_dir.c_str(), &disk) != 0)
    return false;
  const std::uint64_t all = static_cast<std::uint64_t>(disk.f_blocks) * disk.f_frsize;
  const std::uint64_t free = static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize;
  return free < std::min<std::uint64_t>(768 << 20, all / 40 * 3);
}

// An engine signals every process of an allocation, in no fixed order: a task may be seen to end
// before the agent gets its own signal. An end that the engine may have caused is held back for as
// long as the two can lie apart on a busy machine.
constexpr Duration allocation_doubt = milliseconds(250);
// A supervisor that was told to end: most likely by the engine.
constexpr Duration allocation_doubt_lost = seconds(2);

Now now() {
  return {system_clock().wall(), system_clock().steady()};
}

}  // namespace

NodeAgent::NodeAgent(NodeOptions options)
    : options_(std::move(options)),
      credential_(std::make_shared<net::NodeCredential>(options_.token_file)),
      workers_(loop_, {.threads = 1, .queue_max = 16}) {}

void NodeAgent::run() {
  loop_.run();
  tasks_->leave();
}

ContentSource NodeAgent::content_source() const {
  return {link_->endpoint(), link_->tls(), credential_};
}

NodeOffer NodeAgent::offer() const {
  NodeOffer out = make_offer(options_, inventory_,
                             fabric_ ? fabric_->labels() : std::map<std::string, std::string>{});
  if (!tasks_->limits_memory())
    out.labels[wire::memory_limits_label] = "none";
  return out;
}

// The head gets the new offer with the hello of the next connection.
void NodeAgent::offer_changed() {
  core_->set_offer(offer());
  link_->close(net::WebSocket::close_normal, "the offer changed");
}

// By process. Uses the process lists, not samples: a sample covers the time since the one before
// and belongs to the readings.
std::map<int, std::int64_t> NodeAgent::gpu_memory_mib() const {
  std::map<int, std::int64_t> out;
  for (const GpuInfo& gpu : inventory_.gpus)
    if (const auto list = backend_->processes(gpu.index))
      for (const GpuProcess& process : *list)
        out[static_cast<int>(process.pid)] += process.mem_mib.value_or(0);
  return out;
}

// ---- the connection to the head

void NodeAgent::connected() {
  find_out_whether_head_is_outside();
  Effects effects;
  core_->on_connected(now(), effects);
  perform(effects);
}

void NodeAgent::disconnected() {
  tasks_->forget_readers();
  core_->on_disconnected(now());
}

void NodeAgent::removed_by_head() {
  log_error("the head has removed this node; ending its {} tasks", core_->live_count());
  Effects effects;
  core_->on_removed(now(), effects);
  perform(effects);
}

// On a worker, because it may have to resolve a name.
void NodeAgent::find_out_whether_head_is_outside() {
  (void)workers_.submit([address = link_->endpoint().address] { return leaves_the_site(address); },
                        [this](bool outside) { head_is_outside_ = outside; });
}

void NodeAgent::send(const FromAgent& message, std::string_view blob) {
  if (link_->connected())
    link_->send(encode(message, blob));
}

void NodeAgent::on_frame(std::string_view frame) {
  if (is_copy_frame(frame))
    return copy_files(frame);
  if (wire::fabric_v1::is_fabric(frame)) {
    const auto ask = wire::fabric_v1::decode_ask(frame);
    if (ask && core_->welcomed())
      fabric_->ask(*ask);
    return;
  }
  if (is_tunnel_frame(frame)) {
    const auto tunnelled = decode_tunnel(frame);
    if (!tunnelled || !core_->welcomed())
      return;
    core_->on_head_alive(now());
    return tasks_->tunnels().take(tunnelled->message, tunnelled->blob);
  }
  auto decoded = decode_to_agent(frame);
  if (!decoded)
    return log_warn("cannot read a message from the head: {}", decoded.error().message);
  if (const auto* refused = get_if<Refused>(&decoded->message))
    log_error("the head refused this node: {} {}", refused->message, refused->hint);
  if (holds_alternative<Welcome>(decoded->message))
    link_->welcomed();
  Effects effects;
  core_->on_message(decoded->message, decoded->blob, now(), effects);
  perform(effects);
}

// Copies files into or out of a running job, as the job's user.
void NodeAgent::copy_files(std::string_view frame) {
  const auto message = decode_copy(frame);
  const auto* asked = message ? std::get_if<CopyFiles>(&*message) : nullptr;
  if (!asked)
    return;
  const auto answer = [this, request = asked->request](Result<std::string> done) {
    FilesCopied copied{.request = request,
                       .began = false,
                       .tree = done ? *done : "",
                       .error = done ? "" : done.error().message};
    if (!done && copied.error.empty())
      copied.error = "the copy failed";
    link_->send(encode_copy(copied));
  };
  link_->send(encode_copy(FilesCopied{.request = asked->request, .began = true}));
  if (tasks_->has_root_helper())
    return answer(
        fail(Code::unsupported,
             "this node's agent is not root and does not copy files into or out of jobs"));
  const auto live = tasks_->watched();
  const bool runs = std::any_of(live.begin(), live.end(),
                                [&](const WatchedTask& task) { return task.task == asked->task; });
  const auto record = tasks_->recorded(asked->task);
  if (!files_)
    return answer(fail(Code::unavailable, "this node cannot copy files: see the agent's log"));
  if (!runs || !record)
    return answer(fail(Code::not_found, "the job no longer runs on this node"));
  // The program that copies is outside the container. If it has the account of the job's user, the
  // job could lead it to that user's files by a link.
  const auto plan =
      wire::from_json_text<container::Plan>(record->variable(container::plan_variable));
  if (::geteuid() != 0 && plan && plan->confined)
    return answer(fail(Code::forbidden,
                       "files of a confined job cannot be copied while it runs, because this "
                       "node's agent does not run as root; use --output"));
  files_->copy(*asked, *record, answer);
}

// ---- signals, the core and its effects

// In an allocation, a signal means that the engine wants its node back. The head is informed and
// moves the work elsewhere; the agent leaves when the work is gone and the head sends no more, or
// just before the engine would kill it.
void NodeAgent::signalled() {
  if (!options_.in_allocation)
    return loop_.stop();
  if (leaving_)
    return;  // the script around the agent forwards the engine's signal too
  leaving_ = true;
  Effects effects;
  core_->on_reclaimed("its engine ends the allocation", now(), effects);
  perform(effects);
  release_doubtful(SteadyTime{INT64_MAX});  // after the message that explains them
  leave_by_ = now().steady + options_.leave_within;
  timers_.push_back(loop_.every(milliseconds(50), [this] {
    const bool unknown = link_->is_refused() && core_->live_count() == 0;
    if (core_->may_leave() || unknown || now().steady > leave_by_)
      loop_.stop();
  }));
}

void NodeAgent::on_task_event(const TaskEvent& event) {
  if (!core_)
    return early_.push_back(event);
  const auto* ended = std::get_if<task_event::Ended>(&event);
  if (options_.in_allocation && !leaving_ && ended && may_be_engines_doing(ended->status.exit)) {
    doubtful_.emplace_back(
        now().steady +
            (ended->status.exit.kind == ExitKind::lost ? allocation_doubt_lost : allocation_doubt),
        *ended);
    if (!doubt_)
      doubt_ = loop_.every(milliseconds(50), [this] { release_doubtful(now().steady); });
    return;
  }
  take_event(event);
}

void NodeAgent::release_doubtful(SteadyTime due) {
  for (auto& held : std::exchange(doubtful_, {})) {
    if (held.first <= due)
      take_event(held.second);
    else
      doubtful_.push_back(std::move(held));
  }
  if (doubtful_.empty())
    doubt_.cancel();
}

void NodeAgent::take_event(const TaskEvent& event) {
  Effects effects;
  core_->on_task_event(event, now(), effects);
  perform(effects);
}

void NodeAgent::tick() {
  tasks_->reap();
  Effects effects;
  core_->tick(now(), effects);
  if (disk_is_low(options_.data_dir))
    core_->on_disk_low(effects);
  perform(effects);
}

// Whether the owner of this machine lets the job run. The file is read each time, so that a change
// counts at once. An account that does not exist is reported by the start; a confined job needs
// none.
Status NodeAgent::allowed_here(const Start& start) const {
  const NodePolicy policy = BILLOW_TRY(load_node_policy(options_.policy_file));
  if (policy.strict_only && !wire::strict_isolation(start))
    return fail(Code::forbidden, "this node's policy: jobs run with strict isolation only here",
                "add --isolation strict");
  BILLOW_TRY_VOID(check_images(policy.images, start.surroundings));
  const std::string confined = wire::confined_for(start);
  const std::string& name = confined.empty() ? start.unix_user : confined;
  const auto account = tasks_->account(name);
  if (!account && !confined.empty())
    return check_policy_without_account(policy, confined, nullptr);
  if (!account)
    return {};
  if (!name.empty() && account->name != name)
    BILLOW_TRY_VOID(check_policy_without_account(policy, name, &*account));
  return check_policy(policy, start.owner, *account);
}

void NodeAgent::perform(const Effects& effects) {
  const auto one = [this](const auto& e) {
    using T = std::decay_t<decltype(e)>;
    if constexpr (std::is_same_v<T, effect::Remember>) {
      if (const Status written =
              write_file_atomic(memory_path(), wire::to_json_text(e.memory), 0600, true);
          !written)
        log_error("{}", written.error().message);
    } else if constexpr (std::is_same_v<T, effect::Send>) {
      send(e.message, {});
    } else if constexpr (std::is_same_v<T, effect::Disconnect>) {
      log_warn("{}", e.why);
      link_->close(net::WebSocket::close_policy, "refused");
    } else if constexpr (std::is_same_v<T, effect::GiveBack>) {
      give_back(e.why);
    } else if constexpr (std::is_same_v<T, effect::EndSelf>) {
      loop_.stop();
    } else if constexpr (std::is_same_v<T, effect::StartTask>) {
      effect::StartTask start = e;
      if (options_.jobs_as_agent && wire::confined_for(e.start).empty())
        start.start.unix_user.clear();
      else if (const auto self = current_user(); self && options_.jobs_as_agent)
        start.start.env[wire::confined_variable] = self->name;
      if (const Status allowed = allowed_here(start.start); allowed)
        tasks_->perform(start);
      else
        tasks_->refuse(start.start.task, allowed.error());
    } else {
      tasks_->perform(e);
    }
  };
  for (const Effect& effect : effects)
    std::visit(one, effect);
}

// The last thing this agent does. The command runs in a separate process, because it may end this
// one.
void NodeAgent::give_back(const std::string& why) {
  log_warn("releasing this node: {}", why);
  if (options_.end_command.empty())
    return;
  process::Spawn request;
  request.argv = {"/bin/sh", "-c", options_.end_command};
  request.out = request.err = process::inherited;
  request.group = process::Group::session;
  request.detached = true;
  if (const auto started = process::spawn(request); !started)
    log_error("could not release this node: {}", started.error().message);
}

Result<Duration> NodeAgent::keep_alive(const SocketPeer& peer, Duration lasts, std::string reason) {
  const auto task = tasks_->task_of(peer);
  if (!task)
    return fail(Code::not_found, "this process does not belong to a running task");
  Effects effects;
  auto kept = core_->keep_alive(*task, lasts, std::move(reason), now(), effects);
  perform(effects);
  if (kept)
    log_info("task {} is kept alive for {}", task->value, format_duration(*kept));
  return kept;
}

// ---- samples and health

void NodeAgent::sample() {
  if (sampling_)
    return;
  sampling_ = true;
  const Status queued = workers_.submit(
      [this, supervisors = tasks_->supervisors(), watched = tasks_->watched()] {
        return readings_->read(watched, supervisors);
      },
      [this](NodeSample sample) { sampled(std::move(sample)); });
  if (!queued)
    sampling_ = false;
}

void NodeAgent::sampled(NodeSample sample) {
  sampling_ = false;
  Effects effects;
  for (const auto& [task, one] : sample.tasks)
    core_->on_sample(task, one, now(), effects);
  perform(effects);
  Heartbeat& beat = sample.beat;
  for (TaskReading& reading : beat.tasks) {
    if (const TaskWatch* watch = core_->watch(reading.task)) {
      reading.quiet_s = watch->verdict().quiet.ns / 1'000'000'000;
      reading.idle_text = watch->text();
    }
    reading.asleep_text = tasks_->asleep_text(reading.task);
  }
  watch_health(beat);
  beat.disk_free_mib = free_disk_mib(options_);
  beat.images_bytes = tasks_->image_bytes();
  beat.images_bytes_max = static_cast<std::int64_t>(options_.images_bytes_max);
  if (metrics_)
    beat_ = beat;
  if (core_->welcomed())
    send(beat, {});
}

// A card that failed or recovered changes the offer.
void NodeAgent::watch_health(const Heartbeat& beat) {
  bool changed = false;
  for (const GpuReading& reading : beat.gpus) {
    const auto [idle, fresh] =
        idle_mem_mib_.try_emplace(static_cast<std::uint32_t>(reading.gpu), reading.mem_used_mib);
    if (!fresh)
      idle->second = std::min(idle->second, reading.mem_used_mib);
    if (static_cast<std::size_t>(reading.gpu) >= inventory_.gpus.size())
      continue;
    GpuInfo& gpu = inventory_.gpus[static_cast<std::size_t>(reading.gpu)];
    const bool was_bad = gpu.health == GpuHealth::lost || gpu.health == GpuHealth::failed,
               is_bad = !reading.unhealthy.empty();
    if (was_bad == is_bad)
      continue;
    gpu.health = is_bad ? enum_value<GpuHealth>(reading.unhealthy).value_or(GpuHealth::failed)
                        : GpuHealth::ok;
    gpu.health_reason = is_bad ? "the card does not answer (" + reading.unhealthy + ")" : "";
    log_warn("GPU {}: {}", reading.gpu, is_bad ? gpu.health_reason : "back");
    changed = true;
  }
  if (changed)
    offer_changed();
}

// After a job that had the node to itself, its GPUs must be as empty as before; otherwise the head
// gives this node no more work.
void NodeAgent::look_over(TaskStatus status) {
  if (!backend_)
    return on_task_event(task_event::Ended{std::move(status)});
  const Status queued =
      workers_.submit([this, gpus = inventory_.gpus,
                       idle = idle_mem_mib_] { return find_left_behind(*backend_, gpus, idle); },
                      [this, status](std::string left) mutable {
                        if (!left.empty())
                          log_warn("task {} left GPUs occupied: {}", status.task.value, left);
                        status.left_behind = std::move(left);
                        on_task_event(task_event::Ended{std::move(status)});
                      });
  if (!queued)
    on_task_event(task_event::Ended{std::move(status)});
}

// For users who scrape nodes instead of the head. Served only if an address was given.
void NodeAgent::answer_metrics(net::Exchange& exchange) {
  if (exchange.request().path != "/metrics")
    return exchange.respond(
        net::problem(404, "an agent serves only /metrics", "", exchange.request().request_id));
  Exposition out;
  const NodeOffer mine = offer();
  wire::add_gpus(out, mine.name, mine.gpus, beat_);
  const std::string name = metric_label("Hostname", mine.name);
  out.add("billow_node_cpu_used_cores", "gauge", "CPU cores in use on the node.", name,
          static_cast<double>(beat_.cpu_used_milli) / 1000);
  out.add("billow_node_memory_used_mib", "gauge", "Memory in use on the node, in MiB.", name,
          static_cast<double>(beat_.mem_used_mib));
  out.add("billow_node_tasks", "gauge", "Tasks running on the node.", name,
          static_cast<double>(tasks_->live()));
  out.add("billow_agent_connected", "gauge", "1 while the agent is connected to the head.", name,
          core_->welcomed() && link_->connected() ? 1 : 0);
  net::Response response;
  response.headers = {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}};
  response.body = out.text();
  net::compress_for(exchange.request(), response);
  exchange.respond(std::move(response));
}

}  // namespace billow::agent
