#include "agent/node/node.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <fmt/format.h>

#include <map>

#include "agent/content/file_service.h"
#include "agent/content/residue.h"
#include "agent/node/reclaim_watch.h"
#include "agent/observe/egress.h"
#include "agent/observe/readings.h"
#include "agent/observe/sampler.h"
#include "agent/reach/fabric.h"
#include "agent/reach/keepalive.h"
#include "agent/task/task_status.h"
#include "agent/task/tasks.h"
#include "base/crypto.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/text.h"
#include "core/agent/core.h"
#include "core/agent/health.h"
#include "core/model/surroundings.h"
#include "core/wire/codec.h"
#include "core/wire/copy.h"
#include "core/wire/gpu_metrics.h"
#include "core/wire/spoken.h"
#include "gpu/backend.h"
#include "gpu/describe.h"
#include "gpu/host.h"
#include "net/http/http_client.h"
#include "net/http/http_server.h"
#include "net/loop.h"
#include "net/workers.h"
#include "process/spawn.h"

namespace billow::agent {

using namespace wire::agent_v1;

namespace {

constexpr Duration lock_patience = milliseconds(200);
constexpr Duration allocation_linger =
    seconds(30);  // how long tasks live on when an agent in an allocation is killed
constexpr Duration removed_after =
    seconds(30);  // a head that does not know us for so long has removed us
constexpr Duration allocation_patience = seconds(20);  // Slurm kills half a minute after its signal
// An engine signals every process of an allocation, in no order: a job may be seen to end before
// our own signal is there. An end that might be the engine's doing is held back for as long as the
// two can lie apart on a busy machine.
constexpr Duration allocation_doubt = milliseconds(250);
constexpr Duration allocation_doubt_lost =
    seconds(2);  // its supervisor was told to end: who else but the engine

Now now() {
  return {system_clock().wall(), system_clock().steady()};
}

class NodeAgent {
 public:
  bool removed() const { return removed_; }
  explicit NodeAgent(NodeOptions options)
      : options_(std::move(options)),
        workers_(loop_, {.threads = 1, .queue_max = 16}),
        jitter_(static_cast<std::uint64_t>(::getpid())) {}

  Status start() {
    BILLOW_TRY_VOID(make_directories(options_.data_dir, 0700));
    BILLOW_TRY_VOID(lock());
    for (const std::string& head : split(options_.head, ','))
      endpoints_.push_back(BILLOW_TRY(net::parse_endpoint(trim(head))));
    client_ = BILLOW_TRY(net::HttpClient::create(loop_, {.tls = options_.tls}));
    BILLOW_TRY_VOID(open_gpus());
    const std::string sim_state = options_.sim.empty() ? "" : options_.data_dir + "/sim";
    const std::string socket = "billow-agent-" + sha256_hex(options_.data_dir).substr(0, 16);
    auto keepalive =
        KeepAliveSocket::listen(loop_, socket, [this](int pid, Duration lasts, std::string reason) {
          return keep_alive(pid, lasts, std::move(reason));
        });
    if (keepalive)
      keepalive_ = std::move(*keepalive);
    else
      log_warn("jobs cannot ask to be kept alive: {}", keepalive.error().message);
    if (options_.arena_bytes < 0) {
      std::int64_t gpu_bytes = 0;
      for (const GpuInfo& gpu : inventory_.gpus)
        gpu_bytes += gpu.memory_mib << 20;
      const auto host = read_host();
      options_.arena_bytes = default_arena_bytes(host ? host->memory_usable_mib << 20 : 0,
                                                 gpu_bytes, !options_.sim.empty());
    }
    const auto gpu_memory = [this] {
      std::map<int, std::int64_t> out;
      for (const GpuInfo& gpu : inventory_.gpus)
        if (const auto list =
                backend_->processes(gpu.index))  // not a sample: those are windows since the one
                                                 // before, and belong to the readings
          for (const GpuProcess& process : *list)
            out[static_cast<int>(process.pid)] += process.mem_mib.value_or(0);
      return out;
    };
    std::string files_socket = "billow-files-" + sha256_hex(options_.data_dir).substr(0, 16);
    auto files = FileService::create(
        loop_, {.directory = options_.data_dir + "/files",
                .bytes_max = options_.files_bytes_max,
                .socket = files_socket,
                .head = [this] { return endpoints_[head_at_ % endpoints_.size()]; },
                .tls = options_.tls,
                .token_file = options_.token_file,
                .work_dir = files_work_dir(),
                .task_of = [this](int pid) { return tasks_ ? tasks_->task_of(pid) : std::nullopt; },
                .record_of = [this](TaskId task) { return tasks_->recorded(task); },
                .cache_bytes_max = options_.cache_bytes_max});
    if (files)
      files_ = std::move(*files);
    else
      log_warn("files cannot follow jobs to this node: {}", files.error().message),
          files_socket.clear();
    MigClaims migs(options_.allow_mig_changes ? backend_.get() : nullptr,
                   options_.data_dir + "/mig-made", inventory_.gpus);
    tasks_ = BILLOW_TRY(Tasks::create(
        loop_,
        {.data_dir = options_.data_dir,
         .sim_state_dir = sim_state,
         .gpus = inventory_.gpus,
         .arena_bytes = options_.arena_bytes,
         .gpu_memory =
             backend_ ? std::function<std::map<int, std::int64_t>()>(gpu_memory) : nullptr,
         .keepalive_socket = keepalive_ ? socket : "",
         .migs = std::move(migs),
         .files_socket = files_socket,
         .work_dir = files_work_dir(),
         .head =
             [this] {
               return ContentSource{endpoints_[head_at_ % endpoints_.size()], options_.tls,
                                    options_.token_file};
             },
         .environment_bytes_max = options_.files_bytes_max,
         .image_bytes_max = options_.images_bytes_max,
         .pull_patience = options_.pull_patience,
         .reach =
             [this] {
               return reach_of(endpoints_[head_at_ % endpoints_.size()].address);
             }},
        {.event = [this](const TaskEvent& event) { on_task_event(event); },
         .send = [this](const FromAgent& message, std::string_view blob) { send(message, blob); },
         .send_tunnel =
             [this](const Tunnelled& message, std::string_view blob) {
               if (socket_ && socket_->open())
                 socket_->send_binary(encode_tunnel(message, blob));
             },
         .head_is_outside = [this] { return head_is_outside_; },
         .files_done =
             [this](TaskId task) {
               if (files_)
                 files_->forget(task);
             },
         .look_over =
             [this](TaskStatus status) {
               look_over(std::move(status));
             }}));
    fabric_ = std::make_unique<Fabric>(
        loop_, Fabric::Options{options_.data_dir, inventory_.gpus,
                               [this](const wire::fabric_v1::Answer& answer) {
                                 if (socket_ && socket_->open())
                                   socket_->send_binary(wire::fabric_v1::encode(answer));
                               },
                               [this] {
                                 offer_changed();
                               }});
    CoreOptions core;
    core.offer = offer();
    if (const auto text = read_file(memory_path()))
      if (auto memory = wire::from_json_text<Memory>(*text))
        core.memory = *memory;
    core.tasks = tasks_->recover();
    std::vector<TaskId> live;
    for (const RecoveredTask& task : core.tasks)
      if (task.status.state != TaskState::ended)
        live.push_back(task.status.task);
    if (files_)
      files_->forget_others(live);
    node_name_ = core.offer.name;
    if (files_)
      residue_ = std::make_unique<ResidueWatch>(
          loop_,
          CachePlaces{options_.data_dir, files_work_dir(), files_->store(), files_->objects()},
          ResidueWatch::Options{.head =
                                    [this] {
                                      return ContentSource{endpoints_[head_at_ % endpoints_.size()],
                                                           options_.tls, options_.token_file};
                                    },
                                .node =
                                    [this] {
                                      return node_name_;
                                    }});
    tasks_->forget_other_rooms(live);
    core.protocol = wire::spoken_protocol();
    if (options_.in_allocation)
      core.tasks_outlive_us = allocation_linger;
    core_ = std::make_unique<Core>(std::move(core), now());
    sampler_ = std::make_unique<Sampler>(backend_.get(), inventory_.gpus);
    signals_ = loop_.on_signal({SIGINT, SIGTERM}, [this](int) { signalled(); });
    timers_.push_back(loop_.every(milliseconds(250), [this] { tick(); }));
    timers_.push_back(loop_.every(limits::agent_heartbeat, [this] { sample(); }));
    if (!options_.metrics.empty()) {
      net::HttpServer::Options server;
      server.listen = {options_.metrics};
      metrics_ = BILLOW_TRY(net::HttpServer::create(
          loop_, server,
          [this](std::shared_ptr<net::Exchange> exchange) { answer_metrics(*exchange); }));
      log_info("metrics at http://{}/metrics", metrics_->bound_addresses().front());
    }
    BILLOW_TRY_VOID(watch_for_reclaim());
    for (const TaskEvent& event : std::exchange(early_, {}))
      on_task_event(event);
    dial();
    sample();
    return {};
  }
  void run() {
    loop_.run();
    tasks_->leave();
  }

 private:
  // Outside the data directory, which nobody but the agent's user can enter.
  std::string files_work_dir() const {
    return "/var/tmp/billow-" + sha256_hex(options_.data_dir).substr(0, 12);
  }
  std::string memory_path() const { return options_.data_dir + "/memory.json"; }

  // One agent per data directory. The lock file also says who holds it.
  Status lock() {
    lock_ = Fd(::open((options_.data_dir + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!lock_)
      return fail_errno(options_.data_dir + "/lock", errno);
    // A head that looks whether an agent is alive holds the lock for a moment.
    const SteadyTime deadline = now().steady + lock_patience;
    while (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (now().steady > deadline)
        return fail(Code::conflict, fmt::format("an agent already runs on {}", options_.data_dir));
      ::usleep(5000);
    }
    (void)!::ftruncate(lock_.get(), 0);
    return write_all(lock_.get(), fmt::format("{}\n", ::getpid()));
  }

  Status open_gpus() {
    GpuBackendOptions gpu;
    gpu.sim = options_.sim;
    if (!options_.sim.empty()) {
      gpu.sim_state_dir = options_.data_dir + "/sim";
      BILLOW_TRY_VOID(make_directories(gpu.sim_state_dir, 0700));
    }
    gpu.allow_mig_changes = options_.allow_mig_changes;
    auto backend = GpuBackend::open(gpu);
    if (!backend) {
      if (!options_.sim.empty())
        return pass(backend.error());
      log_info("no GPUs: {}", backend.error().message);
      return {};
    }
    backend_ = std::move(*backend);
    inventory_ = BILLOW_TRY(backend_->inventory());
    return keep_only(options_.only_gpus);
  }

  // An engine gave us some of the machine's cards: those alone are offered, counted from zero.
  Status keep_only(const std::string& list) {
    if (list.empty())
      return {};
    std::vector<GpuInfo> kept;
    if (list != "none" && list != "NoDevFiles")
      for (const std::string& word : split(list, ',')) {
        const auto card =
            std::find_if(inventory_.gpus.begin(), inventory_.gpus.end(), [&](const GpuInfo& gpu) {
              return std::to_string(gpu.index) == trim(word) ||
                     (word.size() > 6 && gpu.uuid.starts_with(trim(word)));
            });
        if (card == inventory_.gpus.end())
          return fail(Code::not_found, fmt::format("this machine has no GPU {}", word),
                      "see --only-gpus");
        kept.push_back(*card);
      }
    inventory_.gpus = std::move(kept);
    return {};
  }

  NodeOffer offer() const {
    NodeOffer out;
    const auto host = read_host();
    if (host) {
      out.name = options_.node_name.empty() ? host->hostname : options_.node_name;
      out.boot_id = host->boot_id;
      out.arch = host->arch;
      // Memory follows the kernel's count, which changes by a few MiB between looks; rounded, an
      // offer stays the same.
      out.mem_mib = host->memory_usable_mib / 64 * 64;
      out.cpu_milli = static_cast<std::int64_t>(host->cpus_usable) * 1000;
    }
    if (!check_name("node", out.name))
      out.name = "node";
    out.version = options_.version;
    out.simulated = inventory_.simulated;
    out.gpus = node_gpus(inventory_, options_.allow_mig_changes);
    for (std::size_t i = 0; i < out.gpus.size(); ++i)
      out.gpus[i].index = static_cast<std::int32_t>(i);
    out.labels = options_.labels;
    if (!options_.pool.empty())
      out.labels["pool"] = options_.pool;
    if (options_.bills)
      out.labels["bills"] = "yes";
    // Of the file system its jobs work on: what a pool that prices storage bills for.
    if (struct statvfs disk{};
        !out.labels.contains("disk-gib") && ::statvfs(options_.data_dir.c_str(), &disk) == 0)
      out.labels["disk-gib"] = std::to_string(static_cast<std::uint64_t>(
          static_cast<unsigned __int128>(disk.f_blocks) * disk.f_frsize >> 30));
    for (const auto& [key, value] : link_labels(inventory_.gpus))
      out.labels.emplace(key, value);
    if (fabric_)
      for (const auto& [key, value] : fabric_->labels())
        out.labels.emplace(key, value);
    if (options_.in_allocation) {
      const auto given = [](const char* name) {
        const char* text = ::getenv(name);
        return text ? parse_int(text, 1, 1 << 30).value_or(0) : 0;
      };
      if (const std::int64_t cpus = given("SLURM_CPUS_ON_NODE"); cpus > 0)
        out.cpu_milli = std::min(out.cpu_milli, cpus * 1000);
      if (const std::int64_t mem = given("SLURM_MEM_PER_NODE"); mem > 0)
        out.mem_mib = std::min(out.mem_mib, mem);
    }
    return out;
  }

  // ---- the connection
  void dial() {
    if (dialing_ || socket_)
      return;
    const auto token = read_file(options_.token_file, 4096);
    if (!token) {
      log_warn("{}", token.error().message);
      return redial();
    }
    dialing_ = true;
    net::ClientRequest request;
    request.endpoint = endpoints_[head_at_ % endpoints_.size()];
    request.target = "/v1/agent";
    request.headers.set("Authorization", "Bearer " + std::string(trim(*token)));
    call_ = client_->connect_websocket(
        std::move(request),
        {.message_bytes_max = limits::agent_frame_bytes_max, .queue_bytes_max = 64 << 20},
        [this](Result<std::shared_ptr<net::WebSocket>> socket) {
          dialing_ = false;
          if (!socket) {
            if (attempts_ % 20 == 0 && socket.error().code != Code::unauthorized)
              log_warn("no head at {}: {}", options_.head, socket.error().message);
            refused(socket.error().code == Code::unauthorized);
            return redial();
          }
          refused_since_ = {};
          socket_ = std::move(*socket);
          socket_->on_message([this](std::string_view frame, bool) { on_frame(frame); });
          socket_->on_close([this](const net::WebSocket::Closed&) { disconnected(); });
          look_where_the_head_is();
          Effects effects;
          core_->on_connected(now(), effects);
          perform(effects);
        });
  }
  // A name may have to be looked up, which is nothing for the loop.
  void look_where_the_head_is() {
    (void)workers_.submit(
        [address = endpoints_[head_at_ % endpoints_.size()].address] {
          return leaves_the_site(address);
        },
        [this](bool outside) { head_is_outside_ = outside; });
  }
  // The head answers and does not know our credential. Not believed at once: whoever mends a
  // mistake there is given a moment.
  void refused(bool unknown) {
    if (!unknown)
      refused_since_ = {};
    if (!unknown || removed_)
      return;
    if (refused_since_.ns == 0) {
      refused_since_ = now().steady;
      log_error(
          "the head at {} does not know this node any more: it was removed, or its credential "
          "revoked. What runs here ends in {} unless it is known again",
          options_.head, format_duration(removed_after));
    }
    if (now().steady - refused_since_ < removed_after)
      return;
    removed_ = true;
    log_error("this node has been removed from its head; {} tasks are ended here",
              core_->live_count());
    Effects effects;
    core_->on_removed(now(), effects);
    perform(effects);
  }
  // Soon at first, for a head that restarts; ever more seldom for one that stays away. Jitter keeps
  // a fleet from dialling as one.
  void redial() {
    const std::int64_t base =
        std::min<std::int64_t>(2000, 10ll << std::min<std::uint64_t>(attempts_, 8));
    // Of several heads one leads: who does not answer is passed over, and a longer pause comes
    // after a round of all.
    if (++head_at_ % endpoints_.size() == 0)
      ++attempts_;
    redial_ = loop_.after(milliseconds(base / 2 + static_cast<std::int64_t>(jitter_.below(
                                                      static_cast<std::uint64_t>(base)))),
                          [this] { dial(); });
  }
  void disconnected() {
    if (!socket_)
      return;
    const auto old = std::move(socket_);
    socket_ = nullptr;
    tasks_->forget_readers();
    core_->on_disconnected(now());
    redial();
    loop_.post([old] {});
  }
  void send(const FromAgent& message, std::string_view blob) {
    if (socket_ && socket_->open())
      socket_->send_binary(encode(message, blob));
  }
  void on_frame(std::string_view frame) {
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
    if (!decoded) {
      log_warn("the head said something unreadable: {}", decoded.error().message);
      return;
    }
    if (const auto* refused = std::get_if<Refused>(&decoded->message))
      log_error("the head refused this node: {} {}", refused->message, refused->hint);
    if (std::holds_alternative<Welcome>(decoded->message))
      attempts_ = 0;
    Effects effects;
    core_->on_message(decoded->message, decoded->blob, now(), effects);
    perform(effects);
  }

  // Files of a job that runs here, by its user's hand.
  void copy_files(std::string_view frame) {
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
        copied.error = "it failed";
      if (socket_ && socket_->open())
        socket_->send_binary(encode_copy(copied));
    };
    if (socket_ && socket_->open())
      socket_->send_binary(encode_copy(FilesCopied{.request = asked->request, .began = true}));
    const auto live = tasks_->watched();
    const bool runs = std::any_of(live.begin(), live.end(), [&](const WatchedTask& task) {
      return task.task == asked->task;
    });
    const auto record = tasks_->recorded(asked->task);
    if (!files_)
      return answer(
          fail(Code::unavailable, "files cannot be copied on this node: see the agent's log"));
    if (!runs || !record)
      return answer(fail(Code::not_found, "the job does not run here any more"));
    files_->copy(*asked, *record, answer);
  }

  // In an allocation a signal means that the engine wants its node back: the head is told, which
  // sends the work elsewhere, and we leave when it is gone, or when the engine would kill us
  // anyway.
  void signalled() {
    if (!options_.in_allocation)
      return loop_.stop();
    if (leaving_)
      return;  // the script around us passes on the signal that the engine sent us as well
    leaving_ = true;
    Effects effects;
    core_->on_reclaimed("its engine ends the allocation", now(), effects);
    perform(effects);
    release_doubtful(SteadyTime{INT64_MAX});  // after the word that explains them
    leave_by_ = now().steady + allocation_patience;
    timers_.push_back(loop_.every(milliseconds(50), [this] {
      if (core_->idle() || now().steady > leave_by_)
        loop_.stop();
    }));
  }

  // A rented machine is about to be taken back: the head sends its work elsewhere while there is
  // time. We stay until the end.
  Status watch_for_reclaim() {
    if (options_.reclaim_notices.empty())
      return {};
    ReclaimWatch::Options watch;
    watch.cloud = enum_value<Cloud>(options_.reclaim_notices);
    if (!options_.metadata_url.empty())
      watch.metadata_url = options_.metadata_url;
    reclaim_ = BILLOW_TRY(ReclaimWatch::create(loop_, watch, [this](std::string reason) {
      log_warn("this machine goes: {}", reason);
      Effects effects;
      core_->on_reclaimed(std::move(reason), now(), effects);
      perform(effects);
    }));
    return {};
  }

  // ---- the core
  void on_task_event(const TaskEvent& event) {
    if (!core_)
      return early_.push_back(event);
    if (options_.in_allocation && !leaving_)
      if (const auto* ended = std::get_if<task_event::Ended>(&event);
          ended && may_be_engines_doing(ended->status.exit)) {
        doubtful_.emplace_back(
            now().steady + (ended->status.exit.kind == ExitKind::lost ? allocation_doubt_lost
                                                                      : allocation_doubt),
            *ended);
        if (!doubt_)
          doubt_ = loop_.every(milliseconds(50), [this] { release_doubtful(now().steady); });
        return;
      }
    take_event(event);
  }
  void release_doubtful(SteadyTime due) {
    for (auto& held : std::exchange(doubtful_, {})) {
      if (held.first <= due)
        take_event(held.second);
      else
        doubtful_.push_back(std::move(held));
    }
    if (doubtful_.empty())
      doubt_.cancel();
  }
  void take_event(const TaskEvent& event) {
    Effects effects;
    core_->on_task_event(event, now(), effects);
    perform(effects);
  }
  void tick() {
    tasks_->reap();
    Effects effects;
    core_->tick(now(), effects);
    perform(effects);
  }
  void perform(const Effects& effects) {
    for (const Effect& effect : effects) {
      std::visit(
          [this](const auto& e) {
            using T = std::decay_t<decltype(e)>;
            if constexpr (std::is_same_v<T, effect::Remember>) {
              const Status written =
                  write_file_atomic(memory_path(), wire::to_json_text(e.memory), 0600, true);
              if (!written)
                log_error("{}", written.error().message);
            } else if constexpr (std::is_same_v<T, effect::Send>) {
              send(e.message, {});
            } else if constexpr (std::is_same_v<T, effect::Disconnect>) {
              log_warn("{}", e.why);
              if (socket_)
                socket_->close(net::WebSocket::close_policy, "refused");
            } else if constexpr (std::is_same_v<T, effect::GiveBack>) {
              give_back(e.why);
            } else if constexpr (std::is_same_v<T, effect::EndSelf>) {
              loop_.stop();
            } else {
              tasks_->perform(e);
            }
          },
          effect);
    }
  }

  // ---- readings: on a worker, because a driver may take its time
  void sample() {
    if (sampling_)
      return;
    sampling_ = true;
    const Status queued = workers_.submit(
        [this, supervisors = tasks_->supervisors(), watched = tasks_->watched()] {
          Sampled looked = sampler_->look(watched, system_clock().steady());
          Heartbeat beat;
          const WallTime wall = now().wall;
          if (backend_) {
            if (const auto events = backend_->poll_events({}))
              for (const GpuEvent& event : *events) {
                log_warn("GPU {}: {}", event.index, event.text);
                watches_[event.index].take(event);
              }
          }
          for (const GpuInfo& gpu : inventory_.gpus) {
            const auto card = looked.cards.find(gpu.index);
            if (card == looked.cards.end())
              continue;
            const GpuSample* sample = &card->second;
            GpuReading reading;
            reading.gpu = static_cast<std::int32_t>(&gpu - inventory_.gpus.data());
            reading.util_pct = sample->util_pct.value_or(-1);
            reading.mem_used_mib = sample->mem_used_mib.value_or(0);
            reading.power_mw = sample->power_mw.value_or(0);
            reading.temperature_c = sample->temperature_c.value_or(0);
            if (sample->health == GpuHealth::lost || sample->health == GpuHealth::failed)
              reading.unhealthy = enum_name(sample->health);
            if (sample->sm_active_pct)
              reading.sm_active_permille = static_cast<std::int32_t>(*sample->sm_active_pct * 10);
            reading.mem_util_pct = sample->mem_util_pct.value_or(-1);
            reading.sm_clock_mhz = sample->sm_clock_mhz.value_or(-1);
            reading.pcie_tx_kib_s = sample->pcie_tx_kib_s.value_or(-1);
            reading.pcie_rx_kib_s = sample->pcie_rx_kib_s.value_or(-1);
            reading.nvlink_tx_kib_s = sample->nvlink_tx_kib_s.value_or(-1);
            reading.nvlink_rx_kib_s = sample->nvlink_rx_kib_s.value_or(-1);
            reading.energy_mj = sample->energy_mj.value_or(-1);
            reading.ecc_corrected = sample->ecc_corrected.value_or(-1);
            reading.ecc_uncorrected = sample->ecc_uncorrected.value_or(-1);
            reading.link_errors = sample->link_errors.value_or(-1);
            GpuHealthWatch& watch = watches_[gpu.index];
            watch.take(*sample);
            const HealthVerdict health = watch.verdict(wall);
            reading.score = health.score;
            reading.fault = health.fault;
            reading.fault_at = health.fault_at;
            reading.xids = health.xids;
            beat.gpus.push_back(std::move(reading));
          }
          const auto host = read_host();
          const auto load = read_host_load();
          if (host && load)
            beat.mem_used_mib = host->memory_mib - load->memory_available_mib;
          usage_.read(now().steady, supervisors, beat);
          return std::pair(std::move(beat), std::move(looked.tasks));
        },
        [this](std::pair<Heartbeat, std::vector<std::pair<TaskId, TaskSample>>> result) {
          sampling_ = false;
          Heartbeat& beat = result.first;
          Effects effects;
          for (const auto& [task, sample] : result.second)
            core_->on_sample(task, sample, now(), effects);
          perform(effects);
          for (TaskReading& reading : beat.tasks)
            if (const TaskWatch* watch = core_->watch(reading.task)) {
              reading.quiet_s = watch->verdict().quiet.ns / 1'000'000'000;
              reading.idle_text = watch->text();
            }
          watch_health(beat);
          beat.images_bytes = tasks_->image_bytes(),
          beat.images_bytes_max = static_cast<std::int64_t>(options_.images_bytes_max);
          if (metrics_)
            beat_ = beat;
          if (core_->welcomed())
            send(beat, {});
        });
    if (!queued)
      sampling_ = false;
  }
  // The node's own figures, for whoever would rather scrape nodes than the head. Only where an
  // address was given.
  void answer_metrics(net::Exchange& exchange) {
    if (exchange.request().path != "/metrics")
      return exchange.respond(
          net::problem(404, "an agent serves /metrics only", "", exchange.request().request_id));
    Exposition out;
    const NodeOffer mine = offer();
    wire::add_gpus(out, mine.name, mine.gpus, beat_);
    const std::string name = metric_label("Hostname", mine.name);
    out.add("billow_node_cpu_used_cores", "gauge", "CPU cores in use on the node.", name,
            static_cast<double>(beat_.cpu_used_milli) / 1000);
    out.add("billow_node_memory_used_mib", "gauge", "Memory in use on the node.", name,
            static_cast<double>(beat_.mem_used_mib));
    out.add("billow_node_tasks", "gauge", "Tasks that run on the node.", name,
            static_cast<double>(tasks_->live()));
    out.add("billow_agent_connected", "gauge", "1 while the head answers.", name,
            core_->welcomed() && socket_ ? 1 : 0);
    net::Response response;
    response.headers = {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}};
    response.body = out.text();
    exchange.respond(std::move(response));
  }

  Result<Duration> keep_alive(int pid, Duration lasts, std::string reason) {
    const auto task = tasks_->task_of(pid);
    if (!task)
      return fail(Code::not_found, "this process belongs to no running task");
    Effects effects;
    auto kept = core_->keep_alive(*task, lasts, std::move(reason), now(), effects);
    perform(effects);
    if (kept)
      log_info("task {} is kept alive for {}", task->value, format_duration(*kept));
    return kept;
  }

  // The last thing this agent does. The command runs apart from it, because it may well end this
  // process.
  void give_back(const std::string& why) {
    log_warn("this node is given back: {}", why);
    if (options_.end_command.empty())
      return;
    process::Spawn request;
    request.argv = {"/bin/sh", "-c", options_.end_command};
    request.out = request.err = process::inherited;
    request.group = process::Group::session;
    request.detached = true;
    if (const auto started = process::spawn(request); !started)
      log_error("the node could not be given back: {}", started.error().message);
  }

  // After a job that had the node to itself: its GPUs must be as empty as before. A driver takes a
  // moment to free memory, so it is asked again for a while before the node is called unclean; the
  // head then gives it no more work.
  void look_over(TaskStatus status) {
    const auto check = [this, idle = idle_mem_mib_] {
      std::string left;
      for (int round = 0; round < look_over_rounds; ++round) {
        left.clear();
        for (const GpuInfo& gpu : inventory_.gpus) {
          const auto sample = backend_->sample(gpu.index, {.processes = true});
          if (!sample)
            continue;
          const auto before = idle.find(gpu.index);
          const std::int64_t used = sample->mem_used_mib.value_or(0),
                             usual = before == idle.end() ? used : before->second;
          std::string what;
          if (!sample->processes.empty())
            what = fmt::format("GPU {} is held by process {}", gpu.index,
                               sample->processes.front().pid);
          else if (used > usual + look_over_slack_mib)
            what = fmt::format("GPU {} holds {} MiB", gpu.index, used - usual);
          if (!what.empty())
            left += (left.empty() ? "" : "; ") + what;
        }
        if (left.empty())
          break;
        ::poll(nullptr, 0, look_over_wait_ms);
      }
      return left;
    };
    const Status queued = workers_.submit(check, [this, status](std::string left) mutable {
      if (!left.empty())
        log_warn("task {} left behind: {}", status.task.value, left);
      status.left_behind = std::move(left);
      on_task_event(task_event::Ended{std::move(status)});
    });
    if (!queued)
      on_task_event(task_event::Ended{std::move(status)});
  }
  // A card that fell off or came back changes the offer, which the next hello brings to the head.
  void watch_health(const Heartbeat& beat) {
    for (const GpuReading& reading : beat.gpus) {
      const auto [it, fresh] =
          idle_mem_mib_.try_emplace(static_cast<std::uint32_t>(reading.gpu), reading.mem_used_mib);
      if (!fresh)
        it->second = std::min(it->second, reading.mem_used_mib);
    }
    bool changed = false;
    for (const GpuReading& reading : beat.gpus) {
      for (GpuInfo& gpu : inventory_.gpus) {
        if (&gpu - inventory_.gpus.data() != reading.gpu)
          continue;
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
    }
    if (changed)
      offer_changed();
  }
  void offer_changed() {
    core_->set_offer(offer());
    if (socket_)
      socket_->close(net::WebSocket::close_normal, "the offer changed");
  }

  Fd lock_;  // first, so given up last: an agent whose workers have yet to end is alive
  NodeOptions options_;
  net::Loop loop_;
  net::Workers workers_;
  Rng jitter_;
  std::vector<net::Endpoint> endpoints_;
  std::size_t head_at_ = 0;
  std::unique_ptr<net::HttpClient> client_;
  std::shared_ptr<net::HttpClient::Call> call_;
  std::shared_ptr<net::WebSocket> socket_;
  std::unique_ptr<GpuBackend> backend_;
  GpuInventory inventory_;
  std::unique_ptr<FileService> files_;
  std::string node_name_;
  std::unique_ptr<ResidueWatch> residue_;  // looks into what files_ keeps
  std::unique_ptr<KeepAliveSocket> keepalive_;
  std::unique_ptr<ReclaimWatch> reclaim_;
  std::unique_ptr<Fabric> fabric_;
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<Tasks> tasks_;
  std::unique_ptr<Core> core_;
  std::map<std::uint32_t, GpuHealthWatch> watches_;  // by GPU; the worker's, as is the next
  UsageReader usage_;
  std::unique_ptr<net::HttpServer> metrics_;
  Heartbeat beat_;                // the newest, kept for /metrics
  std::vector<TaskEvent> early_;  // said by supervisors while the core was being made
  std::vector<std::pair<SteadyTime, task_event::Ended>>
      doubtful_;  // ends that wait, until then, for the signal which may explain them
  net::Timer doubt_;
  std::vector<net::Timer> timers_;
  net::Timer redial_;
  net::Watch signals_;
  std::uint64_t attempts_ = 0;
  bool dialing_ = false, sampling_ = false, leaving_ = false, head_is_outside_ = false;
  SteadyTime leave_by_;
  SteadyTime refused_since_;  // the head answers and does not know us; 0: it does, or is away
  bool removed_ = false;
  std::map<std::uint32_t, std::int64_t>
      idle_mem_mib_;  // the least each GPU was seen to use: the driver's own
  static constexpr int look_over_rounds = 20, look_over_wait_ms = 250;
  static constexpr std::int64_t look_over_slack_mib = 64;
};

}  // namespace

Status run_node(NodeOptions options) {
  ::signal(SIGPIPE, SIG_IGN);
  NodeAgent agent(std::move(options));
  BILLOW_TRY_VOID(agent.start());
  agent.run();
  if (agent.removed())
    return fail(Code::unauthorized, "this node has been removed from its head",
                "to join again: billow join URL --token TOKEN, with a new one from `billow token "
                "create --node`");
  return {};
}

}  // namespace billow::agent
