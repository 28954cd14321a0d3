// A pool that is driven by three shell commands. Their environment has BILLOW_MACHINE (its name),
// BILLOW_POOL and BILLOW_INSTALLATION. `create` also gets BILLOW_HEAD, BILLOW_TOKEN (secret),
// BILLOW_GPUS, BILLOW_GPU_TYPE, BILLOW_NODES and BILLOW_USER_DATA, a cloud-init file that makes the
// machine join. `list` prints one machine per line: its name, then optional text (an id, a state).
// Names other than POOL-NUMBER are ignored, so the command may list more.
#pragma once

#include "pool/pool.h"

namespace billow::pool {

class CommandPool final : public Pool {
 public:
  CommandPool(billow::Pool settings, Options options)
      : settings_(std::move(settings)), options_(std::move(options)) {}
  Ordered want(const Order& order) override;
  Result<std::vector<MachineSighting>> nodes() override;
  Status release(const MachineSighting& machine) override;

 private:
  billow::Pool settings_;
  Options options_;
};

}  // namespace billow::pool
