// The GpuBackend over an NVML library. Internal to gpu/: others include backend.h. The class is
// implemented in nvml_inventory.cpp (inventory), nvml_sample.cpp (activity) and nvml_mig.cpp
// (partitions).
//
// Handles are taken once, at open. A card that later falls off the bus keeps its index and is
// reported as `lost`.
#pragma once

#include "base/sync.h"
#include "gpu/backend.h"
#include "gpu/nvml_library.h"

namespace billow {

// A function that this driver lacks is answered like an unknown one.
template <class F, class... Args>
nvml::Return call_nvml(F function, Args... args) {
  return function ? function(args...) : nvml::error_function_not_found;
}

class NvmlBackend final : public GpuBackend {
 public:
  static Result<std::unique_ptr<GpuBackend>> open(std::unique_ptr<NvmlLibrary> library,
                                                  const GpuBackendOptions& options);
  ~NvmlBackend() override;

  std::size_t count() const override { return devices_.size(); }
  Result<GpuInventory> inventory() override;
  Result<GpuSample> sample(std::uint32_t index, GpuSampleOptions options) override;
  Result<std::vector<GpuProcess>> processes(std::uint32_t index) override;
  Result<std::vector<GpuEvent>> poll_events(Duration wait) override;
  Result<std::vector<MigProfile>> mig_profiles(std::uint32_t index) override;
  Result<std::vector<MigInstance>> mig_instances(std::uint32_t index) override;
  Result<MigInstance> create_mig(const MigCreate& request) override;
  Status destroy_mig(std::uint32_t index, std::uint32_t gpu_instance) override;
  std::vector<std::string> missing_features() const override {
    return library_->missing_features();
  }

 private:
  struct DeviceEntry {
    nvml::Device handle = nullptr;  // null: the card did not answer at all
    GpuInfo fixed;                  // facts that do not change while the driver stays loaded
    bool gpm = false;
    nvml::Return opened = nvml::success;
  };
  // State between two samples: GPM measures between them, process utilisation since a timestamp.
  struct Looks {
    std::vector<nvml::GpmSample> gpm_before;
    std::vector<nvml::GpmSample> gpm_spare;
    std::vector<bool> gpm_primed;
    std::vector<unsigned long long> process_seen_us;
    // pid → %, of the last window with samples, and its time
    std::vector<std::vector<std::pair<unsigned, int>>> process_util;
    std::vector<SteadyTime> process_util_at;
  };

  explicit NvmlBackend(std::unique_ptr<NvmlLibrary> library) : library_(std::move(library)) {}
  Result<DeviceEntry*> entry(std::uint32_t index);
  void read_fixed(DeviceEntry& entry, std::uint32_t index);
  void read_place(DeviceEntry& entry);
  void read_versions(DeviceEntry& entry);
  void read_abilities(DeviceEntry& entry);
  void read_peers();
  void read_links(DeviceEntry& entry);
  LinkLevel link_level(const DeviceEntry& a, const DeviceEntry& b) const;
  std::uint32_t links_between(const DeviceEntry& a, const DeviceEntry& b) const;
  void read_health(const DeviceEntry& entry, GpuInfo& info) const;
  void start_gpm(std::uint32_t index);
  void start_events();
  // The return code of the first query, which shows whether the card responds.
  nvml::Return sample_memory(const DeviceEntry& device, GpuSample& sample) const;
  void sample_counters(const DeviceEntry& device, GpuSample& sample) const;
  void sample_details(const DeviceEntry& device, GpuSample& s) const;
  void sample_gpm(std::uint32_t index, GpuSample& sample);
  void read_process_util(std::uint32_t index, std::vector<GpuProcess>& list);
  std::vector<GpuProcess> read_processes(std::uint32_t index);
  GpuEvent describe_event(const nvml::EventData& data) const;
  Result<DeviceEntry*> mig_entry(std::uint32_t index, bool change);
  std::unexpected<Error> failed(std::string_view what,
                                std::uint32_t index,
                                nvml::Return code) const;

  std::unique_ptr<NvmlLibrary> library_;
  std::vector<DeviceEntry> devices_;
  Sync<Looks> looks_;
  nvml::EventSet events_ = nullptr;
  bool allow_mig_changes_ = false;
  const Clock* clock_ = nullptr;
};

// The class of fault that an XID indicates, and a text for it (NVIDIA's XID catalogue).
struct XidMeaning {
  FaultClass fault;
  const char* text;
};
XidMeaning xid_meaning(std::int64_t xid);

}  // namespace billow
