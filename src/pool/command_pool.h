// A pool that is driven by three shell commands. Their environment has BILLOW_MACHINE (its name),
// BILLOW_POOL and BILLOW_INSTALLATION. `create` also gets BILLOW_HEAD, BILLOW_TOKEN (secret),
// BILLOW_GPUS, BILLOW_GPU_TYPE, BILLOW_NODES and BILLOW_USER_DATA, a cloud-init file that makes the
// machine join. `list` prints one machine per line: its name, then optional text (an id, a state).
// Names other than POOL-NUMBER are ignored, so the command may list more.
#pragma once

#include "base/limits.h"
#include "pool/pool.h"

namespace billow::pool {

class CommandPool final : public Pool {
 public:
  // A command that takes longer is ended: a list or a deletion has then failed, and the outcome of
  // an order is unknown.
  struct Patience {
    Duration list = limits::pool_list_timeout, end = limits::pool_delete_timeout;
    Duration create = limits::pool_command_timeout;
  };
  CommandPool(billow::Pool settings, Options options, Patience patience)
      : settings_(std::move(settings)), options_(std::move(options)), patience_(patience) {}
  CommandPool(billow::Pool settings, Options options)
      : CommandPool(std::move(settings), std::move(options), Patience()) {}
  Ordered want(const Order& order) override;
  Result<std::vector<MachineSighting>> nodes() override;
  Status release(const MachineSighting& machine) override;
  bool ends_by_name() const override { return true; }

 private:
  billow::Pool settings_;
  Options options_;
  Patience patience_;
};

}  // namespace billow::pool
