// What the backend says there is, through the simulated library and through an old one.
#include "fixture.h"

#include <set>

#include "gpu/topology.h"

namespace billow {
namespace {

TEST(GpuInventory, HgxNodeIsEightSwitchedCards) {
  const auto backend = open_sim("8xH100");
  const auto inventory = backend->inventory();
  ASSERT_TRUE(inventory);
  ASSERT_EQ(inventory->gpus.size(), 8u);
  EXPECT_TRUE(inventory->simulated);
  std::set<std::string> uuids, buses;
  for (const GpuInfo& gpu : inventory->gpus) {
    EXPECT_EQ(gpu.vendor, Vendor::nvidia);
    EXPECT_EQ(gpu.model, "NVIDIA H100 80GB HBM3");
    EXPECT_EQ(gpu.type, "H100");
    EXPECT_EQ(gpu.memory_mib, 81559);
    EXPECT_EQ(gpu.fabric_links, 18u);
    EXPECT_TRUE(gpu.fabric_switched);
    EXPECT_EQ(gpu.compute_capability, "9.0");
    EXPECT_EQ(gpu.runtime_version, "13.0");
    EXPECT_EQ(gpu.power_limit_mw, 700'000);
    EXPECT_TRUE(gpu.mig.capable);
    EXPECT_FALSE(gpu.mig.enabled);
    EXPECT_EQ(gpu.health, GpuHealth::ok);
    EXPECT_EQ(gpu.numa_node, gpu.index < 4 ? 0 : 1);
    ASSERT_EQ(gpu.peers.size(), 7u);
    for (const GpuPeer& peer : gpu.peers) {
      EXPECT_EQ(peer.level, LinkLevel::fabric);
      EXPECT_EQ(peer.links, 18u);
    }
    EXPECT_EQ(gpu.device_files,
              std::vector<std::string>{"/dev/nvidia" + std::to_string(gpu.index)});
    uuids.insert(gpu.uuid);
    buses.insert(gpu.pci_bus_id);
  }
  EXPECT_EQ(uuids.size(), 8u);
  EXPECT_EQ(buses.size(), 8u);
  EXPECT_EQ(inventory->topology.between(0, 7), LinkLevel::fabric);
  EXPECT_EQ(inventory->topology.between(3, 3), LinkLevel::self);
  EXPECT_EQ(inventory->topology.fabric_domains, std::vector<std::uint32_t>(8, 0));
}

TEST(GpuInventory, MixedNodeKeepsItsOrderAndItsTypesApart) {
  const auto backend = open_sim("2xA100-40,4xL4");
  const auto inventory = backend->inventory();
  ASSERT_TRUE(inventory);
  ASSERT_EQ(inventory->gpus.size(), 6u);
  EXPECT_EQ(inventory->gpus[0].type, "A100-40");
  EXPECT_EQ(inventory->gpus[2].type, "L4");
  EXPECT_EQ(inventory->topology.between(0, 1), LinkLevel::fabric);
  EXPECT_NE(inventory->topology.between(0, 2), LinkLevel::fabric);
  EXPECT_EQ(inventory->topology.between(2, 5), LinkLevel::system);  // other socket
  EXPECT_EQ(inventory->topology.between(4, 5), LinkLevel::pcie_switch);
  EXPECT_EQ(inventory->topology.fabric_domains, (std::vector<std::uint32_t>{0, 0, 2, 3, 4, 5}));
  EXPECT_FALSE(inventory->gpus[2].missing.empty());  // an L4 has no GPM, and says so
}

TEST(GpuInventory, EightV100AreTwoSquaresJoinedAtTheirCorners) {
  const auto backend = open_sim("8xV100-16");
  const auto inventory = backend->inventory();
  ASSERT_TRUE(inventory);
  EXPECT_EQ(inventory->topology.between(0, 3), LinkLevel::fabric);
  EXPECT_EQ(inventory->topology.between(0, 4), LinkLevel::fabric);
  EXPECT_EQ(inventory->topology.between(0, 5), LinkLevel::system);
  EXPECT_EQ(inventory->gpus[0].fabric_links, 6u);
  std::uint32_t links = 0;
  for (const GpuPeer& peer : inventory->gpus[0].peers)
    links += peer.links;
  EXPECT_EQ(links, 6u);
  EXPECT_EQ(inventory->topology.fabric_domains, std::vector<std::uint32_t>(8, 0));
}

TEST(GpuInventory, IdentitiesAreStablePerStateDirectoryAndDifferBetweenThem) {
  const TempDir a, b;
  const auto uuid = [](const std::string& state) {
    return open_sim("1xL4", state)->inventory()->gpus[0].uuid;
  };
  const std::string first = uuid(a.path());
  EXPECT_EQ(first, uuid(a.path()));
  EXPECT_NE(first, uuid(b.path()));
}

TEST(GpuInventory, PosesAsAnAmdInstinctNode) {
  const auto backend = open_sim("8xMI300X");
  const auto inventory = backend->inventory();
  ASSERT_TRUE(inventory);
  const GpuInfo& gpu = inventory->gpus[5];
  EXPECT_EQ(gpu.vendor, Vendor::amd);
  EXPECT_EQ(gpu.type, "MI300X");
  EXPECT_EQ(gpu.model, "AMD Instinct MI300X");
  EXPECT_EQ(gpu.compute_capability, "gfx942");
  EXPECT_EQ(gpu.memory_mib, 196592);
  EXPECT_FALSE(gpu.mig.capable);
  EXPECT_FALSE(gpu.fabric_switched);
  EXPECT_EQ(gpu.device_files.front(), "/dev/dri/renderD133");
  ASSERT_EQ(gpu.peers.size(), 7u);
  for (const GpuPeer& peer : gpu.peers)
    EXPECT_EQ(peer.links, 1u);
  EXPECT_EQ(backend->mig_profiles(5).error().code, Code::unsupported);
  const auto sample = backend->sample(5);
  ASSERT_TRUE(sample);
  EXPECT_FALSE(sample->sm_active_pct);
  EXPECT_EQ(sample->util_pct, 0);
}

TEST(GpuInventory, JsonFileSaysTheSameAtLength) {
  const TempDir dir;
  const std::string path = dir.path() + "/node.json";
  ASSERT_TRUE(write_file_atomic(path, R"({"driver": "555.42", "runtime": "12.5", "gpus": [
    {"type": "H200", "count": 2, "mig": ["3g.71gb", "1g.18gb"]},
    {"type": "L4", "memory_mib": 12000}]})"));
  const auto inventory = open_sim(path)->inventory();
  ASSERT_TRUE(inventory);
  ASSERT_EQ(inventory->gpus.size(), 3u);
  EXPECT_EQ(inventory->gpus[0].driver_version, "555.42");
  EXPECT_EQ(inventory->gpus[0].runtime_version, "12.5");
  EXPECT_EQ(inventory->gpus[0].mig.instances.size(), 2u);
  EXPECT_EQ(inventory->gpus[2].memory_mib, 12000);
}

TEST(GpuBackend, MissingLibrarySaysWhatToDo) {
  GpuBackendOptions options;
  options.library = "/nonexistent/libnvidia-ml.so.1";
  const auto backend = GpuBackend::open(options);
  ASSERT_FALSE(backend);
  EXPECT_EQ(backend.error().code, Code::unsupported);
  EXPECT_NE(backend.error().message.find("/nonexistent/libnvidia-ml.so.1"), std::string::npos);
  EXPECT_NE(backend.error().hint.find("--sim"), std::string::npos);
}

TEST(GpuBackend, SomeOtherLibraryIsRefusedByName) {
  GpuBackendOptions options;
  options.library = "libm.so.6";
  const auto backend = GpuBackend::open(options);
  ASSERT_FALSE(backend);
  EXPECT_EQ(backend.error().code, Code::unsupported);
  EXPECT_NE(backend.error().message.find("nvmlInit_v2"), std::string::npos);
}

TEST(GpuBackend, OldDriverDegradesAndSaysSo) {
  GpuBackendOptions options;
  options.library = executable_dir() + "/../../../lib/libbillow-test-old-nvml.so";
  const auto backend = GpuBackend::open(options);
  ASSERT_TRUE(backend) << backend.error().message;
  const auto missing = (*backend)->missing_features();
  ASSERT_FALSE(missing.empty());
  EXPECT_NE(missing.front().find("GPM"), std::string::npos);
  const auto inventory = (*backend)->inventory();
  ASSERT_TRUE(inventory);
  EXPECT_EQ(inventory->gpus[0].type, "K80");
  EXPECT_FALSE(inventory->simulated);
  const auto sample = (*backend)->sample(0);
  ASSERT_TRUE(sample);
  EXPECT_EQ(sample->mem_used_mib, 100);
  EXPECT_FALSE(sample->util_pct);  // unknown is not zero
  EXPECT_FALSE(sample->power_mw);
  EXPECT_FALSE(sample->sm_active_pct);
  ASSERT_EQ(sample->processes.size(), 1u);
  EXPECT_EQ(sample->processes[0].pid, 4242);
  EXPECT_EQ(sample->processes[0].mem_mib, 100);
  EXPECT_EQ((*backend)->mig_profiles(0).error().code, Code::unsupported);
  EXPECT_TRUE((*backend)->poll_events(milliseconds(1))->empty());
}

TEST(GpuBackend, RealLibraryCannotBeGivenASimulation) {
  GpuBackendOptions options;
  options.library = executable_dir() + "/../../../lib/libbillow-test-old-nvml.so";
  options.sim = "8xH100";
  const auto backend = GpuBackend::open(options);
  ASSERT_FALSE(backend);
  EXPECT_EQ(backend.error().code, Code::invalid);
}

TEST(GpuBackend, OneProcessSimulatesOneNodeAtATime) {
  const auto first = open_sim("8xH100");
  GpuBackendOptions other;
  other.sim = "4xL4";
  const auto second = GpuBackend::open(other);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::conflict);
  EXPECT_TRUE(open_sim("8xH100"));  // the same again is fine
}

TEST(GpuBackend, AnIndexBeyondTheLastIsNotFound) {
  const auto backend = open_sim("1xL4");
  EXPECT_EQ(backend->sample(1).error().code, Code::not_found);
  EXPECT_EQ(backend->processes(99).error().code, Code::not_found);
}

}  // namespace
}  // namespace billow
