// From a list of GPUs to what placement needs: who is near whom, and what a job must see to use
// exactly its own.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "gpu/device.h"

namespace billow {

GpuTopology make_topology(const std::vector<GpuInfo>& gpus);

// The device files of one card: {"/dev/nvidia3"}, or {"/dev/dri/renderD131", "/dev/dri/card3"}.
std::vector<std::string> gpu_device_files(Vendor vendor, std::uint32_t minor);

// What a job may see. `gpus` are its cards; `mig_uuids`, where not empty, are its MIG instances on
// them instead.
struct VisibilityRequest {
  std::span<const GpuInfo> gpus;
  std::vector<std::string> mig_uuids;
};
struct Visibility {
  std::map<std::string, std::string>
      env;  // to set; every vendor's variable is set, so nothing leaks through another's
  std::vector<std::string> device_files;  // to show in the job's /dev, where they exist
  std::vector<std::string>
      hidden_patterns;  // every GPU file there may be, as glob patterns: hide these first
};
// An empty request hides all GPUs.
Visibility visibility(const VisibilityRequest& request);

}  // namespace billow
