#include "head/head.h"

#include <pwd.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "api/api.h"
#include "api/fabric.h"
#include "api/files.h"
#include "api/secrets.h"
#include "api/tunnel.h"
#include "base/crypto.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/sync.h"
#include "base/text.h"
#include "core/model/surroundings.h"
#include "head/agents.h"
#include "head/backups.h"
#include "head/engine.h"
#include "head/fabric_check.h"
#include "head/gateways.h"
#include "head/head_store.h"
#include "head/local_agent.h"
#include "head/notifier.h"
#include "head/open_files.h"
#include "head/pools.h"
#include "head/reviews.h"
#include "head/sampling.h"
#include "head/secret_keeper.h"
#include "head/tls.h"
#include "net/address.h"
#include "net/http/http_server.h"
#include "net/workers.h"

namespace billow::head {
namespace {

std::string unix_user() {
  const passwd* entry = ::getpwuid(::getuid());
  return entry && entry->pw_name ? entry->pw_name : fmt::format("uid{}", ::getuid());
}

constexpr Duration agent_look = milliseconds(200);

std::string new_token() {
  return "bw_" + random_token(30);
}

class Head final : public api::Host,
                   public api::FilesHost,
                   public api::FabricHost,
                   public api::SecretsHost,
                   public api::TunnelHost {
 public:
  explicit Head(HeadOptions options)
      : options_(std::move(options)),
        workers_(std::make_unique<net::Workers>(
            loop_, net::Workers::Options{.threads = 2, .queue_max = 4096})) {}

  Status start() {
    BILLOW_TRY_VOID(make_directories(options_.data_dir, 0700));
    ::chmod(options_.data_dir.c_str(), 0700);
    store_.emplace(BILLOW_TRY(HeadStore::open(options_)));
    write_pointer();
    Store& store = **store_;
    store.journal().set_hooks(
        {.post = [this](std::function<void()> fn) { loop_.post(std::move(fn)); },
         .on_durable = [this](Seq durable) { engine_->on_durable(durable); },
         .on_health =
             [this](StoreHealth health, const Error& why) {
               health_changed(health, why);
             }});
    const std::string notify_key =
        BILLOW_TRY(store_->secret(options_.data_dir + "/notify-key", "notify-key", new_token));
    notifier_ = BILLOW_TRY(Notifier::create(
        loop_, {notify_key, options_.notify_command, [this]() -> Engine& { return *engine_; },
                &store.journal(), &clock_}));
    const auto observe = [this](const control::State& state,
                                const Event& event) -> std::function<void()> {
      if (pools_)
        pools_->heard(event);
      if (auto secret = keeper_.heard(event))
        return secret;
      auto notice = notice_of(state, event);
      if (!notice)
        return {};
      return [this, event, notice = std::move(notice)] {
        notifier_->on_event(event, notice);
      };
    };
    engine_ = BILLOW_TRY(
        Engine::restore({.journal = &store.journal(),
                         .clock = &clock_,
                         .deliver = [this](const control::Effect& e) { agents_->deliver(e); },
                         .observe = observe},
                        ledger::PriceBook::market()));
    keeper_.begin(state());
    agents_ = std::make_unique<Agents>(loop_, clock_, [this]() -> Engine& { return *engine_; });
    agents_->on_start([this, notify_key](wire::agent_v1::Start& start, bool confidential) {
      keeper_.fill(state(), start, confidential);
      // By it the tasks of one attempt know each other at their start barrier.
      if (start.gang)
        start.env["BILLOW_GANG_KEY"] = hmac_sha256_hex(
            notify_key, fmt::format("gang {} {}", start.job.value, start.env["BILLOW_ATTEMPT"]));
    });
    for (const auto& [id, secret] : state().secrets)
      if (const std::string trouble = keeper_.trouble_with(secret); !trouble.empty()) {
        log_warn("secret {} cannot be used: {}", secret.name, trouble);
        break;
      }
    history_ = BILLOW_TRY(History::open(options_.data_dir + "/history"));
    sampling_ = std::make_unique<Sampling>(
        Sampling::Options{workers_.get(), &clock_, history_.get(), engine_.get(), agents_.get()});
    agents_->on_heartbeat([this](NodeId node, const wire::agent_v1::Heartbeat& beat) {
      sampling_->look_at_health(node, beat);
    });
    fabric_ = std::make_unique<FabricCheck>(
        FabricCheck::Options{&loop_, [this]() -> const control::State& { return engine_->state(); },
                             [this](NodeId node, const wire::fabric_v1::Ask& ask) {
                               return agents_->send_fabric(node, ask);
                             },
                             [this] {
                               return clock_.wall();
                             }});
    agents_->on_fabric([this](NodeId node, const wire::fabric_v1::Answer& answer) {
      fabric_->take(node, answer);
    });
    gateways_ = std::make_unique<Gateways>(
        loop_, Gateways::Options{[this]() -> Engine& { return *engine_; },
                                 [this](NodeId node) { return agents_->host_of(node); },
                                 [this](TaskId task) { return agents_->port(task); },
                                 [this](NodeId node, const wire::agent_v1::LookAtPort& ask) {
                                   agents_->send(node, ask, {});
                                 }});
    agents_->on_port([this] { gateways_->changed(); });
    files_ = BILLOW_TRY(files::Store::open({.directory = files_dir(),
                                            .bytes_max = limits::head_files_bytes_max,
                                            .bytes_refused = limits::head_files_bytes_max / 4 * 5,
                                            .needed = [this] {
                                              return *needed_files_.lock();
                                            }}));
    look_at_needed_files();
    timers_.push_back(loop_.every(minutes(1), [this] { look_at_needed_files(); }));
    BILLOW_TRY_VOID(make_directories(outputs_dir(), 0700));
    api_ = std::make_unique<api::Api>(*this);
    notifier_->catch_up();

    const std::string token =
        BILLOW_TRY(store_->secret(options_.data_dir + "/token", "", new_token));
    const std::string node_token =
        BILLOW_TRY(store_->secret(options_.data_dir + "/node-token", "", new_token));
    engine_->execute(StartHead{BILLOW_VERSION, store.journal().epoch(), unix_user(),
                               sha256_hex(token), sha256_hex(node_token), store_->token_suffix()},
                     {"head", "start"}, {});
    BILLOW_TRY_VOID(prepare_tls());
    BILLOW_TRY_VOID(listen());
    BILLOW_TRY_VOID(prepare_pools());
    started_at_ = clock_.wall();
    // Where the other nodes of a gang find this machine's own: never loopback where there is
    // anything else.
    for (const std::string& address : addresses_)
      if (const auto own = net::parse_endpoint(address); own && !is_loopback(own->address.text())) {
        agents_->set_own_address(own->address.host);
        break;
      }

    timers_.push_back(loop_.every(milliseconds(200), [this] {
      engine_->execute(Tick{}, {"head", ""}, {});
    }));
    timers_.push_back(loop_.every(seconds(1), [this] { second(); }));
    timers_.push_back(loop_.every(milliseconds(100), [this] { pools_->look(); }));
    timers_.push_back(loop_.every(limits::history_job_step, [this] { sampling_->tick(); }));
    timers_.push_back(loop_.every(limits::money_tick, [this] {
      engine_->execute(MoneyTick{}, {"head", ""}, {});
    }));
    timers_.push_back(loop_.every(limits::lease_renew_every, [this] { agents_->renew_leases(); }));
    reviews_ = std::make_unique<Reviews>(
        Reviews::Options{workers_.get(), &store.queries(), &clock_, options_.data_dir,
                         [this](const advise::Review& review) {
                           notifier_->tell({.kind = "review." + review.period,
                                            .at = clock_.wall(),
                                            .text = review.summary(),
                                            .data = advise::review_json(review)});
                         }});
    reviews_->look();
    timers_.push_back(loop_.every(minutes(30), [this] { reviews_->look(); }));
    backups_ = std::make_unique<Backups>(
        Backups::Options{options_.backup_dir, options_.backup_every, options_.backups_kept,
                         workers_.get(), &clock_, &store, [this](const Error& why) {
                           notifier_->tell({.kind = "backup.failed",
                                            .at = clock_.wall(),
                                            .text = fmt::format("the backup into {} failed: {}",
                                                                options_.backup_dir, why.message)});
                         }});
    timers_.push_back(loop_.every(seconds(1), [this] { backups_->look(); }));
    signals_ = loop_.on_signal({SIGINT, SIGTERM}, [this](int) { shutdown(false); });
    if (options_.local_agent) {
      watch_agent();
      timers_.push_back(loop_.every(agent_look, [this] { watch_agent(); }));
    }
    if (options_.local_gateway)
      timers_.push_back(loop_.every(agent_look, [this] { watch_gateway(); }));
    write_head_file();
    announce();
    return {};
  }

  Status run() {
    loop_.run();
    if (ended_by_)
      return pass(*ended_by_);
    return {};
  }

  ~Head() override {
    // In this order: nobody asks any more, nothing runs any more, the files go that tell of a
    // running head, and then the lock: after it another head may have written files of the same
    // names. One that never listened has none; those there are another's.
    server_.reset();
    timers_.clear();
    workers_.reset();
    pools_.reset();
    if (sampling_)
      sampling_->save_all();
    api_.reset();
    fabric_.reset();
    sampling_.reset();
    gateways_.reset();
    agents_.reset();
    notifier_.reset();
    engine_.reset();
    if (listening_) {
      ::unlink((options_.data_dir + "/head.json").c_str());
      ::unlink(socket_path().c_str());
    }
    if (pointed_)
      ::unlink(options_.pointer.c_str());
    store_.reset();
  }

  // ---- api::Host
  const control::State& state() const override { return engine_->state(); }
  const Queries& queries() const override { return (*store_)->queries(); }
  const Journal& journal() const override { return journal_of_store(); }
  net::Loop& loop() override { return loop_; }
  net::Workers& workers() override { return *workers_; }
  WallTime now() const override { return clock_.wall(); }
  WallTime billed() const override { return engine_->billed(); }
  std::size_t notices_waiting(std::uint64_t webhook) const override {
    return notifier_->waiting(webhook);
  }
  std::string webhook_secret(std::uint64_t webhook) const override {
    return notifier_->secret(webhook);
  }
  void test_webhook(std::uint64_t webhook, std::function<void(Result<int>)> done) override {
    notifier_->test(webhook, std::move(done));
  }
  void execute(Command command, control::Cause cause, Done done) override {
    engine_->execute(command, cause, std::move(done));
  }
  void when_durable(std::function<void()> fn) override { engine_->when_durable(std::move(fn)); }
  Status accepting_work() const override {
    if (journal_of_store().health() != StoreHealth::ok)
      return fail(Code::storage_full,
                  fmt::format("the disk of {} is full: running work goes on, new work is refused",
                              options_.store.empty() ? options_.data_dir : "the database"),
                  "free some space, then submit again");
    if (stopping_)
      return fail(Code::unavailable, "the head is going down", "");
    if (journal_of_store().queued_bytes() > limits::journal_queue_bytes_max / 4)
      return fail(Code::exhausted, "the journal is behind", "try again in a moment");
    return {};
  }
  std::string recently_finished(JobId job) const override {
    return engine_->recently_finished(job);
  }
  std::unique_ptr<api::Subscription> watch_job(JobId job,
                                               std::function<void(const Event&)> fn) override {
    return engine_->watch_job(job, std::move(fn));
  }
  std::unique_ptr<api::Subscription> watch_events(std::function<void(const Event&)> fn) override {
    return engine_->watch_events(std::move(fn));
  }
  bool connected(NodeId node) const override { return agents_->connected(node); }
  bool send(NodeId node, const wire::agent_v1::ToAgent& message, std::string_view blob) override {
    return agents_->send(node, message, blob);
  }
  std::unique_ptr<api::Subscription> read_log(NodeId node,
                                              wire::agent_v1::LogRead request,
                                              OnChunk fn) override {
    return agents_->read_log(node, std::move(request), std::move(fn));
  }
  std::unique_ptr<api::Subscription> watch_input(
      TaskId task, std::function<void(const wire::agent_v1::InputTaken&)> fn) override {
    return agents_->watch_input(task, std::move(fn));
  }
  const wire::agent_v1::Heartbeat* readings(NodeId node) const override {
    return agents_->readings(node);
  }
  std::string waits_for(TaskId task) const override { return agents_->waits_for(task); }
  void adopt_agent(std::shared_ptr<net::WebSocket> socket,
                   std::string peer,
                   TokenId credential) override {
    agents_->adopt(std::move(socket), std::move(peer), credential);
  }
  void check_fabric(const std::vector<NodeId>& nodes,
                    std::function<void(Result<Json>)> done) override {
    fabric_->start(nodes, std::move(done));
  }
  std::unique_ptr<api::Tunnel> open_tunnel(NodeId node,
                                           wire::agent_v1::TunnelOpen request,
                                           OnTunnel fn) override {
    return agents_->open_tunnel(node, std::move(request), std::move(fn));
  }
  Result<std::string> seal_secret(ProjectId project,
                                  const std::string& name,
                                  std::string_view value) override {
    return keeper_.sealed(state(), project, name, value);
  }
  std::string trouble_with(const Secret& secret) const override {
    return keeper_.trouble_with(secret);
  }
  files::Store& files() override { return *files_; }
  void copy_files(NodeId node,
                  wire::agent_v1::CopyFiles request,
                  std::function<void(Result<std::string>)> done) override {
    agents_->copies().start(node, std::move(request), clock_.steady(), std::move(done));
  }
  std::string outputs_dir() const override { return files_dir() + "/outputs"; }
  std::string authority() const override { return own_tls_.authority_pem; }
  std::string authority_fingerprint() const override { return own_tls_.fingerprint; }
  const Telemetry& telemetry() const override { return engine_->telemetry(); }
  const History& history() const override { return *history_; }
  const JobSeries* live_series(JobId job) const override { return sampling_->live_series(job); }
  void adopt_gateway(std::shared_ptr<net::WebSocket> socket, std::string region) override {
    gateways_->adopt(std::move(socket), std::move(region));
  }
  const gateway::EndpointFigures* endpoint_figures(const std::string& name) const override {
    return gateways_->figures(name);
  }
  std::vector<std::string> gateway_addresses() const override { return gateways_->addresses(); }
  Json about() const override {
    Json addresses = Json::array();
    for (const auto& a : addresses_)
      addresses.push(a);
    return Json::object({{"version", BILLOW_VERSION},
                         {"ready", agents_ && ready()},
                         {"addresses", std::move(addresses)},
                         {"socket", socket_path()},
                         {"fingerprint", own_tls_.fingerprint},
                         {"data_dir", options_.data_dir},
                         {"pid", ::getpid()},
                         {"started_at", format_utc(started_at_)}});
  }
  void shutdown(bool stop_jobs) override {
    if (stopping_)
      return;
    stopping_ = true;
    ending_jobs_ = stop_jobs;
    log_info("going down{}", stop_jobs ? ", jobs are stopped" : "");
    gateways_->leave();  // first, or it would ask for new replicas in place of those that end
    if (stop_jobs) {
      std::vector<JobId> live;
      for (const auto& [id, job] : state().jobs)
        live.push_back(id);
      for (JobId id : live)
        engine_->execute(StopJob{id, "the head was told to stop all jobs", false}, {"head", ""},
                         {});
    }
    // The local agent leaves with the head; supervisors and jobs do not.
    timers_.push_back(
        loop_.every(milliseconds(20), [this, stop_jobs, tries = 0, told = false]() mutable {
          if (told)
            return;
          const bool busy = stop_jobs && !state().jobs.empty();
          if (busy && ++tries < 60 * 50)
            return;
          ending_jobs_ = false;
          // One that was started a moment ago and has not dialled yet would wait for this head for
          // ever.
          if (agent_on_its_way())
            return;
          told = true;
          if (busy)
            log_warn("{} jobs have not ended; they go on", state().jobs.size());
          // Where a standby may take over, agents elsewhere wait for it.
          for (const auto& [id, node] : state().nodes)
            if (!store_->shared() || agents_->is_own(id))
              agents_->send(id, wire::agent_v1::Leave{}, {});
          timers_.push_back(loop_.after(milliseconds(30), [this] {
            (void)journal_of_store().flush(seconds(2));
            loop_.stop();
          }));
        }));
  }

 private:
  Journal& journal_of_store() const { return (*store_)->journal(); }
  std::string socket_path() const { return options_.data_dir + "/head.sock"; }
  std::string files_dir() const {
    return options_.files_dir.empty() ? options_.data_dir + "/files" : options_.files_dir;
  }
  // The trees of everything that may still start: environments live as long as the jobs, schedules
  // and endpoints that use them.
  void look_at_needed_files() {
    files::Store::Needed needed;
    for (const auto& [digest, stored] : state().environments) {
      if (!stored.env)
        continue;
      if (const auto named = stored.env->find(surroundings::files); named != stored.env->end())
        if (const auto tree = files::parse_digest(named->second))
          needed.trees.push_back(*tree);
    }
    // What has a name stays until the name goes, and what a job was submitted with until it has
    // ended.
    const auto keep = [&](const std::string& digest) {
      if (const auto tree = files::parse_digest(digest))
        needed.trees.push_back(*tree);
    };
    for (const auto& [key, environment] : state().saved_environments)
      keep(environment.digest);
    for (const auto& [id, job] : state().jobs)
      if (!job.spec->surroundings.environment_digest.empty())
        keep(job.spec->surroundings.environment_digest);
    // An endpoint at zero has no job, and its next replica wants what its revision was deployed
    // with, whatever the name stands for by then.
    for (const auto& [name, endpoint] : state().endpoints)
      for (const Revision& revision : endpoint.revisions)
        if (!revision.spec->surroundings.environment_digest.empty())
          keep(revision.spec->surroundings.environment_digest);
    *needed_files_.lock() = std::move(needed);
  }

  // Beyond this machine nothing goes unencrypted, unless somebody says that a proxy sees to it.
  Status prepare_tls() {
    const bool beyond = std::any_of(options_.listen.begin(), options_.listen.end(),
                                    [](const std::string& a) { return !is_loopback(a); });
    if (options_.tls_cert.empty() != options_.tls_key.empty())
      return fail(Code::invalid, "a certificate needs its key, and a key its certificate",
                  "give both: --tls-cert FILE --tls-key FILE");
    if (!options_.tls_cert.empty()) {
      server_tls_ = {options_.tls_cert, options_.tls_key};
    } else if ((beyond && !options_.plain_http) || options_.tls) {
      own_tls_ = BILLOW_TRY(store_->tls({options_.data_dir + "/tls", options_.tls_names}));
      server_tls_ = own_tls_.server;
    }
    agents_->set_tls(!server_tls_.cert_path.empty());
    return {};
  }

  // Tells our machines from those of another Billow on the same engine; made once.
  Status prepare_pools() {
    const std::string installation = BILLOW_TRY(store_->secret(
        options_.data_dir + "/installation", "installation", [] { return hex(random_bytes(4)); }));
    BILLOW_TRY_VOID(check_name("installation", installation));
    const std::string work = options_.data_dir + "/pools";
    BILLOW_TRY_VOID(make_directories(work, 0700));
    const User* owner = state().user_by_name(unix_user());
    pools_ = std::make_unique<Pools>(
        loop_, clock_, [this]() -> Engine& { return *engine_; },
        Pools::Options{{installation, work, executable_dir() + "/billow"},
                       [this] { return addresses_.empty() ? std::string() : addresses_.front(); },
                       own_tls_.fingerprint,
                       owner ? owner->id : UserId{}});
    return {};
  }

  Status listen() {
    open_files_before_ = raise_open_files();
    net::HttpServer::Options server;
    server.tls = server_tls_;
    server.listen = options_.listen;
    server.listen.insert(server.listen.begin(), "unix:" + socket_path());
    auto made = net::HttpServer::create(
        loop_, server,
        [this](std::shared_ptr<net::Exchange> exchange) { api_->handle(std::move(exchange)); });
    if (!made && made.error().code == Code::conflict && options_.listen_any_port_if_taken) {
      log_warn("{}; another port is used", made.error().message);
      server.listen = {"unix:" + socket_path(), "127.0.0.1:0"};
      made = net::HttpServer::create(
          loop_, server,
          [this](std::shared_ptr<net::Exchange> exchange) { api_->handle(std::move(exchange)); });
    }
    if (!made)
      return pass(made.error());
    server_ = std::move(*made);
    listening_ = true;
    for (const std::string& address : server_->bound_addresses())
      if (!address.starts_with("unix:"))
        addresses_.push_back((server_tls_.cert_path.empty() ? "http://" : "https://") +
                             reachable_address(address));
    return {};
  }

  void second() {
    agents_->watch_silence();
    if (auto snapshot = engine_->snapshot_due()) {
      (void)workers_->submit([this, s = std::move(*snapshot)]() -> std::function<void()> {
        const Status saved = journal_of_store().save_snapshot(s.seq, s.bytes);
        if (!saved)
          log_warn("snapshot: {}", saved.error().message);
        return [] {
        };
      });
    }
  }
  // An agent that died is started again; one that is alive and merely away dials by itself. Its
  // lock tells which: after a start it is given a while to take it.
  void watch_agent() {
    // Jobs that are to end need an agent that ends them.
    if ((stopping_ && !ending_jobs_) || agent_looks_to_skip_ > 0) {
      agent_looks_to_skip_ = std::max(0, agent_looks_to_skip_ - 1);
      return;
    }
    if (local_agent_alive(options_.data_dir))
      return;
    const auto started = ensure_local_agent(
        {options_.data_dir, "unix:" + socket_path(), options_.data_dir + "/node-token",
         options_.sim, options_.node_name, options_.labels, open_files_before_});
    if (!started)
      log_error("{}", started.error().message);
    else if (*started)
      agent_started_ = clock_.steady();
    agent_looks_to_skip_ = 3;
  }
  bool agent_on_its_way() const {
    constexpr Duration patience = seconds(10);
    if (!agent_started_ || clock_.steady() - *agent_started_ > patience)
      return false;
    return std::none_of(state().nodes.begin(), state().nodes.end(), [this](const auto& node) {
      return agents_->connected(node.first) && agents_->is_own(node.first);
    });
  }
  void watch_gateway() {
    if (stopping_ || state().endpoints.empty() || gateway_looks_to_skip_ > 0) {
      gateway_looks_to_skip_ = std::max(0, gateway_looks_to_skip_ - 1);
      return;
    }
    if (local_gateway_alive(options_.data_dir))
      return;
    std::string region;  // this machine's gateway is that of its region
    for (const std::string& label : options_.labels)
      if (label.starts_with("region="))
        region = label.substr(7);
    const auto started =
        ensure_local_gateway(options_.data_dir, "unix:" + socket_path(), options_.gateway_listen,
                             region, options_.webhook_hosts);
    if (!started)
      log_error("{}", started.error().message);
    gateway_looks_to_skip_ = 5;
  }
  bool ready() const { return !options_.local_agent || agents_->count() > 0; }

  void health_changed(StoreHealth health, const Error& why) {
    switch (health) {
      case StoreHealth::ok:
        log_info("the disk has room again");
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

  void write_head_file() {
    Json document = about();
    const Status written =
        write_file_atomic(options_.data_dir + "/head.json", document.dump() + "\n", 0600);
    if (!written)
      log_warn("{}", written.error().message);
    write_pointer();
  }

  // Commands that are not told where we are look there; a home that cannot be written costs them no
  // more than --data. Written as soon as the lock is ours, so that nobody starts another head
  // meanwhile, and again when it is known where we listen.
  void write_pointer() {
    if (options_.pointer.empty())
      return;
    Json document = about();
    document.set("boot_id",
                 std::string(trim(read_file("/proc/sys/kernel/random/boot_id", 64).value_or(""))));
    document.set("machine_gpus", options_.local_agent && options_.sim.empty());
    Status pointed =
        make_directories(options_.pointer.substr(0, options_.pointer.rfind('/')), 0700);
    if (pointed)
      pointed = write_file_atomic(options_.pointer, document.dump() + "\n", 0600);
    if (!pointed)
      log_info("commands need --data {} to find this head: {}", options_.data_dir,
               pointed.error().message);
    pointed_ = pointed_ || pointed;
  }

  // Whoever started us in the background waits for one line: "ok", or why not.
  void announce() {
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

  HeadOptions options_;
  const Clock& clock_ = system_clock();
  net::Loop loop_;
  std::unique_ptr<net::Workers> workers_;
  std::optional<HeadStore> store_;
  SecretKeeper keeper_{options_.secrets_key.empty() ? options_.data_dir + "/secrets.key"
                                                    : options_.secrets_key};
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Agents> agents_;
  std::unique_ptr<History> history_;
  std::unique_ptr<Sampling> sampling_;
  std::unique_ptr<Reviews> reviews_;
  std::unique_ptr<Backups> backups_;
  std::unique_ptr<Gateways> gateways_;
  Sync<files::Store::Needed> needed_files_;
  std::unique_ptr<FabricCheck> fabric_;
  std::unique_ptr<files::Store> files_;
  std::unique_ptr<api::Api> api_;
  std::unique_ptr<Notifier> notifier_;
  std::unique_ptr<net::HttpServer> server_;
  std::unique_ptr<Pools> pools_;
  net::TlsServerOptions server_tls_;
  OwnTls own_tls_;
  std::vector<std::string> addresses_;
  std::uint64_t open_files_before_ = 0;
  std::vector<net::Timer> timers_;
  net::Timer ready_timer_;
  net::Watch signals_;
  WallTime started_at_;
  std::optional<SteadyTime> agent_started_;  // this machine's, by us, the last time
  std::optional<Error> ended_by_;  // the journal's failure, or another head that leads now
  bool stopping_ = false, ending_jobs_ = false, listening_ = false, pointed_ = false;
  int agent_looks_to_skip_ = 0, gateway_looks_to_skip_ = 0;
};

}  // namespace

Status run_head(HeadOptions options) {
  ::signal(SIGPIPE, SIG_IGN);
  Head head(std::move(options));
  BILLOW_TRY_VOID(head.start());
  return head.run();
}

}  // namespace billow::head
