// GPUs as other container tools know them: a description by the Container Device Interface (CDI
// 0.5), made from what this machine's cards and driver are, with one device for each card. A job's
// room is built from the same description that the agent leaves in its data directory for podman or
// docker, so both see the same.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "container/plan.h"
#include "gpu/device.h"

namespace billow::container {

inline constexpr const char* cdi_kind = "billow.io/gpu";

struct DriverFiles {
  std::vector<std::string> libraries;  // names beside which their files are found:
                                       // "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
  std::vector<std::string> programs;   // "/usr/bin/nvidia-smi"
  std::vector<std::string> sockets;
  std::vector<std::string> devices;  // of no single card: "/dev/nvidiactl"
};
// Looks where drivers put their files. `root` is for tests.
DriverFiles find_driver_files(const std::string& root = "");

// Devices are named by the card's number and by its UUID; "all" is every one.
Json make_cdi(const std::vector<GpuInfo>& gpus, const DriverFiles& driver);

// What the devices of these names add to a room. not_found names one that is not described.
Status add_devices(const Json& cdi, const std::vector<std::string>& names, Plan& plan);

}  // namespace billow::container
