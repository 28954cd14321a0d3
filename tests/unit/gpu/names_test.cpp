// Names, specifications, what a job sees, the host, and the forms the inventory is shown in.
#include "fixture.h"

#include <algorithm>

#include "gpu/describe.h"
#include "gpu/host.h"
#include "gpu/sim/spec.h"
#include "gpu/topology.h"
#include "gpu/types.h"

namespace billow {
namespace {

TEST(GpuTypes, NamesOfRealCards) {
  EXPECT_EQ(normalise_gpu_type("NVIDIA H100 80GB HBM3", 81559), "H100");
  EXPECT_EQ(normalise_gpu_type("NVIDIA H100 PCIe", 81559), "H100-PCIe");
  EXPECT_EQ(normalise_gpu_type("NVIDIA H100 NVL", 95830), "H100-NVL");
  EXPECT_EQ(normalise_gpu_type("NVIDIA H200", 143771), "H200");
  EXPECT_EQ(normalise_gpu_type("NVIDIA A100-SXM4-40GB", 40960), "A100-40");
  EXPECT_EQ(normalise_gpu_type("A100-SXM4-80GB", 81920), "A100-80");
  EXPECT_EQ(normalise_gpu_type("NVIDIA A100 80GB PCIe", 81920), "A100-80-PCIe");
  EXPECT_EQ(normalise_gpu_type("Tesla V100-SXM2-32GB", 32768), "V100-32");
  EXPECT_EQ(normalise_gpu_type("Tesla T4", 15360), "T4");
  EXPECT_EQ(normalise_gpu_type("NVIDIA L40S", 46068), "L40S");
  EXPECT_EQ(normalise_gpu_type("AMD Instinct MI300X OAM", 196592), "MI300X");
  EXPECT_EQ(normalise_gpu_type("NVIDIA GeForce RTX 4090", 24564), "RTX-4090");
  EXPECT_EQ(normalise_gpu_type("", 0), "GPU");
}

TEST(GpuTypes, EveryTypeOfTheTableIsReadBackFromItsModel) {
  for (const GpuTypeFacts& facts : gpu_types())
    EXPECT_EQ(normalise_gpu_type(facts.model, facts.memory_mib), facts.type) << facts.model;
}

TEST(SimSpec, ParsesTheCompactForm) {
  EXPECT_EQ(parse_sim_spec("8xH100")->gpus.size(), 8u);
  EXPECT_EQ(parse_sim_spec("L4")->gpus.size(), 1u);
  EXPECT_EQ(parse_sim_spec(" 2xa100-40 , 4xl4 ")->gpus.size(), 6u);
  EXPECT_STREQ(parse_sim_spec("2xA100")->gpus[0].facts->type, "A100-40");
  const auto mig = parse_sim_spec("1xH100+mig=1g.10gb+me/3g.40gb");
  ASSERT_FALSE(mig);  // the plus of "+me" can only end the list
  const auto spec = parse_sim_spec("2xH100+mig=3g.40gb/1g.10gb+me+mem=70000,driver=550.1");
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->gpus[1].mig_instances, (std::vector<std::string>{"3g.40gb", "1g.10gb+me"}));
  const auto again = parse_sim_spec(sim_spec_text(*spec));
  ASSERT_TRUE(again);
  EXPECT_EQ(sim_spec_text(*again), sim_spec_text(*spec));
  EXPECT_EQ(again->gpus[0].memory_mib, 70000);
  EXPECT_EQ(again->driver_version, "550.1");
}

TEST(SimSpec, UnknownTypeListsTheKnownOnesAndTheNearest) {
  const auto foo = parse_sim_spec("9xFOO");
  ASSERT_FALSE(foo);
  EXPECT_EQ(foo.error().code, Code::invalid);
  EXPECT_NE(foo.error().message.find("FOO"), std::string::npos);
  EXPECT_NE(foo.error().message.find("H100"), std::string::npos);
  EXPECT_NE(foo.error().message.find("MI300X"), std::string::npos);
  EXPECT_FALSE(foo.error().hint.empty());
  EXPECT_EQ(parse_sim_spec("8xH10").error().hint, "did you mean H100?");
  // The same error comes out of the backend, before any library is looked for.
  GpuBackendOptions options;
  options.sim = "9xFOO";
  options.library = "/nonexistent.so";
  EXPECT_EQ(GpuBackend::open(options).error(), foo.error());
}

TEST(SimSpec, NonsenseIsRefused) {
  for (const char* text : {"", ",", "0xH100", "129xH100", "8x", "x", "H100,", "8xH100+turbo",
                           "8xH100+mem=lots", "4xL4+mig", "1xH100+mig=9g.1gb", "4xH100,4xMI300X",
                           "/nonexistent.json", "99999999999999999999xL4"}) {
    const auto spec = parse_sim_spec(text);
    ASSERT_FALSE(spec) << text;
    EXPECT_FALSE(spec.error().message.empty()) << text;
  }
  const TempDir dir;
  for (const char* text : {"{", "[]", "{\"gpus\": 3}", "{\"gpus\": [{\"type\": \"FOO\"}]}",
                           "{\"gpus\": [{\"type\": \"H100\", \"count\": -1}]}"}) {
    ASSERT_TRUE(write_file_atomic(dir.path() + "/spec.json", text));
    EXPECT_FALSE(parse_sim_spec(dir.path() + "/spec.json")) << text;
  }
}

TEST(SimSpec, InstancesThatDoNotFitTogetherAreRefused) {
  GpuBackendOptions options;
  options.sim = "1xH100+mig=4g.40gb/7g.80gb";
  const auto backend = GpuBackend::open(options);
  ASSERT_FALSE(backend);
  EXPECT_EQ(backend.error().code, Code::invalid);
  EXPECT_NE(backend.error().message.find("7g.80gb"), std::string::npos);
}

TEST(Visibility, NvidiaJobSeesItsOwnCards) {
  const auto gpus = open_sim("8xH100")->inventory()->gpus;
  const std::vector<GpuInfo> mine = {gpus[1], gpus[6]};
  const Visibility v = visibility({mine, {}});
  EXPECT_EQ(v.env.at("CUDA_VISIBLE_DEVICES"), gpus[1].uuid + "," + gpus[6].uuid);
  EXPECT_EQ(v.env.at("ROCR_VISIBLE_DEVICES"), "-1");
  const auto has = [&](const char* file) {
    return std::ranges::find(v.device_files, file) != v.device_files.end();
  };
  EXPECT_TRUE(has("/dev/nvidia1") && has("/dev/nvidia6") && has("/dev/nvidiactl") &&
              has("/dev/nvidia-uvm"));
  EXPECT_FALSE(has("/dev/nvidia0") || has("/dev/kfd"));
}

TEST(Visibility, AmdJobIsCountedWithinWhatItSees) {
  const auto gpus = open_sim("8xMI300X")->inventory()->gpus;
  const std::vector<GpuInfo> mine = {gpus[3], gpus[4]};
  const Visibility v = visibility({mine, {}});
  EXPECT_EQ(v.env.at("ROCR_VISIBLE_DEVICES"), gpus[3].uuid + "," + gpus[4].uuid);
  EXPECT_EQ(v.env.at("HIP_VISIBLE_DEVICES"), "0,1");
  EXPECT_EQ(v.env.at("CUDA_VISIBLE_DEVICES"), "-1");
  const auto has = [&](const char* file) {
    return std::ranges::find(v.device_files, file) != v.device_files.end();
  };
  EXPECT_TRUE(has("/dev/kfd") && has("/dev/dri/renderD131") && has("/dev/dri/card4"));
}

TEST(Visibility, MigJobSeesItsInstanceAndOthersSeeNothing) {
  const auto gpus = open_sim("1xH100+mig=1g.10gb")->inventory()->gpus;
  const std::string uuid = gpus[0].mig.instances[0].uuid;
  EXPECT_EQ(visibility({gpus, {uuid}}).env.at("CUDA_VISIBLE_DEVICES"), uuid);
  const Visibility none = visibility({});
  EXPECT_EQ(none.env.at("CUDA_VISIBLE_DEVICES"), "-1");
  EXPECT_EQ(none.env.at("NVIDIA_VISIBLE_DEVICES"), "void");
  EXPECT_EQ(none.env.at("HIP_VISIBLE_DEVICES"), "-1");
  EXPECT_TRUE(none.device_files.empty());
  EXPECT_FALSE(none.hidden_patterns.empty());
}

TEST(Describe, OfferHasTypesAndLinkDomains) {
  const auto inventory = *open_sim("2xH100,1xL4")->inventory();
  const auto offer = node_gpus(inventory);
  EXPECT_EQ(offer[0].nvlink_domain, 0);
  EXPECT_EQ(offer[1].nvlink_domain, 0);
  EXPECT_EQ(offer[2].nvlink_domain, -1);
  EXPECT_EQ(offer[2].type, "L4");
  EXPECT_TRUE(offer[2].unhealthy.empty());
}

TEST(Describe, DoctorSaysWhatIsWrongAndWhatIsThere) {
  GpuBackendOptions missing;
  missing.library = "/nonexistent.so";
  const auto bad = diagnose_gpus(missing);
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_FALSE(bad[0].ok);
  EXPECT_FALSE(bad[0].hint.empty());
  const TempDir state;
  ASSERT_TRUE(inject_sim_fault(state.path(), "lost 1"));
  GpuBackendOptions sim;
  sim.sim = "2xL4";
  sim.sim_state_dir = state.path();
  const auto findings = diagnose_gpus(sim);
  ASSERT_GE(findings.size(), 2u);
  EXPECT_TRUE(findings[0].ok);
  EXPECT_FALSE(findings[1].ok);
  EXPECT_NE(findings[1].text.find("GPU 1 is lost"), std::string::npos);
}

TEST(Host, ThisMachine) {
  const auto host = read_host();
  ASSERT_TRUE(host) << host.error().message;
  EXPECT_GE(host->cpus, 1);
  EXPECT_GE(host->cpus_usable, 1);
  EXPECT_LE(host->cpus_usable, host->cpus);
  EXPECT_GT(host->memory_mib, 0);
  EXPECT_LE(host->memory_usable_mib, host->memory_mib);
  EXPECT_FALSE(host->hostname.empty());
  EXPECT_FALSE(host->arch.empty());
  EXPECT_EQ(host->boot_id.size(), 36u);
  const auto load = read_host_load();
  ASSERT_TRUE(load);
  EXPECT_LE(load->memory_available_mib, host->memory_mib);
}

TEST(Host, TwoSocketsInsideALimitedContainer) {
  const TempDir root;
  const auto put = [&](const std::string& path, const std::string& text) {
    ASSERT_TRUE(make_directories(root.path() + path.substr(0, path.rfind('/'))));
    ASSERT_TRUE(write_file_atomic(root.path() + path, text));
  };
  put("/sys/devices/system/cpu/online", "0-63\n");
  put("/sys/devices/system/node/node0/cpulist", "0-15,32-47\n");
  put("/sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:       131072000 kB\n");
  put("/sys/devices/system/node/node1/cpulist", "16-31,48-63\n");
  put("/proc/meminfo", "MemTotal:       262144000 kB\nMemFree: 5 kB\nMemAvailable:   1024000 kB\n");
  put("/proc/cpuinfo", "processor : 0\nmodel name\t: A Fast One @ 3GHz\n");
  put("/proc/self/cgroup", "0::/a/b\n");
  put("/sys/fs/cgroup/a/cpu.max", "850000 100000\n");
  put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  put("/sys/fs/cgroup/a/b/memory.max", "1073741824\n");
  put("/etc/os-release", "NAME=x\nPRETTY_NAME=\"Some Linux 1\"\n");
  const auto host = read_host(root.path());
  ASSERT_TRUE(host) << host.error().message;
  EXPECT_EQ(host->cpus, 64);
  EXPECT_EQ(host->cpus_usable, 9);
  EXPECT_EQ(host->memory_mib, 256000);
  EXPECT_EQ(host->memory_usable_mib, 1024);
  ASSERT_EQ(host->numa.size(), 2u);
  EXPECT_EQ(host->numa[0].cpu_count, 32);
  EXPECT_EQ(host->numa[0].memory_mib, 128000);
  EXPECT_EQ(host->cpu_model, "A Fast One @ 3GHz");
  EXPECT_EQ(host->os, "Some Linux 1");
  EXPECT_EQ(read_host_load(root.path())->memory_available_mib, 1000);
  EXPECT_EQ(read_host(root.path() + "/nothing").error().code, Code::unsupported);
}

}  // namespace
}  // namespace billow
