// The nominal speed of the links between GPUs: NVLink by generation and number of links, PCIe by
// generation and width. Taken from the driver and the kernel; for simulated cards, from the type.
#pragma once

#include <string>

#include "gpu/device.h"

namespace billow {

struct LinkFacts {
  std::uint32_t nvlink_version = 0;   // 0: no NVLink, or not known
  std::uint32_t pcie_generation = 0;  // 0: not known
  std::uint32_t pcie_width = 0;
};
// `sys`: /sys, or a copy for tests.
LinkFacts link_facts(const GpuInfo& gpu, const std::string& sys = "/sys");

// One direction, in MB/s. 0: not known.
std::int64_t nvlink_mb_s(std::uint32_t version, std::uint32_t links);
std::int64_t pcie_mb_s(std::uint32_t generation, std::uint32_t width);
// From one card to another of the same node.
std::int64_t expected_mb_s(const GpuInfo& from, const GpuInfo& to, const std::string& sys = "/sys");
// Between a card and the host.
std::int64_t expected_host_mb_s(const GpuInfo& gpu, const std::string& sys = "/sys");
// "nvlink4", "xgmi", "pcie5": the link of this card to others.
std::string link_name(const GpuInfo& gpu, const std::string& sys = "/sys");

}  // namespace billow
