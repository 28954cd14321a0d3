// A pool behind three shell commands. They run with these variables: BILLOW_MACHINE (its name),
// BILLOW_POOL, BILLOW_INSTALLATION; create also gets BILLOW_HEAD, BILLOW_TOKEN (secret),
// BILLOW_GPUS, BILLOW_GPU_TYPE and BILLOW_USER_DATA, a file for cloud-init that makes the machine
// join by itself. `list` prints one machine a line: its name, then anything (an id, a state). Only
// names that begin with POOL- and a number are looked at, so the command may list more.
#pragma once

#include "pool/pool.h"

namespace billow::pool {

class CommandPool final : public Pool {
 public:
  CommandPool(billow::Pool settings, Options options)
      : settings_(std::move(settings)), options_(std::move(options)) {}
  Status want(const Order& order) override;
  Result<std::vector<MachineSighting>> nodes() override;
  Status release(const MachineSighting& machine) override;

 private:
  billow::Pool settings_;
  Options options_;
};

// The start-up text for a rented machine: installs nothing, starts `billow join` and keeps it
// running.
std::string cloud_init(const Order& order, const billow::Pool& settings);

}  // namespace billow::pool
