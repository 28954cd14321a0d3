// A pool of Slurm allocations. It uses the command line (`srun`, `sbatch --parsable`, `squeue -o`,
// `scancel`), which is the same in every version we know; the REST interface is not. An allocation
// runs `billow join` on each of its nodes and ends when that ends.
//
// If there is free capacity, an allocation is started with `srun --immediate`: Slurm looks at a
// batch job only after seconds (batch_sched_delay), but at an srun at once. The srun runs beside
// the head in its own session and outlives it. If there is no free capacity, or the site does not
// allow srun, sbatch queues the same allocation. BILLOW_SLURM_START=sbatch disables srun.
#pragma once

#include "base/sync.h"
#include "pool/extends.h"
#include "pool/pool.h"

namespace billow::pool {

struct NodeSize {
  std::int64_t cpus = std::int64_t{1} << 32, mem_mib = std::int64_t{1} << 40;  // not known
};
// Of `sinfo --format=%c|%m`.
NodeSize largest_node(const std::string& sinfo);

class SlurmPool final : public Pool, public Extends {
 public:
  SlurmPool(billow::Pool settings, Options options)
      : settings_(std::move(settings)), options_(std::move(options)) {}
  Ordered want(const Order& order) override;
  Result<std::vector<MachineSighting>> nodes() override;
  Status release(const MachineSighting& machine) override;
  bool extends() const override { return settings_.options.contains("extend"); }
  Status extend(const MachineSighting& machine) override;

  // Public for tests.
  std::string script(const Order& order) const;
  std::vector<std::string> arguments(const Order& order) const;
  std::string node_script(const Order& order) const;  // runs on each node
  // Of srun, which reads the node script from its standard input.
  std::vector<std::string> quick_arguments(const Order& order) const;
  std::vector<MachineSighting> read_list(const std::string& text) const;
  std::vector<std::string> extend_arguments(const MachineSighting& machine) const;

 private:
  Order cut_to_node(Order order);
  bool has_option(std::string_view prefix) const;  // among the administrator's
  bool start_at_once(const Order& order);
  void reap();
  std::string job_name(const std::string& machine) const {
    return "billow-" + options_.installation + "-" + machine;
  }
  billow::Pool settings_;
  Options options_;
  struct Quick {
    std::set<int> running;  // sruns that this process started
    bool refused = false;   // an srun did not start in time: a long prolog, or the site forbids it
  };
  Sync<Quick> quick_;
  struct Nodes {
    NodeSize largest;
    std::optional<SteadyTime> looked_at;
  };
  Sync<Nodes> nodes_;
};

}  // namespace billow::pool
