// Describes this node's GPUs and driver files in the format of the Container Device Interface (CDI
// 0.5), one device per card. Jobs' containers are built from the same description that the agent
// writes into its data directory for podman and docker, so both see the same devices.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "container/plan.h"
#include "gpu/device.h"

namespace billow::container {

inline constexpr const char* cdi_kind = "billow.io/gpu";

struct DriverFiles {
  std::vector<std::string> libraries;  // by soname: "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
  std::vector<std::string> programs;   // "/usr/bin/nvidia-smi"
  std::vector<std::string> sockets;
  std::vector<std::string> devices;  // those that belong to no single card: "/dev/nvidiactl"
};
// Searches the usual directories of the driver. `root` is for tests.
DriverFiles find_driver_files(const std::string& root = "");

// Devices are named by the card's index and by its UUID; "all" means every card.
Json make_cdi(const std::vector<GpuInfo>& gpus, const DriverFiles& driver);

// Adds the devices of these names to a plan. not_found: the description lacks one of them.
Status add_devices(const Json& cdi, const std::vector<std::string>& names, Plan& plan);

}  // namespace billow::container
