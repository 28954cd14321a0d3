// Starting the agent: opens its parts one after the other. Parts that jobs can do without (the
// keepalive socket, the file service) only log a warning when they fail.
#include <fcntl.h>
#include <fmt/format.h>

#include <signal.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <algorithm>
#include <cstdlib>

#include "agent/content/project_cache.h"
#include "agent/isolate/doors.h"
#include "agent/node/node_agent.h"
#include "agent/node/node_policy.h"
#include "agent/node/offer.h"
#include "agent/reach/port_watch.h"
#include "base/crypto.h"
#include "base/limits.h"
#include "base/log.h"
#include "core/wire/codec.h"
#include "core/wire/spoken.h"
#include "gpu/host.h"

namespace billow::agent {

using namespace wire::agent_v1;

namespace {

constexpr Duration lock_patience = milliseconds(200);
// How long tasks continue when an agent in an allocation is killed.
constexpr Duration allocation_linger = seconds(30);

}  // namespace

Status NodeAgent::start() {
  BILLOW_TRY_VOID(make_directories(options_.data_dir, 0700));
  BILLOW_TRY(open_own_directory(options_.data_dir));
  BILLOW_TRY_VOID(lock_data_dir());
  if (const char* path = std::getenv(node_policy_variable); path && options_.policy_file.empty())
    options_.policy_file = path;
  BILLOW_TRY(load_node_policy(options_.policy_file));
  BILLOW_TRY_VOID(open_work_place());
  BILLOW_TRY_VOID(open_link());
  BILLOW_TRY_VOID(open_gpus());
  open_keepalive();
  choose_sleep_space();
  open_files();
  BILLOW_TRY_VOID(open_tasks());
  open_fabric();
  BILLOW_TRY_VOID(open_core());
  watch_leftovers();
  readings_ = std::make_unique<GpuReadings>(backend_.get(), inventory_.gpus);
  signals_ = loop_.on_signal({SIGINT, SIGTERM}, [this](int) { signalled(); });
  timers_.push_back(loop_.every(milliseconds(250), [this] { tick(); }));
  timers_.push_back(loop_.every(limits::agent_heartbeat, [this] { sample(); }));
  BILLOW_TRY_VOID(open_metrics());
  BILLOW_TRY_VOID(watch_for_reclaim());
  for (const TaskEvent& event : std::exchange(early_, {}))
    on_task_event(event);
  link_->dial();
  sample();
  return {};
}

// One agent per data directory. The lock file holds the agent's pid.
Status NodeAgent::lock_data_dir() {
  lock_ = Fd(::open((options_.data_dir + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock_)
    return fail_errno(options_.data_dir + "/lock", errno);
  // A head that checks whether an agent is alive holds the lock for a moment.
  const SteadyTime deadline = system_clock().steady() + lock_patience;
  while (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (system_clock().steady() > deadline)
      return fail(Code::conflict, fmt::format("an agent already runs on {}", options_.data_dir));
    ::usleep(5000);
  }
  (void)!::ftruncate(lock_.get(), 0);
  return write_all(lock_.get(), fmt::format("{}\n", ::getpid()));
}

Status NodeAgent::open_link() {
  link_ = BILLOW_TRY(HeadLink::create(loop_,
                                      {.heads = options_.head,
                                       .credential = credential_,
                                       .certificate = options_.certificate,
                                       .name = options_.node_name},
                                      {.connected = [this] { connected(); },
                                       .frame = [this](std::string_view frame) { on_frame(frame); },
                                       .disconnected = [this] { disconnected(); },
                                       .removed =
                                           [this] {
                                             removed_by_head();
                                           }}));
  return {};
}

Status NodeAgent::open_gpus() {
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
  BILLOW_TRY_VOID(keep_listed_gpus(options_.only_gpus, inventory_));
  if (!options_.sim.empty())
    return {};
  std::vector<std::string> uuids;
  for (const GpuInfo& gpu_info : inventory_.gpus)
    uuids.push_back(gpu_info.uuid);
  claims_ = BILLOW_TRY(GpuClaims::take(loop_, uuids));
  return {};
}

// Files that jobs reach are outside the data directory, which only the agent's user can enter.
Status NodeAgent::open_work_place() {
  const std::string under = options_.work_under.empty() ? "/var/tmp" : options_.work_under;
  work_ = BILLOW_TRY(OwnPlace::open(
      {.data_dir = options_.data_dir,
       .under = under,
       .earlier = under + "/billow-" + sha256_hex(options_.data_dir).substr(0, 12)}));
  door_ = BILLOW_TRY(unguessable_name(options_.data_dir, "the agent's sockets"));
  share_cache_disk();
  return {};
}

// What is kept by itself has a share of the disk each: objects, projects' caches, images, files.
void NodeAgent::share_cache_disk() {
  struct statvfs disk {};
  if (options_.cache_dir.empty() || ::statvfs(options_.cache_dir.c_str(), &disk) != 0)
    return;
  const std::uint64_t quarter = static_cast<std::uint64_t>(disk.f_blocks) * disk.f_frsize / 4;
  for (std::uint64_t* most :
       {&options_.cache_bytes_max, &options_.images_bytes_max, &options_.files_bytes_max})
    *most = std::min(*most, quarter);
}

std::string NodeAgent::cache_dir() const {
  return options_.cache_dir.empty() ? work_->path() : options_.cache_dir;
}

std::string NodeAgent::kept_dir() const {
  return options_.cache_dir.empty() ? options_.data_dir : options_.cache_dir;
}

std::unique_ptr<KeepAliveSocket> NodeAgent::keepalive_on(Fd listener) {
  return std::make_unique<KeepAliveSocket>(
      loop_, std::move(listener),
      [this](const SocketPeer& peer) { return tasks_ && tasks_->has_user(peer.uid); },
      [this](const SocketPeer& peer, Duration lasts, std::string reason) {
        return keep_alive(peer, lasts, std::move(reason));
      });
}

void NodeAgent::open_keepalive() {
  const Door door{door_, "keepalive"};
  auto listener = listen_at(*work_, door);
  if (!listener)
    return log_warn("jobs cannot ask to be kept alive: {}", listener.error().message);
  keepalive_ = keepalive_on(std::move(*listener));
  keepalive_socket_ = door.path(*work_);
}

// Jobs that an older agent started know its sockets by names in the abstract namespace. These are
// opened only as long as such a job runs.
void NodeAgent::open_older_doors(const std::vector<TaskId>& live) {
  const std::string data = sha256_hex(options_.data_dir).substr(0, 16),
                    files = "billow-files-" + data, keepalive = "billow-agent-" + data;
  const auto known_to_a_job = [&](const char* variable, const std::string& name) {
    return std::any_of(live.begin(), live.end(), [&](TaskId task) {
      const auto record = tasks_->recorded(task);
      return record && record->variable(variable) == name;
    });
  };
  if (files_ && known_to_a_job(files_socket_variable, files)) {
    if (auto listener = listen_abstract(files))
      files_->serve_also(std::move(*listener));
    else
      log_warn("older jobs cannot send their files: {}", listener.error().message);
  }
  if (known_to_a_job(net::keepalive_variable, keepalive)) {
    if (auto listener = listen_abstract(keepalive))
      older_keepalive_ = keepalive_on(std::move(*listener));
    else
      log_warn("older jobs cannot ask to be kept alive: {}", listener.error().message);
  }
}

void NodeAgent::choose_sleep_space() {
  const auto host = read_host();
  const std::int64_t host_bytes = host ? host->memory_usable_mib << 20 : 0;
  if (options_.arena_bytes < 0) {
    std::int64_t gpu_bytes = 0;
    for (const GpuInfo& gpu : inventory_.gpus)
      gpu_bytes += gpu.memory_mib << 20;
    options_.arena_bytes = default_arena_bytes(host_bytes, gpu_bytes, !options_.sim.empty());
  }
  // Simulated GPUs need no more than the arena.
  const bool real = options_.sim.empty();
  if (options_.sleep_memory_bytes < 0)
    options_.sleep_memory_bytes =
        real ? default_sleep_memory_bytes(host_bytes, options_.arena_bytes) : 0;
  if (options_.sleep_disk_bytes < 0)
    options_.sleep_disk_bytes =
        real && options_.arena_bytes > 0 ? default_sleep_disk_bytes(options_.data_dir) : 0;
}

void NodeAgent::open_files() {
  const Door door{door_, "files"};
  auto listener = listen_at(*work_, door);
  if (!listener)
    return log_warn("this node cannot provide jobs with files: {}", listener.error().message);
  auto files = FileService::create(
      loop_,
      {.directory = kept_dir() + "/files",
       .bytes_max = options_.files_bytes_max,
       .listener = std::move(*listener),
       .head = [this] { return link_->endpoint(); },
       .tls = [this] { return link_->tls(); },
       .credential = credential_,
       .work_dir = work_->path(),
       .cache_dir = cache_dir(),
       .door = door_,
       .task_of =
           [this](const SocketPeer& peer) { return tasks_ ? tasks_->task_of(peer) : std::nullopt; },
       .record_of = [this](TaskId task) { return tasks_->recorded(task); },
       .may_reach = Tasks::may_reach,
       .cache_bytes_max = options_.cache_bytes_max});
  if (!files)
    return log_warn("this node cannot provide jobs with files: {}", files.error().message);
  files_ = std::move(*files);
  files_socket_ = door.path(*work_);
}

Status NodeAgent::open_tasks() {
  // First, because it takes the instances that an earlier agent created out of the inventory.
  MigClaims migs(options_.allow_mig_changes ? backend_.get() : nullptr,
                 options_.data_dir + "/mig-made", inventory_.gpus);
  Tasks::Options tasks{.data_dir = options_.data_dir,
                       .sim_state_dir = options_.sim.empty() ? "" : options_.data_dir + "/sim",
                       .gpus = inventory_.gpus,
                       .arena_bytes = options_.arena_bytes,
                       .sleep_memory_bytes = options_.sleep_memory_bytes,
                       .sleep_disk_bytes = options_.sleep_disk_bytes,
                       .gpu_memory = {},
                       .keepalive_socket = keepalive_socket_,
                       .migs = std::move(migs),
                       .files_socket = files_socket_,
                       .work_dir = work_->path(),
                       .cache_dir = cache_dir(),
                       .kept_dir = kept_dir(),
                       .spares = files_ ? &files_->spares() : nullptr,
                       .head = [this] { return content_source(); },
                       .environment_bytes_max = options_.files_bytes_max,
                       .image_bytes_max = options_.images_bytes_max,
                       .image_terms = [file = options_.policy_file]() -> Result<ImageTerms> {
                         const ImageRules rules = BILLOW_TRY(load_node_policy(file)).images;
                         return ImageTerms{rules.signers, rules.pinned || !rules.names.empty()};
                       },
                       .rules = [file = options_.policy_file]() -> Result<NodeRules> {
                         return BILLOW_TRY(load_node_policy(file)).rules;
                       },
                       .pull_patience = options_.pull_patience,
                       .allow_metadata = options_.allow_metadata,
                       .metadata_closed = options_.metadata_closed,
                       .allow_namespaces = options_.allow_namespaces,
                       .without_account = options_.without_account,
                       .root_helper = options_.root_helper,
                       .reach =
                           [this] {
                             return reach_of(link_->endpoint().address);
                           }};
  if (backend_)
    tasks.gpu_memory = [this] {
      return gpu_memory_mib();
    };
  tasks_ = BILLOW_TRY(Tasks::create(loop_, std::move(tasks), task_callbacks()));
  return {};
}

Tasks::Callbacks NodeAgent::task_callbacks() {
  return {
      .event = [this](const TaskEvent& event) { on_task_event(event); },
      .send = [this](const FromAgent& message, std::string_view blob) { send(message, blob); },
      .send_tunnel = [this](const Tunnelled& message,
                            std::string_view blob) { link_->send(encode_tunnel(message, blob)); },
      .head_is_outside = [this] { return head_is_outside_; },
      .files_done =
          [this](TaskId task) {
            if (files_)
              files_->forget(task);
          },
      .look_over =
          [this](TaskStatus status) {
            look_over(std::move(status));
          }};
}

void NodeAgent::open_fabric() {
  fabric_ = std::make_unique<Fabric>(
      loop_, Fabric::Options{.data_dir = options_.data_dir,
                             .gpus = inventory_.gpus,
                             .answer =
                                 [this](const wire::fabric_v1::Answer& answer) {
                                   link_->send(wire::fabric_v1::encode(answer));
                                 },
                             .on_labels =
                                 [this] {
                                   offer_changed();
                                 }});
}

// Recovers the tasks of an earlier agent process and starts the core with them.
Status NodeAgent::open_core() {
  CoreOptions core;
  core.offer = offer();
  node_name_ = core.offer.name;
  if (const auto text = read_file(memory_path()))
    if (auto memory = wire::from_json_text<Memory>(*text))
      core.memory = *memory;
  core.tasks = BILLOW_TRY(tasks_->recover());
  std::vector<TaskId> live;
  for (const RecoveredTask& task : core.tasks)
    if (task.status.state != TaskState::ended)
      live.push_back(task.status.task);
  if (files_)
    files_->forget_others(live);
  tasks_->forget_other_containers(live);
  open_older_doors(live);
  core.protocol = wire::spoken_protocol(std::getenv("BILLOW_TEST_PROTOCOL"));
  if (options_.in_allocation)
    core.tasks_outlive_us = allocation_linger;
  core_ =
      std::make_unique<Core>(std::move(core), Now{system_clock().wall(), system_clock().steady()});
  return {};
}

void NodeAgent::watch_leftovers() {
  if (!files_)
    return;
  leftovers_ = std::make_unique<LeftoverWatch>(
      loop_, CachePlaces{kept_dir(), cache_dir(), files_->store(), files_->objects()},
      LeftoverWatch::Options{.head = [this] { return content_source(); },
                             .node =
                                 [this] {
                                   return node_name_;
                                 }});
}

Status NodeAgent::open_metrics() {
  if (options_.metrics.empty())
    return {};
  net::HttpServer::Options server;
  server.listen = {options_.metrics};
  metrics_ = BILLOW_TRY(net::HttpServer::create(
      loop_, server,
      [this](std::shared_ptr<net::Exchange> exchange) { answer_metrics(*exchange); }));
  log_info("serving metrics at http://{}/metrics", metrics_->bound_addresses().front());
  return {};
}

// When a rented machine is about to be reclaimed, the head moves its work elsewhere while there is
// time. The agent stays until the end.
Status NodeAgent::watch_for_reclaim() {
  if (options_.reclaim_notices.empty())
    return {};
  ReclaimWatch::Options watch;
  watch.cloud = enum_value<Cloud>(options_.reclaim_notices);
  if (!options_.metadata_url.empty())
    watch.metadata_url = options_.metadata_url;
  reclaim_ = BILLOW_TRY(ReclaimWatch::create(loop_, watch, [this](std::string reason) {
    log_warn("this machine is being reclaimed: {}", reason);
    Effects effects;
    core_->on_reclaimed(std::move(reason), Now{system_clock().wall(), system_clock().steady()},
                        effects);
    perform(effects);
  }));
  return {};
}

}  // namespace billow::agent
