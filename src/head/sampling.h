// Readings become history here. Every two seconds the newest heartbeats are folded into the series
// of running jobs; every ten, GPUs and the fleet go to their rings. All of it in memory on the
// loop's thread; files are written by a worker.
//
// Also the one place where a bad card is noticed: a heartbeat whose score is below
// limits::gpu_drain_score asks the core to drain it.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>

#include "head/engine.h"
#include "net/loop.h"
#include "net/workers.h"
#include "store/sqlite/history.h"

namespace billow::head {

class Agents;

class Sampling {
 public:
  struct Options {
    net::Workers* workers = nullptr;
    const Clock* clock = nullptr;
    History* history = nullptr;
    Engine* engine = nullptr;
    const Agents* agents = nullptr;
  };
  explicit Sampling(Options options);
  ~Sampling();

  void tick();  // every limits::history_job_step
  void look_at_health(NodeId node, const wire::agent_v1::Heartbeat& beat);
  // The series of a job that is in memory: it runs, or its end is not saved yet. Null: ask the
  // store.
  const JobSeries* live_series(JobId job) const;
  void save_all();  // waits; before the head goes down

 private:
  void sample_jobs(WallTime now);
  void sample_gpus(WallTime now);
  void save(std::vector<History::JobRecord> records);
  struct Live {
    JobSeries series;
    WallTime saved_at;
    bool seen = true;     // its job was there at the last look
    bool loaded = false;  // what was stored before a restart has been taken up, or there was none
  };
  Options options_;
  std::unordered_map<JobId, Live> jobs_;
  std::int64_t last_slot_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace billow::head
