// The opaque objects behind NVML's handles, and the library's only global: NVML has process-wide
// state by design. Handles are interned and freed only at the last shutdown, and every incoming
// pointer is looked up, so a stale or invalid one gives an error code instead of a crash.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "gpu/nvml_abi.h"
#include "gpu/sim/simulator.h"

namespace billow::nvml {

struct DeviceObject {
  unsigned gpu = 0;
  unsigned gpu_instance = 0;  // 0: the card itself; else a MIG device
};
struct GpuInstanceObject {
  unsigned gpu = 0, id = 0;
};
struct ComputeInstanceObject {
  unsigned gpu = 0, gpu_instance = 0;
};
struct EventSetObject {
  std::map<unsigned, unsigned long long> wanted;  // by card
  std::size_t position = 0;
};
struct GpmSampleObject {
  unsigned gpu = 0;
  bool taken = false;
  std::int64_t at_ns = 0;
  double activity_ns = 0, tensor_ns = 0, dram_ns = 0;
};

}  // namespace billow::nvml

namespace billow::sim {

class Library {
 public:
  static Library& instance();

  std::mutex mutex;
  int users = 0;
  std::string spec_given, state_given;  // by billowSimConfigure; empty: the environment
  std::string last_error;
  std::unique_ptr<Simulator> simulator;

  std::map<unsigned, std::unique_ptr<nvml::DeviceObject>> cards;
  std::map<std::pair<unsigned, unsigned>, std::unique_ptr<nvml::DeviceObject>> mig_devices;
  std::map<std::pair<unsigned, unsigned>, std::unique_ptr<nvml::GpuInstanceObject>> gpu_instances;
  std::map<std::pair<unsigned, unsigned>, std::unique_ptr<nvml::ComputeInstanceObject>>
      compute_instances;
  std::map<const void*, std::unique_ptr<nvml::EventSetObject>> event_sets;
  std::map<const void*, std::unique_ptr<nvml::GpmSampleObject>> gpm_samples;

  nvml::Device card_handle(unsigned gpu);
  nvml::Device mig_handle(unsigned gpu, unsigned gpu_instance);
  nvml::GpuInstance gpu_instance_handle(unsigned gpu, unsigned id);
  nvml::ComputeInstance compute_instance_handle(unsigned gpu, unsigned id);
  void forget_all();

 private:
  Library() = default;
};

// The start of every call about a device: takes the lock, updates the model, finds the card; or the
// error.
struct Call {
  std::unique_lock<std::mutex> lock;
  Library& library = Library::instance();
  SimCard* card = nullptr;
  SimMigInstance* instance = nullptr;  // if the handle is a MIG device
  nvml::Return code = nvml::success;
  explicit operator bool() const { return code == nvml::success; }
  Simulator& simulator() const { return *library.simulator; }
};
Call enter();                                               // the library is initialised
Call enter(nvml::Device device, bool mig_allowed = false);  // and this is a card that answers
Call enter(nvml::GpuInstance instance);
nvml::Return copy_text(const std::string& text, char* out, unsigned length);
const SimMigProfile& profile_of(const Call& call);

}  // namespace billow::sim

// Declares every function with exactly the signature that the binding calls.
#define BILLOW_SIM_DECLARE(name, parameters) \
  extern "C" __attribute__((visibility("default"))) billow::nvml::Return name parameters;
BILLOW_NVML_REQUIRED(BILLOW_SIM_DECLARE)
BILLOW_NVML_OPTIONAL(BILLOW_SIM_DECLARE)
BILLOW_NVML_SIMULATED(BILLOW_SIM_DECLARE)
#undef BILLOW_SIM_DECLARE
extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(
    billow::nvml::Return code);
