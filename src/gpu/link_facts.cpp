#include "gpu/link_facts.h"

#include <fmt/format.h>

#include <array>

#include "base/file.h"
#include "base/text.h"

namespace billow {
namespace {

// By compute capability, reported by the driver: each architecture introduced one generation of
// both.
struct Architecture {
  const char* capability;  // the beginning of it
  std::uint32_t nvlink, pcie;
};
constexpr std::array<Architecture, 9> architectures = {{{"6.0", 1, 3},
                                                        {"7.0", 2, 3},
                                                        {"7.5", 2, 3},
                                                        {"8.0", 3, 4},
                                                        {"8.6", 3, 4},
                                                        {"8.9", 0, 4},
                                                        {"9.0", 4, 5},
                                                        {"10.", 5, 5},
                                                        {"12.", 0, 5}}};

const Architecture* architecture(const GpuInfo& gpu) {
  for (const Architecture& a : architectures)
    if (gpu.compute_capability.starts_with(a.capability))
      return &a;
  return nullptr;
}

// "00000000:1B:00.0" as the kernel writes it: "0000:1b:00.0".
std::string kernel_name(const std::string& bus_id) {
  const auto colon = bus_id.find(':');
  if (colon == std::string::npos || colon < 4)
    return "";
  return lower(bus_id.substr(colon - 4));
}

// "32.0 GT/s PCIe" → 5.
std::uint32_t generation_of(std::string_view speed) {
  constexpr std::array<std::string_view, 6> names = {"2.5", "5.0", "8.0", "16.0", "32.0", "64.0"};
  for (std::size_t i = 0; i < names.size(); ++i)
    if (speed.starts_with(names[i]))
      return static_cast<std::uint32_t>(i) + 1;
  return 0;
}

}  // namespace

LinkFacts link_facts(const GpuInfo& gpu, const std::string& sys) {
  LinkFacts facts;
  const Architecture* known = gpu.vendor == Vendor::nvidia ? architecture(gpu) : nullptr;
  if (known && gpu.fabric_links > 0)
    facts.nvlink_version = known->nvlink;
  const std::string slot = gpu.simulated ? "" : kernel_name(gpu.pci_bus_id);
  if (!slot.empty()) {
    // The slot's maximum: an idle card lowers its link speed and raises it under load.
    const std::string path = sys + "/bus/pci/devices/" + slot;
    const auto speed = read_file(path + "/max_link_speed", 64),
               width = read_file(path + "/max_link_width", 64);
    if (speed)
      facts.pcie_generation = generation_of(*speed);
    if (width)
      facts.pcie_width = static_cast<std::uint32_t>(parse_int(trim(*width), 1, 32).value_or(0));
  }
  if (facts.pcie_generation == 0 && known)
    facts.pcie_generation = known->pcie;
  if (facts.pcie_width == 0 && facts.pcie_generation > 0)
    facts.pcie_width = 16;
  return facts;
}

// Per link: 20 GB/s in the first generation, 25 in the second to fourth, 50 in the fifth. (NVIDIA's
// data sheets add both directions: 300 GB/s for a V100 with six links, 600 for an A100 with twelve,
// 900 for an H100 and 1800 for a B200 with eighteen.)
std::int64_t nvlink_mb_s(std::uint32_t version, std::uint32_t links) {
  if (version == 0 || links == 0)
    return 0;
  return std::int64_t{links} * (version == 1 ? 20'000 : version <= 4 ? 25'000 : 50'000);
}

// After encoding: a lane of the third generation carries 985 MB/s, and each generation doubles
// that.
std::int64_t pcie_mb_s(std::uint32_t generation, std::uint32_t width) {
  constexpr std::array<std::int64_t, 7> lane = {0, 250, 500, 985, 1969, 3938, 7563};
  return lane[std::min<std::uint32_t>(generation, 6)] * width;
}

std::int64_t expected_mb_s(const GpuInfo& from, const GpuInfo& to, const std::string& sys) {
  for (const GpuPeer& peer : from.peers)
    if (peer.index == to.index && peer.level == LinkLevel::fabric && peer.links > 0)
      return nvlink_mb_s(link_facts(from, sys).nvlink_version, peer.links);
  return std::min(expected_host_mb_s(from, sys), expected_host_mb_s(to, sys));
}

std::int64_t expected_host_mb_s(const GpuInfo& gpu, const std::string& sys) {
  if (gpu.simulated)
    return 0;  // there is no bus
  const LinkFacts facts = link_facts(gpu, sys);
  return pcie_mb_s(facts.pcie_generation, facts.pcie_width);
}

std::string link_name(const GpuInfo& gpu, const std::string& sys) {
  const LinkFacts facts = link_facts(gpu, sys);
  if (gpu.fabric_links > 0)
    return gpu.vendor == Vendor::amd  ? "xgmi"
           : facts.nvlink_version > 0 ? fmt::format("nvlink{}", facts.nvlink_version)
                                      : "nvlink";
  return facts.pcie_generation > 0 ? fmt::format("pcie{}", facts.pcie_generation) : "pcie";
}

}  // namespace billow
