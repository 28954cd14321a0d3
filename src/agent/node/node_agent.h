// The agent process as an object: connects the pure core (core/agent) to tasks, GPUs, files and the
// head. Everything runs on one loop thread, except the samples, which a worker takes.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/content/file_service.h"
#include "agent/content/project_leftovers.h"
#include "agent/isolate/gpu_claim.h"
#include "agent/isolate/own_place.h"
#include "agent/node/earlier_head.h"
#include "agent/node/gpu_readings.h"
#include "agent/node/head_link.h"
#include "agent/node/node.h"
#include "agent/node/reclaim_watch.h"
#include "agent/reach/fabric.h"
#include "agent/reach/keepalive.h"
#include "agent/task/tasks.h"
#include "base/file.h"
#include "core/agent/core.h"
#include "gpu/backend.h"
#include "net/http/http_server.h"
#include "net/loop.h"
#include "net/workers.h"

namespace billow::agent {

class NodeAgent {
 public:
  explicit NodeAgent(NodeOptions options);
  Status start();
  void run();  // until a signal, or until the core ends the agent
  bool removed() const { return link_ && link_->removed(); }

 private:
  // node_start.cpp: the parts, in the order in which start() creates them
  Status lock_data_dir();
  Status open_work_place();
  Status open_link();
  Status open_gpus();
  void choose_sleep_space();
  void open_keepalive();
  void open_older_doors(const std::vector<TaskId>& live);
  void open_files();
  Status open_tasks();
  Tasks::Callbacks task_callbacks();
  void open_fabric();
  Status open_core();
  void watch_leftovers();
  Status open_metrics();
  Status watch_for_reclaim();

  // node_agent.cpp
  std::string memory_path() const { return memory_file(options_.data_dir); }
  ContentSource content_source() const;
  NodeOffer offer() const;
  void offer_changed();
  std::map<int, std::int64_t> gpu_memory_mib() const;

  void connected();
  void disconnected();
  void removed_by_head();
  void find_out_whether_head_is_outside();
  void send(const wire::agent_v1::FromAgent& message, std::string_view blob);
  void on_frame(std::string_view frame);
  void copy_files(std::string_view frame);

  void signalled();
  void on_task_event(const TaskEvent& event);
  void take_event(const TaskEvent& event);
  void release_doubtful(SteadyTime due);
  void tick();
  Status allowed_here(const wire::agent_v1::Start& start) const;
  void perform(const Effects& effects);
  void give_back(const std::string& why);
  std::unique_ptr<KeepAliveSocket> keepalive_on(Fd listener);
  Result<Duration> keep_alive(const SocketPeer& peer, Duration lasts, std::string reason);

  void sample();
  void sampled(NodeSample sample);
  void watch_health(const wire::agent_v1::Heartbeat& beat);
  void look_over(TaskStatus status);
  void answer_metrics(net::Exchange& exchange);

  Fd lock_;  // first, so that it is released last: an agent whose workers still run is alive
  NodeOptions options_;
  const std::shared_ptr<net::NodeCredential> credential_;
  net::Loop loop_;
  net::Workers workers_;
  std::unique_ptr<HeadLink> link_;
  std::unique_ptr<GpuBackend> backend_;
  GpuInventory inventory_;
  std::unique_ptr<FileService> files_;
  // The agent's own, outside the data directory: what jobs must reach is here.
  void share_cache_disk();
  // Where what jobs fetched is kept, and where the agent records what it kept.
  std::string cache_dir() const;
  std::string kept_dir() const;
  std::optional<OwnPlace> work_;
  std::string door_;                             // the directory of the sockets in it
  std::string files_socket_, keepalive_socket_;  // paths; empty: not available
  std::string node_name_;
  std::unique_ptr<LeftoverWatch> leftovers_;  // uses files_
  std::unique_ptr<KeepAliveSocket> keepalive_, older_keepalive_;
  std::unique_ptr<ReclaimWatch> reclaim_;
  std::unique_ptr<Fabric> fabric_;
  std::unique_ptr<GpuReadings> readings_;  // used by the worker
  std::unique_ptr<Tasks> tasks_;
  std::unique_ptr<Core> core_;
  std::unique_ptr<net::HttpServer> metrics_;
  wire::agent_v1::Heartbeat beat_;  // the newest, for /metrics
  std::vector<TaskEvent> early_;    // events that arrived before the core existed
  // Ends that may be the engine's doing wait until then for the signal that would explain them.
  std::vector<std::pair<SteadyTime, task_event::Ended>> doubtful_;
  net::Timer doubt_;
  std::vector<net::Timer> timers_;
  GpuClaims claims_;
  net::Watch signals_;
  bool sampling_ = false, leaving_ = false, head_is_outside_ = false;
  SteadyTime leave_by_;
  std::map<std::uint32_t, std::int64_t> idle_mem_mib_;  // the least each GPU was seen to use
};

}  // namespace billow::agent
