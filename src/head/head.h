// The running head, made of its parts: store, engine, agents, gateways, pools, notices. It serves
// no API itself: serve() takes the service that answers HTTP requests, and the service reaches the
// parts through the accessors below.
//
// Order of life: start() restores the state and creates the parts, serve() listens and starts the
// timers, run() runs the loop until a signal or `billow down`. The destructor stops in the opposite
// order: first requests stop, then everything that runs, then the files that announce a running
// head are removed; the lock of the data directory is released last.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/result.h"
#include "base/sync.h"
#include "files/store.h"
#include "head/agents.h"
#include "head/backups.h"
#include "head/certificates/certificates.h"
#include "head/engine.h"
#include "head/fabric_check.h"
#include "head/gateways.h"
#include "head/head_store.h"
#include "head/local_processes.h"
#include "head/logs/kept_logs.h"
#include "head/notices/personal_notices.h"
#include "head/notifier.h"
#include "head/options.h"
#include "head/pools.h"
#include "head/reviews.h"
#include "head/sampling.h"
#include "head/secrets/key_rotation.h"
#include "head/secrets/secret_fetcher.h"
#include "head/secrets/secret_keeper.h"
#include "net/http/http_server.h"
#include "net/workers.h"

namespace billow::head {

class FileDoor;

// What answers HTTP requests: net::HttpServer::Options says when each part is called.
struct Service {
  net::Handler handler;
  net::BodyPolicy body_policy;
  std::function<net::Caller(const net::Request& head)> identify;
};

class Head {
 public:
  explicit Head(HeadOptions options);
  ~Head();

  Status start();
  // start() failed because a signal came while this head stood by.
  bool was_told_to_end() const { return options_.told_to_end; }
  Status serve(Service service);
  Status run();
  void shutdown(bool stop_jobs);

  // ---- the parts, from start() on
  net::Loop& loop() { return loop_; }
  net::Workers& workers() { return *workers_; }
  const Clock& clock() const { return clock_; }
  Engine& engine() const { return *engine_; }
  const control::State& state() const { return engine_->state(); }
  Store& store() const { return **store_; }
  Agents& agents() const { return *agents_; }
  Gateways& gateways() const { return *gateways_; }
  Notifier& notifier() const { return *notifier_; }
  PersonalNotices& personal() const { return *personal_; }
  const HeadOptions& options() const { return options_; }
  Pools& pools() { return *pools_; }
  SecretKeeper& secrets() { return keeper_; }
  const SecretKeeper& secrets() const { return keeper_; }
  KeyRotation& rotation() const { return *rotation_; }
  FabricCheck& fabric() const { return *fabric_; }
  KeptLogs& logs() const { return *logs_; }
  const Sampling& sampling() const { return *sampling_; }
  const History& history() const { return *history_; }
  files::Store& files() const { return *files_; }
  FileDoor* file_door() const { return file_door_.get(); }  // null: it could not be opened
  const std::string& data_dir() const { return options_.data_dir; }
  std::string outputs_dir() const { return files_dir() + "/outputs"; }
  Certificates& certificates() const { return *certificates_; }
  // Whether users of this machine may sign in by their account.
  bool serves_machine() const { return !options_.system_socket.empty(); }

  // An error while new work is refused: the disk is full, or the head is shutting down.
  Status accepting_work() const;
  net::ServerFigures server_figures() const { return server_->figures(); }
  Json about() const;  // version, addresses, pid, data directory, …

 private:
  Status open_store();
  Status restore_engine();
  void connect_agents();
  void connect_gateways();
  Status open_files();
  Status begin_epoch();
  Status prepare_tls();
  Status prepare_pools();
  Status listen(Service service);
  void set_own_address();
  void start_timers();
  void start_reviews();
  void start_backups();
  void every(Duration period, std::function<void()> fn);

  std::function<void()> observe(const control::State& state, const Event& event);
  void complete_start(wire::agent_v1::Start& start, bool confidential);
  void prepare_secrets();
  Status prepare_notices();
  void start_notices();
  void warn_of_lost_secrets() const;
  void look_at_needed_files();
  void watch_local_agent();
  void save_snapshot();
  void look_at_retention();
  void health_changed(StoreHealth health, const Error& why);
  bool ready() const;
  bool stop_some_jobs();
  bool jobs_have_ended();
  bool agent_on_its_way() const;
  bool gateway_on_its_way() const;
  void leave();
  void write_head_file();
  void write_pointer();
  void announce();

  Journal& journal() const { return store().journal(); }
  std::string path(const char* name) const { return options_.data_dir + "/" + name; }
  std::string socket_path() const { return path("head.sock"); }
  std::string files_dir() const {
    return options_.files_dir.empty() ? path("files") : options_.files_dir;
  }

  HeadOptions options_;
  const Clock& clock_ = system_clock();
  net::Loop loop_;
  std::unique_ptr<net::Workers> workers_;
  std::optional<HeadStore> store_;
  SecretKeeper keeper_;
  std::unique_ptr<SecretFetcher> fetcher_;
  std::unique_ptr<KeyRotation> rotation_;
  std::string notify_key_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Agents> agents_;
  std::unique_ptr<History> history_;
  std::unique_ptr<Sampling> sampling_;
  std::unique_ptr<Reviews> reviews_;
  std::unique_ptr<Backups> backups_;
  std::unique_ptr<Gateways> gateways_;
  Sync<files::Store::Needed> needed_files_;
  std::unique_ptr<FabricCheck> fabric_;
  std::unique_ptr<LogBucket> log_bucket_;
  std::unique_ptr<KeptLogs> logs_;
  std::unique_ptr<files::Store> files_;
  std::unique_ptr<FileDoor> file_door_;
  std::unique_ptr<Notifier> notifier_;
  std::unique_ptr<PersonalNotices> personal_;
  std::unique_ptr<net::HttpServer> server_;
  std::unique_ptr<Pools> pools_;
  std::unique_ptr<LocalProcesses> local_;
  net::TlsServerOptions server_tls_;
  std::unique_ptr<Certificates> certificates_;
  std::vector<std::string> addresses_;
  std::vector<net::Timer> timers_;
  net::Timer ready_timer_;
  net::Watch signals_;
  WallTime started_at_;
  std::optional<Error> ended_by_;  // the journal failed, or another head leads now
  bool retaining_ = false;         // a worker removes old records of the journal
  bool stopping_ = false;
  bool stop_jobs_ = false;    // shutting down together with all jobs
  bool ending_jobs_ = false;  // shutting down, and jobs are still being stopped
  int ending_looks_ = 0;
  JobId stopped_to_;   // jobs up to this number have been stopped
  bool left_ = false;  // agents have been told to leave
  bool listening_ = false;
  bool pointed_ = false;
};

}  // namespace billow::head
