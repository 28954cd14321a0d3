#include "head/head.h"

#include <pwd.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>

#include "base/crypto.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"
#include "files/root.h"
#include "head/door/file_door.h"
#include "head/local_agent.h"
#include "head/needed_files.h"
#include "head/open_files.h"
#include "head/tls.h"
#include "net/address.h"

namespace billow::head {
namespace {

constexpr Duration local_look = milliseconds(200), certificates_look = seconds(5);
constexpr Duration retention_look = seconds(20);
constexpr std::uint64_t snapshot_events_min = 100;

std::string unix_user() {
  const passwd* entry = ::getpwuid(::getuid());
  return entry && entry->pw_name ? entry->pw_name : fmt::format("uid{}", ::getuid());
}

std::string new_token() {
  return "bw_" + random_token(30);
}

// The directory of the system's socket: others may pass, and nobody else may put a socket there.
Status open_to_machine(const std::string& socket) {
  const std::string directory = socket.substr(0, socket.rfind('/'));
  BILLOW_TRY_VOID(make_directories(directory, 0755));
  struct stat info {};
  if (::stat(directory.c_str(), &info) != 0)
    return fail_errno(directory, errno);
  if (info.st_uid != ::geteuid() || (info.st_mode & 022) != 0)
    return fail(Code::forbidden,
                fmt::format("{} belongs to another user, or others can write it", directory),
                "remove it, and start the head again");
  if (::chmod(directory.c_str(), 0755) != 0)
    return fail_errno(directory, errno);
  return {};
}

}  // namespace

Head::Head(HeadOptions options)
    : options_(std::move(options)),
      workers_(std::make_unique<net::Workers>(
          loop_, net::Workers::Options{.threads = 2, .queue_max = 4096})),
      keeper_(options_.secrets_key.empty() ? path("secrets.key") : options_.secrets_key) {}

Head::~Head() {
  server_.reset();
  file_door_.reset();
  timers_.clear();
  workers_.reset();
  pools_.reset();
  logs_.reset();
  if (sampling_)
    sampling_->save_all();
  fabric_.reset();
  sampling_.reset();
  gateways_.reset();
  agents_.reset();
  rotation_.reset();
  fetcher_.reset();
  notifier_.reset();
  engine_.reset();
  // A head that never listened has not written these files: they belong to another one.
  if (listening_) {
    ::unlink(path("head.json").c_str());
    ::unlink(socket_path().c_str());
    ::unlink(gateway_socket(options_.data_dir).c_str());
    if (!options_.system_socket.empty())
      ::unlink(options_.system_socket.c_str());
  }
  if (pointed_)
    ::unlink(options_.pointer.c_str());
  store_.reset();
}

Status Head::start() {
  BILLOW_TRY_VOID(open_store());
  BILLOW_TRY_VOID(restore_engine());
  connect_agents();
  history_ = BILLOW_TRY(History::open(path("history")));
  connect_gateways();
  sampling_ = std::make_unique<Sampling>(
      Sampling::Options{workers_.get(), &clock_, history_.get(), engine_.get(),
                        [this](NodeId node) { return agents_->readings(node); },
                        [this](const std::string& endpoint) {
                          return gateways_->figures(endpoint);
                        }});
  BILLOW_TRY_VOID(open_files());
  notifier_->catch_up();
  return {};
}

Status Head::serve(Service service) {
  BILLOW_TRY_VOID(begin_epoch());
  BILLOW_TRY_VOID(prepare_tls());
  BILLOW_TRY_VOID(listen(std::move(service)));
  BILLOW_TRY_VOID(prepare_pools());
  started_at_ = clock_.wall();
  set_own_address();
  store_->announce(addresses_, options_.gateway_listen);
  start_timers();
  start_reviews();
  start_backups();
  rotation_->resume();
  signals_ = loop_.on_signal({SIGINT, SIGTERM}, [this](int) { shutdown(false); });
  write_head_file();
  announce();
  return {};
}

Status Head::run() {
  loop_.run();
  if (ended_by_)
    return pass(*ended_by_);
  return {};
}

// ---- start

Status Head::open_store() {
  BILLOW_TRY_VOID(make_directories(options_.data_dir, 0700));
  ::chmod(options_.data_dir.c_str(), 0700);
  store_.emplace(BILLOW_TRY(HeadStore::open(options_)));
  // As soon as the lock is ours, so that nobody starts another head meanwhile.
  write_pointer();
  journal().set_hooks({.post = [this](std::function<void()> fn) { loop_.post(std::move(fn)); },
                       .on_durable = [this](Seq durable) { engine_->on_durable(durable); },
                       .on_health =
                           [this](StoreHealth health, const Error& why) {
                             health_changed(health, why);
                           }});
  return {};
}

Status Head::restore_engine() {
  notify_key_ = BILLOW_TRY(store_->secret(path("notify-key"), "notify-key", new_token));
  BILLOW_TRY_VOID(prepare_notices());
  engine_ =
      BILLOW_TRY(Engine::restore({.journal = &journal(),
                                  .clock = &clock_,
                                  .deliver =
                                      [this](const control::Effect& e) {
                                        if ((!logs_ || !logs_->holds(e)) && !fetcher_->holds(e))
                                          agents_->deliver(e);
                                      },
                                  .observe =
                                      [this](const control::State& state, const Event& event) {
                                        return observe(state, event);
                                      }},
                                 ledger::PriceBook::market()));
  prepare_secrets();
  return {};
}

std::function<void()> Head::observe(const control::State& state, const Event& event) {
  if (pools_)
    pools_->heard(event);
  if (auto secret = keeper_.heard(event))  // before the logs, which answer the ends of tasks
    return secret;
  if (logs_)
    if (auto log = logs_->heard(state, event))
      return log;
  if (const auto* queued = get_if<NoticeQueued>(&event.body))
    return [this, target = queued->notice.target] {
      personal_->queued(target);
    };
  auto notice = notice_of(state, event);
  if (!notice)
    return {};
  return [this, event, notice = std::move(notice)] {
    notifier_->on_event(event, notice);
  };
}

void Head::connect_agents() {
  agents_ = std::make_unique<Agents>(loop_, clock_, [this]() -> Engine& { return *engine_; });
  agents_->on_start([this](wire::agent_v1::Start& start, bool confidential) {
    complete_start(start, confidential);
  });
  agents_->on_offer([this](NodeOffer& offer) {
    if (pools_)
      pools_->complete(offer);
  });
  agents_->on_reclaimed([this](const std::string& node) {
    return pools_ ? pools_->why_leaving(node) : std::string();
  });
  agents_->on_refused([this](const std::string& machine, const std::string& why) {
    if (pools_)
      pools_->note_refused(machine, why);
  });
  agents_->on_heartbeat([this](NodeId node, const wire::agent_v1::Heartbeat& beat) {
    sampling_->look_at_health(node, beat);
  });
  fabric_ = std::make_unique<FabricCheck>(
      FabricCheck::Options{&loop_, [this]() -> const control::State& { return state(); },
                           [this](NodeId node, const wire::fabric_v1::Ask& ask) {
                             return agents_->send_fabric(node, ask);
                           },
                           [this] {
                             return clock_.wall();
                           }});
  agents_->on_fabric(
      [this](NodeId node, const wire::fabric_v1::Answer& answer) { fabric_->take(node, answer); });
}

void Head::connect_gateways() {
  gateways_ = std::make_unique<Gateways>(
      loop_, Gateways::Options{[this]() -> Engine& { return *engine_; },
                               [this](NodeId node) { return agents_->host_of(node); },
                               [this](TaskId task) { return agents_->port(task); },
                               [this](NodeId node, const wire::agent_v1::LookAtPort& ask) {
                                 agents_->send(node, ask, {});
                               },
                               [this](TaskId task) {
                                 return agents_->waits_for(task);
                               }});
  agents_->on_port([this] { gateways_->changed(); });
}

Status Head::open_files() {
  files_ = BILLOW_TRY(files::Store::open({.directory = files_dir(),
                                          .bytes_max = limits::head_files_bytes_max,
                                          .bytes_refused = limits::head_files_bytes_max / 4 * 5,
                                          .needed = [this] {
                                            return *needed_files_.lock();
                                          }}));
  look_at_needed_files();
  if (auto door = FileDoor::open(*files_))
    file_door_ = std::move(*door);
  else
    log_warn("clients on this machine must send files over HTTP: {}", door.error().message);
  if (!options_.logs_bucket.empty())
    log_bucket_ = BILLOW_TRY(LogBucket::open({.url = options_.logs_bucket,
                                              .installation = BILLOW_TRY(store_->installation()),
                                              .directory = files_dir() + "/fetched-logs",
                                              .loop = &loop_,
                                              .clock = &clock_}));
  logs_ = BILLOW_TRY(KeptLogs::open({.directory = files_dir() + "/logs",
                                     .loop = &loop_,
                                     .clock = &clock_,
                                     .agents = agents_.get(),
                                     .engine = [this]() -> Engine& { return *engine_; },
                                     .bucket = log_bucket_.get()}));
  return make_directories(outputs_dir(), 0700);
}

void Head::look_at_needed_files() {
  *needed_files_.lock() = needed_files(state());
}

// ---- serve

Status Head::begin_epoch() {
  const std::string token = BILLOW_TRY(store_->secret(path("token"), "", new_token));
  const std::string node_token = BILLOW_TRY(store_->secret(path("node-token"), "", new_token));
  const std::string gateway_token =
      BILLOW_TRY(store_->secret(path("gateway-token"), "", new_token));
  BILLOW_TRY_VOID(prepare_for_gateway(options_.data_dir, gateway_token));
  engine_->execute(
      StartHead{BILLOW_VERSION, journal().epoch(), unix_user(), sha256_hex(token),
                sha256_hex(node_token), store_->token_suffix(), sha256_hex(gateway_token)},
      {"head", "start"}, {});
  return {};
}

// Whatever leaves this machine is encrypted, unless the operator says that a proxy does it.
Status Head::listen(Service service) {
  const std::uint64_t open_files_before = raise_open_files();
  local_ = std::make_unique<LocalProcesses>(
      LocalProcesses::Options{&options_, "unix:" + socket_path(), open_files_before, &clock_});
  net::HttpServer::Options server;
  server.tls = server_tls_;
  server.clients = certificates_->clients();
  server.listen = options_.listen;
  std::vector<std::string> sockets = {"unix:" + socket_path(),
                                      "unix:" + gateway_socket(options_.data_dir)};
  if (!options_.system_socket.empty()) {
    BILLOW_TRY_VOID(open_to_machine(options_.system_socket));
    sockets.push_back("unix:" + options_.system_socket);
  }
  server.listen.insert(server.listen.begin(), sockets.begin(), sockets.end());
  server.body_policy = std::move(service.body_policy);
  server.identify = std::move(service.identify);
  server.limits.connections_max = connections_within_open_files();
  auto made = net::HttpServer::create(loop_, server, service.handler);
  if (!made && made.error().code == Code::conflict && options_.listen_any_port_if_taken) {
    log_warn("{}; listening on another port", made.error().message);
    server.listen = sockets;
    server.listen.emplace_back("127.0.0.1:0");
    made = net::HttpServer::create(loop_, server, service.handler);
  }
  if (!made)
    return pass(made.error());
  server_ = std::move(*made);
  listening_ = true;
  // Its directory can be entered by the gateway alone.
  if (::chmod(gateway_socket(options_.data_dir).c_str(), 0666) != 0)
    return fail_errno(gateway_socket(options_.data_dir), errno);
  // Everybody on this machine may connect here; who they are, the kernel says (SO_PEERCRED).
  if (!options_.system_socket.empty() && ::chmod(options_.system_socket.c_str(), 0666) != 0)
    return fail_errno(options_.system_socket, errno);
  for (const std::string& address : server_->bound_addresses())
    if (!address.starts_with("unix:"))
      addresses_.push_back((server_tls_.cert_path.empty() ? "http://" : "https://") +
                           reachable_address(address));
  return {};
}

Status Head::prepare_pools() {
  const std::string work = path("pools");
  BILLOW_TRY_VOID(make_directories(work, 0700));
  const User* owner = state().user_by_name(unix_user());
  pools_ = std::make_unique<Pools>(
      loop_, clock_, [this]() -> Engine& { return *engine_; },
      Pools::Options{{BILLOW_TRY(store_->installation()), work, executable_dir() + "/billow", ""},
                     [this] {
                       return !options_.public_url.empty() ? options_.public_url
                              : addresses_.empty()         ? std::string()
                                                           : addresses_.front();
                     },
                     [this] { return certificates_->fingerprints(); },
                     owner ? owner->id : UserId{},
                     [this] { return certificates_->authority_pem(); },
                     executable_dir(),
                     [this](const Pool& pool) { return keeper_.credential_of(pool); },
                     [this](NodeId node) {
                       return logs_->taking_from(node);
                     }});
  return {};
}

// Where the other nodes of a gang reach this machine: not at a loopback address, if it has another.
void Head::set_own_address() {
  for (const std::string& address : addresses_)
    if (const auto own = net::parse_endpoint(address); own && !is_loopback(own->address.text()))
      return agents_->set_own_address(own->address.host);
}

void Head::every(Duration period, std::function<void()> fn) {
  timers_.push_back(loop_.every(period, std::move(fn)));
}

void Head::start_timers() {
  every(milliseconds(200), [this] { engine_->execute(Tick{}, {"head", ""}, {}); });
  every(seconds(1), [this] { agents_->watch_silence(); });
  every(seconds(1), [this] { save_snapshot(); });
  look_at_retention();  // which stores the limits of an operator
  every(retention_look, [this] { look_at_retention(); });
  every(seconds(1), [this] { logs_->look(); });
  every(milliseconds(100), [this] { pools_->look(); });
  every(limits::history_job_step, [this] { sampling_->tick(); });
  every(limits::money_tick, [this] { engine_->execute(MoneyTick{}, {"head", ""}, {}); });
  start_notices();
  every(limits::lease_renew_every, [this] { agents_->renew_leases(); });
  every(minutes(1), [this] { look_at_needed_files(); });
  every(certificates_look, [this] { certificates_->look(); });
  every(seconds(1), [this] { fetcher_->renew_credentials(); });
  if (options_.local_agent) {
    watch_local_agent();
    every(local_look, [this] { watch_local_agent(); });
  }
  if (options_.local_gateway)
    every(local_look, [this] {
      if (!stopping_ && !state().endpoints.empty())
        local_->watch_gateway();
    });
}

// While jobs are being stopped, the agent that stops them must be alive.
void Head::watch_local_agent() {
  if (!stopping_ || ending_jobs_)
    local_->watch_agent();
}

void Head::save_snapshot() {
  // The journal keeps what follows the older of two snapshots, so few events need more of them.
  const std::uint64_t kept = options_.retention.events_max.value_or(UINT64_MAX);
  auto snapshot = engine_->snapshot_due(
      std::clamp<std::uint64_t>(kept / 2, snapshot_events_min, limits::snapshot_every_events));
  if (!snapshot)
    return;
  (void)workers_->submit([this, s = std::move(*snapshot)]() -> std::function<void()> {
    const Status saved = journal().save_snapshot(s.seq, s.bytes);
    if (!saved)
      log_warn("the snapshot could not be saved: {}", saved.error().message);
    return [] {
    };
  });
}

void Head::look_at_retention() {
  if (retaining_)
    return;
  retaining_ = true;
  const auto retain = [this, now = clock_.wall()]() -> std::function<void()> {
    const Status done = journal().retain(options_.retention, now);
    if (!done)
      log_warn("old records of the journal could not be removed: {}", done.error().message);
    return [this] {
      retaining_ = false;
    };
  };
  if (!workers_->submit(retain))
    retaining_ = false;
}

void Head::start_reviews() {
  reviews_ = std::make_unique<Reviews>(
      Reviews::Options{workers_.get(), &store().queries(), &clock_, options_.data_dir,
                       [this](const advise::Review& review) {
                         notifier_->tell({.kind = "review." + review.period,
                                          .at = clock_.wall(),
                                          .text = review.summary(),
                                          .data = advise::review_json(review)});
                       }});
  reviews_->look();
  every(minutes(30), [this] { reviews_->look(); });
}

void Head::start_backups() {
  backups_ = std::make_unique<Backups>(
      Backups::Options{options_.backup_dir, options_.backup_every, options_.backups_kept,
                       workers_.get(), &clock_, &store(), [this](const Error& why) {
                         notifier_->tell({.kind = "backup.failed",
                                          .at = clock_.wall(),
                                          .text = fmt::format("the backup into {} failed: {}",
                                                              options_.backup_dir, why.message)});
                       }});
  every(seconds(1), [this] { backups_->look(); });
}

// ---- while it runs

Status Head::accepting_work() const {
  if (journal().health() != StoreHealth::ok)
    return fail(Code::storage_full,
                fmt::format("the disk of {} is full: running jobs continue, new work is refused",
                            options_.store.empty() ? options_.data_dir : "the database"),
                "free some space, then submit again");
  if (stopping_)
    return fail(Code::unavailable, "the head is shutting down", "");
  if (journal().queued_bytes() > limits::journal_queue_bytes_max / 4)
    return fail(Code::exhausted,
                "the head is overloaded: its journal cannot be written fast enough",
                "try again in a moment");
  return {};
}

Json Head::about() const {
  Json addresses = Json::array();
  for (const auto& a : addresses_)
    addresses.push(a);
  return Json::object({{"version", BILLOW_VERSION},
                       {"ready", agents_ && ready()},
                       {"addresses", std::move(addresses)},
                       {"socket", socket_path()},
                       {"fingerprint", certificates_ ? certificates_->fingerprints() : ""},
                       {"data_dir", options_.data_dir},
                       {"pid", ::getpid()},
                       {"root", files::root_id()},
                       {"started_at", format_utc(started_at_)}});
}

bool Head::ready() const {
  return !options_.local_agent || agents_->count() > 0;
}

void Head::health_changed(StoreHealth health, const Error& why) {
  switch (health) {
    case StoreHealth::ok:
      log_info("the disk has free space again; new work is accepted");
      return;
    case StoreHealth::disk_low:
      log_warn("the disk is full: {}; new work is refused", why.message);
      return;
    case StoreHealth::fatal:
      log_error("the journal cannot be written: {}", why.message);
      ended_by_ = why;
      loop_.stop();
      return;
  }
}

void Head::write_head_file() {
  const Status written = write_file_atomic(path("head.json"), about().dump() + "\n", 0600);
  if (!written)
    log_warn("{}", written.error().message);
  write_pointer();
}

// Commands without --data look for the head in this file. If it cannot be written, they need
// --data. Written when the lock is ours, and again when the addresses are known.
void Head::write_pointer() {
  if (options_.pointer.empty())
    return;
  Json document = about();
  document.set("boot_id",
               std::string(trim(read_file("/proc/sys/kernel/random/boot_id", 64).value_or(""))));
  document.set("machine_gpus", options_.local_agent && options_.sim.empty());
  Status pointed = make_directories(options_.pointer.substr(0, options_.pointer.rfind('/')), 0700);
  if (pointed)
    pointed = write_file_atomic(options_.pointer, document.dump() + "\n", 0600);
  if (!pointed)
    log_info("commands need --data {} to find this head: {}", options_.data_dir,
             pointed.error().message);
  pointed_ = pointed_ || pointed;
}

// The process that started this head in the background waits for one line: "ok", or why not.
void Head::announce() {
  log_info("billow {} is up: {} (data in {})", BILLOW_VERSION,
           addresses_.empty() ? socket_path() : addresses_.front(), options_.data_dir);
  if (options_.ready_fd < 0)
    return;
  ready_timer_ = loop_.every(milliseconds(2), [this, tries = 0]() mutable {
    if (!ready() && ++tries < 2500)
      return;
    (void)write_all(options_.ready_fd, "ok\n");
    ::close(options_.ready_fd);
    ready_timer_.cancel();
  });
}

}  // namespace billow::head
