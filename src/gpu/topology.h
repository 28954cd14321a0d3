// Derives what placement needs from a list of GPUs: which are close to each other, and what a job
// must see to use exactly its own.
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

// What a job may see. `gpus` are its cards; `mig_uuids`, if not empty, are its MIG instances on
// them instead.
struct VisibilityRequest {
  std::span<const GpuInfo> gpus;
  std::vector<std::string> mig_uuids;
};
struct Visibility {
  // To set; the variables of all vendors are set, so nothing leaks.
  std::map<std::string, std::string> env;
  std::vector<std::string> device_files;  // to show in the job's /dev, if they exist
  // All possible GPU files, as glob patterns: hide these first.
  std::vector<std::string> hidden_patterns;
};
// An empty request hides all GPUs.
Visibility visibility(const VisibilityRequest& request);

}  // namespace billow
