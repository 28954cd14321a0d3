#include "gpu/nvml_library.h"

#include <dlfcn.h>

#include <fmt/format.h>

#include "base/text.h"

namespace billow {
namespace {

constexpr const char* no_driver_hint =
    "install the NVIDIA driver (its library package brings libnvidia-ml.so.1), set BILLOW_NVML to "
    "the library's path, "
    "or use simulated GPUs: --sim 8xH100";

std::unexpected<Error> init_failed(const NvmlLibrary& library, nvml::Return code) {
  const std::string what =
      fmt::format("{}: NVML did not start: {}", library.path(), library.error_text(code));
  switch (code) {
    case nvml::error_driver_not_loaded:
      return fail(
          Code::unsupported, what,
          "load the kernel module (modprobe nvidia) or start nvidia-persistenced, then try again");
    case nvml::error_version_mismatch_driver:
      return fail(Code::unsupported, what,
                  "the driver was upgraded under a loaded module: reboot, or unload and load the "
                  "nvidia modules");
    case nvml::error_no_permission:
      return fail(Code::forbidden, what,
                  "this user may not open /dev/nvidiactl: add it to the group that owns it");
    default:
      return fail(Code::unsupported, what,
                  "run nvidia-smi: it meets the same error and often says more");
  }
}

}  // namespace

Result<std::unique_ptr<NvmlLibrary>> NvmlLibrary::load(const Options& options) {
  std::unique_ptr<NvmlLibrary> library(new NvmlLibrary);
  library->path_ = options.path;
  library->handle_ = dlopen(options.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library->handle_) {
    const char* why = dlerror();
    return fail(Code::unsupported, fmt::format("no NVML: {}", why ? why : options.path),
                no_driver_hint);
  }
  BILLOW_TRY_VOID(library->resolve());
  const NvmlFunctions& call = library->functions_;
  if (library->simulated()) {
    const bool given = !options.sim.empty() || !options.sim_state_dir.empty();
    if (given) {
      const nvml::Return code =
          call.billowSimConfigure(options.sim.c_str(), options.sim_state_dir.c_str());
      if (code != nvml::success) {
        return fail(code == nvml::error_in_use ? Code::conflict : Code::invalid,
                    fmt::format("simulated GPUs: {}", library->error_text(code)));
      }
    }
  } else if (!options.sim.empty()) {
    return fail(Code::invalid,
                fmt::format("{} is not the simulated library, so --sim {} cannot be used with it",
                            options.path, options.sim),
                "unset BILLOW_NVML, or leave out --sim");
  }
  if (const nvml::Return code = call.nvmlInit_v2(); code != nvml::success) {
    if (library->simulated())
      return fail(Code::invalid, fmt::format("simulated GPUs: {}", library->error_text(code)));
    return init_failed(*library, code);
  }
  library->initialised_ = true;
  return library;
}

NvmlLibrary::~NvmlLibrary() {
  if (initialised_)
    functions_.nvmlShutdown();
  // The handle stays open: NVML keeps threads and thread-local state that do not survive unmapping.
}

Status NvmlLibrary::resolve() {
  std::vector<std::string> lacking;
  const auto find = [&]<class F>(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(handle_, name));
    return function != nullptr;
  };
#define BILLOW_FIND_REQUIRED(name, parameters) \
  if (!find(functions_.name, #name))           \
    lacking.emplace_back(#name);
#define BILLOW_FIND_OPTIONAL(name, parameters) \
  if (!find(functions_.name, #name))           \
    missing_.emplace_back(#name);
#define BILLOW_FIND_SIMULATED(name, parameters) find(functions_.name, #name);
  BILLOW_NVML_REQUIRED(BILLOW_FIND_REQUIRED)
  BILLOW_NVML_OPTIONAL(BILLOW_FIND_OPTIONAL)
  BILLOW_NVML_SIMULATED(BILLOW_FIND_SIMULATED)
#undef BILLOW_FIND_REQUIRED
#undef BILLOW_FIND_OPTIONAL
#undef BILLOW_FIND_SIMULATED
  find(functions_.nvmlErrorString, "nvmlErrorString");
  if (lacking.empty())
    return {};
  return fail(
      Code::unsupported,
      fmt::format("{} is not a usable NVML library; missing: {}", path_, join(lacking, ", ")),
      "BILLOW_NVML must name libnvidia-ml.so.1 of driver 450 or later, or Billow's simulated "
      "library");
}

std::string NvmlLibrary::error_text(nvml::Return code) const {
  if (simulated() && functions_.billowSimLastError) {
    char text[1024] = {};
    if (functions_.billowSimLastError(text, sizeof text) == nvml::success && text[0])
      return text;
  }
  const char* text = functions_.nvmlErrorString ? functions_.nvmlErrorString(code) : nullptr;
  return fmt::format("{} (NVML error {})", text ? text : "no description", code);
}

std::vector<std::string> NvmlLibrary::missing_features() const {
  struct Feature {
    bool present;
    const char* sentence;
  };
  const NvmlFunctions& f = functions_;
  const Feature features[] = {
      {f.nvmlGpmQueryDeviceSupport && f.nvmlGpmSampleAlloc && f.nvmlGpmSampleGet &&
           f.nvmlGpmMetricsGet,
       "no GPM functions (driver 520 or later has them): SM and DRAM activity are unknown, "
       "idleness rests on utilisation and power"},
      {f.nvmlDeviceGetUtilizationRates != nullptr, "no utilisation: idleness rests on power alone"},
      {f.nvmlDeviceGetPowerUsage != nullptr,
       "no power readings: a hung job cannot be told from a busy one"},
      {f.nvmlDeviceGetTotalEnergyConsumption != nullptr,
       "no energy counter: energy is summed up from power samples"},
      {f.nvmlDeviceGetComputeRunningProcesses_v3 || f.nvmlDeviceGetComputeRunningProcesses_v2 ||
           f.nvmlDeviceGetComputeRunningProcesses,
       "no process lists: memory held outside of Billow's jobs is not seen"},
      {f.nvmlDeviceGetProcessUtilization != nullptr, "no utilisation by process"},
      {f.nvmlEventSetWait_v2 && f.nvmlDeviceRegisterEvents && f.nvmlEventSetCreate,
       "no events: XID errors are only seen once calls fail"},
      {f.nvmlDeviceGetMigMode && f.nvmlDeviceGetGpuInstancePossiblePlacements_v2,
       "no MIG functions (driver 450 or later has them)"},
      {f.nvmlDeviceGetNvLinkState && f.nvmlDeviceGetTopologyCommonAncestor,
       "no topology: multi-GPU jobs are placed by index"},
  };
  std::vector<std::string> sentences;
  for (const Feature& feature : features)
    if (!feature.present)
      sentences.emplace_back(feature.sentence);
  return sentences;
}

}  // namespace billow
