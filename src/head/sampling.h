// Turns readings into history. Every two seconds the newest heartbeats are added to the series of
// running jobs; every ten seconds those of GPUs and of the fleet to their rings. Everything is in
// memory on the loop's thread; a worker writes the files.
//
// Also the one place that notices bad GPUs: if a heartbeat's score is below
// limits::gpu_drain_score, the core is asked to drain the GPU.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <unordered_map>

#include "gateway/table.h"
#include "head/engine.h"
#include "net/loop.h"
#include "net/workers.h"
#include "store/sqlite/history.h"
#include "view/idle_jobs.h"

namespace billow::head {

class Sampling {
 public:
  struct Options {
    net::Workers* workers = nullptr;
    const Clock* clock = nullptr;
    History* history = nullptr;
    Engine* engine = nullptr;
    view::Readings readings;  // the newest heartbeat of a node
    // What the gateways say of an endpoint; null: nothing yet.
    std::function<const gateway::EndpointFigures*(const std::string&)> endpoint_figures = {};
  };
  explicit Sampling(Options options);
  ~Sampling();

  void tick();  // every limits::history_job_step
  void look_at_health(NodeId node, const wire::agent_v1::Heartbeat& beat);
  // The series of a job that runs or whose end is not saved yet. Null: ask the history.
  const JobSeries* live_series(JobId job) const;
  void save_all();  // waits; before the head ends

 private:
  void sample_jobs(WallTime now);
  void sample_gpus(WallTime now);
  void sample_endpoints(WallTime now, std::vector<History::Sample>& samples);
  void save(std::vector<History::JobRecord> records);
  struct Live {
    JobSeries series;
    WallTime saved_at;
    bool seen = true;     // the job had a reading at the last tick
    bool loaded = false;  // what was stored before a restart is in `series`
  };
  Live& live_of(const Job& job, WallTime now);
  void save_due(WallTime now);
  Options options_;
  std::unordered_map<JobId, Live> jobs_;
  // Their counters at the last sample, to tell how much came since.
  struct Counted {
    WallTime at;
    std::uint64_t requests = 0, errors = 0, starts = 0;
  };
  std::map<std::string, Counted> endpoints_;
  std::int64_t last_slot_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace billow::head
