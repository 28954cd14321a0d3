// The only interface to the GPUs of this machine. The agent (or `doctor`) opens one backend, which
// answers from any thread and never changes a card's settings unless it was opened with permission.
//
// NVML is the first backend. The simulated library has the same ABI and comes through the same
// loader, so a laptop runs the same code as a DGX; it can also simulate an AMD node, so no caller
// may assume a vendor.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "gpu/device.h"

namespace billow {

struct GpuBackendOptions {
  std::string library;  // path of the library; empty: $BILLOW_NVML, else libnvidia-ml.so.1
  std::string
      sim;  // "8xH100", "2xA100-40,4xL4" or a JSON file: simulated GPUs instead of real ones
  // Where the agent records which task holds what (sim/sim_holders.h); may be empty.
  std::string sim_state_dir;
  // MIG instances may be created and destroyed: an administrator's setting.
  bool allow_mig_changes = false;
  const Clock* clock = nullptr;  // null: the machine's
};

struct GpuSampleOptions {
  bool processes = true;
  // Before Hopper the PCIe counters can only be read by a call that blocks for 20 ms each way.
  bool slow_pcie = false;
};

struct MigCreate {
  std::uint32_t index = 0;                // which card
  std::string profile;                    // "1g.10gb"
  std::optional<MigPlacement> placement;  // empty: where it blocks the fewest others (mig.h)
};

class GpuBackend {
 public:
  using Options = GpuBackendOptions;
  // Code::unsupported without a driver or library, with what to do about it; Code::invalid for a
  // bad `sim`.
  static Result<std::unique_ptr<GpuBackend>> open(Options options);
  virtual ~GpuBackend() = default;

  virtual std::size_t count() const = 0;
  // The inventory, with current health and MIG instances. Costs a few milliseconds per card on real
  // hardware.
  virtual Result<GpuInventory> inventory() = 0;
  // A lost GPU gives a sample marked lost, not an error.
  virtual Result<GpuSample> sample(std::uint32_t index, GpuSampleOptions options = {}) = 0;
  virtual Result<std::vector<GpuProcess>> processes(std::uint32_t index) = 0;
  // Waits at most this long for the first event, then takes all others. Empty if the card reports
  // none.
  virtual Result<std::vector<GpuEvent>> poll_events(Duration wait) = 0;

  virtual Result<std::vector<MigProfile>> mig_profiles(std::uint32_t index) = 0;
  virtual Result<std::vector<MigInstance>> mig_instances(std::uint32_t index) = 0;
  virtual Result<MigInstance> create_mig(const MigCreate& request) = 0;
  virtual Status destroy_mig(std::uint32_t index, std::uint32_t gpu_instance) = 0;

  // Features that the loaded library lacks, as sentences for `doctor`.
  virtual std::vector<std::string> missing_features() const = 0;
};

// The path of the simulated library: beside this executable, or in a lib/ folder there or up to
// three folders above.
Result<std::string> find_sim_library();

}  // namespace billow
