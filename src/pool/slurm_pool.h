// A pool of Slurm allocations, driven by the command line (`srun`, `sbatch --parsable`, `squeue
// -o`, `scancel`), which is the same in every version we know; the REST interface is not. An
// allocation runs `billow join` on each of its nodes and ends when that ends.
//
// Where there is room an allocation is begun by `srun --immediate`: Slurm looks at a batch job only
// seconds after it came (batch_sched_delay), at srun's request at once. The srun lives beside the
// head, in a session of its own, and is not the head's to end; where there is no room, or a site
// wants no srun, sbatch queues the same. BILLOW_SLURM_START=sbatch leaves srun out.
#pragma once

#include "base/sync.h"
#include "pool/pool.h"

namespace billow::pool {

class SlurmPool final : public Pool {
 public:
  SlurmPool(billow::Pool settings, Options options)
      : settings_(std::move(settings)), options_(std::move(options)) {}
  Status want(const Order& order) override;
  Result<std::vector<MachineSighting>> nodes() override;
  Status release(const MachineSighting& machine) override;

  // For tests: what is submitted, and how what squeue prints is read.
  std::string script(const Order& order) const;
  std::vector<std::string> arguments(const Order& order) const;
  std::string node_script(const Order& order) const;  // what each of its nodes runs
  std::vector<std::string> quick_arguments(
      const Order& order) const;  // of srun, which gets that script on its standard input
  std::vector<MachineSighting> read_list(const std::string& text) const;

 private:
  bool start_at_once(const Order& order);
  void reap();
  std::string job_name(const std::string& machine) const {
    return "billow-" + options_.installation + "-" + machine;
  }
  billow::Pool settings_;
  Options options_;
  struct Quick {
    std::set<int> running;  // the sruns of this life of the head
    bool refused = false;   // one did not answer: a site with a long prolog, or none that wants it
  };
  Sync<Quick> quick_;
};

}  // namespace billow::pool
