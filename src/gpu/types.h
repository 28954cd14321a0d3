// Names and plain facts of GPU types. Users, schedulers and price lists use the short names, so
// each card has exactly one, whatever its driver calls it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/device.h"

namespace billow {

enum class FabricKind { none, mesh, switched };

struct GpuTypeFacts {
  const char* type;   // "A100-40"
  const char* model;  // the name in the vendor's library
  Vendor vendor;
  std::int64_t memory_mib;  // as the driver reports it, which is less than advertised
  std::int32_t power_max_w;
  std::int32_t power_idle_w;  // typical, with a context loaded and no load
  FabricKind fabric;
  std::uint32_t fabric_links;
  std::int32_t sm_clock_mhz_max;
  const char* capability;  // "9.0", "gfx942"
  bool gpm;                // SM and DRAM activity through NVML GPM
  bool mig;
};

const std::vector<GpuTypeFacts>& gpu_types();
const GpuTypeFacts* find_gpu_type(std::string_view type);  // by short name, any case
std::vector<std::string> gpu_type_names();

// "NVIDIA A100-SXM4-40GB", 40960 → "A100-40". An unknown model becomes its name without vendor
// words: "RTX-4090".
std::string normalise_gpu_type(std::string_view model, std::int64_t memory_mib);

}  // namespace billow
