// A pool of Slurm allocations, driven by the command line (`sbatch --parsable`, `squeue -o`, `scancel`), which is the same in every
// version we know; the REST interface is not. An allocation runs `billow join` on each of its nodes and ends when that ends.
#pragma once

#include "pool/pool.h"

namespace billow::pool {

class SlurmPool final : public Pool {
 public:
  SlurmPool(billow::Pool settings, Options options) : settings_(std::move(settings)), options_(std::move(options)) {}
  Status want(const Order& order) override;
  Result<std::vector<MachineSighting>> nodes() override;
  Status release(const MachineSighting& machine) override;

  // For tests: what is submitted, and how what squeue prints is read.
  std::string script(const Order& order) const;
  std::vector<std::string> arguments(const Order& order) const;
  std::vector<MachineSighting> read_list(const std::string& text) const;

 private:
  std::string job_name(const std::string& machine) const { return "billow-" + options_.installation + "-" + machine; }
  billow::Pool settings_;
  Options options_;
};

}  // namespace billow::pool
